package bsub

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// Detail is how all that is known of a job is laid out, as bjobs -l does.
type Detail struct {
	FromHost string
	Zone     *time.Location
	Width    int                    // of a line, which goes on in the next one; 0: lines are not broken
	Outlook  map[backends.ID]string // of jobs that wait: their place in the queue and when they may start, in words
}

// detailIndent is where bjobs -l goes on in the next line.
const detailIndent = 21

// Separator stands between two jobs.
const Separator = "------------------------------------------------------------------------------\n"

// Write prints a job; record may be nil, where the queue keeps none.
func (d Detail) Write(w io.Writer, j *backends.Job, record *backends.Record) error {
	var b strings.Builder
	if record == nil {
		record = &backends.Record{}
	}
	b.WriteString(d.folded(d.head(j, record)) + "\n")
	b.WriteString(d.at(j.Submitted, "Submitted from host <"+Visible(d.FromHost)+">"+d.submission(j, &record.Spec)))
	if text := d.now(j); text != "" {
		b.WriteString(d.folded("  "+text) + "\n")
	}
	if j.State == backends.Pending && !j.IsDummy() {
		outlook := d.Outlook[j.ID]
		if outlook == "" {
			outlook = "Its place in the queue, and when it may start: pba explain " + shellName(j.ID)
		}
		b.WriteString(d.folded("  "+Visible(outlook)) + "\n")
	}
	d.runs(&b, record.Runs)
	d.own(&b, record)
	d.history(&b, record.History)
	_, err := io.WriteString(w, b.String())
	return err
}

// shellName is a job's ID as it is typed at a shell.
func shellName(id backends.ID) string {
	if id.Index == 0 {
		return id.String()
	}
	return quoted(id.String())
}

// head is the first paragraph: what the job is.
func (d Detail) head(j *backends.Job, record *backends.Record) string {
	var b strings.Builder
	field := fieldsOf(&b)
	field("Job Name", JobName(j))
	field("User", j.User)
	field("Project", backends.JoinProject(j.Project, j.Step))
	field("Status", Stat(j))
	field("Queue", j.Queue)
	field("Job Priority", fmt.Sprintf("%d, %s", j.Priority.Value(), j.Priority.Level()))
	field("Command", Command(&record.Spec))
	tag, text, err := backends.ParseTag(record.Spec.Description)
	if err == nil {
		field("Preempt Mode", tag.Preempt.String())
		if tag.Low {
			field("Lowered From Queue", tag.Queue)
		}
	}
	field("Job Description", text)
	return "Job <" + j.ID.String() + ">" + b.String()
}

// fieldsOf writes fields, but those that are empty.
func fieldsOf(b *strings.Builder) func(what, value string) {
	return func(what, value string) {
		if value != "" {
			b.WriteString(", " + what + " <" + Visible(value) + ">")
		}
	}
}

// submission is what was asked for.
func (d Detail) submission(j *backends.Job, s *backends.Spec) string {
	var b strings.Builder
	field := fieldsOf(&b)
	is := func(given bool, what string) {
		if given {
			b.WriteString(", " + what)
		}
	}
	field("CWD", s.Dir)
	field("Input File", s.Stdin)
	field(map[bool]string{false: "Output File", true: "Output File (overwrite)"}[s.Truncate.Stdout], s.Stdout)
	field(map[bool]string{false: "Error File", true: "Error File (overwrite)"}[s.Truncate.Stderr], s.Stderr)
	fmt.Fprintf(&b, ", %d Task(s)", j.Slots)
	is(j.OneHost && j.Slots > 1, "on one host")
	is(j.PerHost > 0, fmt.Sprintf("%d on each host", j.PerHost))
	is(j.Exclusive, "Exclusive Execution")
	is(s.Rerunnable, "Re-runnable")
	is(j.NoRequeue, "Never Requeued")
	is(j.Interactive, "Interactive mode")
	if j.IsDummy() {
		field("Dummy Job For", j.DummyFor.String())
	}
	field("Specified Hosts", strings.Join(j.Asked, " "))
	field("Pinned Hosts", strings.Join(j.Pinned, " "))
	field("Dependency Condition", s.After)
	field("Pre-execute Command", s.PreExec)
	field("Post-execute Command", s.PostExec)
	field("Mail", mailText(s.Mail))
	field("Notification Command", s.Notify)
	field("Job Group", s.Group)
	if j.Memory > 0 {
		field("Memory", size(j.Memory))
	}
	field("Resources", backends.FormatAmounts(j.Needs))
	field("Features", strings.Join(s.Features, " "))
	field("Condition on Hosts", s.Select)
	field("Same on All Hosts", strings.Join(s.Same, " "))
	if j.Suits != nil {
		field("Suitable Hosts", strings.Join(j.Suits.Hosts, " "))
	}
	if s.MemoryLimit > 0 {
		field("Memory Limit", size(s.MemoryLimit))
	}
	if j.RunLimit > 0 {
		field("Run Limit", j.RunLimit.String())
	}
	if !j.BeginTime.IsZero() {
		field("Specified Start Time", j.BeginTime.In(d.zone()).Format(detailTime))
	}
	return b.String() + ";"
}

