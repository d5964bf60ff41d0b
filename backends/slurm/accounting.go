package slurm

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Bounds of what is read of a cluster's accounting. Beyond them nothing is known of it:
// the filter says nothing of accounts, and Slurm's own reasons are all that is known of limits.
const (
	maxAccounts     = 50_000
	maxAssociations = 200_000
	maxQOS          = 10_000
	maxRecord       = 64 << 10 // bytes of one association; a QOS has some for each of its users
	maxQOSRecord    = 16 << 20
)

// accountingAge is how long what was read of the accounting is used: administrators change
// it, and few of them often.
const accountingAge = time.Minute

// unlimited is a limit that is not set.
const unlimited = -1

// accounting is what slurmctld itself keeps of slurmdbd's associations and QOS, by which it
// accepts and starts jobs, whether slurmdbd answers or not.
type accounting struct {
	accounts     map[string]*association // of all their users, by account
	associations map[member]*association // of one user
	qos          map[string]*qos
	limited      bool // a limit that is read is set somewhere
}

// member is a user in an account; partition "": in all partitions.
type member struct{ account, user, partition string }

// association has the limits of an account, or of a user in one; unlimited where none is set.
type association struct {
	parent  string // account above it
	uid     int64  // of the user
	jobs    int    // that run at a time, all below it together
	cpus    int
	ofUser  int // jobs that the user runs at a time there
	account string
}

// qos has the limits of a QOS, for what runs at a time; unlimited where none is set.
type qos struct {
	jobs, cpus                   int
	jobsOfUser, cpusOfUser       int
	jobsOfAccount, cpusOfAccount int
}

// enforces reports whether slurmctld refuses jobs without an association, and whether it
// heeds limits.
func enforces(settings map[string]string) (associations, limits bool) {
	for word := range strings.FieldsFuncSeq(absent(settings["AccountingStorageEnforce"]), func(c rune) bool { return c == ',' || c == ' ' }) {
		switch strings.ToLower(word) {
		case "associations", "wckeys":
			associations = true
		case "limits", "qos", "safe", "all":
			associations, limits = true, true
		}
	}
	return associations, limits
}

