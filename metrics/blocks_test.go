package metrics_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/metrics"
)

// blocks returns hosts a, b, c … of so many slots that have not been measured.
func blocks(rule metrics.Rule, hosts, slots int) *metrics.Balance {
	b := metrics.New(metrics.Options{Rule: rule, RoundItems: 12})
	for n := range hosts {
		b.Join(string(rune('a'+n)), metrics.Measures{1, 1, 1, 1, 1, 1}, slots)
	}
	return b
}

func heldText(held []metrics.Held) (text string) {
	for _, h := range held {
		text += fmt.Sprint(h.Host, h.Blocks)
	}
	return text
}

// The source's fig. 3: of 12 blocks on three tasks, 9 and 10 move from the third to the first.
func TestSourcesBlocks(t *testing.T) {
	for _, x := range []struct {
		what string
		took [3]time.Duration // of a, b, c; s
		want string
	}{
		{"fig. 3", [3]time.Duration{2, 3, 4}, "a[1 2 3 4 9 10]b[5 6 7 8]c[11 12]"},
		{"not twice the fastest", [3]time.Duration{3, 3, 5}, "a[1 2 3 4]b[5 6 7 8]c[9 10 11 12]"},
		{"the second is the fastest", [3]time.Duration{9, 1, 8}, "a[3 4]b[5 6 7 8 1 2]c[9 10 11 12]"},
		{"one was not measured", [3]time.Duration{0, 3, 6}, "a[1 2 3 4]b[5 6 7 8 9 10]c[11 12]"},
		{"equal ones: the first", [3]time.Duration{1, 1, 2}, "a[1 2 3 4 9 10]b[5 6 7 8]c[11 12]"},
	} {
		b := blocks(metrics.Half, 3, 1)
		held, moved := b.Divide(nil, 1, 12)
		if got := heldText(held); got != "a[1 2 3 4]b[5 6 7 8]c[9 10 11 12]" || len(moved) > 0 {
			t.Fatalf("at first: %s, %v", got, moved)
		}
		for n := range held {
			held[n].Took = x.took[n] * time.Second
		}
		if held, _ = b.Divide(held, 1, 12); heldText(held) != x.want {
			t.Errorf("%s: %s, want %s", x.what, heldText(held), x.want)
		}
	}
}

// Hosts come and go: only what must move does.
func TestBlocksStay(t *testing.T) {
	b := blocks(metrics.Half, 3, 1)
	held, _ := b.Divide(nil, 1, 12)
	b.Leave("b")
	held, moved := b.Divide(held, 1, 12)
	if got := heldText(held); got != "a[1 2 3 4 5 6]c[9 10 11 12 7 8]" || fmt.Sprint(moved) != "[{[5 6] b a} {[7 8] b c}]" {
		t.Errorf("b left: %s, %v", got, moved)
	}
	b.Join("d", metrics.Measures{1, 1, 1, 1, 1, 1}, 1)
	held, moved = b.Divide(held, 1, 12)
	if got := heldText(held); got != "a[3 4 5 6]c[11 12 7 8]d[1 9 2 10]" || fmt.Sprint(moved) != "[{[1 2] a d} {[9 10] c d}]" {
		t.Errorf("d joined: %s, %v", got, moved)
	}
	if again, moved := b.Divide(held, 1, 12); heldText(again) != heldText(held) || len(moved) > 0 {
		t.Errorf("nothing happened: %s, %v", heldText(again), moved)
	}
	for _, h := range []string{"a", "c", "d"} {
		b.Leave(h)
	}
	if held, _ := b.Divide(held, 1, 12); held != nil {
		t.Errorf("without hosts: %v", held)
	}
}

// Of more hosts than blocks some have none, and a host of four slots takes no longer for four than for one.
func TestFewBlocks(t *testing.T) {
	held, _ := blocks(metrics.Rate, 3, 1).Divide(nil, 5, 6)
	if got := heldText(held); got != "a[5]b[6]c[]" {
		t.Error(got)
	}
	b := blocks(metrics.Rate, 2, 4)
	if held, _ = b.Divide(nil, 1, 8); heldText(held) != "a[1 2 3 4]b[5 6 7 8]" || b.Full("a", 5) != 8 {
		t.Error(heldText(held), b.Full("a", 5))
	}
}

// optimum is the shortest time in which hosts of these speeds (blocks/s) do so many blocks.
func optimum(speeds []float64, blocks int) float64 {
	counts := make([]int, len(speeds))
	longest := 0.0
	for range blocks {
		best := 0
		for n := range speeds {
			if float64(counts[n]+1)/speeds[n] < float64(counts[best]+1)/speeds[best] {
				best = n
			}
		}
		counts[best]++
		longest = max(longest, float64(counts[best])/speeds[best])
	}
	return longest
}

