package split

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Of a snapshot only the split's own jobs are kept; jobs of others, but not those that
// measure hosts, take slots.
func TestFarmOf(t *testing.T) {
	placed := func(name string, state backends.State, slots int) backends.Job {
		return backends.Job{Name: name, State: state, Hosts: []backends.Placement{{Host: "n1", Slots: slots}}}
	}
	s := &backends.Snapshot{
		Jobs: []backends.Job{
			placed("asplit/a.t/2", backends.Running, 1), placed("asplit/a.t2/3", backends.Running, 2), placed("other", backends.Running, 4),
			placed("waits", backends.Pending, 8), placed("asplit/qualify", backends.Running, 16),
		},
		Ended: []backends.Job{placed("asplit/a.t/2", backends.Exited, 1), placed("asplit/a.t/1", backends.Done, 1), placed("gone", backends.Done, 1)},
	}
	f := farmOf(s, "asplit/a.t/")
	if f.taken["n1"] != 6 || len(f.own) != 2 || f.own["asplit/a.t/2"].State != backends.Running || f.own["asplit/a.t/1"].State != backends.Done {
		t.Errorf("%+v", f)
	}
}

// A task of FreeSlots has the slots that no job of others has; on a full host one.
func TestFreeSlots(t *testing.T) {
	q := newQueue("n1", "n2", "n3")
	for i, others := range []int{0, 3, 4} {
		q.hosts[i].Slots = 4
		q.jobs = append(q.jobs, backends.Job{
			ID: backends.ID{Job: int64(i + 1)}, Name: "other", State: backends.Running,
			Hosts: []backends.Placement{{Host: q.hosts[i].Name, Slots: others}},
		})
	}
	x := newTrial(t, q)
	d := echo(1, 40, 20)
	d.Slots = FreeSlots
	if err := Start(t.Context(), d, x.options("")); err != nil || x.out.String() != lines(1, 40) {
		t.Fatalf("%v, %q", err, x.out.String())
	}
	for _, j := range q.all()[3:] {
		if want := map[string]int{"n1": 4, "n2": 1, "n3": 1}[j.Hosts[0].Host]; j.Hosts[0].Slots != want {
			t.Errorf("a job has %d slots of %s, want %d", j.Hosts[0].Slots, j.Hosts[0].Host, want)
		}
	}
}

// While all jobs wait a line says which, and why, once for each reason.
func TestWaitingIsReported(t *testing.T) {
	q := newQueue("n1")
	q.pend = func(string) bool { return true }
	x := newTrial(t, q)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := x.options("")
	told := make(chan string, 10)
	o.Reporter = logs(func(text string) { told <- text })
	over := make(chan error, 1)
	go func() { over <- Start(ctx, echo(1, 4, 2), o) }()
	select {
	case text := <-told:
		if want := "job 1 waits for a slot on n1: the queue gives no reason: see ajobs -l"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	case err := <-over:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("nothing was said")
	}
	stop()
	if err := <-over; err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
}

func TestWaitingText(t *testing.T) {
	waiting := []*row{{Task: Task{Host: "n\x1b1"}, Slots: 3}, {}, {}}
	got := waitingText(waiting, &backends.Job{ID: backends.ID{Job: 7}, Reason: "full: 2 of\n3 slots"})
	if want := `job 7 waits for 3 slots on n\x1b1: full: 2 of; 3 slots (2 more wait)`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// logs is a Reporter of messages alone.
type logs func(string)

func (f logs) Log(text string)   { f(text) }
func (logs) Progress(Progress)   {}
func (logs) Round(r RoundReport) {}
