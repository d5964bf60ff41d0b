package desk

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// remembering is a queue with a past.
type remembering struct {
	backends.Backend
	past []backends.Past
	err  error
}

func (q remembering) Abilities() backends.Abilities {
	return backends.Abilities{ForWrappers: backends.ForWrappers{
		History: func(_ context.Context, p backends.PastQuery) (backends.PastJobs, error) {
			var all []backends.Past
			for i := range q.past {
				if p.Wants(&q.past[i].Job) {
					all = append(all, q.past[i])
				}
			}
			return backends.PastJobs{Jobs: all}, q.err
		},
		Record: func(context.Context, backends.ID) (*backends.Record, error) {
			return &backends.Record{Spec: backends.Spec{Command: []string{"/opt/run"}}}, nil
		},
	}}
}

// R45: a running job is expected to end by its owner's past jobs that were like it.
func TestEnds(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.Local)
	var q remembering
	add := func(user, name string, minutes int) {
		start := now.Add(-24 * time.Hour)
		q.past = append(q.past, backends.Past{
			Job:    backends.Job{User: user, Name: name, Project: "chipA", State: backends.Done, Slots: 1},
			Record: &backends.Record{Spec: backends.Spec{Command: []string{"/opt/run"}}, Runs: []backends.RunRecord{{Run: 1, Started: start, Ended: start.Add(time.Duration(minutes) * time.Minute)}}},
		})
	}
	for i := range 8 {
		add("ann", "sim_1", 60+10*i)
		add("ann", "", 30)
		add("bob", "sim_1", 1000)
		add("ann", "other", 1000)
	}
	d := &Desk{sys: System{Now: func() time.Time { return now }}}
	ends := func(name string, ran time.Duration, change ...func(*Story)) string {
		d.queue = q
		s := &Story{ID: "7", Name: name, User: "ann", Project: "chipA", State: backends.Running, Started: now.Add(-ran)}
		for _, f := range change {
			f(s)
		}
		return d.ends(t.Context(), s)
	}
	const want = "about 2026-11-29 13:30, three of four between 2026-11-29 13:00 and 2026-11-29 14:00, by 8 jobs like it that took longer than it has run"
	if got := ends("sim_77", 10*time.Minute); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ends("", time.Minute); !strings.HasPrefix(got, "about 2026-11-29 12:29") { // by its command
		t.Errorf("without a name: %q", got)
	}
	if got := ends("sim_77", 3*time.Hour); got != "" {
		t.Errorf("of one that takes longer than all: %q", got)
	}
	if got := ends("sim_77", time.Minute, func(s *Story) { s.State = backends.Pending }); got != "" {
		t.Errorf("of one that waits: %q", got)
	}
	q.err = errors.New("sacct is away")
	if got := ends("sim_77", time.Minute); got != "" {
		t.Errorf("without an answer: %q", got)
	}
}
