package bsub

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// SubmittedLine tells of an accepted job, in the words that scripts look for.
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

// Line tells that it is being done to job, an ID or an array's list of IDs.
func (v Verb) Line(job string) string {
	doing := [...]string{Kill: "terminated", Stop: "stopped", Resume: "resumed", Requeue: "requeued", Signal: "signaled"}
	return fmt.Sprintf("Job <%s> is being %s", job, doing[v])
}

// Visible writes a user's text so that a terminal shows it and obeys none of it:
// control characters, invisible and direction-changing ones and invalid bytes
// become escapes such as \n, \x1b or \u202e. A backslash stays as it is.
func Visible(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !shown(r) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shown(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

func shown(r rune) bool {
	return r != utf8.RuneError && (r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r))
}
