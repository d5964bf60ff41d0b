package lsf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf/acct"
)

// Bounds of what is read of a cluster's accounting.
const (
	maxAcctFiles = 1000
	maxAcctBytes = 4 << 30
	maxAcctLine  = 1 << 20
	maxEvents    = 1 << 30 // bytes of lsb.events
	maxFinishes  = 1_000_000
)

// history returns what lsb.acct and its archives say of jobs. A requeued run has a record of its
// own. lsb.events says more of the jobs that mbatchd still has: which user had them killed or requeued,
// and what lsb.acct lacks; either file will do. (bhist prints the same file for people, with users' texts as they
// are.) What became of a job whose last run did not end well, bjobs says, if LSF still knows it.
func (c *Client) history(ctx context.Context, q backends.PastQuery) (backends.PastJobs, error) {
	dir, err := c.logDir(ctx)
	if err != nil {
		return backends.PastJobs{}, fmt.Errorf("find LSF's accounting: %w", err)
	}
	since := q.Since
	if len(q.IDs) > 0 {
		since = time.Time{}
	}
	finishes, note, err := readBoth(ctx, dir, since, acctFilter(&q))
	if err != nil {
		return backends.PastJobs{}, fmt.Errorf("read LSF's accounting: %w", err)
	}
	found := backends.Newest(pastOf(finishes, &q), q.Most)
	found.Note = note
	c.addLive(ctx, found.Jobs)
	return found, nil
}

// readBoth reads lsb.acct and lsb.events. If one of them can't be read, the note says so; it is an
// error if neither can.
func readBoth(ctx context.Context, dir string, since time.Time, wanted func(*acct.Finish) bool) (all []acct.Finish, note string, err error) {
	finishes, acctErr := readAcct(ctx, filepath.Join(dir, "lsb.acct"), since, wanted)
	logged, eventsErr := readEvents(ctx, filepath.Join(dir, "lsb.events"), wanted)
	switch {
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case acctErr != nil && eventsErr != nil:
		return nil, "", acctErr
	case acctErr != nil:
		note = fmt.Sprintf("only jobs that mbatchd still has are shown: %v", acctErr)
	case eventsErr != nil && !errors.Is(eventsErr, fs.ErrNotExist):
		note = fmt.Sprintf("why users' commands ended runs is not shown: %v", eventsErr)
	}
	return acct.Merge(finishes, logged), note, nil
}

// readEvents returns the runs in lsb.events that have ended. Lines that are not understood are passed over.
func readEvents(ctx context.Context, path string, wanted func(*acct.Finish) bool) ([]acct.Finish, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	case info.Size() > maxEvents:
		return nil, fmt.Errorf("%s: more than %d GiB", path, maxEvents>>30)
	}
	log := acct.NewLog()
	if err := readLines(ctx, path, log.Take); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(log.Finishes(), func(f acct.Finish) bool { return !wanted(&f) }), nil
}

// logDir returns the directory of lsb.acct (IBM Spectrum LSF 10.1, configuration reference, lsb.acct).
func (c *Client) logDir(ctx context.Context) (string, error) {
	path := filepath.Join(c.surroundings().directory(), confName)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: set lsf.envdir to the directory of the cluster's %s", err, confName)
	}
	shared := parseConf(string(text))["LSB_SHAREDIR"]
	if !filepath.IsAbs(shared) {
		return "", fmt.Errorf("%s sets no LSB_SHAREDIR, below which lsb.acct is: use bacct and bhist", path)
	}
	printed, err := c.query(ctx, "lsid")
	if err != nil {
		return "", err
	}
	cluster, err := parseClusterName([]byte(printed.stdout))
	if err != nil {
		return "", err
	}
	return filepath.Join(shared, cluster, "logdir"), nil
}

// acctFilter returns what tells the records of a query's jobs, as far as they name them.
func acctFilter(q *backends.PastQuery) func(*acct.Finish) bool {
	wanted := map[backends.ID]bool{}
	for _, id := range q.IDs {
		wanted[id] = true
	}
	return func(f *acct.Finish) bool {
		return (q.User == "" || f.User == q.User) && (len(wanted) == 0 || wanted[f.ID] || wanted[backends.ID{Job: f.ID.Job}])
	}
}

// readAcct reads the file at path and its archives, path.1 being the newest, from those that were
// written after a time; the oldest one first.
func readAcct(ctx context.Context, path string, since time.Time, wanted func(*acct.Finish) bool) ([]acct.Finish, error) {
	var files []string
	size := int64(0)
	for n := range maxAcctFiles {
		name := path
		if n > 0 {
			name += "." + strconv.Itoa(n)
		}
		info, err := os.Stat(name)
		if n > 0 && (errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().Before(since)) {
			break
		}
		if err != nil {
			return nil, unreadable(err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: not a regular file", name)
		}
		if size += info.Size(); size > maxAcctBytes {
			return nil, fmt.Errorf("%s: more than %d GiB with the newer files: ask for a shorter time", name, maxAcctBytes>>30)
		}
		files = append(files, name)
	}
	var all []acct.Finish
	for _, name := range slices.Backward(files) {
		more, err := readAcctFile(ctx, name, wanted)
		if err != nil {
			return nil, err
		}
		if all = append(all, more...); len(all) > maxFinishes {
			return nil, fmt.Errorf("%s: more than %d runs: ask for a shorter time", name, maxFinishes)
		}
	}
	return all, nil
}

func unreadable(err error) error {
	return fmt.Errorf("%w: LSF's administrator can make it readable; until then use bacct and bhist", err)
}

// readAcctFile reads the records of one file.
func readAcctFile(ctx context.Context, name string, wanted func(*acct.Finish) bool) (all []acct.Finish, err error) {
	err = readLines(ctx, name, func(line string) error {
		f, err := acct.Parse(line)
		if f != nil && wanted(f) && len(all) <= maxFinishes {
			all = append(all, *f)
		}
		return err
	})
	return all, err
}

// readLines has each line of a file read. Those that are not understood, as the last one while LSF writes it,
// are passed over, unless all are.
func readLines(ctx context.Context, name string, read func(line string) error) error {
	file, err := os.Open(name)
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = file.Close() }()
	in := bufio.NewScanner(file)
	in.Buffer(nil, maxAcctLine)
	var first error
	understood := false
	for in.Scan() && ctx.Err() == nil {
		switch err := read(in.Text()); {
		case err == nil:
			understood = true
		case first == nil:
			first = err
		}
	}
	if err := errors.Join(in.Err(), context.Cause(ctx)); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !understood && first != nil {
		return fmt.Errorf("%s: no line is understood, the first one: %w", name, first)
	}
	return nil
}

