package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

// tell prints what a cycle did and why: each requeue, suspension and error, and of every
// other verb the first action.
func (s *story) tell(r farm.Report) {
	s.cycles++
	s.looks = append(s.looks, r.At)
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
			s.happened(r.At, "", "pba: "+text)
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
		s.happened(r.At, "", "pba: "+first[v]+more)
	}
	for _, w := range r.Warnings {
		if !slices.Contains(s.warned, w) { // as pba's own log does
			s.happened(r.At, "", "pba warns: "+w)
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

// look reads the diaries and prints what is new in them.
func (s *story) look() error {
	for _, j := range s.all() {
		if err := j.Update(); err != nil {
			return err
		}
		if len(j.Runs) == 0 {
			continue
		}
		was, run := s.told[j], j.Runs[len(j.Runs)-1]
		is := scene{runs: len(j.Runs), stretches: len(run.Stretches), ends: j.Ends}
		is.silent = run.End.IsZero() && time.Since(run.Last) > silence
		name := j.Name
		if run.Host != "-" {
			name += "@" + run.Host
		}
		switch {
		case is.runs > was.runs && is.runs == 1:
			s.happened(run.Start, "starts", name)
		case is.runs > was.runs:
			s.happened(run.Start, "starts again, from the beginning", name)
		case is.stretches > was.stretches:
			s.happened(run.Stretches[len(run.Stretches)-1].From, "works on where it was stopped", name)
		case is.silent && !was.silent:
			s.happened(run.Last, "writes no more", name)
		}
		if is.ends > was.ends {
			s.happened(run.Last, "ends", name)
		}
		s.told[j] = is
	}
	s.catchUp()
	return nil
}
