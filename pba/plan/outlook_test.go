package plan

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func limit(d time.Duration) func(*backends.Job) {
	return func(j *backends.Job) { j.RunLimit = d }
}

func TestOutlook(t *testing.T) {
	const minute = time.Minute
	past := func(user string) Runs {
		if user == "kim" {
			return Runs{Short: 5 * minute, Long: 50 * minute}
		}
		return Runs{}
	}
	for _, c := range []struct {
		name  string
		scene func(s *scene) backends.ID
		want  Outlook
	}{
		{"it starts now", func(s *scene) backends.ID { return s.job("bob", "", "", 0) }, Outlook{Waiting: 1}},
		{"a run limit", func(s *scene) backends.ID {
			s.job("bob", "", "n1*2", 10*minute, limit(30*minute))
			return s.job("bob", "", "", 0)
		}, Outlook{Waiting: 1, Latest: 20 * minute}},
		{"past runs", func(s *scene) backends.ID {
			s.job("kim", "", "n1*2", minute)
			return s.job("bob", "", "", 0)
		}, Outlook{Waiting: 1, Soonest: 4 * minute, Latest: 49 * minute}},
		{"the limit ends before a long run", func(s *scene) backends.ID {
			s.job("kim", "", "n1*2", minute, limit(3*minute))
			return s.job("bob", "", "", 0)
		}, Outlook{Waiting: 1, Soonest: 2 * minute, Latest: 2 * minute}},
		{"a run longer than all before", func(s *scene) backends.ID {
			s.job("kim", "", "n1*2", 51*minute)
			return s.job("bob", "", "", 0)
		}, Outlook{Waiting: 1, Latest: -1, Open: 1}},
		{"nothing is known", func(s *scene) backends.ID {
			s.job("bob", "", "n1*2", minute)
			return s.job("bob", "", "", 0)
		}, Outlook{Waiting: 1, Latest: -1, Open: 1}},
		{"another one is ahead", func(s *scene) backends.ID {
			s.job("kim", "", "n1*2", 0, limit(30*minute))
			s.job("kim", "", "", 0, slots(2), limit(40*minute))
			last := s.job("bob", "", "", 0)
			s.job("bob", "", "", 0)
			return last
		}, Outlook{Ahead: 1, Waiting: 3, Soonest: 10 * minute, Latest: 70 * minute}},
		{"one that does not fit is passed over", func(s *scene) backends.ID {
			s.job("kim", "", "n1", 0, limit(30*minute))
			s.job("kim", "", "", 0, slots(2), limit(40*minute))
			return s.job("bob", "", "", 0)
		}, Outlook{Ahead: 1, Waiting: 2}},
		{"memory", func(s *scene) backends.ID {
			s.state.Farm.Hosts[0].Memory = 8 << 30
			s.job("kim", "", "n1", 0, memory(6), limit(10*minute))
			return s.job("bob", "", "", 0, memory(4))
		}, Outlook{Waiting: 1, Soonest: 5 * minute, Latest: 10 * minute}},
		{"never", func(s *scene) backends.ID { return s.job("bob", "", "", 0, slots(3)) }, Outlook{Waiting: 1, Latest: -1}},
	} {
		s := newScene(t, 1, 2)
		id := c.scene(s)
		if got, ok := Decide(s.state, s.policy, s.now).Foresee(id, past); !ok || got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	s := newScene(t, 1, 2)
	id := s.job("bob", "", "n1", 0)
	if got, ok := Decide(s.state, s.policy, s.now).Foresee(id, past); ok {
		t.Errorf("a running job: %+v", got)
	}
}

func TestRuns(t *testing.T) {
	var took []time.Duration
	for n := range 40 {
		if took = append(took, time.Duration(40-n)*time.Minute); n == 3 {
			if got := NewRuns(took); got != (Runs{}) {
				t.Errorf("of four runs: %+v", got)
			}
		}
	}
	if got := NewRuns(took); got != (Runs{Short: 11 * time.Minute, Long: 38 * time.Minute}) {
		t.Errorf("%+v", got)
	}
}
