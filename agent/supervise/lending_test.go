package supervise

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// R48: what a job does not use of its minimum is lent: 10 s after it pauses the others have all they want of it, or nine
// tenths of what there is. It is
// given back in the first interval in which its owner wants it, where rates work: the decision at the end of that
// interval is enough.
func TestLawLending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(Resources()).Draw(t, "resource")
		const all = int64(100_000)
		w := &world{r: r, real: all, wants: map[string]int64{}}
		w.h = Host{Name: "h1"}
		w.h.Capacity[r] = all
		works := Works{r: {Rate}}
		owner := Job{Name: "owner", Slots: 1, Works: works}
		owner.Minimum[r] = rapid.Int64Range(10_000, 90_000).Draw(t, "minimum")
		w.h.Jobs = []Job{owner}
		wanted := int64(0)
		for i := range rapid.IntRange(1, 5).Draw(t, "others") {
			name := fmt.Sprint("other", i)
			w.h.Jobs = append(w.h.Jobs, Job{Name: name, Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Works: works})
			w.wants[name] = rapid.Int64Range(1000, 2*all).Draw(t, "wants")
			wanted += w.wants[name]
		}
		at := now
		second := func() {
			at = at.Add(time.Second)
			w.run()
			w.h.Limits = Decide(&w.h, DefaultPolicy(), at).Limits
		}
		others := func() (sum int64) {
			for i := range w.h.Jobs {
				if w.h.Jobs[i].Name != "owner" {
					sum += w.h.Jobs[i].Uses[r]
				}
			}
			return sum
		}
		wants := rapid.Int64Range(owner.Minimum[r], 2*all).Draw(t, "owner wants")
		least := int64(DefaultPolicy().Kept * 0.985 * float64(owner.Minimum[r]))
		for pause := range rapid.IntRange(1, 4).Draw(t, "pauses") {
			w.wants["owner"] = wants
			second() // the first interval, in which it wants it
			for n := range rapid.IntRange(1, 20).Draw(t, "busy") {
				if second(); w.h.job("owner").Uses[r] < least {
					t.Fatalf("pause %d: %d s after the first interval it has %d of %d: %+v", pause, n+1, w.h.job("owner").Uses[r], owner.Minimum[r], w.h.Limits)
				}
			}
			w.wants["owner"] = rapid.SampledFrom([]int64{0, 0, owner.Minimum[r] / 10}).Draw(t, "owner wants in its pause")
			for range 10 {
				second()
			}
			if second(); others() < min(wanted, (all-w.wants["owner"])*9/10) {
				t.Fatalf("pause %d: after 10 s others have %d of %d that they want: %+v", pause, others(), wanted, w.h.Limits)
			}
		}
	})
}
