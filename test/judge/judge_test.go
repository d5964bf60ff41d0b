package judge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Each fault is named, and nothing else.
func TestOneVictim(t *testing.T) {
	victim := func(id int64) plan.Victim {
		return plan.Victim{ID: backends.ID{Job: id}, Fate: plan.Taken, Released: true}
	}
	good := []Tally{{"a", 1, 1}, {"b", 2, 1}}
	one := plan.Memory{Reclaims: []plan.Reclaim{{Victims: []plan.Victim{victim(1), {ID: backends.ID{Job: 2}, Fate: plan.Spared}}}}}
	two := plan.Memory{Reclaims: []plan.Reclaim{{Victims: []plan.Victim{victim(1)}}, {Victims: []plan.Victim{victim(2)}}}}
	for name, c := range map[string]struct {
		jobs     []Tally
		memory   *plan.Memory
		requeued bool
		want     string
	}{
		"good":            {good, &one, true, ""},
		"lost":            {append([]Tally{{"c", 0, 0}}, good...), &one, true, "c ended 0 times"},
		"doubled":         {append([]Tally{{"c", 1, 2}}, good...), &one, true, "c ended 2 times"},
		"taken twice":     {append([]Tally{{"c", 2, 1}}, good...), &one, true, "started again: 2, want 1"},
		"not to go again": {good, &one, false, "started again: 1, want 0"},
		"two victims":     {good, &two, true, "victims: [1 2], want one"},
	} {
		err := OneVictim(c.jobs, c.memory, c.requeued)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	held := plan.Reclaim{ID: 2, Phase: plan.Expired, Victims: []plan.Victim{{Fate: plan.Taken}}}
	memory := plan.Memory{Reclaims: []plan.Reclaim{{ID: 1, Phase: plan.Acted}, held, {ID: 3, Phase: plan.Cancelled, Victims: []plan.Victim{{Fate: plan.Taken, Released: true}}}}}
	if open := OpenReclaims(&memory); len(open) != 2 || open[0].ID != 1 || open[1].ID != 2 {
		t.Errorf("open are %+v, want the one under way and the one whose victim is held", open)
	}
}

func TestMoments(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	all := Moments([]Span[int]{{"n1", at(0), at(5), 1}, {"n1", at(5), at(9), 2}, {"n1", at(6), at(7), 3}, {"n2", at(1), at(2), 4}})
	var most, moments int
	for _, m := range all {
		most, moments = max(most, len(m.Running)), moments+1
	}
	if most != 2 || moments != 4 || all[3].Started != 3 {
		t.Errorf("at most %d in %d moments: %+v", most, moments, all)
	}
}

func TestReadAndPrint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job")
	if tally, err := CountRuns("a", path); tally != (Tally{Name: "a"}) || err != nil {
		t.Errorf("before it starts: %+v, %v", tally, err)
	}
	if err := os.WriteFile(path, []byte("start 0\nat 1\nstart 1\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if tally, err := CountRuns("a", path); tally != (Tally{"a", 2, 1}) || err != nil {
		t.Errorf("%+v, %v", tally, err)
	}
	var out strings.Builder
	if err := Print(&out, []Check{{"one", true, "1"}}); err != nil {
		t.Error(err)
	}
	if err := Print(&out, []Check{{"two", false, "2"}, {"three", true, "3"}}); !errors.Is(err, ErrFailed) {
		t.Errorf("a check failed, and the error is %v", err)
	}
	if want := "ok      one\n        1\nFAILED  two\n        2\nok      three\n        3\n"; out.String() != want {
		t.Errorf("printed\n%s", out.String())
	}
}