// pastOf puts the runs of each job together, in the order of the file.
func pastOf(finishes []acct.Finish, q *backends.PastQuery) []backends.Past {
	type job struct {
		id        backends.ID
		submitted int64 // LSF gives numbers out again
	}
	of := map[job][]*acct.Finish{}
	var order []job
	for i := range finishes {
		f := &finishes[i]
		key := job{f.ID, f.Submitted.Unix()}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], f)
	}
	var all []backends.Past
	for _, key := range order {
		p := pastJob(of[key])
		if len(q.IDs) > 0 || !p.LastEnd().Before(q.Since) {
			if q.Wants(&p.Job) {
				all = append(all, p)
			}
		}
	}
	return all
}

func pastJob(runs []*acct.Finish) backends.Past {
	last := runs[len(runs)-1]
	j := backends.Job{
		ID: last.ID, Name: last.Name, User: last.User, Queue: last.Queue, Slots: last.Slots, Hosts: last.Hosts,
		Submitted: last.Submitted, Started: last.Started, Ended: last.Ended, State: backends.Done, Requeues: len(runs) - 1,
	}
	j.Project, j.Step = backends.SplitProject(last.Project)
	switch requeued := last.Requeued || last.Term == acct.TermRequeueOwner || last.Term == acct.TermRequeueAdmin; {
	case requeued:
		j.State, j.Ended, j.Started, j.Hosts, j.Requeues = backends.Pending, time.Time{}, time.Time{}, nil, len(runs)
	case !last.Done:
		j.State, j.ExitCode, j.Reason = backends.Exited, exitCodeOf(last), last.Why()
		if j.Reason == "" && last.Started.IsZero() {
			j.Reason = "ended before it started"
		}
	}
	record := &backends.Record{}
	for i, f := range runs {
		if f.Started.IsZero() {
			continue
		}
		run := backends.RunRecord{
			Run: i + 1, Host: hostsOf(f.Hosts), Started: f.Started, Ended: f.Ended, ExitCode: exitCodeOf(f),
			User: f.CPUUser, System: f.CPUSystem, MaxRSS: f.Memory, Why: f.Why(),
		}
		if run.Why == "" && (f.Requeued || i < len(runs)-1) {
			run.Why = backends.RequeuedOnly
		}
		record.Runs = append(record.Runs, run)
	}
	return backends.Past{Job: j, Record: record}
}

func exitCodeOf(f *acct.Finish) int {
	const killed = 128
	switch signal := f.Status & 0x7f; {
	case f.Done:
		return 0
	case signal != 0:
		return killed + signal
	}
	return f.Status >> 8 & 0xff
}

func hostsOf(list []backends.Placement) string {
	text := ""
	for i, p := range list {
		if i > 0 {
			text += " "
		}
		text += p.Host
	}
	return text
}

// addLive replaces what accounting says of a job's state by the queue's word, where the job's last
// run was requeued: lsb.acct of an older LSF does not say so. Without an answer it stays.
func (c *Client) addLive(ctx context.Context, all []backends.Past) {
	var ids []backends.ID
	at := map[backends.ID]int{}
	for i, p := range slices.Backward(all) {
		if p.Job.State != backends.Done && len(ids) < mostAtOnce {
			if _, seen := at[p.Job.ID]; !seen {
				at[p.Job.ID] = i
				ids = append(ids, p.Job.ID)
			}
		}
	}
	live, err := c.Jobs(ctx, ids)
	if err != nil {
		return
	}
	for i := range live {
		j := &live[i]
		n, asked := at[j.ID]
		if !asked || j.State.Ended() || !sameSubmission(j.Submitted, all[n].Job.Submitted) {
			continue
		}
		runs := all[n].Record.Runs
		requeues := max(len(runs), j.Requeues)
		all[n].Job = *j
		all[n].Job.Requeues = requeues
		if last := len(runs) - 1; last >= 0 && runs[last].Why == "" {
			runs[last].Why = backends.RequeuedOnly
		}
		if j.State != backends.Pending && j.State != backends.Held {
			all[n].Record.Runs = append(runs, backends.RunRecord{Run: len(runs) + 1, Host: hostsOf(j.Hosts), Started: j.Started})
		}
	}
}

// sameSubmission reports whether two times are of one submission: bjobs of LSF 10.1 prints minutes.
func sameSubmission(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }
