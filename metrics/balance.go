// Package metrics decides how much work each host gets: the job load metric of unequal
// hosts, the sizes of a round's tasks, and how they are adjusted by what came back.
package metrics

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Rule says how sizes are adjusted.
type Rule string

// The rules.
const (
	Rate  Rule = "rate"  // sizes follow each host's measured rate
	Step  Rule = "step"  // after each round the last host loses a step of its load metric to the others
	Equal Rule = "equal" // the same size for each host, never adjusted
)

// ParseRule reads a rule's name.
func ParseRule(text string) (Rule, error) {
	switch r := Rule(text); r {
	case Rate, Step, Equal:
		return r, nil
	case Half:
	}
	return "", fmt.Errorf("no rule %q: there are rate, step, equal", text)
}

// Options say how work is cut. What is 0 or empty has the value named.
type Options struct {
	Rule       Rule          // Rate
	Factors    Factors       // the profile balanced
	Threshold  float64       // 0.05; a gap up to this is no reason to adjust: see Verdict
	Step       float64       // 5; points of CU, which sum to 100 over the hosts
	RoundItems int           // items in a round; 0: as many as take RoundTime
	RoundTime  time.Duration // 30 s; not used with RoundItems
}

// Task is what one host gets in a round.
type Task struct {
	Host  string
	Items int // at least 1
}

// Response is a task that was done.
type Response struct {
	Host  string
	Items int
	Took  time.Duration // on the host itself, start of the first item to end of the last
}

// Verdict says how far apart the responses of a round are.
type Verdict struct {
	Gap         float64 // (last − first) ÷ last, 0…1
	First, Last string  // hosts; of equals the one that joined first; "" if there was no response
	Under       bool    // the gap is not above the threshold
}

// Share is what a host gets of a round.
type Share struct {
	Host    string
	Percent float64
	Rate    float64 // items/s as measured; 0: not known yet
}

// Balance keeps the hosts and their rates, and sizes the next round by them. As JSON it
// loses nothing. It is for one goroutine at a time.
type Balance struct {
	options Options
	hosts   []*host // in the order in which they first joined
}

// host is a host with its measures and its rate.
type host struct {
	Name     string   `json:"host"`
	Gone     bool     `json:"gone,omitempty"`
	Slots    int      `json:"slots"`
	Measures Measures `json:"measures"`         // as the step rule has changed them
	Rate     float64  `json:"rate,omitempty"`   // items/s; 0: not known
	Weight   float64  `json:"weight,omitempty"` // s; how much of the past the rate stands on
	Busy     float64  `json:"busy,omitempty"`   // s measured in all
	Idle     float64  `json:"idle,omitempty"`   // s of rounds since its last response
}

// New returns a Balance without hosts.
func New(o Options) *Balance {
	if o.Rule == "" {
		o.Rule = Rate
	}
	if o.Factors == (Factors{}) {
		o.Factors, _ = Profile("balanced")
	}
	if !(o.Threshold > 0) {
		o.Threshold = 0.05
	}
	if !(o.Step > 0) {
		o.Step = 5
	}
	if o.RoundTime <= 0 {
		o.RoundTime = 30 * time.Second
	}
	o.RoundItems = max(o.RoundItems, 0)
	return &Balance{options: o}
}

// Join adds a host, between rounds. slots is the number of items that run there side by side (1 if
// below); m was measured with as many. A known host, gone or not, gets the new measures
// and keeps its rate.
func (b *Balance) Join(name string, m Measures, slots int) {
	h := b.find(name)
	if h == nil {
		h = &host{Name: name}
		b.hosts = append(b.hosts, h)
	}
	for e, v := range m {
		if !(v >= 0) {
			v = 0 // negative or NaN
		}
		h.Measures[e] = min(v, maxMeasure)
	}
	h.Slots, h.Gone, h.Idle = min(max(slots, 1), maxSlots), false, 0
}

