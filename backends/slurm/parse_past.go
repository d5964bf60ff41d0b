package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// pastFields are the columns of sacct that are read (man sacct, "Job Accounting Fields"); users'
// texts are the last ones.
var pastFields = []string{
	"JobID", "JobIDRaw", "State", "ExitCode", "User", "Partition", "Submit", "Start", "End", "UserCPU", "SystemCPU", "MaxRSS",
	"AllocCPUS", "ReqCPUS", "NodeList", "ReqTRES", "TimelimitRaw", "Account", "WCKey", "Comment", "JobName",
}

// maxPast bounds the lines of sacct that are read.
const maxPast = 1_000_000

// pastRow is what sacct says of one run of a job, or of its wait for one.
type pastRow struct {
	id        backends.ID
	state     string // its first word
	by        string // who cancelled it, by number
	status    int
	user      string
	queue     string
	submitted time.Time // requeued: when it came back into the queue
	run       backends.RunRecord
	slots     int
	memory    int64         // that it asked for
	limit     time.Duration // of its time; 0: none
	hosts     []string
	project   string
	name      string
}

// pastReader reads what sacct prints, as it comes.
type pastReader struct {
	lines *lines
	from  ProjectFrom
	rows  []pastRow
	read  int
	last  bool  // the last line but for steps is in rows
	err   error // the first
}

func newPastReader(nonce string, from ProjectFrom) *pastReader {
	r := &pastReader{from: from}
	r.lines = &lines{nonce: []byte(nonce), n: len(pastFields), handle: r.take}
	return r
}

// Write never fails: sacct's output is read to its end.
func (r *pastReader) Write(text []byte) (int, error) {
	if r.err == nil {
		r.err = r.lines.feed(text)
	}
	return len(text), nil
}

func (r *pastReader) end() error { return cmp.Or(r.err, r.lines.end()) }

// take takes one line. The lines of a job's steps follow its own; they have its memory.
func (r *pastReader) take(f []string) error {
	if r.read++; r.read > maxPast {
		return fmt.Errorf("more than %d lines: ask for a shorter time", maxPast)
	}
	if strings.Contains(f[0], ".") {
		memory, err := parseMemory(cmp.Or(f[11], "0"))
		if err == nil && r.last {
			run := &r.rows[len(r.rows)-1].run
			run.MaxRSS = max(run.MaxRSS, memory)
		}
		return err
	}
	r.last = !strings.Contains(f[0], "[") // the elements of an array that wait
	if !r.last {
		return nil
	}
	row, err := parsePastRow(f, r.from)
	if err != nil {
		return fmt.Errorf("job %s: %w", shown(f[0]), err)
	}
	r.rows = append(r.rows, row)
	return nil
}

func parsePastRow(f []string, from ProjectFrom) (p pastRow, err error) {
	id, element := backends.ParseElement(f[0])
	if !element {
		if id, err = backends.ParseID(f[1]); err != nil { // of a part, 82+1, the number of its own
			return p, err
		}
	}
	state, by, _ := strings.Cut(f[2], " by ")
	p = pastRow{id: id, state: strings.TrimSuffix(state, "+"), by: by, user: f[4], queue: f[5], name: f[20]}
	if p.status, err = parseStatus(cmp.Or(f[3], "0:0")); err != nil {
		return p, err
	}
	for i, at := range []*time.Time{&p.submitted, &p.run.Started, &p.run.Ended} {
		if *at, err = parseTime(f[6+i]); err != nil {
			return p, err
		}
	}
	for i, used := range []*time.Duration{&p.run.User, &p.run.System} {
		if *used, err = parseCPUTime(f[9+i]); err != nil {
			return p, err
		}
	}
	for _, cpus := range []string{f[12], f[13]} {
		n, err := parseNumber(cmp.Or(cpus, "0"))
		if err != nil || n < 0 || n > 1<<24 {
			return p, fmt.Errorf("%q is no number of CPUs", shown(cpus))
		}
		if p.slots = int(n); n > 0 {
			break
		}
	}
	if f[14] != "None assigned" {
		if p.hosts, err = parseHosts(f[14]); err != nil {
			return p, err
		}
	}
	if p.memory, err = parseTRES(f[15]); err != nil {
		return p, err
	}
	if minutes, err := strconv.ParseInt(f[16], 10, 32); err == nil { // else there is none, or the partition's
		p.limit = time.Duration(minutes) * time.Minute
	}
	switch from {
	case FromWCKey:
		p.project = strings.TrimPrefix(f[18], "*")
	case FromComment:
		p.project, _, _ = strings.Cut(f[19], " ")
	case FromAccount:
		p.project = f[17]
	}
	return p, nil
}

