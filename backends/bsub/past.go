package bsub

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// PastFormat is the format of ahist; withUser: it names the jobs' users.
func PastFormat(withUser bool) Format {
	user := ""
	if withUser {
		user = "user "
	}
	f, err := ParseFormat("job:9 " + user + "stat queue:8 wait run cpu maxmem hosts requeues job_name ended reason")
	if err != nil {
		panic(err) // each is a field: a test has read it
	}
	return f
}

func (r *Row) past() *backends.Past { return &backends.Past{Job: *r.Job, Record: r.Record} }

// brief is a duration in at most six characters: 0.3s, 45s, 12m05s, 3h05m, 2d03h.
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	n := func(d, unit time.Duration) int64 { return int64(d / unit) }
	switch d = max(d, 0); {
	case d < 9950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", n(d, time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", n(d, time.Minute), n(d%time.Minute, time.Second))
	case d < day:
		return fmt.Sprintf("%dh%02dm", n(d, time.Hour), n(d%time.Hour, time.Minute))
	}
	return fmt.Sprintf("%dd%02dh", n(d, day), n(d%day, time.Hour))
}

// used is what all runs of a job used; known: the queue has measured it.
func used(p *backends.Past) (cpu time.Duration, memory int64, known bool) {
	if p.Record == nil {
		return 0, 0, false
	}
	for i := range p.Record.Runs {
		run := &p.Record.Runs[i]
		cpu += run.User + run.System
		memory = max(memory, run.MaxRSS)
	}
	return cpu, memory, cpu > 0 || memory > 0
}

// lastRan returns how long the last run took, or has run.
func lastRan(c *columns, p *backends.Past) (ran time.Duration, known bool) {
	r := Row{Job: &p.Job, Record: p.Record}
	run := r.lastRun()
	switch {
	case run == nil && p.Record != nil:
		return 0, false
	case run == nil || run.Started.IsZero():
		return c.ranFor(&p.Job), !started(&p.Job).IsZero()
	}
	until := run.Ended
	if until.IsZero() {
		until = c.now
	}
	return max(until.Sub(run.Started), 0), true
}

// Ending returns why a job failed, or else why it was requeued last, for people.
func Ending(p *backends.Past) string {
	why := ""
	if p.Record != nil {
		for _, run := range slices.Backward(p.Record.Runs) {
			if p.Job.State == backends.Exited || run.Why != "" {
				why = run.Why
				break
			}
		}
	}
	if p.Job.State != backends.Exited {
		return why
	}
	why = cmp.Or(why, p.Job.Reason)
	if p.Job.ExitCode == 0 { // it never ran
		return why
	}
	how := exitText(p.Job.ExitCode)
	if why == "" {
		return how
	}
	return how + ": " + why
}

// signals are the names of those that end jobs, on Linux.
var signals = map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ"}

// exitText is an exit code for people: exit 3, exit 137 (KILL).
func exitText(code int) string {
	text := "exit " + strconv.Itoa(code)
	if name := signals[code-128]; name != "" {
		text += " (" + name + ")"
	}
	return text
}

// ofPast is a column of a duration that the runs of a job took.
func ofPast(name string, of func(*columns, *backends.Past) (d time.Duration, known bool)) field {
	return field{
		name: name, width: 6, record: true,
		text: func(c *columns, r *Row) string {
			if d, known := of(c, r.past()); known {
				return brief(d)
			}
			return ""
		},
		number: func(c *columns, r *Row) float64 {
			if d, known := of(c, r.past()); known {
				return d.Seconds()
			}
			return -1
		},
	}
}

