package try

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever items arrive, fail, or are lost: no more of them are tried than may be, the leader is one of those that
// are left, something is said only of what was measured, and the trial ends.
func TestLawTrialsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		variants := rapid.IntRange(1, MaxVariants).Draw(t, "variants")
		x := New(variants, rapid.Uint64().Draw(t, "seed"))
		items, looks := rapid.Int64Range(0, 100_000).Draw(t, "items"), 0
		for more := true; !x.Over; {
			if more {
				items += rapid.Int64Range(0, 10_000).Draw(t, "more items")
				more = rapid.IntRange(0, 9).Draw(t, "more") > 0
			}
			x.Slots = rapid.IntRange(0, 70).Draw(t, "slots")
			hosts := rapid.IntRange(1, 300).Draw(t, "hosts")
			judged, idle := x.Judged, x.dealable() == 0
			cells, unit := x.Next(items, more, hosts)
			if x.Judged != judged {
				looks++
			}
			if cells > 0 && (unit < 1 || x.Over) || x.Judged != judged && !idle {
				t.Fatalf("%d cells, %d to a host: %+v", cells, unit, x)
			}
			dealt := x.Deal(rapid.IntRange(0, cells+1).Draw(t, "dealt"))
			for _, c := range dealt {
				if c.Block < 1 || c.Block > maxBlocks || !slices.Contains(x.Alive(), c.Variant) {
					t.Fatalf("cell %+v: %+v", c, x)
				}
				if lost := rapid.IntRange(0, 9).Draw(t, "lost"); lost > 0 {
					x.Record(c, time.Duration(rapid.Int64Range(-1, 1e12).Draw(t, "took")), lost == 1)
				}
			}
			if most := min(max(items/Share, int64(leastBlocks*variants)), maxItems); x.Used > most {
				t.Fatalf("%d items of %d were tried: %d at most may be", x.Used, items, most)
			}
			if !slices.Contains(x.Alive(), x.Leader) || x.Sure < 1/float64(variants)-1e-9 || x.Sure > 1 || x.Spent > 1+1e-9 || looks > 60 {
				t.Fatalf("%d looks: %+v", looks, x)
			}
			if !more && rapid.IntRange(0, 99).Draw(t, "end") == 0 {
				x.End()
			}
		}
		if cells, _ := x.Next(items, true, 1); cells > 0 || len(x.Deal(1)) > 0 || x.Sums != nil || x.Sure > 1/float64(variants)+1e-9 && slices.Max(x.Ran) < leastBlocks {
			t.Fatalf("it is over: %+v", x)
		}
	})
}
