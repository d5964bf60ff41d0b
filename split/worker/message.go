package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/split"
)

// The kinds of messages.
const (
	kindState = "state" // from a worker
	kindOrder = "order" // to it
)

// Bounds of what is read.
const (
	maxMessage = 1 << 10 // bytes
	maxRun     = 64      // bytes of WorkerState.Run
	maxFile    = 16 << 10
	maxPlaces  = 32 // addresses
)

// nameOf returns the name on the bus of the worker whose job began with a task.
func nameOf(n int64) string { return "task-" + strconv.FormatInt(n, 10) }

// parseName is the inverse of nameOf; 0: it is none.
func parseName(name string) int64 {
	text, _ := strings.CutPrefix(name, "task-")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || nameOf(n) != name {
		return 0
	}
	return n
}

// parseState reads what a worker says.
func parseState(text []byte) (s split.WorkerState, err error) {
	if len(text) > maxMessage {
		return s, errors.New("the state of a worker is too long")
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the state of a worker: %w", err)
	}
	known := s.Leaving == "" || s.Leaving == split.LeaveIdle || s.Leaving == split.LeaveTold || s.Leaving == split.LeaveKill
	if !known || len(s.Run) > maxRun || s.Seq < 1 || s.Running < 0 || s.Done < 0 {
		return split.WorkerState{}, errors.New("read the state of a worker: its run, numbers or reason are invalid")
	}
	return s, nil
}

// parseOrder reads what asplit tells a worker.
func parseOrder(text []byte) (o split.WorkerOrder, err error) {
	if len(text) > maxMessage {
		return o, errors.New("the order is too long")
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read an order: %w", err)
	}
	if len(o.Run) > maxRun || o.Seq < 0 || o.Take < 0 || o.Drop < 0 {
		return split.WorkerOrder{}, errors.New("read an order: its run or numbers are invalid")
	}
	return o, nil
}

// parsePlaces reads the file from which workers know the bus: a line for each address at which it
// may be reached.
func parsePlaces(text string) (all []bus.Enrolment, err error) {
	for line := range strings.Lines(text) {
		e, err := bus.ParseEnrolment(line)
		if err != nil {
			return nil, err
		}
		if e == (bus.Enrolment{}) {
			continue
		}
		if e.Address == "-" || e.Secret == "" || len(all) == maxPlaces {
			return nil, errors.New("an address or the secret is missing, or there are too many addresses")
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, errors.New("it names no address")
	}
	return all, nil
}