// pastFields are the columns about all runs of a job.
func pastFields() []field {
	return []field{
		{
			name: "job", width: 9,
			text: func(_ *columns, r *Row) string { return r.Job.ID.String() },
			number: func(_ *columns, r *Row) float64 {
				return float64(r.Job.ID.Job) + float64(max(r.Job.ID.Index, 0))/(1<<31)
			},
		},
		ofPast("wait", func(c *columns, p *backends.Past) (time.Duration, bool) { return p.Waited(c.now), true }),
		ofPast("run", lastRan),
		ofPast("lost", func(_ *columns, p *backends.Past) (time.Duration, bool) { return p.Lost(), p.Record != nil }),
		nowOrPast(ofUse("cpu", 6, nil), ofPast("cpu", func(_ *columns, p *backends.Past) (time.Duration, bool) {
			cpu, _, known := used(p)
			return cpu, known
		})),
		{
			name: "maxmem", width: 8, record: true,
			text: func(_ *columns, r *Row) string {
				if _, memory, known := used(r.past()); known {
					return size(memory)
				}
				return ""
			},
			number: func(_ *columns, r *Row) float64 {
				_, memory, known := used(r.past())
				if !known {
					return -1
				}
				return float64(memory)
			},
		},
		{
			name: "hosts", width: 11, record: true,
			text: func(_ *columns, r *Row) string {
				if run := r.lastRun(); len(r.Job.Hosts) == 0 && run != nil {
					return run.Host
				}
				return strings.Join(execHosts(r.Job, false), ":")
			},
		},
		{
			name: "ended", width: 15, record: true,
			text:   func(c *columns, r *Row) string { return c.at(r.past().LastEnd()) },
			number: func(_ *columns, r *Row) float64 { return float64(r.past().LastEnd().UnixMilli()) },
		},
		{name: "reason", width: 60, record: true, prose: true, text: func(_ *columns, r *Row) string { return Ending(r.past()) }},
	}
}

// PastTotals is the sum of a list of jobs of the past.
type PastTotals struct {
	Jobs     int     `json:"jobs"`
	Done     int     `json:"done"`
	Exited   int     `json:"exited"`
	Requeued int     `json:"requeued_jobs"`
	Requeues int     `json:"requeues"`
	CPU      float64 `json:"cpu_seconds"`
	Lost     float64 `json:"lost_slot_seconds"` // of requeued runs without a checkpoint
	Wait     float64 `json:"average_wait_seconds"`
}

