package supply

import (
	"reflect"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// jobs returns jobs 1, 2, … of which w waits, r runs and j has joined.
func jobs(kinds string) (all []Job) {
	for i, k := range kinds {
		all = append(all, Job{ID: backends.ID{Job: int64(i + 1)}, Began: k != 'w', Joined: k == 'j'})
	}
	return all
}

func ids(numbers ...int64) (all []backends.ID) {
	for _, n := range numbers {
		all = append(all, backends.ID{Job: n})
	}
	return all
}

// TestDecide: worked examples (R50).
func TestDecide(t *testing.T) {
	for name, x := range map[string]struct {
		state State
		want  Decision
	}{
		"nothing is wanted":         {State{Most: 9}, Decision{}},
		"three are wanted":          {State{Want: 3, Most: 9}, Decision{Submit: 3}},
		"one waits, one runs":       {State{Want: 3, Most: 9, Jobs: jobs("wr")}, Decision{Submit: 1}},
		"joined ones count already": {State{Want: 3, Most: 9, Jobs: jobs("jj")}, Decision{Submit: 3}},
		"at most":                   {State{Want: 3, Most: 4, Jobs: jobs("jjw")}, Decision{Submit: 1}},
		"no more at all":            {State{Want: 3, Most: 2, Jobs: jobs("jj")}, Decision{}},
		"no longer wanted":          {State{Most: 9, Jobs: jobs("wrjw")}, Decision{Kill: ids(4, 1)}},
		"one too many":              {State{Want: 1, Most: 9, Jobs: jobs("wjw")}, Decision{Kill: ids(3)}},
		"running ones stay":         {State{Most: 9, Jobs: jobs("rr")}, Decision{}},
		"two ended in vain":         {State{Want: 3, Most: 9, Fruitless: 2, Failed: noon}, Decision{Submit: 3}},
		"three ended in vain":       {State{Want: 3, Most: 9, Fruitless: 3, Failed: noon}, Decision{Wake: noon.Add(time.Second)}},
		"after the pause":           {State{Want: 3, Most: 9, Fruitless: 3, Failed: noon.Add(-time.Second)}, Decision{Submit: 1}},
		"five ended in vain":        {State{Want: 3, Most: 9, Fruitless: 5, Failed: noon}, Decision{Wake: noon.Add(4 * time.Second)}},
		"refused":                   {State{Want: 3, Most: 9, Refused: 1, Failed: noon}, Decision{Wake: noon.Add(time.Second)}},
		"refused for long":          {State{Want: 3, Most: 9, Refused: 1 << 40, Failed: noon}, Decision{Wake: noon.Add(5 * time.Minute)}},
		"a pause delays no kill":    {State{Most: 9, Jobs: jobs("w"), Refused: 1, Failed: noon}, Decision{Kill: ids(1)}},
	} {
		if got := Decide(x.state, noon); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// TestDecisionsSettle: what is carried out leaves nothing to do; never are more jobs to come than are
// wanted by a submission, nor more jobs there than at most; none that began is killed (R50).
func TestDecisionsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{
			Want: rapid.IntRange(0, 20).Draw(t, "want"), Most: rapid.IntRange(1, 20).Draw(t, "most"),
			Jobs:      jobs(rapid.StringMatching(`[wrj]{0,20}`).Draw(t, "jobs")),
			Fruitless: rapid.IntRange(0, 5).Draw(t, "fruitless"), Refused: rapid.IntRange(0, 5).Draw(t, "refused"),
		}
		s.Failed = noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * time.Second)
		d := Decide(s, noon)
		killed := map[backends.ID]bool{}
		for _, id := range d.Kill {
			killed[id] = true
		}
		after := s
		after.Jobs, after.Fruitless, after.Refused = nil, 0, 0
		for _, j := range s.Jobs {
			switch {
			case !killed[j.ID]:
				after.Jobs = append(after.Jobs, j)
			case j.Began:
				t.Fatalf("%v is killed, which began", j.ID)
			}
		}
		if d.Submit > 0 && len(d.Kill) > 0 {
			t.Fatalf("%+v: submits and kills", d)
		}
		for i := range d.Submit {
			after.Jobs = append(after.Jobs, Job{ID: backends.ID{Job: int64(100 + i)}})
		}
		coming := 0
		for _, j := range after.Jobs {
			if !j.Joined {
				coming++
			}
		}
		if d.Submit > 0 && (coming > s.Want || len(after.Jobs) > s.Most) {
			t.Fatalf("%+v: %d are to come, %d there", d, coming, len(after.Jobs))
		}
		probes := s.Refused > 0 || s.Fruitless >= Lenient
		if again := Decide(after, noon); len(again.Kill) > 0 || !probes && again.Submit > 0 {
			t.Fatalf("%+v, then %+v", d, again)
		}
	})
}
