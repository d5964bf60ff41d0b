package heap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHeap: after any pushes, removals and changes the elements come in order, and each
// has known its place.
func TestHeap(t *testing.T) {
	type element struct{ value, place int }
	rapid.Check(t, func(t *rapid.T) {
		h := New(func(a, b *element) bool { return a.value < b.value }, func(e *element, i int) { e.place = i })
		var all []*element
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			value := rapid.IntRange(0, 20).Draw(t, "value")
			step := rapid.IntRange(0, 3).Draw(t, "step")
			if step > 1 || len(all) == 0 {
				e := &element{value: value}
				all = append(all, e)
				h.Push(e)
				continue
			}
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			if step == 1 {
				all[i].value = value
				h.Fix(all[i].place)
				continue
			}
			h.Remove(all[i].place)
			all = slices.Delete(all, i, i+1)
		}
		for i, e := range h.Items() {
			if e.place != i {
				t.Fatalf("the element at %d believes to be at %d", i, e.place)
			}
		}
		slices.SortFunc(all, func(a, b *element) int { return a.value - b.value })
		for _, want := range all {
			if got := h.Pop(); got.value != want.value {
				t.Fatalf("%d comes before %d", got.value, want.value)
			}
		}
		if h.Len() != 0 || h.Top() != nil {
			t.Fatalf("%d are left", h.Len())
		}
	})
}