// TotalPast adds up jobs of the past.
func TotalPast(all []backends.Past, now time.Time) PastTotals {
	t := PastTotals{Jobs: len(all)}
	var wait, cpu time.Duration
	for i := range all {
		p := &all[i]
		if p.Job.State == backends.Done {
			t.Done++
		}
		if p.Job.State == backends.Exited {
			t.Exited++
		}
		if p.Job.Requeues > 0 {
			t.Requeued++
			t.Requeues += p.Job.Requeues
		}
		one, _, _ := used(p)
		cpu += one
		wait += p.Waited(now)
		t.Lost += p.Lost().Seconds() * float64(max(p.Job.Slots, 1))
	}
	t.CPU = cpu.Seconds()
	t.Wait = (wait / time.Duration(max(len(all), 1))).Seconds()
	return t
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Write prints the totals in one line, as the end of bacct's answer.
func (t PastTotals) Write(w io.Writer) error {
	line := fmt.Sprintf("%s: %d done, %d exited", printable.Count(t.Jobs, "job"), t.Done, t.Exited)
	if t.Requeued > 0 {
		line += fmt.Sprintf(", %d requeued (%s, %s of slot time lost)", t.Requeued, printable.Count(t.Requeues, "time"), brief(duration(t.Lost)))
	}
	_, err := fmt.Fprintf(w, "\n%s; processor time %s; average wait %s\n", line, brief(duration(t.CPU)), brief(duration(t.Wait)))
	return err
}

// WritePast prints the whole story of a job of the past.
func (d Detail) WritePast(w io.Writer, p *backends.Past, now time.Time) error {
	var b strings.Builder
	record := cmp.Or(p.Record, &backends.Record{})
	b.WriteString(d.folded(d.head(&p.Job, record)) + "\n")
	line := func(at time.Time, text string) {
		if !at.IsZero() {
			b.WriteString(d.at(at, text))
		}
	}
	line(p.Job.Submitted, fmt.Sprintf("Submitted, %s;", printable.Count(p.Job.Slots, "slot")))
	if p.Record == nil {
		line(p.Job.Started, "Started"+onHosts(&p.Job)+"; its runs are not shown: they are its owner's to see;")
	}
	for i := range record.Runs {
		run := &record.Runs[i]
		line(run.Started, fmt.Sprintf("Run %d started on <%s>;", run.Run, Visible(run.Host)))
		if !run.Ended.IsZero() {
			line(run.Ended, d.endOfRun(p, i))
		}
	}
	switch n := len(record.Runs); {
	case !p.Job.State.Ended() && n > 0 && record.Runs[n-1].Ended.IsZero():
		line(now, "It runs;")
	case !p.Job.State.Ended():
		line(now, "It waits: "+Visible(cmp.Or(strings.TrimSuffix(p.Job.Reason, ";"), Stat(&p.Job)))+";")
	case n == 0:
		line(p.Job.Ended, fmt.Sprintf("Ended: %s;", Visible(cmp.Or(Ending(p), "done"))))
	}
	sum := "waited " + brief(p.Waited(now))
	if cpu, memory, known := used(p); known {
		sum += fmt.Sprintf(", used %s of processor time and at most %s of memory", brief(cpu), size(memory))
	}
	if n := p.Job.Requeues; n > 0 {
		sum += fmt.Sprintf(", requeued %s", printable.Count(n, "time"))
		if p.Record != nil {
			sum += fmt.Sprintf(", lost %s on %s", brief(p.Lost()), printable.Count(p.Job.Slots, "slot"))
		}
	}
	b.WriteString(d.folded(" In all it "+sum) + "\n")
	d.ofHosts(&b, record)
	_, err := io.WriteString(w, b.String())
	return err
}

// ofHosts is what a job's hosts have kept of it, where the queue keeps none of that.
func (d Detail) ofHosts(b *strings.Builder, r *backends.Record) {
	hosts := backends.Record{
		Settings: slices.DeleteFunc(slices.Clone(r.Settings), func(s backends.SettingRecord) bool { return s.Host == "" }),
		Files:    slices.DeleteFunc(slices.Clone(r.Files), func(f backends.FileRecord) bool { return f.Host == "" }),
		History:  slices.DeleteFunc(slices.Clone(r.History), func(l backends.HistoryLine) bool { return l.Host == "" }),
	}
	d.own(b, &hosts)
	d.history(b, hosts.History)
}

func onHosts(j *backends.Job) string {
	if len(j.Hosts) == 0 {
		return ""
	}
	return " on <" + strings.Join(execHosts(j, false), " ") + ">"
}

// endOfRun says how and why a run ended, and what was lost with it.
func (d Detail) endOfRun(p *backends.Past, i int) string {
	run := &p.Record.Runs[i]
	text := fmt.Sprintf("Run %d ended after %s: ", run.Run, brief(run.Ended.Sub(run.Started)))
	switch requeued := p.Requeued(i); {
	case requeued:
		text += Visible(cmp.Or(run.Why, "requeued"))
		if strings.Contains(run.Why, backends.CheckpointMade) {
			text += "; nothing was lost"
		} else {
			text += fmt.Sprintf("; lost: %s on %s", brief(run.Ended.Sub(run.Started)), printable.Count(p.Job.Slots, "slot"))
		}
	case run.Why != "":
		text += exitText(run.ExitCode) + ": " + Visible(run.Why)
	default:
		text += exitText(run.ExitCode)
	}
	if cpu := run.User + run.System; cpu > 0 || run.MaxRSS > 0 {
		text += fmt.Sprintf("; processor time %s, memory %s", brief(cpu), size(run.MaxRSS))
	}
	return text + ";"
}
