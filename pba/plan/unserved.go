package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Unserved is how many waiting jobs would be served from a pool, but for one reason: that a
// part of their requests is not understood (R32).
type Unserved struct {
	Reason string // printable, of maxReason bytes or so; otherReasons: all that are not listed
	Jobs   int
}

// Bounds of the list. Reasons have users' text in them.
const (
	maxReasons   = 10
	maxReason    = 100 // bytes
	otherReasons = "other"
)

// countUnserved counts a job that is not understood, if it waits and would match a pool.
func (f *farm) countUnserved(j *job) {
	if j.waits && j.entitled {
		f.reasons[plainReason(j.Unserved)]++
	}
}

// listReasons lists the reasons by how many jobs have them, most first.
func listReasons(counts map[string]int) []Unserved {
	var all []Unserved
	for reason, n := range counts {
		all = append(all, Unserved{reason, n})
	}
	slices.SortFunc(all, func(a, b Unserved) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Reason, b.Reason))
	})
	if len(all) <= maxReasons {
		return all
	}
	others := Unserved{Reason: otherReasons}
	for _, u := range all[maxReasons:] {
		others.Jobs += u.Jobs
	}
	return append(all[:maxReasons:maxReasons], others)
}

// plainReason returns a reason as one that may be printed anywhere.
func plainReason(reason string) string {
	reason = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, reason[:min(len(reason), maxReason)])
	switch reason {
	case "":
		return "a part of a job that starts on several kinds of hosts at once"
	case otherReasons:
		return strconv.Quote(reason) // not the sum of others
	}
	return reason
}
