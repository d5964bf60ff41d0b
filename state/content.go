package state

import (
	"cmp"
	"database/sql/driver"
	"maps"
	"slices"
	"strings"
)

// content is all that an object holds, row by row. Each part is a map, so that what several
// objects of a job hold can be merged in any order (see merge).
type content struct {
	spec     map[specKey]driver.Value
	history  map[lineKey]line
	results  map[Segment]result
	settings map[string]setting
	files    map[string]file
}

type specKey struct {
	key string
	n   int64
}

// lineKey is a line's place. Lines of the queue are in the order of their seq, those of hosts
// in the order of their runs first.
type lineKey struct {
	Segment
	seq uint64
	n   int64
}

func (k lineKey) order() int {
	if k.Host == "" {
		return 0
	}
	return k.Run
}

// compare is positive if k is later than o.
func (k lineKey) compare(o lineKey) int {
	return cmp.Or(cmp.Compare(k.order(), o.order()), cmp.Compare(k.seq, o.seq), cmp.Compare(k.n, o.n), strings.Compare(k.Host, o.Host), cmp.Compare(k.Run, o.Run))
}

// inOrder is the order in which lines are read that are in the order of their seq: the queue's,
// then by run and host.
func (k lineKey) inOrder(o lineKey) int {
	return cmp.Or(cmp.Compare(k.order(), o.order()), strings.Compare(k.Host, o.Host))
}

type line struct{ at, event, detail string }

// result is how a run went on a host. Figures that are not known are nil.
type result struct {
	started                             string
	ended, exit, user, system, rss, why driver.Value
}

type setting struct {
	lineKey
	at, value string
}

type file struct {
	lineKey
	at         string
	executable int64
	data       string // bytes
}

// submittedEvent is the line that is never dropped.
const submittedEvent = "submitted"

// merge returns what two objects of one job hold together (R42). The result does not depend on the
// order in which objects are merged, nor on how often: of each row that differs one is chosen
// by the rows alone, and what is beyond a bound is the oldest of all.
func merge(a, b *content) *content {
	m := &content{
		spec:     mergeSpecs(a.spec, b.spec),
		history:  union(a.history, b.history, compareLines),
		results:  union(a.results, b.results, compareResults),
		settings: union(a.settings, b.settings, compareSettings),
		files:    union(a.files, b.files, compareFiles),
	}
	m.bound()
	return m
}

// Bounds of a merged object.
const (
	mergedSettings = 4 * MaxSettings
	mergedFiles    = 2 * MaxFiles
	mergedResults  = maxHistory
	maxSubmitted   = 16
)

// bound drops what is beyond the bounds, the oldest first.
func (c *content) bound() {
	kind := func(k lineKey, l line) int {
		switch {
		case l.event == submittedEvent:
			return 0
		case k.Host == "":
			return 1
		}
		return 2
	}
	for want, most := range []int{maxSubmitted, maxHistory, maxHistory} {
		keepNewest(c.history, most, func(k lineKey, l line) (lineKey, bool) { return k, kind(k, l) == want }, lineKey.compare)
	}
	keepNewest(c.results, mergedResults, func(s Segment, _ result) (Segment, bool) { return s, true }, compareSegments)
	keepNewest(c.settings, mergedSettings, func(_ string, s setting) (setting, bool) { return s, true }, compareSettings)
	keepNewest(c.files, mergedFiles, func(_ string, f file) (file, bool) { return f, true }, compareFiles)
}

// keepNewest removes the lowest of a map's values, by what rank makes of those that count.
func keepNewest[K comparable, V, R any](all map[K]V, most int, rank func(K, V) (R, bool), compare func(a, b R) int) {
	if len(all) <= most {
		return
	}
	type ranked struct {
		key  K
		rank R
	}
	var list []ranked
	for k, v := range all {
		if r, counts := rank(k, v); counts {
			list = append(list, ranked{k, r})
		}
	}
	if len(list) <= most {
		return
	}
	slices.SortFunc(list, func(a, b ranked) int { return compare(b.rank, a.rank) })
	for _, r := range list[most:] {
		delete(all, r.key)
	}
}

// union has each key of both, with the higher value.
func union[K comparable, V any](a, b map[K]V, compare func(a, b V) int) map[K]V {
	all := make(map[K]V, max(len(a), len(b)))
	maps.Copy(all, a)
	for k, v := range b {
		if old, ok := all[k]; !ok || compare(old, v) < 0 {
			all[k] = v
		}
	}
	return all
}

func compareSegments(a, b Segment) int {
	return cmp.Or(cmp.Compare(a.Run, b.Run), strings.Compare(a.Host, b.Host))
}

func compareLines(a, b line) int {
	return cmp.Or(strings.Compare(a.at, b.at), strings.Compare(a.event, b.event), strings.Compare(a.detail, b.detail))
}

// compareResults has a run that ended above one that is not known to have.
func compareResults(a, b result) int {
	return cmp.Or(compareValues(a.ended, b.ended), strings.Compare(a.started, b.started), compareValues(a.exit, b.exit),
		compareValues(a.user, b.user), compareValues(a.system, b.system), compareValues(a.rss, b.rss), compareValues(a.why, b.why))
}

func compareSettings(a, b setting) int {
	return cmp.Or(a.compare(b.lineKey), strings.Compare(a.at, b.at), strings.Compare(a.value, b.value))
}

func compareFiles(a, b file) int {
	return cmp.Or(a.compare(b.lineKey), strings.Compare(a.at, b.at), cmp.Compare(a.executable, b.executable), strings.Compare(a.data, b.data))
}

// compareValues orders what a column can hold: nothing, numbers, texts.
func compareValues(a, b driver.Value) int {
	kind := func(v driver.Value) int {
		switch v.(type) {
		case nil:
			return 0
		case int64:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(kind(a), kind(b)), cmp.Compare(number(a), number(b)), strings.Compare(text(a), text(b)))
}

// mergeSpecs takes one specification whole, since its checksum is of all of it: the one that
// says most. How the job ended stands beside it.
func mergeSpecs(a, b map[specKey]driver.Value) map[specKey]driver.Value {
	ofA, ofB := specOnly(a), specOnly(b)
	if compareSpecs(ofA, ofB) < 0 {
		ofA = ofB
	}
	end := specKey{key: endKey}
	if v := higher(a[end], b[end]); v != nil {
		ofA[end] = v
	}
	return ofA
}

func specOnly(rows map[specKey]driver.Value) map[specKey]driver.Value {
	only := maps.Clone(rows)
	if only == nil {
		only = map[specKey]driver.Value{}
	}
	delete(only, specKey{key: endKey})
	return only
}

func higher(a, b driver.Value) driver.Value {
	if compareValues(a, b) < 0 {
		return b
	}
	return a
}

func specKeys(rows map[specKey]driver.Value) []specKey {
	return slices.SortedFunc(maps.Keys(rows), func(a, b specKey) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.n, b.n))
	})
}

// compareSpecs compares by how many rows there are, then row by row.
func compareSpecs(a, b map[specKey]driver.Value) int {
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	ofA, ofB := specKeys(a), specKeys(b)
	for i := range ofA {
		c := cmp.Or(strings.Compare(ofA[i].key, ofB[i].key), cmp.Compare(ofA[i].n, ofB[i].n))
		if c == 0 {
			c = compareValues(a[ofA[i]], b[ofB[i]])
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// sequence is that of the last line of the highest run; of a queue's own record the queue's.
func (c *content) sequence() (s Sequence) {
	for k := range c.history {
		if at := (Sequence{k.Run, k.seq}); at.Compare(s) > 0 {
			s = at
		}
	}
	return s
}
