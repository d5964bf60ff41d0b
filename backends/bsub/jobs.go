package bsub

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// JobTable is how a list of jobs is laid out, as bjobs does.
type JobTable struct {
	Wide     bool // -w: nothing is cut short
	Reasons  bool // -p: with what each job waits for
	Each     bool // -X: a host is named once for each slot of the job
	NoHeader bool
	FromHost string // where jobs are submitted
	Zone     *time.Location
}

// Write prints the header and one line for each job; more where a job runs on
// several hosts and the table is not wide, as LSF does.
func (t JobTable) Write(w io.Writer, jobs []backends.Job) error {
	var b strings.Builder
	switch {
	case t.NoHeader:
	case t.Reasons:
		b.WriteString("JOBID   USER    STAT  QUEUE       FROM_HOST      JOB_NAME           SUBMIT_TIME\n")
	default:
		b.WriteString("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n")
	}
	for i := range jobs {
		t.job(&b, &jobs[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t JobTable) job(b *strings.Builder, j *backends.Job) {
	pad := func(s string, width int, cut func(string, int) string) {
		if !t.Wide {
			s = cut(s, width)
		}
		b.WriteString(s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0)+1))
	}
	hosts := []string{"   -    "}
	switch {
	case len(j.Hosts) == 0:
	case t.Wide:
		hosts = []string{strings.Join(execHosts(j, true), ":")}
	default:
		hosts = execHosts(j, t.Each)
	}
	queue, from, name := 10, 11, 10
	if t.Reasons {
		queue, from, name = 11, 14, 18
	}
	pad(strconv.FormatInt(j.ID.Job, 10), 7, whole)
	pad(Visible(j.User), 7, cutRight)
	pad(Stat(j), 5, whole)
	pad(Visible(j.Queue), queue, cutRight)
	pad(Visible(t.FromHost), from, cutLeft)
	if !t.Reasons {
		pad(hosts[0], 11, cutLeft)
	}
	pad(Visible(JobName(j)), name, cutLeft)
	zone := t.Zone
	if zone == nil {
		zone = time.UTC
	}
	b.WriteString(j.Submitted.In(zone).Format("Jan _2 15:04") + "\n")
	if t.Reasons {
		if j.Reason != "" {
			b.WriteString(" " + Visible(strings.TrimSuffix(j.Reason, ";")) + ";\n")
		}
		return
	}
	for _, more := range hosts[1:] {
		b.WriteString(strings.Repeat(" ", 45) + cutLeft(more, 11) + "\n")
	}
}

// execHosts are a job's hosts: each once for each slot, or once with their number.
func execHosts(j *backends.Job, each bool) []string {
	var all []string
	for _, p := range j.Hosts {
		host := Visible(p.Host)
		switch {
		case each:
			for range p.Slots {
				all = append(all, host)
			}
		case p.Slots > 1:
			all = append(all, fmt.Sprintf("%d*%s", p.Slots, host))
		default:
			all = append(all, host)
		}
	}
	return all
}

// JobName is the job's name, with its index for an array element.
func JobName(j *backends.Job) string {
	suffix := "[" + strconv.Itoa(max(j.ID.Index, 0)) + "]" // see backends.ZeroIndex
	if j.ID.Index == 0 || strings.HasSuffix(j.Name, suffix) {
		return j.Name
	}
	return j.Name + suffix
}

// ArrayName is the name that an array was given, of an element; else the job's own. Some
// queues give elements names of their own, as LSF does: arr[3].
func ArrayName(j *backends.Job) string {
	if j.ID.Index == 0 {
		return j.Name
	}
	return strings.TrimSuffix(j.Name, "["+strconv.Itoa(max(j.ID.Index, 0))+"]")
}

// Stat is LSF's word for a job's state. Suspended by its owner is USUSP, by the
// allocation engine SSUSP.
func Stat(j *backends.Job) string {
	switch j.State {
	case backends.Pending:
		return "PEND"
	case backends.Running:
		return "RUN"
	case backends.Held:
		return "PSUSP"
	case backends.Suspended:
		if j.Resuming || !j.HeldUntil.IsZero() {
			return "SSUSP"
		}
		return "USUSP"
	case backends.Done:
		return "DONE"
	case backends.Exited:
		return "EXIT"
	}
	return "UNKWN"
}

func whole(s string, _ int) string { return s }

// cutRight keeps the first width characters.
func cutRight(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width])
}

// cutLeft keeps the last characters behind a *.
func cutLeft(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	return "*" + string([]rune(s)[n-width+1:])
}