// Resize sets the number of items that run side by side on a host, between rounds: its
// rate and its CPU, which were measured with another number, change in proportion. A host
// that isn't there is ignored.
func (b *Balance) Resize(name string, slots int) {
	h := b.find(name)
	slots = min(max(slots, 1), maxSlots)
	if h == nil || h.Slots == slots {
		return
	}
	factor := float64(slots) / float64(h.Slots)
	h.Rate, h.Measures[CPU] = min(h.Rate*factor, maxNumber), min(h.Measures[CPU]*factor, maxMeasure)
	h.Slots = slots
}

// Bounds far above all real values, which keep sums in range.
const (
	maxMeasure = 1e100
	maxNumber  = 1e120 // of figures computed from measures
	maxSlots   = 1 << 20
)

// Leave takes a host out, between rounds. One that isn't there is ignored.
func (b *Balance) Leave(name string) {
	if h := b.find(name); h != nil {
		h.Gone = true
	}
}

// Shares lists the hosts that are there, in the order in which they first joined.
func (b *Balance) Shares() []Share {
	hosts := b.present()
	all := make([]Share, len(hosts))
	for n, share := range percent(b.weights(hosts)) {
		all[n] = Share{Host: hosts[n].Name, Percent: share, Rate: hosts[n].Rate}
	}
	return all
}

func (b *Balance) find(name string) *host {
	n := slices.IndexFunc(b.hosts, func(h *host) bool { return h.Name == name })
	if n < 0 {
		return nil
	}
	return b.hosts[n]
}

func (b *Balance) present() []*host {
	return slices.DeleteFunc(slices.Clone(b.hosts), func(h *host) bool { return h.Gone })
}

// weights returns what a round is shared out by.
func (b *Balance) weights(hosts []*host) []float64 {
	switch {
	case b.options.Rule == Equal:
		return make([]float64, len(hosts)) // Sizes makes all equal if no weight is above 0
	case b.options.Rule == Step, !b.anyRate(hosts):
		return b.load(hosts)
	}
	return b.rates(hosts)
}

// load returns the hosts' job load metric.
func (b *Balance) load(hosts []*host) []float64 {
	return JL(measures(hosts), b.options.Factors)
}

func measures(hosts []*host) []Measures {
	all := make([]Measures, len(hosts))
	for n, h := range hosts {
		all[n] = h.Measures
	}
	return all
}

func (b *Balance) anyRate(hosts []*host) bool {
	return slices.ContainsFunc(hosts, func(h *host) bool { return h.Rate > 0 })
}

// rates returns the items/s that each host is expected to do: its measured rate, if that
// is trusted. The rate of another host is its job load metric times the lowest rate for a
// point of load: it should rather wait for the others than they for it.
func (b *Balance) rates(hosts []*host) []float64 {
	trusted := func(h *host) bool { return h.Rate > 0 && h.Busy >= b.minBusy() }
	from := trusted
	if !slices.ContainsFunc(hosts, trusted) {
		from = func(h *host) bool { return h.Rate > 0 }
	}
	load := b.load(hosts)
	scale := math.Inf(1) // items/s for a point of load
	for n, h := range hosts {
		if from(h) && load[n] > 0 {
			scale = min(scale, h.Rate/load[n])
		}
	}
	rates := make([]float64, len(hosts))
	for n, h := range hosts {
		rates[n] = h.Rate
		if !trusted(h) && load[n] > 0 && !math.IsInf(scale, 1) {
			rates[n] = scale * load[n]
		}
	}
	return rates
}

// minBusy returns the seconds that a host must have worked before its rate is trusted. A
// limit on CPU time comes in periods of 0.1 s, so that a slow host looks as fast as any
// other in a short probe; and a program's first run is slow. It is 0 if the user chose the
// size of rounds.
func (b *Balance) minBusy() float64 {
	if b.options.RoundItems > 0 {
		return 0
	}
	return min(0.25, b.fairSample())
}

// fairSample returns the seconds of work that are a fair sample for a round of RoundTime.
func (b *Balance) fairSample() float64 { return b.options.RoundTime.Seconds() / 20 }
