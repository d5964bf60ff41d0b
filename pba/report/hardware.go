package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Lack is for how long jobs of one group waited for one cause (R46).
type Lack struct {
	Key
	Cause   plan.Cause `json:"cause"`
	Name    string     `json:"name,omitempty"`    // of a resource; "*": of several
	Waited  float64    `json:"waited_slot_hours"` // of the jobs
	Hours   float64    `json:"hours"`             // in which any of them waited
	Waiting float64    `json:"waiting_slots"`     // in these hours, on average
	Free    float64    `json:"free_slots"`        // likewise: that were free and of no use to them
	Hosts   float64    `json:"hosts,omitempty"`   // likewise: that lacked memory
	Lacking float64    `json:"gib_a_host,omitempty"`
}

// Less evidence than this carries no sentence.
const (
	leastLackHours = 1.0 // of time
	leastLackPart  = 0.1 // of all slot-hours that jobs waited
)

type lackSums struct {
	waited, free ledger.SlotTime
	seen, hosts  time.Duration
	lacking      int64
}

// Lacks sums up what kept jobs waiting by groups, the most slot-hours of a group first, and says
// of all groups in words what hardware would have helped, as far as the hours carry that.
func Lacks(hours []ledger.WaitHour, by []By, zone *time.Location) ([]Lack, []string) {
	rows := sumLacks(hours, by, zone)
	var words []string
	all := 0.0
	total := sumLacks(hours, nil, zone)
	for _, l := range total {
		all += l.Waited
	}
	for _, l := range total {
		if text := l.inWords(); text != "" && l.Hours >= leastLackHours && l.Waited >= leastLackPart*all {
			words = append(words, text)
		}
	}
	return rows, words
}

func sumLacks(hours []ledger.WaitHour, by []By, zone *time.Location) []Lack {
	type key struct {
		Key
		cause plan.Cause
		name  string
	}
	groups := map[key]*lackSums{}
	for _, h := range hours {
		k := key{Key{}.at(h.Hour, zone).only(by), h.Cause, h.Name}
		s := groups[k]
		if s == nil {
			s = &lackSums{}
			groups[k] = s
		}
		s.waited, s.free = s.waited+h.Waited, s.free+h.Free
		s.seen, s.hosts, s.lacking = s.seen+h.Seen, s.hosts+h.Hosts, s.lacking+h.Lacking
	}
	all := []Lack{}
	for k, s := range groups {
		l := Lack{Key: k.Key, Cause: k.cause, Name: k.name, Waited: round(s.waited.Hours()), Hours: round(s.seen.Hours())}
		if s.seen > 0 {
			l.Waiting, l.Free, l.Hosts = round(s.waited.Hours()/s.seen.Hours()), round(s.free.Hours()/s.seen.Hours()), round(s.hosts.Hours()/s.seen.Hours())
		}
		if s.hosts > 0 {
			l.Lacking = round(float64(s.lacking) / float64(s.hosts.Milliseconds()) / 1024)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Lack) int {
		return cmp.Or(a.Compare(b.Key), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// About names what jobs waited for, for people.
func (l *Lack) About() string {
	switch {
	case l.Cause == plan.LackResource && l.Name == "":
		return "hosts that suit"
	case l.Cause == plan.LackResource && l.Name == plan.OtherNames:
		return "other resources"
	case l.Cause == plan.LackResource:
		return l.Name
	}
	return ""
}

// inWords says what would have helped; "": no hardware would.
func (l *Lack) inWords() string {
	switch l.Cause {
	case plan.LackMemory:
		if l.Hosts == 0 {
			return ""
		}
		return fmt.Sprintf("Memory kept %s slot-hours of jobs waiting, in %s, while %s were free on average: on average they lacked %s GiB on each of %s.",
			inThousands(l.Waited), inHours(l.Hours), countOf(l.Free, "slot"), inThousands(math.Ceil(l.Lacking)), countOf(l.Hosts, "host"))
	case plan.LackSlots:
		return fmt.Sprintf("Slots kept %s slot-hours of jobs waiting, in %s: on average %s more would have let them start.",
			inThousands(l.Waited), inHours(l.Hours), countOf(l.Waiting, "slot"))
	case plan.LackResource:
		if l.Name == plan.OtherNames {
			return ""
		}
		name := l.Name
		if name == "" {
			name = "Want of hosts that suit"
		}
		return fmt.Sprintf("%s kept %s slot-hours of jobs waiting, in %s, while %s were free on average.", name, inThousands(l.Waited), inHours(l.Hours), countOf(l.Free, "slot"))
	case plan.ByRules, plan.Unexamined:
	}
	return ""
}

func inHours(h float64) string { return countOf(h, "hour") }

// countOf is a number of things that is at least one, as means of whole ones are.
func countOf(n float64, what string) string {
	if whole := int(math.Max(1, math.Round(n))); whole < 1000 {
		return printable.Count(whole, what)
	}
	return inThousands(n) + " " + what + "s"
}

// inThousands writes a number as 3,120, and a small one with a decimal place.
func inThousands(x float64) string {
	if x < 100 {
		return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
	}
	text := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
