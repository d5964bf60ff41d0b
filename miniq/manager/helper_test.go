package manager

import (
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// bench is a queue under virtual time with one user and one administrator.
type bench struct {
	*testing.T
	m       *Manager
	now     time.Time
	effects []Effect // of the last step
	last    Result
}

var (
	user  = By{User: "ann"}
	other = By{User: "bob"}
	admin = By{User: "root", Admin: true}
)

// newBench has hosts n1, n2, … of the given slots and 4 GiB a slot.
func newBench(t *testing.T, cfg Config, slots ...int) *bench {
	t.Helper()
	b := &bench{T: t, m: New(cfg), now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	for i, n := range slots {
		b.do(NodeUp{Name: "n" + string(rune('1'+i)), Slots: n, Memory: int64(n) << 32})
	}
	return b
}

func (b *bench) do(e Event) []Effect {
	b.Helper()
	b.effects, b.last = b.m.Step(b.now, e)
	return b.effects
}

// must fails the test if the event was refused.
func (b *bench) must(e Event) []Effect {
	b.Helper()
	b.do(e)
	if err := b.last.Errors.First(); err != nil {
		b.Fatalf("%T: %v", e, err)
	}
	return b.effects
}

// byFor returns the user, as an administrator where the Spec has a priority.
func byFor(spec backends.Spec) By { return By{User: user.User, Admin: spec.Priority != 0} }

func (b *bench) submit(spec backends.Spec) backends.ID {
	b.Helper()
	b.do(Submit{By: byFor(spec), Specs: []backends.Spec{spec}})
	if err := b.last.Submitted[0].Err; err != nil {
		b.Fatalf("submit: %v", err)
	}
	return b.last.Submitted[0].ID
}

// after lets time pass, with all ticks that the queue asks for meanwhile.
func (b *bench) after(d time.Duration) {
	b.Helper()
	end := b.now.Add(d)
	for at := b.m.Wake(); !at.IsZero() && !at.After(end); at = b.m.Wake() {
		if !at.After(b.now) {
			b.Fatalf("wake at %v, which has passed", at)
		}
		b.now = at
		b.do(Tick{})
	}
	b.now = end
}

func (b *bench) job(id backends.ID) backends.Job {
	b.Helper()
	jobs := b.m.Jobs(b.now, []backends.ID{id})
	if len(jobs) != 1 {
		b.Fatalf("job %s: %d of them", id, len(jobs))
	}
	return jobs[0]
}

func (b *bench) state(id backends.ID, want backends.State) {
	b.Helper()
	if got := b.job(id); got.State != want {
		b.Fatalf("job %s is %v (%s), want %v", id, got.State, got.Reason, want)
	}
}

func (b *bench) waits(id backends.ID, want backends.Wait) {
	b.Helper()
	if got := b.job(id); got.State != backends.Pending || got.Wait != want {
		b.Fatalf("job %s is %v and waits for %v (%s), want pending and %v", id, got.State, got.Wait, got.Reason, want)
	}
}

func (b *bench) shows(id backends.ID, want int) {
	b.Helper()
	if got := b.job(id).Priority.Value(); got != want {
		b.Fatalf("job %s shows %d, want %d", id, got, want)
	}
}

// ends reports the end of a job's run.
func (b *bench) ends(id backends.ID, code int) {
	b.Helper()
	b.must(Ended{ID: id, Run: b.run(id), ExitCode: code})
}

func (b *bench) run(id backends.ID) int {
	b.Helper()
	for _, r := range b.m.Runs() {
		if r.ID == id {
			return r.Run
		}
	}
	b.Fatalf("job %s has no run", id)
	return 0
}

// started lists the jobs that the last step started, in order.
func (b *bench) started() []backends.ID {
	var ids []backends.ID
	for _, e := range b.effects {
		if s, ok := e.(StartRun); ok {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func (b *bench) starts(want ...backends.ID) {
	b.Helper()
	if got := b.started(); !slices.Equal(got, want) {
		b.Fatalf("started %v, want %v", got, want)
	}
}

func effectOf[T Effect](b *bench) T {
	b.Helper()
	for _, e := range b.effects {
		if wanted, ok := e.(T); ok {
			return wanted
		}
	}
	var none T
	b.Fatalf("no %T among %v", none, b.effects)
	return none
}

func spec(slots int) backends.Spec { return backends.Spec{Slots: slots, Command: []string{"true"}} }