// parseCPUTime reads [days-[hours:]]minutes:seconds[.fraction].
func parseCPUTime(s string) (time.Duration, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	d, err := parseDuration(whole)
	if fraction == "" || err != nil {
		return d, err
	}
	part, err := strconv.ParseFloat("0."+fraction, 64)
	if err != nil || part < 0 || part >= 1 {
		return 0, noDuration(s)
	}
	return d + time.Duration(part*float64(time.Second)), nil
}

// unended are the states of jobs that wait or run (man sacct, "Job State Codes"); endings are
// all others, with why a run ended.
var (
	unended = map[string]backends.State{
		"PENDING": backends.Pending, "REQUEUED": backends.Pending, "RUNNING": backends.Running, "RESIZING": backends.Running,
		"SUSPENDED": backends.Suspended,
	}
	endings = map[string]string{
		"COMPLETED": "", "FAILED": "", "BOOT_FAIL": "a node did not boot", "CANCELLED": "cancelled", "DEADLINE": "it could not end before its deadline",
		"NODE_FAIL": "a node failed", "OUT_OF_MEMORY": "out of memory", "PREEMPTED": "preempted by Slurm", "REVOKED": "revoked by another cluster",
		"TIMEOUT": "over its run limit", "REQUEUED": backends.RequeuedOnly,
	}
)

// why returns why the run ended.
func (p *pastRow) why() string {
	if p.state == "CANCELLED" && p.by != "" {
		return "cancelled by " + p.by
	}
	return endings[p.state]
}

// past puts the rows of each job together, and returns the jobs that ended or were requeued.
func past(rows []pastRow, q *backends.PastQuery) (all []backends.Past, err error) {
	type job struct {
		id   backends.ID
		user string // numbers are given out again
	}
	of := map[job][]*pastRow{}
	var order []job
	for i := range rows {
		p := &rows[i]
		if _, known := endings[p.state]; !known && unended[p.state] == 0 {
			return nil, fmt.Errorf("job %v: %w", p.id, &backends.UnknownStateError{Text: p.state})
		}
		key := job{p.id, p.user}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], p)
	}
	for _, key := range order {
		p := pastJob(of[key])
		at := p.LastEnd()
		if at.IsZero() || len(q.IDs) == 0 && at.Before(q.Since) || !q.Wants(&p.Job) {
			continue
		}
		all = append(all, p)
	}
	return all, nil
}

// pastJob is a job of its rows.
func pastJob(rows []*pastRow) backends.Past {
	slices.SortStableFunc(rows, func(a, b *pastRow) int { return a.submitted.Compare(b.submitted) })
	last := rows[len(rows)-1]
	record := &backends.Record{}
	j := backends.Job{
		ID: last.id, Name: last.name, User: last.user, Queue: last.queue, State: unended[last.state], Slots: last.slots, Memory: last.memory, RunLimit: last.limit,
		Submitted: rows[0].submitted, Started: last.run.Started,
	}
	j.Project, j.Step = backends.SplitProject(last.project)
	if j.State == 0 {
		j.State, j.Ended = backends.Done, last.run.Ended
		if j.ExitCode = last.exitCode(); last.state != "COMPLETED" {
			j.State, j.Reason = backends.Exited, last.why()
		}
	}
	for i, p := range rows {
		if p.run.Started.IsZero() {
			continue
		}
		run := p.run
		run.Run, run.Host = len(record.Runs)+1, strings.Join(p.hosts, " ")
		if p == last && unended[p.state] != 0 && p.state != "REQUEUED" {
			run.Ended = time.Time{}
		}
		if !run.Ended.IsZero() {
			run.Why, run.ExitCode = p.why(), p.exitCode()
		}
		record.Runs = append(record.Runs, run)
		if i < len(rows)-1 || last.state == "REQUEUED" {
			j.Requeues++
		}
		j.Hosts = evenly(p.hosts, p.slots)
	}
	if j.State == backends.Pending {
		j.Hosts = nil
	}
	return backends.Past{Job: j, Record: record}
}

func (p *pastRow) exitCode() int {
	if p.state == "COMPLETED" {
		return exitCode("CD", p.status)
	}
	return exitCode("", p.status)
}

// evenly spreads slots over hosts: sacct does not say how Slurm did.
func evenly(hosts []string, slots int) []backends.Placement {
	var all []backends.Placement
	for i, h := range hosts {
		n := slots / len(hosts)
		if i < slots%len(hosts) {
			n++
		}
		all = append(all, backends.Placement{Host: h, Slots: n})
	}
	return all
}
