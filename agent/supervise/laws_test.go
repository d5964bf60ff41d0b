package supervise

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawHost draws a host, as it may be at any moment, and what is in force there.
func drawHost(t *rapid.T) *Host {
	amount := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
	h := &Host{Name: "h1"}
	h.Memory = MemoryOf{Total: 64 << 30, Available: amount("available", 64<<30), Fell: rapid.Int64Range(-32<<30, 32<<30).Draw(t, "fell"), Stalled: rapid.Float64Range(0, 1).Draw(t, "stalled")}
	all := Works{}
	for _, r := range Resources() {
		h.Capacity[r] = rapid.SampledFrom([]int64{0, 8000, 100_000}).Draw(t, "capacity")
		h.Others[r] = amount("others", 1000)
		for _, rung := range ladder() {
			if rapid.Bool().Draw(t, "works") {
				all[r] = append(all[r], rung)
			}
		}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "jobs") {
		j := Job{
			Name: fmt.Sprint("j", i), Slots: rapid.IntRange(0, 8).Draw(t, "slots"), Foreign: rapid.IntRange(0, 5).Draw(t, "foreign") == 0,
			Held: rapid.IntRange(0, 5).Draw(t, "held") == 0, Requested: amount("requested", 32<<30), Used: amount("used", 64<<30),
			Requeues: rapid.Bool().Draw(t, "requeues"), Saving: rapid.IntRange(0, 4).Draw(t, "saving") == 0, Protected: rapid.Bool().Draw(t, "protected"),
		}
		for _, r := range Resources() {
			if rapid.IntRange(0, 2).Draw(t, "promised") == 0 {
				j.Minimum[r] = amount("minimum", 6000)
			}
			j.Uses[r], j.Waits[r] = amount("uses", 8000), rapid.SampledFrom([]float64{0, 0.05, 0.5, 1}).Draw(t, "waits")
		}
		if rapid.IntRange(0, 2).Draw(t, "hurries") == 0 {
			j.Deadline = time.Unix(rapid.Int64Range(900, 2000).Draw(t, "deadline"), 0)
			j.Done = rapid.SampledFrom([]float64{-1, 0, 0.5, 0.99, 1, math.NaN()}).Draw(t, "done")
			j.Speed = rapid.SampledFrom([]float64{-1, 0, 1e-300, 0.001, 0.01, math.Inf(1), math.NaN()}).Draw(t, "speed")
			for _, r := range Resources() {
				j.Most[r], j.Had[r] = amount("most", 9000), amount("had", 8000)
			}
		}
		if j.Works = all; rapid.IntRange(0, 3).Draw(t, "works otherwise") == 0 {
			j.Works = Works{rapid.SampledFrom(Resources()).Draw(t, "resource that works"): {rapid.SampledFrom(ladder()).Draw(t, "rung that works")}}
		} else if rapid.Bool().Draw(t, "freezes") {
			j.Works = maps.Clone(all)
			j.Works[Memory] = []Rung{Freeze}
		}
		h.Jobs = append(h.Jobs, j)
		if rapid.Bool().Draw(t, "limited") {
			r := rapid.SampledFrom(Resources()).Draw(t, "resource")
			h.Limits = append(h.Limits, Limit{
				Hastens: max(0, rapid.Int64Range(-9000, 9000).Draw(t, "hastens")), Job: j.Name, Resource: r, Rung: rapid.SampledFrom(ladder()).Draw(t, "rung"), Value: amount("value", 999) + 1,
				For: fmt.Sprint("j", rapid.IntRange(0, 6).Draw(t, "for")), Since: time.Unix(rapid.Int64Range(990, 1000).Draw(t, "since"), 0),
			})
		}
		if rapid.IntRange(0, 3).Draw(t, "frozen") == 0 {
			h.Limits = append(h.Limits, Limit{Job: j.Name, Resource: Memory, Rung: Freeze, Since: time.Unix(rapid.Int64Range(990, 1000).Draw(t, "since"), 0)})
		}
	}
	return h
}

