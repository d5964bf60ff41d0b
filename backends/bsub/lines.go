package bsub

import (
	"fmt"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// SubmittedLine is the line for an accepted job, in the words that scripts look for.
func SubmittedLine(job int64, queue string, byDefault bool) string {
	which := ""
	if byDefault {
		which = "default "
	}
	return fmt.Sprintf("Job <%d> is submitted to %squeue <%s>.", job, which, Visible(queue))
}

// Verb is what akill (with -s: Signal), astop, aresume and arequeue do to a job.
type Verb uint8

// The verbs.
const (
	Kill Verb = iota
	Stop
	Resume
	Requeue
	Signal
)

// Line says what is being done to job, an ID or an array's list of IDs.
func (v Verb) Line(job string) string {
	doing := [...]string{Kill: "terminated", Stop: "stopped", Resume: "resumed", Requeue: "requeued", Signal: "signaled"}
	return fmt.Sprintf("Job <%s> is being %s", job, doing[v])
}

// Visible is printable.Text.
func Visible(text string) string { return printable.Text(text) }