// now is what becomes of the job at this moment.
func (d Detail) now(j *backends.Job) string {
	var parts []string
	if len(j.Hosts) > 0 && !j.State.Ended() {
		var hosts []string
		for _, p := range j.Hosts {
			hosts = append(hosts, fmt.Sprintf("%d*%s", p.Slots, Visible(p.Host)))
		}
		parts = append(parts, "On "+strings.Join(hosts, " ")+" since "+j.Started.In(d.zone()).Format(detailTime))
	}
	if j.Reason != "" {
		parts = append(parts, Visible(strings.TrimSuffix(j.Reason, ";")))
	}
	if text := Progress(j); text != "" {
		parts = append(parts, "progress "+Visible(text))
	}
	if j.Requeues > 0 {
		parts = append(parts, fmt.Sprintf("put back into the queue %d time(s)", j.Requeues))
	}
	if j.FailedSaves > 0 {
		parts = append(parts, fmt.Sprintf("its checkpoint failed %d time(s) in a row", j.FailedSaves))
	}
	if !j.HeldUntil.IsZero() {
		parts = append(parts, "held until "+j.HeldUntil.In(d.zone()).Format(detailTime))
	}
	if j.State.Ended() {
		parts = append(parts, fmt.Sprintf("Ended at %s, exit code %d", j.Ended.In(d.zone()).Format(detailTime), j.ExitCode))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + ";"
}

func (d Detail) runs(b *strings.Builder, runs []backends.RunRecord) {
	if len(runs) == 0 {
		return
	}
	b.WriteString("\n RUNS:\n  RUN HOST         STARTED          TOOK        EXIT  CPU TIME    MAX MEMORY  WHY\n")
	for _, r := range runs {
		took, exit, why := "-", "-", ""
		if !r.Ended.IsZero() {
			took = r.Ended.Sub(r.Started).Round(time.Millisecond).String()
			exit, why = fmt.Sprint(r.ExitCode), "  "+Visible(r.Why)
		}
		line := fmt.Sprintf("  %3d %-12s %-16s %-11s %4s  %-10s  %-10s%s", r.Run, Visible(r.Host), r.Started.In(d.zone()).Format("Jan _2 15:04:05"),
			took, exit, (r.User + r.System).Round(time.Millisecond), size(r.MaxRSS), why)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// own is what the job wrote into its state object by itself.
func (d Detail) own(b *strings.Builder, r *backends.Record) {
	from := func(at time.Time, run int, host string) string {
		text := at.In(d.zone()).Format("Jan _2 15:04:05")
		if run > 0 {
			text += fmt.Sprintf(", run %d", run)
		}
		if host != "" {
			text += " on " + Visible(host)
		}
		return " (" + text + ")"
	}
	if len(r.Settings) > 0 {
		b.WriteString("\n SETTINGS:\n")
	}
	for _, s := range r.Settings {
		b.WriteString(d.folded("  "+Visible(s.Key)+": "+Visible(s.Value)+from(s.At, s.Run, s.Host)) + "\n")
	}
	if len(r.Files) > 0 {
		b.WriteString("\n FILES:\n")
	}
	for _, f := range r.Files {
		kind := ""
		if f.Executable {
			kind = ", a program"
		}
		b.WriteString(d.folded("  "+Visible(f.Name)+": "+size(f.Size)+kind+from(f.At, f.Run, f.Host)) + "\n")
	}
}

func (d Detail) history(b *strings.Builder, lines []backends.HistoryLine) {
	if len(lines) == 0 {
		return
	}
	b.WriteString("\n HISTORY:\n")
	for _, h := range lines {
		text := h.Event
		if h.Run > 0 {
			text = fmt.Sprintf("run %d: %s", h.Run, text)
		}
		if h.Detail != "" {
			text += ", " + h.Detail
		}
		if h.Host != "" {
			text = h.Host + ": " + text
		}
		b.WriteString(d.at(h.At, Visible(text)+";"))
	}
}

const detailTime = "Mon Jan _2 15:04:05"

func (d Detail) zone() *time.Location {
	if d.Zone == nil {
		return time.UTC
	}
	return d.Zone
}

func (d Detail) at(t time.Time, text string) string {
	return d.folded(t.In(d.zone()).Format(detailTime)+": "+text) + "\n"
}

// folded breaks a line as bjobs -l does.
func (d Detail) folded(s string) string {
	if d.Width < 2*detailIndent {
		return s // unbroken, or no terminal to read it in
	}
	var b strings.Builder
	width := d.Width
	for utf8.RuneCountInString(s) > width {
		runes := []rune(s)
		b.WriteString(string(runes[:width]) + "\n" + strings.Repeat(" ", detailIndent))
		s = string(runes[width:])
		width = d.Width - detailIndent
	}
	return b.String() + s
}

// size is a number of bytes for people.
func size(n int64) string {
	const step = 1024
	value, unit := float64(n), 0
	for value >= step && unit < 5 {
		value /= step
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return strings.Replace(fmt.Sprintf("%.1f", value), ".0", "", 1) + " " + "KMGTP"[unit-1:unit]
}

// mailText lists the events that mails are sent about, and their recipient.
func mailText(m backends.Mail) string {
	var words []string
	for _, w := range []struct {
		given bool
		word  string
	}{{m.Begin, "begin"}, {m.End, "end"}, {m.Failed, "failed"}, {m.To != "", "to " + m.To}} {
		if w.given {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " ")
}