func drawPolicy(t *rapid.T) Policy {
	p := DefaultPolicy()
	p.Kills = rapid.Bool().Draw(t, "kills")
	return p
}

var now = time.Unix(1000, 0)

// each judges the decision on any host.
func each(t *testing.T, judge func(t *rapid.T, h *Host, p Policy, d Decision)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		h, p := drawHost(t), drawPolicy(t)
		judge(t, h, p, Decide(h, p, now))
	})
}

func (h *Host) job(name string) *Job {
	if i := slices.IndexFunc(h.Jobs, func(j Job) bool { return j.Name == name }); i >= 0 {
		return &h.Jobs[i]
	}
	return nil
}

// late reports whether a job would end after its deadline, where that is known.
func late(j *Job) bool {
	return !j.Deadline.IsZero() && j.Done >= 0 && j.Done < 1 && j.Speed > 0 && !math.IsInf(j.Speed, 0) && (1-j.Done)/j.Speed > j.Deadline.Sub(now).Seconds()
}

// Nothing is limited without need: each limit is for a job that was promised something, or would end after its
// deadline, and uses it or waits for it, and of memory for a host that has none left.
func TestLawLimitsAreNeeded(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		for _, l := range d.Limits {
			if l.Resource == Memory {
				was := slices.ContainsFunc(h.Limits, func(o Limit) bool { return o.Job == l.Job && o.Resource == Memory })
				m := h.Memory
				low := float64(m.Available-max(0, m.Fell)) < p.Low*float64(m.Total)
				if float64(m.Available) >= p.Spare*float64(m.Total) || !was && m.Stalled < p.Stalled && !low {
					t.Errorf("%+v on %+v", l, m)
				}
				continue
			}
			j := h.job(l.For)
			before := slices.ContainsFunc(h.Limits, func(o Limit) bool { return o.For == l.For && o.Resource == l.Resource })
			own := j.Minimum[l.Resource]
			if l.Hastens > 0 && (late(j) || before) {
				own = max(own, j.Most[l.Resource])
			}
			if j == nil || j.Held || j.Foreign || own == 0 || j.Waits[l.Resource] < p.Waiting && j.Uses[l.Resource] == 0 {
				t.Errorf("%+v for %+v", l, j)
			}
			if short := j.Waits[l.Resource] >= p.Waiting && j.Uses[l.Resource] < own; !short && !before {
				t.Errorf("%+v begins, and %+v has what it was promised", l, j)
			}
		}
	})
}

// No job is limited below what it was promised, nor below the floor; none is limited to nothing.
func TestLawMinimaAreKept(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		for _, l := range d.Limits {
			j := h.job(l.Job)
			switch {
			case l.Resource == Memory:
				continue
			case l.Value < 1:
				t.Errorf("%+v", l)
			case l.Rung != Rate:
				continue
			}
			least := j.Minimum[l.Resource]
			if j.Waits[l.Resource] < p.Waiting {
				least = min(least, j.Uses[l.Resource])
			}
			if floor := int64(p.Floor * float64(h.Capacity[l.Resource])); l.Value < least+floor {
				t.Errorf("%+v of %+v: want %d + %d at least", l, j, least, floor)
			}
		}
	})
}

