package daemon

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// However hooks end, and whenever that is written down, the next daemon looks up
// all ends that had none, and none that had one.
func TestHookMarksCoverEveryEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, err := decodeHookMarks([]byte(`{"from":"2026-01-01T00:00:00Z"}`))
		if err != nil {
			t.Fatal(err)
		}
		at := h.From
		ended, had := map[backends.ID]time.Time{}, map[backends.ID]bool{}
		var open []backends.ID
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1: // many end at one instant
				at = at.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "later")) * time.Second)
				j := backends.Job{ID: backends.ID{Job: int64(n + 1)}, Ended: at}
				if !h.add(&j) || h.add(&j) {
					t.Fatalf("job %v is added twice, or not at all", j.ID)
				}
				ended[j.ID] = at
				open = append(open, j.ID)
			case 2:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					had[open[i]] = true
					delete(h.Open, open[i])
					open = slices.Delete(open, i, i+1)
				}
			case 3:
				data, err := json.Marshal(h.saved())
				if err != nil {
					t.Fatal(err)
				}
				next, err := decodeHookMarks(data)
				if err != nil {
					t.Fatal(err)
				}
				for id, at := range ended {
					_, taken := next.Taken[id]
					if again := !at.Before(next.From) && !taken; again == had[id] {
						t.Fatalf("job %v, which ended at %v, had its hook: %v; it is looked up: %v (%s)", id, at, had[id], again, data)
					}
				}
				if rapid.Bool().Draw(t, "restart") {
					h, open = next, nil
					for id, at := range ended {
						j := backends.Job{ID: id, Ended: at}
						if !at.Before(next.From) && h.add(&j) {
							open = append(open, id)
						}
					}
					slices.SortFunc(open, backends.ID.Compare)
				}
			case 4: // the clock is put back
				at = at.Add(-time.Duration(rapid.IntRange(1, 3).Draw(t, "back")) * time.Second)
				var ahead []backends.Job
				for id, was := range ended {
					if !was.Before(at) {
						ahead = append(ahead, backends.Job{ID: id, Ended: was})
						ended[id] = at
					}
				}
				h.moveBack(at, ahead)
			}
		}
	})
}

func FuzzHookMarks(f *testing.F) {
	f.Add([]byte(`{"from":"2026-01-01T00:00:00Z","taken":{"1":"2026-01-01T00:00:00Z","2[3]":"2026-01-01T00:00:01Z"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHookMarks(data)
		if err != nil {
			return
		}
		saved, err := json.Marshal(h.saved())
		if err != nil {
			t.Skip() // a year that JSON can't write
		}
		again, err := decodeHookMarks(saved)
		if err != nil || !again.From.Equal(h.From) || !maps.EqualFunc(again.saved().Taken, h.saved().Taken, time.Time.Equal) {
			t.Errorf("%s became %s, %v", data, saved, err)
		}
	})
}
