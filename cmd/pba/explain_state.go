package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// Bounds of what allotd is asked for one command.
const (
	mostStates = 10
	statesTime = 3 * time.Second
)

// addStates adds to the first stories how far their jobs are, and which hosts keep their state, where
// hosts keep it. Without an allotd that answers in time they are without it. Through sudo it is not
// asked: it would answer the user that pba runs as. A server has added what it knows.
func addStates(ctx context.Context, d answers, stories []*desk.Story) {
	here, ok := d.(*desk.Desk)
	if !ok || !here.HostsKeepStates() || here.Caller.UID != here.Caller.As {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statesTime)
	defer cancel()
	socket := here.Config.Web.SocketIn(here.Config.Paths.Runtime)
	for _, t := range stories[:min(len(stories), mostStates)] {
		id, err := backends.ParseID(t.ID)
		if err != nil {
			continue
		}
		s, err := ask.StateOf(ctx, socket, here.Config.Backend, id)
		switch {
		case errors.Is(err, ask.ErrNotFound):
		case err != nil:
			return
		default:
			addState(t, s)
		}
	}
}

// addState adds what is known of a job's state to its story.
func addState(t *desk.Story, s *ask.State) {
	if len(s.Places) > 0 {
		holder := s.Places[0]
		t.KeptOn = fmt.Sprintf("%s, run %d", holder.Host, holder.Run)
		if holder.Status != "here" {
			t.KeptOn += ", which is " + holder.Status
		}
		if s.Moving {
			t.KeptOn += "; more of it is on its way there"
		}
	}
	if s.Record == nil {
		return
	}
	t.Limited = s.Record.Limited(time.Local)
	if t.Progress != "" {
		return
	}
	t.Progress = bsub.Progress(&backends.Job{Progress: ask.Progress(s.Record)})
}