// What is given is what there is: where the capacity is known and suffices for what was promised, the rates
// and the promises together are no more, but for the floors.
func TestLawNoMoreThanThereIs(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		for _, r := range Resources() {
			floor := max(1, int64(p.Floor*float64(h.Capacity[r])))
			sum, rates, promised := h.Others[r], 0, h.Others[r]
			for i := range h.Jobs {
				j := &h.Jobs[i]
				at := slices.IndexFunc(d.Limits, func(l Limit) bool { return l.Job == j.Name && l.Resource == r && l.Rung == Rate })
				claim := j.Minimum[r]
				if j.Waits[r] < p.Waiting {
					claim = min(claim, grown(j.Uses[r]))
				}
				switch {
				case j.Foreign:
					sum, promised = sum+j.Uses[r], promised+j.Uses[r]
				case j.Held:
				case at >= 0:
					rates++
					sum, promised = sum+d.Limits[at].Value-floor, promised+claim
				default:
					sum, promised = sum+claim, promised+claim
				}
			}
			if c := h.Capacity[r]; rates > 0 && c > 0 && promised <= c && sum > c {
				t.Errorf("%s: %d of %d: %+v", r, sum, c, d.Limits)
			}
		}
	})
}

// The same view gives the same limits, in whatever order its jobs stand.
func TestLawSameViewSameLimits(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		other := *h
		other.Jobs = rapid.Permutation(h.Jobs).Draw(t, "order")
		if diff := cmp.Diff(d, Decide(&other, p, now)); diff != "" {
			t.Error(diff)
		}
	})
}

// What the queue does not know, or has suspended, is never touched; only what works is used; and a harder
// rung comes only after the milder one had its time.
func TestLawRungs(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		for _, l := range d.Limits {
			if j := h.job(l.Job); j == nil || j.Foreign || j.Held {
				t.Errorf("%+v of %+v", l, j)
			}
			if l.Resource == Memory {
				continue
			}
			if !h.job(l.Job).works(l.Resource, l.Rung) {
				t.Errorf("%+v does not work: %v", l, h.job(l.Job).Works)
			}
			works := h.job(l.Job).Works[l.Resource]
			i := slices.Index(works, l.Rung)
			if i > 0 && !slices.ContainsFunc(h.Limits, func(o Limit) bool {
				return o.Resource == l.Resource && (o.Rung >= l.Rung || o.Rung >= works[i-1] && now.Sub(o.Since) >= p.Patience || !slices.Contains(works, o.Rung))
			}) {
				t.Errorf("%+v: %s was not tried before: %+v", l, works[i-1], h.Limits)
			}
		}
		for _, a := range d.Acts {
			j := h.job(a.Job)
			frozen := slices.ContainsFunc(h.Limits, func(l Limit) bool { return l.Job == a.Job && l.Resource == Memory && now.Sub(l.Since) >= p.Patience })
			if j.Protected || j.Foreign || j.Held || !frozen || a.Verb == Requeue && !j.Requeues || a.Verb == Kill && (j.Requeues || !p.Kills) {
				t.Errorf("%+v of %+v", a, j)
			}
		}
		if len(d.Acts) > 1 {
			t.Errorf("more than one at a time: %+v", d.Acts)
		}
	})
}

// A job within its request for memory is neither frozen nor ended for memory's sake.
func TestLawWithinItsRequest(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, _ Policy, d Decision) {
		within := func(name string) bool { j := h.job(name); return j.Requested == 0 || j.Used <= j.Requested }
		for _, l := range d.Limits {
			if l.Resource == Memory && within(l.Job) {
				t.Errorf("%+v", l)
			}
		}
		for _, a := range d.Acts {
			if within(a.Job) {
				t.Errorf("%+v", a)
			}
		}
	})
}

// Everything is lifted in the end: once no job waits, none that was promised something runs and memory is
// there, nothing is limited; and at once when it is paused.
func TestLawAllIsLifted(t *testing.T) {
	each(t, func(t *rapid.T, h *Host, p Policy, d Decision) {
		paused := p
		paused.Paused = true
		if d := Decide(h, paused, now); len(d.Limits)+len(d.Acts) > 0 {
			t.Errorf("paused: %+v", d)
		}
		after := *h
		after.Limits, after.Memory.Stalled, after.Memory.Available = d.Limits, 0, h.Memory.Total
		after.Jobs = slices.DeleteFunc(slices.Clone(h.Jobs), func(j Job) bool { return j.Minimum != Amounts{} || !j.Deadline.IsZero() })
		if d := Decide(&after, p, now.Add(time.Second)); len(d.Limits)+len(d.Acts) > 0 {
			t.Errorf("%+v", d)
		}
	})
}