// readAccounting reads associations and QOS, or returns what was read within the last
// minute. nil: there are more than are read, or they could not be read.
func (c *Client) readAccounting(ctx context.Context) *accounting {
	c.mu.Lock()
	known, at := c.accounting, c.accountingAt
	c.mu.Unlock()
	if !at.IsZero() && time.Since(at) < accountingAge {
		return known
	}
	r := newAccountingReader()
	cmd := c.command(nil, []string{"scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"})
	cmd.Stdout = r
	_, err := command.Run(ctx, cmd)
	if err = reconcile.Classify(err, failure); err != nil {
		return known
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accounting, c.accountingAt = r.end(), time.Now()
	return c.accounting
}

// Accounts returns the numbers of the users who have an association with each account, by
// the account's name in lower case; nil: Slurm does not ask for any, or there are too many.
func (c *Client) accounts(ctx context.Context) (map[string][]int64, error) {
	c.mu.Lock()
	last := c.lastSnapshot
	c.mu.Unlock()
	if last == nil {
		last = &snapshot{}
		if err := c.readCluster(ctx, last); err != nil {
			return nil, err
		}
	}
	if !last.associations {
		return nil, nil
	}
	return c.readAccounting(ctx).users(), nil
}

func (a *accounting) users() map[string][]int64 {
	if a == nil {
		return nil
	}
	users := make(map[string][]int64, len(a.accounts))
	for account := range a.accounts {
		users[account] = nil
	}
	for _, s := range a.associations {
		users[s.account] = append(users[s.account], s.uid)
	}
	for _, list := range users {
		slices.Sort(list)
	}
	return users
}

// accountingReader reads `scontrol -o show assoc_mgr` line by line, as it comes.
type accountingReader struct {
	into   *accounting
	line   []byte
	failed bool // there is more than is read, or it was not understood
}

func newAccountingReader() *accountingReader {
	return &accountingReader{into: &accounting{accounts: map[string]*association{}, associations: map[member]*association{}, qos: map[string]*qos{}}}
}

// Write never fails: the command's output is read to its end.
func (r *accountingReader) Write(text []byte) (int, error) {
	n := len(text)
	for !r.failed {
		line, rest, complete := bytes.Cut(text, []byte{'\n'})
		if r.line = append(r.line, line...); len(r.line) > maxQOSRecord {
			r.failed = true
		}
		if !complete {
			break
		}
		r.take(string(r.line))
		r.line, text = r.line[:0], rest
	}
	return n, nil
}

// end returns what was read; nil if that is not all.
func (r *accountingReader) end() *accounting {
	if len(r.line) > 0 {
		r.take(string(r.line))
	}
	if r.failed {
		return nil
	}
	return r.into
}

func (r *accountingReader) take(line string) {
	a := r.into
	switch {
	case strings.HasPrefix(line, "ClusterName="):
		key, s, ok := parseAssociation(line)
		switch {
		case !ok || len(line) > maxRecord || len(a.accounts) >= maxAccounts || len(a.associations) >= maxAssociations:
			r.failed = true
		case key.user == "":
			a.accounts[key.account] = s
		default:
			a.associations[key] = s
		}
		if ok {
			a.limited = a.limited || s.jobs >= 0 || s.cpus >= 0 || s.ofUser >= 0
		}
	case strings.HasPrefix(line, "QOS="):
		name, q := parseQOS(line)
		if name == "" || len(a.qos) >= maxQOS {
			r.failed = true
			return
		}
		a.qos[name] = q
		a.limited = a.limited || *q != noQOS
	}
}

// parseAssociation reads one association. Administrators have written all of it; names with
// a space are not understood.
func parseAssociation(line string) (key member, s *association, ok bool) {
	s = &association{jobs: unlimited, cpus: unlimited, ofUser: unlimited}
	fields := map[string]string{}
	for field := range strings.FieldsSeq(line) {
		name, value, found := strings.Cut(field, "=")
		if _, twice := fields[name]; !found || twice {
			if name == "Account" || name == "UserName" || name == "Partition" || name == "ParentAccount" {
				return key, nil, false
			}
			continue
		}
		fields[name] = value
	}
	key = member{account: strings.ToLower(fields["Account"]), partition: fields["Partition"]}
	s.account = key.account
	s.parent, _, _ = strings.Cut(strings.ToLower(fields["ParentAccount"]), "(")
	if user := fields["UserName"]; user != "" {
		var err error
		name, digits, found := strings.Cut(user, "(")
		digits, closed := strings.CutSuffix(digits, ")")
		if s.uid, err = strconv.ParseInt(digits, 10, 64); !found || !closed || err != nil {
			return key, nil, false
		}
		key.user = name
	}
	s.jobs, s.cpus, s.ofUser = parseLimit(fields["GrpJobs"]), parseCPULimit(fields["GrpTRES"]), parseLimit(fields["MaxJobs"])
	return key, s, key.account != ""
}

// parseLimit reads the limit of 3(1), of which 1 is used; N is none.
func parseLimit(text string) int {
	digits, _, _ := strings.Cut(text, "(")
	if n, err := strconv.Atoi(digits); err == nil && n >= 0 {
		return n
	}
	return unlimited
}

// parseCPULimit reads the CPUs of cpu=6(2),mem=N(128).
func parseCPULimit(tres string) int {
	for part := range strings.SplitSeq(tres, ",") {
		if limit, ok := strings.CutPrefix(part, "cpu="); ok {
			return parseLimit(limit)
		}
	}
	return unlimited
}

var noQOS = qos{unlimited, unlimited, unlimited, unlimited, unlimited, unlimited}

// parseQOS reads one QOS. Its limits for each user and for each account are shown with
// what each of them uses; they are the same for all.
func parseQOS(line string) (name string, q *qos) {
	value := func(key string) string {
		_, after, _ := strings.Cut(line, key+"=")
		if end := strings.IndexAny(after, " }"); end >= 0 {
			after = after[:end]
		}
		return after
	}
	name, _, _ = strings.Cut(value("QOS"), "(")
	return name, &qos{
		jobs: parseLimit(value(" GrpJobs")), cpus: parseCPULimit(value(" GrpTRES")),
		jobsOfUser: parseLimit(value("MaxJobsPU")), cpusOfUser: parseCPULimit(value("MaxTRESPU")),
		jobsOfAccount: parseLimit(value("MaxJobsPA")), cpusOfAccount: parseCPULimit(value("MaxTRESPA")),
	}
}

// quota is one limit, with what of it is left.
type quota struct {
	what string // it is of
	why  string // Slurm's reason for a job that is beyond it
	cpus bool   // it counts CPUs, not jobs
}

// quotas calls each of the limits that a job counts under.
func (a *accounting) quotas(j *listedJob, each func(q quota, limit int)) {
	add := func(of, why string, cpus bool, limit int) {
		if limit >= 0 {
			each(quota{of, why, cpus}, limit)
		}
	}
	account := strings.ToLower(j.account)
	s := a.associations[member{account, j.User, j.Queue}]
	if s == nil {
		s = a.associations[member{account, j.User, ""}]
	}
	if s != nil {
		of := "user " + j.User + " of " + account
		add(of, "AssocMaxJobsLimit", false, s.ofUser)
		add(of, "AssocGrpJobsLimit", false, s.jobs)
		add(of, "AssocGrpCpuLimit", true, s.cpus)
	}
	for range 64 { // an account has no more above it
		s := a.accounts[account]
		if s == nil {
			break
		}
		add("account "+account, "AssocGrpJobsLimit", false, s.jobs)
		add("account "+account, "AssocGrpCpuLimit", true, s.cpus)
		account = s.parent
	}
	if q := a.qos[j.qos]; q != nil {
		of := "QOS " + j.qos
		add(of, "QOSGrpJobsLimit", false, q.jobs)
		add(of, "QOSGrpCpuLimit", true, q.cpus)
		add(of+", user "+j.User, "QOSMaxJobsPerUserLimit", false, q.jobsOfUser)
		add(of+", user "+j.User, "QOSMaxCpuPerUserLimit", true, q.cpusOfUser)
		add(of+", account "+j.account, "QOSMaxJobsPerAccountLimit", false, q.jobsOfAccount)
		add(of+", account "+j.account, "QOSMaxCpuPerAccountLimit", true, q.cpusOfAccount)
	}
}

// limitJobs has pending jobs wait for a limit that those which run, and those which start
// before them, use up: Slurm finds that only once slots for them are free. Jobs start by
// priority, then ID.
func (a *accounting) limitJobs(jobs []*listedJob) {
	if a == nil || !a.limited {
		return
	}
	used := map[quota]int{}
	count := func(j *listedJob, q quota) int {
		if q.cpus {
			return j.Slots
		}
		return 1
	}
	var waiting []*listedJob
	for _, j := range jobs {
		switch {
		case j.State == backends.Running || j.State == backends.Suspended:
			a.quotas(j, func(q quota, _ int) { used[q] += count(j, q) })
		case j.State == backends.Pending && j.Wait == backends.WaitResources:
			waiting = append(waiting, j)
		}
	}
	slices.SortStableFunc(waiting, func(x, y *listedJob) int {
		switch {
		case x.Priority > y.Priority:
			return -1
		case x.Priority < y.Priority:
			return 1
		}
		return x.ID.Compare(y.ID)
	})
	for _, j := range waiting {
		var beyond string
		a.quotas(j, func(q quota, limit int) {
			if beyond == "" && used[q]+count(j, q) > limit {
				beyond = fmt.Sprintf("%s (%s: at most %d at a time)", q.why, q.what, limit)
			}
		})
		if beyond != "" {
			j.Wait, j.Reason = backends.WaitOther, beyond
			continue
		}
		a.quotas(j, func(q quota, _ int) { used[q] += count(j, q) })
	}
}
