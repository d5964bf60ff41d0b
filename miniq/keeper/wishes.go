package keeper

import (
	"slices"
	"strings"
	"syscall"
)

// Bounds of notes that wait: of their number for one run, and of each, in bytes.
// They are our own, in answer to what users and administrators do to a job.
const (
	maxNotes = 4
	maxNote  = 1 << 10
)

// Wishes are what is wanted of one run and was not passed on yet, or not carried
// out yet. However many are added they are few: equal signals merge, of stopping
// and continuing the last one holds, of two kills the sooner, of notes the last
// four. Daemon, node and keeper all keep wishes so.
type Wishes struct{ list []Want }

// Empty reports whether nothing is wanted.
func (w *Wishes) Empty() bool { return len(w.list) == 0 }

// Add adds a wish.
func (w *Wishes) Add(next Want) {
	switch {
	case next.Verb == Kill:
		i := slices.IndexFunc(w.list, func(o Want) bool { return o.Verb == Kill })
		switch {
		case i < 0:
			w.list = slices.Insert(w.list, 0, next)
		case next.Grace < w.list[i].Grace:
			w.list[i] = next
		}
		return
	case next.Verb == Note:
		next.Text = strings.Clone(next.Text[:min(len(next.Text), maxNote)])
		if w.count(Note) == maxNotes {
			i := slices.IndexFunc(w.list, func(o Want) bool { return o.Verb == Note })
			w.list = slices.Delete(w.list, i, i+1)
		}
	case next.Verb == Signal && (next.Signal < 1 || next.Signal > lastSignal), next.Verb == Signal && !next.stopsOrContinues() && slices.Contains(w.list, next):
		return
	case next.Verb == Signal && !next.stopsOrContinues():
	case next.Verb != Signal && next.Verb != Stop && next.Verb != Continue:
		return
	default: // the last one holds, behind what came before it
		w.list = slices.DeleteFunc(w.list, func(o Want) bool { return o.undoneBy(next) })
	}
	w.list = append(w.list, next)
}

// lastSignal is the highest number of a signal (signal(7), SIGRTMAX).
const lastSignal = 64

func (w *Wishes) count(verb Verb) int {
	n := 0
	for i := range w.list {
		if w.list[i].Verb == verb {
			n++
		}
	}
	return n
}

// Has reports whether a wish of this verb is among them.
func (w *Wishes) Has(verb Verb) bool { return w.count(verb) > 0 }

// PopKill removes and returns the kill, last, after the notes that wait: they give the
// reason, and the job's output may be closed a moment after it. Without a kill it removes
// nothing.
func (w *Wishes) PopKill() []Want {
	if !w.Has(Kill) {
		return nil
	}
	var popped, rest []Want
	for _, want := range w.list[1:] {
		if want.Verb == Note {
			popped = append(popped, want)
		} else {
			rest = append(rest, want)
		}
	}
	kill := w.list[0]
	w.list = rest
	return append(popped, kill)
}

// PopAll removes and returns all of them: a kill first, the rest as they came.
func (w *Wishes) PopAll() []Want {
	all := w.list
	w.list = nil
	return all
}

// stopsOrContinues reports whether a wish stops processes or continues them.
func (w Want) stopsOrContinues() bool { return w.stops() || w.continues() }

func (w Want) stops() bool {
	return w.Verb == Stop || w.Verb == Signal && slices.Contains([]syscall.Signal{syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}, w.Signal)
}

func (w Want) continues() bool {
	return w.Verb == Continue || w.Verb == Signal && w.Signal == syscall.SIGCONT
}

// undoneBy reports whether nothing is left of a wish when the next one is carried
// out after it: a signal that continues takes back those that stop (signal(7)).
func (w Want) undoneBy(next Want) bool {
	if w.Verb == Signal && w == next {
		return true
	}
	queue := w.Verb == Stop || w.Verb == Continue // what the queue knows is undone by the queue alone
	if queue != (next.Verb == Stop || next.Verb == Continue) {
		return false
	}
	return queue || w.stops() && next.continues() || w.continues() && next.stops()
}