// world is a host whose resource goes to its jobs by their weights, up to what each wants and may have.
type world struct {
	h     Host
	r     Resource
	real  int64 // what there is
	wants map[string]int64
	void  bool // weights do not help, though they were thought to work
}

// run lets a second pass under the limits in force.
func (w *world) run() {
	type part struct {
		*Job
		most   int64
		weight float64
	}
	var parts []part
	for i := range w.h.Jobs {
		j := &w.h.Jobs[i]
		x := part{j, w.wants[j.Name], 1}
		for _, l := range w.h.Limits {
			switch {
			case l.Job != j.Name || l.Resource != w.r:
			case l.Rung == Weight && w.void:
			case l.Rung == Weight:
				x.weight = float64(l.Value) / 100
			case l.Rung == Rate:
				x.most = min(x.most, l.Value)
			case l.Rung == Duty:
				x.most = min(x.most, w.real) * l.Value / 1000
			}
		}
		j.Uses[w.r] = 0
		parts = append(parts, x)
	}
	for left, round := float64(w.real), 0; left > 1 && round < 50; round++ {
		sum := 0.0
		for _, x := range parts {
			if x.Uses[w.r] < x.most {
				sum += x.weight
			}
		}
		if sum == 0 {
			break
		}
		spent := 0.0
		for _, x := range parts {
			if more := min(left*x.weight/sum, float64(x.most-x.Uses[w.r])); more > 0 {
				x.Uses[w.r] += int64(more)
				spent += more
			}
		}
		left -= spent
	}
	for _, x := range parts {
		x.Waits[w.r] = 0
		if x.Uses[w.r] < w.wants[x.Name]-w.wants[x.Name]/100-2 {
			x.Waits[w.r] = 0.5
		}
	}
}

// A job that was promised something it wants has it 10 s after it wants it, whatever its neighbours want,
// where one of the rungs works. Where the capacity is not known, and found by giving others more, or where others
// are frozen for a part of the time, by what they used before, it has it on average. The neighbours share the rest,
// and when it ends nothing is limited.
func TestLawPromisesAreKept(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("capacity known: ", known), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rapid.SampledFrom(Resources()).Draw(t, "resource")
				w := &world{r: r, real: 100_000, wants: map[string]int64{}, void: rapid.Bool().Draw(t, "void")}
				w.h = Host{Name: "h1"}
				works := Works{r: rapid.SampledFrom([][]Rung{{Rate}, {Weight, Rate}, {Duty}, {Weight, Duty}, {Weight, Rate, Duty}}).Draw(t, "works")}
				if known {
					w.h.Capacity[r] = w.real
				}
				promised := Job{Name: "promised", Slots: 1}
				promised.Minimum[r] = rapid.Int64Range(1000, 90_000).Draw(t, "minimum")
				for i := range rapid.IntRange(1, 6).Draw(t, "hogs") {
					name := fmt.Sprint("hog", i)
					w.h.Jobs = append(w.h.Jobs, Job{Name: name, Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Works: works})
					w.wants[name] = rapid.Int64Range(1000, 200_000).Draw(t, "wants")
				}
				w.h.Jobs = append(w.h.Jobs, promised)
				w.wants["promised"] = rapid.Int64Range(0, 200_000).Draw(t, "wants")
				p := DefaultPolicy()
				at, used, had := now, int64(0), int64(0)
				due := p.Kept * 0.985 * float64(min(w.wants["promised"], promised.Minimum[r]))
				const seconds, counted = 60, 40
				for second := range seconds {
					w.run()
					j := w.h.job("promised")
					if known && !slices.Contains(works[r], Duty) && second >= 10 && float64(j.Uses[r]) < due {
						t.Fatalf("after %d s it has %d of %.0f: %+v", second, j.Uses[r], due, w.h.Limits)
					}
					if second >= seconds-counted {
						had += j.Uses[r]
					}
					for i := range w.h.Jobs {
						if second >= seconds-counted {
							used += w.h.Jobs[i].Uses[r]
						}
					}
					at = at.Add(time.Second)
					w.h.Limits = Decide(&w.h, p, at).Limits
				}
				if float64(had)/counted < due {
					t.Errorf("it had %d of %.0f: %+v", had/counted, due, w.h.Limits)
				}
				wanted := int64(0)
				for want := range maps.Values(w.wants) {
					wanted += want
				}
				tenths := int64(8)
				if !known { // what others may have is found step by step
					tenths = 5
				}
				if least := min(wanted, w.real) * tenths / 10; used/counted < least {
					t.Errorf("%d of %d is used: %+v", used/counted, w.real, w.h.Limits)
				}
				w.h.Jobs = slices.DeleteFunc(w.h.Jobs, func(j Job) bool { return j.Name == "promised" })
				if d := Decide(&w.h, p, at); len(d.Limits) > 0 {
					t.Errorf("it has ended: %+v", d.Limits)
				}
			})
		})
	}
}

