package bsub

import (
	"fmt"
	"io"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// QueueUse is a queue and what its jobs do, in slots as LSF counts them.
type QueueUse struct {
	backends.Queue
	Pending   int
	Running   int
	Suspended int // stopped ones, and held ones
}

// Row are the columns in which bqueues prints it: the queue's own, where it has such.
func (q QueueUse) Row() backends.QueueRow {
	if q.Columns != nil {
		return *q.Columns
	}
	return backends.QueueRow{
		Priority: int(q.Level), Status: "Open:Active", Max: "-", PerUser: "-", PerProcessor: "-", PerHost: "-",
		Jobs: q.Pending + q.Running + q.Suspended, Pending: q.Pending, Running: q.Running, Suspended: q.Suspended,
	}
}

// UseQueues counts the slots of the farm's jobs in each queue. A queue that is
// known by its jobs alone comes last.
func UseQueues(queues []backends.Queue, f *backends.Snapshot) []QueueUse {
	uses := make([]QueueUse, len(queues))
	at := map[string]int{}
	for i, q := range queues {
		uses[i].Queue = q
		at[q.Name] = i
	}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		n, known := at[j.Queue]
		if !known {
			n = len(uses)
			at[j.Queue] = n
			uses = append(uses, QueueUse{Queue: backends.Queue{Name: j.Queue}})
		}
		switch j.State {
		case backends.Pending:
			uses[n].Pending += j.Slots
		case backends.Running:
			uses[n].Running += j.Slots
		default:
			uses[n].Suspended += j.Slots
		}
	}
	return uses
}

// WriteQueues prints queues as bqueues does.
func WriteQueues(w io.Writer, queues []QueueUse, wide bool) error {
	var b strings.Builder
	b.WriteString("QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP \n")
	for _, q := range queues {
		name := Visible(q.Name)
		if !wide {
			name = cutLeft(name, 15)
		}
		r := q.Row()
		fmt.Fprintf(&b, "%-15s %4d %-15s %3s %4s %4s %4s %5d %5d %5d %5d \n",
			name, r.Priority, Visible(r.Status), Visible(r.Max), Visible(r.PerUser), Visible(r.PerProcessor), Visible(r.PerHost),
			r.Jobs, r.Pending, r.Running, r.Suspended)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