// period has hosts of these speeds compute their blocks, and returns how long it takes.
func period(b *metrics.Balance, held []metrics.Held, speeds []float64) float64 {
	longest := 0.0
	var back []metrics.Response
	for n, h := range held {
		held[n].Took = 0
		if len(h.Blocks) == 0 {
			continue
		}
		seconds := float64(len(h.Blocks)) / speeds[h.Host[0]-'a']
		held[n].Took = time.Duration(seconds * 1e9)
		back = append(back, metrics.Response{Host: h.Host, Items: len(h.Blocks), Took: held[n].Took})
		longest = max(longest, seconds)
	}
	b.Done(back)
	return longest
}

// A host is slowed to a quarter: five periods later a period takes 1.34 times the best possible at most
// by halving, 1.1 times by rates. Then all stays.
func TestSlowedHost(t *testing.T) {
	for rule, most := range map[metrics.Rule]float64{metrics.Half: 1.34, metrics.Rate: 1.1} {
		for slow := range 3 {
			b := blocks(rule, 3, 1)
			held, _ := b.Divide(nil, 1, 12)
			speeds := []float64{1, 1, 1}
			for range 3 {
				period(b, held, speeds)
				if _, moved := b.Divide(held, 1, 12); len(moved) > 0 {
					t.Fatalf("%s: equal hosts: %v", rule, moved)
				}
			}
			speeds[slow] = 0.25
			for range 5 {
				period(b, held, speeds)
				held, _ = b.Divide(held, 1, 12)
			}
			took, best := period(b, held, speeds), optimum(speeds, 12)
			t.Logf("%s, host %d: %s: %.2f of %.2f", rule, slow, heldText(held), took, best)
			if took > most*best {
				t.Errorf("%s, host %d slowed: a period takes %.2f s, the best possible is %.2f s: %s", rule, slow, took, best, heldText(held))
			}
		}
	}
}

// A host that lost all of its blocks is tried again, and gets some if it is fast again.
func TestIdleHostIsRevisited(t *testing.T) {
	b := blocks(metrics.Rate, 2, 1)
	held, _ := b.Divide(nil, 1, 12)
	speeds := []float64{1, 0.05}
	for range 3 {
		period(b, held, speeds)
		held, _ = b.Divide(held, 1, 12)
	}
	if len(held[1].Blocks) > 0 {
		t.Fatalf("a host that takes 20 times as long has %v", held[1].Blocks)
	}
	speeds[1] = 1
	for range 200 {
		period(b, held, speeds)
		held, _ = b.Divide(held, 1, 12)
	}
	if len(held[1].Blocks) != 6 {
		t.Errorf("got %s", heldText(held))
	}
}

// Whatever hosts there are and however long they take: each block has one host, and by rates no single
// move would make a period shorter by more than the threshold.
func TestBlocksAreDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom([]metrics.Rule{metrics.Half, metrics.Rate}).Draw(t, "rule")
		first, count := rapid.Int64Range(-3, 3).Draw(t, "first"), rapid.Int64Range(1, 40).Draw(t, "blocks")
		b := metrics.New(metrics.Options{Rule: rule, RoundItems: int(count)})
		var held []metrics.Held
		for range rapid.IntRange(1, 30).Draw(t, "periods") {
			name := string(rune('a' + rapid.IntRange(0, 5).Draw(t, "host")))
			if rapid.IntRange(0, 2).Draw(t, "leaves") == 0 {
				b.Leave(name)
			} else {
				b.Join(name, metrics.Measures{rapid.Float64Range(0, 9).Draw(t, "measure"), 1, 1, 1, 1, 1}, rapid.IntRange(1, 3).Draw(t, "slots"))
			}
			before := heldText(held)
			after, moved := b.Divide(held, first, first+count-1)
			if len(after) == 0 {
				if len(b.Shares()) > 0 {
					t.Fatal("no host has blocks")
				}
				continue
			}
			if heldText(held) != before {
				t.Fatal("what was is changed")
			}
			held = after
			var all []int64
			var back []metrics.Response
			for n := range held {
				all = append(all, held[n].Blocks...)
				held[n].Took = time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "took"))
				if len(held[n].Blocks) > 0 {
					back = append(back, metrics.Response{Host: held[n].Host, Items: b.Full(held[n].Host, len(held[n].Blocks)), Took: held[n].Took})
				}
			}
			slices.Sort(all)
			for i := range count {
				if int64(len(all)) != count || all[i] != first+i {
					t.Fatalf("blocks: %v, moves %v", all, moved)
				}
			}
			b.Done(back)
		}
	})
}

func TestParseBlockRule(t *testing.T) {
	for text, ok := range map[string]bool{"half": true, "rate": true, "step": false, "": false} {
		if _, err := metrics.ParseBlockRule(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