// Jobs that grow beyond their requests do not exhaust a host's memory: they are frozen, and requeued where they may
// be. One that may not be requeued runs on when there is memory. Jobs within their requests are not limited.
func TestLawHostsAreSaved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total, growth, leaves, hogs, seconds = 100_000, 2000, 5, 3, 400 // MB, MB a second of all together, seconds that a requeue takes
		h := &Host{Name: "h1", Memory: MemoryOf{Total: total, Available: total}}
		use := func(j Job, used int64) {
			j.Used, j.Works = used, Works{Memory: {Freeze}}
			h.Jobs = append(h.Jobs, j)
			h.Memory.Available -= used
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "neighbours") {
			used := rapid.Int64Range(0, 25_000).Draw(t, "used")
			use(Job{Name: fmt.Sprint("n", i), Requested: used}, used)
		}
		grows := map[string]int64{}
		for i := range rapid.IntRange(1, hogs).Draw(t, "hogs") {
			name := fmt.Sprint("hog", i)
			grows[name] = rapid.Int64Range(1, growth/hogs).Draw(t, "grows")
			use(Job{Name: name, Requested: 1, Requeues: rapid.IntRange(0, 3).Draw(t, "requeues") > 0}, 2)
		}
		p, ends := DefaultPolicy(), map[string]int{}
		for second := range seconds {
			was := h.Memory.Available
			h.Jobs = slices.DeleteFunc(h.Jobs, func(j Job) bool {
				if ends[j.Name] == 0 || second < ends[j.Name] {
					return false
				}
				h.Memory.Available += j.Used
				return true
			})
			for i := range h.Jobs {
				j := &h.Jobs[i]
				if more := grows[j.Name]; !slices.ContainsFunc(h.Limits, func(l Limit) bool { return l.Job == j.Name }) {
					j.Used += more
					h.Memory.Available -= more
				}
			}
			if h.Memory.Available <= 0 {
				t.Fatalf("no memory is left: %+v", h)
			}
			h.Memory.Fell = was - h.Memory.Available
			d := Decide(h, p, now.Add(time.Duration(second)*time.Second))
			h.Limits = d.Limits
			for _, a := range d.Acts {
				if ends[a.Job] == 0 {
					ends[a.Job] = second + leaves
				}
			}
		}
		last := now.Add((seconds - 1) * time.Second)
		for _, l := range h.Limits {
			if j := h.job(l.Job); j.Requeues && last.Sub(l.Since) > p.Patience+leaves*time.Second+hogs*time.Second {
				t.Errorf("%+v: it may be requeued, and is still there: %+v", l, h)
			}
		}
	})
}
