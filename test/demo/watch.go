package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

// printReport prints what a cycle did and why: each requeue, suspension and error, and of every
// other verb the first action.
func (s *story) printReport(r farm.Report) {
	s.cycles++
	s.snapshots = append(s.snapshots, r.At)
	counts, first := map[string]int{}, map[string]string{}
	var verbs []string
	for _, a := range r.Actions {
		text := fmt.Sprintf("%s %s", a.Verb, s.name(a.Job))
		if a.For != "" && a.For != a.Job {
			text += " for " + s.name(a.For)
		}
		text += ": " + a.Reason
		if a.Error != "" {
			text += " (" + a.Error + ")"
		}
		if a.Verb == "requeue" || a.Verb == "suspend" || a.Error != "" {
			s.add(r.At, "", "pba: "+text)
			continue
		}
		if counts[a.Verb] == 0 {
			verbs = append(verbs, a.Verb)
			first[a.Verb] = text
		}
		counts[a.Verb]++
	}
	for _, v := range verbs {
		more := ""
		if n := counts[v] - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		s.add(r.At, "", "pba: "+first[v]+more)
	}
	for _, w := range r.Warnings {
		if !slices.Contains(s.warned, w) { // as pba's log does
			s.add(r.At, "", "pba warns: "+w)
		}
	}
	s.warned = r.Warnings
}

// name returns the name of the job with an ID.
func (s *story) name(id string) string {
	for _, j := range s.all() {
		if strconv.FormatInt(j.id, 10) == id {
			return j.Name
		}
	}
	return "job " + id
}

// silence is how long a job may write nothing before it is shown as stopped.
const silence = 6 * diary.Step

// readDiaries reads the diaries and prints what is new in them.
func (s *story) readDiaries() error {
	for _, j := range s.all() {
		if err := j.Update(); err != nil {
			return err
		}
		if len(j.Runs) == 0 {
			continue
		}
		was, run := s.printed[j], j.Runs[len(j.Runs)-1]
		is := progress{runs: len(j.Runs), stretches: len(run.Stretches), ends: j.Ends, saved: run.Saved > 0}
		is.silent = run.End.IsZero() && !is.saved && time.Since(run.Last) > silence
		name := j.Name
		if run.Host != "-" {
			name += "@" + run.Host
		}
		switch {
		case is.runs > was.runs && is.runs == 1:
			s.add(run.Start, "starts", name)
		case is.runs > was.runs && run.From > 0:
			s.add(run.Start, "", fmt.Sprintf("goes on from its checkpoint: %s, at step %d", name, run.From+1))
		case is.runs > was.runs:
			s.add(run.Start, "starts again, from the beginning", name)
		case is.stretches > was.stretches:
			s.add(run.Stretches[len(run.Stretches)-1].From, "works on where it was stopped", name)
		case is.silent && !was.silent:
			s.add(run.Last, "writes no more", name)
		}
		if is.saved && !was.saved {
			s.add(run.Last, "", fmt.Sprintf("saves itself and gives way: %s, after step %d", name, run.Saved))
		}
		if is.ends > was.ends {
			s.add(run.Last, "ends", name)
		}
		s.printed[j] = is
	}
	s.printDue()
	return nil
}
