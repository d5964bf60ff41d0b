package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// scene is a farm in the making: what a test sets up, and what Make said of it.
type scene struct {
	t      *testing.T
	state  State
	policy Policy
	now    time.Time
	next   int64
}

func newScene(t *testing.T, hosts int, slots int) *scene {
	t.Helper()
	s := &scene{t: t, now: noon, next: 1}
	s.state.Farm = &backends.Snapshot{At: noon}
	for i := range hosts {
		s.state.Farm.Hosts = append(s.state.Farm.Hosts, backends.Host{Name: fmt.Sprintf("n%d", i+1), Slots: slots})
	}
	s.state.Abilities = fullAbilities()
	s.state.Groups = map[string][]string{"ann": {"chipa"}, "bob": {"chipb"}, "cat": {"chipa", "chipb"}}
	s.policy = Policy{
		Projects: []Project{{Name: "chipA", Group: "chipa"}, {Name: "chipB", Group: "chipb"}},
		Cycle:    20 * time.Second, PendingThreshold: time.Minute, MinRuntime: time.Minute, FreeTimeout: time.Minute,
		HandOverTimeout: 2 * time.Minute, HoldLimit: 10 * time.Minute, StartBucket: 5 * time.Minute, Headroom: 1.5,
		MaxRequeues: 3, UnpreemptableShare: 0.1, MaxVictims: 20, MaxVictimsPerProject: 100,
		VictimOrder: []Criterion{ByOverSubscribed, ByLost, ByStart},
	}
	return s
}

// pool adds an allocation for "chipA", "chipA:step" or "chipA:step@user".
func (s *scene) pool(name string, slots int) *scene {
	name, user, _ := strings.Cut(name, "@")
	project, step := backends.SplitProject(name)
	s.policy.Allocations = append(s.policy.Allocations, Allocation{ID: int64(len(s.policy.Allocations) + 1), Project: project, Step: step, User: user, Guarantee: slots})
	return s
}

// job adds a job of user for project; where is "" for a pending one, or hosts as
// "n1*2 n2" for a running one that started ago.
func (s *scene) job(user, project, where string, ago time.Duration, change ...func(*backends.Job)) backends.ID {
	j := backends.Job{
		ID: backends.ID{Job: s.next}, User: user, Queue: "normal", State: backends.Pending, Wait: backends.WaitResources,
		Priority: 20, Slots: 1, OneHost: true, Submitted: s.now.Add(-ago),
	}
	j.Project, j.Step = backends.SplitProject(project)
	s.next++
	if where != "" {
		j.State, j.Started, j.Slots = backends.Running, s.now.Add(-ago), 0
		for h := range strings.FieldsSeq(where) {
			p := backends.Placement{Slots: 1}
			name, n, many := strings.Cut(h, "*")
			p.Host = name
			if many {
				_, _ = fmt.Sscan(n, &p.Slots)
			}
			j.Hosts = append(j.Hosts, p)
			j.Slots += p.Slots
		}
		j.OneHost = len(j.Hosts) == 1
	}
	for _, f := range change {
		f(&j)
	}
	s.state.Farm.Jobs = append(s.state.Farm.Jobs, j)
	return j.ID
}

func slots(n int) func(*backends.Job) { return func(j *backends.Job) { j.Slots = n } }
func spanning(n int) func(*backends.Job) {
	return func(j *backends.Job) { j.Slots, j.OneHost = n, false }
}

func suspendable(j *backends.Job)          { j.Tag = backends.Tag{Preempt: backends.PreemptSuspend}.String() }
func memory(gib int64) func(*backends.Job) { return func(j *backends.Job) { j.Memory = gib << 30 } }

// at finds a job in the farm, to change it between cycles.
func (s *scene) at(id backends.ID) *backends.Job {
	for i := range s.state.Farm.Jobs {
		if s.state.Farm.Jobs[i].ID == id {
			return &s.state.Farm.Jobs[i]
		}
	}
	s.t.Fatalf("no job %s", id)
	return nil
}

// cycle plans once, and keeps the memory for the next cycle, 20 s later.
func (s *scene) cycle() Plan {
	s.t.Helper()
	p := Make(s.state, s.policy, s.now)
	s.state.Memory = p.Memory
	s.now = s.now.Add(s.policy.Cycle)
	s.state.Farm.At = s.now
	return p
}

// ripen runs cycles until what is pending within its allocation has waited for
// the threshold, doing the ranks, and returns the plan of the last one.
func (s *scene) ripen() Plan {
	s.t.Helper()
	var p Plan
	for range 4 {
		p = s.cycle()
		s.rank(p)
	}
	return p
}

// rank does the Rank actions of a plan as the queue would.
func (s *scene) rank(p Plan) {
	for _, a := range p.Actions {
		if a.Verb == Rank {
			s.at(a.Job).Priority = a.Priority
		}
	}
}

// preempted lists the jobs that a plan preempts, as "requeue 3, suspend 4".
func preempted(p Plan) string {
	var acts []string
	for _, a := range p.Actions {
		if a.Verb == Requeue || a.Verb == Suspend {
			acts = append(acts, string(a.Verb)+" "+a.Job.String())
		}
	}
	return strings.Join(acts, ", ")
}

func skipped(p Plan, id backends.ID) string {
	var all []string
	for _, s := range p.Skipped {
		if s.Job == id {
			all = append(all, s.Reason)
		}
	}
	return strings.Join(all, "; ")
}
