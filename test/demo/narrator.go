package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// narrator prints what happens, each line with the seconds since it began. Events come
// from several sources: they are put in order first, and printed a moment later.
type narrator struct {
	out    io.Writer
	began  time.Time
	events []event
}

// event is something that happened. Neighbours of one kind make one line.
type event struct {
	at   time.Time
	kind string // "": a line of its own
	text string
}

const (
	// lag is how long after an event all earlier ones are known.
	lag = time.Second
	// together is how far apart events may be that make one line.
	together = 500 * time.Millisecond
)

func newNarrator(out io.Writer) *narrator { return &narrator{out: out, began: time.Now()} }

func (n *narrator) seconds(at time.Time) float64 { return at.Sub(n.began).Seconds() }

func (n *narrator) add(at time.Time, kind, text string) {
	n.events = append(n.events, event{at, kind, text})
}

// log prints a line now, after all that happened before.
func (n *narrator) log(format string, args ...any) {
	n.flush()
	n.line(time.Now(), fmt.Sprintf(format, args...))
}

func (n *narrator) line(at time.Time, text string) {
	fmt.Fprintf(n.out, "%6.1f s  %s\n", n.seconds(at), text)
}

func (n *narrator) title(format string, args ...any) {
	n.flush()
	fmt.Fprintf(n.out, "\n== %s\n", fmt.Sprintf(format, args...))
}

// quote prints what a program printed.
func (n *narrator) quote(text string) {
	n.flush()
	for line := range strings.Lines(text) {
		fmt.Fprintf(n.out, "          | %s\n", strings.TrimRight(line, "\n"))
	}
}

// printDue prints what happened long enough ago.
func (n *narrator) printDue() {
	n.sort()
	if len(n.events) == 0 || time.Since(n.events[0].at) < lag+together {
		return
	}
	end := n.events[0].at.Add(together)
	i := slices.IndexFunc(n.events, func(e event) bool { return e.at.After(end) })
	if i < 0 {
		i = len(n.events)
	}
	n.print(n.events[:i])
	n.events = n.events[i:]
}

// flush prints all that happened.
func (n *narrator) flush() {
	n.sort()
	n.print(n.events)
	n.events = nil
}

func (n *narrator) sort() {
	slices.SortStableFunc(n.events, func(x, y event) int { return x.at.Compare(y.at) })
}

// print prints events as one line for each kind, where the first of it happened.
func (n *narrator) print(events []event) {
	printed := map[string]bool{}
	for i, e := range events {
		switch {
		case e.kind == "":
			n.line(e.at, e.text)
		case !printed[e.kind]:
			printed[e.kind] = true
			var names []string
			for _, x := range events[i:] {
				if x.kind == e.kind {
					names = append(names, x.text)
				}
			}
			slices.SortFunc(names, func(x, y string) int { return cmp.Or(len(x)-len(y), strings.Compare(x, y)) })
			n.line(e.at, e.kind+": "+strings.Join(names, " "))
		}
	}
}
