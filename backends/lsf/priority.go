package lsf

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// scale turns priorities into numbers for bmod -sp, 1 to MAX_USER_PRIORITY, and back. LSF
// refuses higher ones even from administrators. A job's owner may set any number (lava):
// a raised one reads as the level that it claims.
//
// From the top: the levels above normal jobs, each with its own part of the range, so
// that the highest number is a hand-over's; then unused numbers; then the normal jobs
// that name no number; below, those whose owners lowered them.
type scale struct {
	most   int64 // MAX_USER_PRIORITY; 0: jobs have no priority of their own
	normal int64 // that of a job which names none
	bands  []band
}

// band is the part of the range that a level has. Values are spread over it in equal
// steps, and the highest number stands for all values beyond.
type band struct {
	level backends.Level
	base  int // the least value that R10 gives a job of the level
	first int64
	width int64 // 0: no room
	leads int64 // the last of them, for values from backends.GaveWay on; 0: those have no numbers of their own
}

// values is how many values R11 has for a level: 20 to 99.
const values = 80

// step returns how many values share a number: one reclaim's bonus (R10) at most, so that
// each bonus counts.
func (b band) step() int64 {
	plain := b.width - b.leads
	return min(max((values+plain-1)/max(plain, 1), 1), bonusStep)
}

const bonusStep = 10

func (b band) number(value int) int64 {
	first, width := b.first, b.width-b.leads
	if b.leads > 0 && value >= backends.GaveWay {
		first, width, value = first+width, b.leads, value-backends.GaveWay
	}
	return first + min(max(int64(value-b.base), 0)/b.step(), width-1)
}

// value returns the value that the n-th of the band's numbers stands for.
func (b band) value(n int64) int {
	if plain := b.width - b.leads; n >= plain && b.leads > 0 {
		return backends.GaveWay + b.base + int((n-plain)*b.step())
	}
	return b.base + int(n*b.step())
}

// need is what a level needs of the range: at least a number; enough for each of three
// bonuses, and one more where dummy jobs go before all others; and good for all of R11's
// bonuses. A range that is too small is given out in the order of needs.
var needs = [...]struct {
	level        backends.Level
	base         int
	enough, good int64
}{
	{backends.LevelVictim, backends.DefaultValue, 4, 8},
	{backends.LevelPBA, 100 + backends.DefaultValue, 5, 8},
	{backends.LevelHandOver, 200 + backends.DefaultValue, 5, 8},
	{backends.LevelNext, backends.DefaultValue, 4, 8},
	{backends.LevelPlaceholder, backends.DefaultValue, 2, 2},
}

// newScale returns the scale for a cluster's parameters.
func newScale(p params) scale {
	s := scale{most: p.maxPriority, normal: p.defaultPriority}
	if s.normal < 1 || s.normal > s.most {
		s.normal = s.most / 2 // lava: "The default job priority is: 50" of 100
	}
	s.bands = newBands(s.most - s.normal)
	next := s.most + 1
	for i := len(s.bands) - 1; i >= 0; i-- {
		next -= s.bands[i].width
		s.bands[i].first = next
	}
	return s
}

// newBands divides room numbers among the levels, and returns their bands lowest first.
func newBands(room int64) []band {
	widths := map[backends.Level]int64{}
	widen := func(level backends.Level, upTo int64) {
		n := min(max(upTo-widths[level], 0), max(room, 0))
		widths[level] += n
		room -= n
	}
	for _, n := range needs {
		widen(n.level, 1)
	}
	for _, n := range needs {
		widen(n.level, n.enough)
	}
	for _, n := range needs {
		widen(n.level, n.good)
	}
	share := max(room, 0) / int64(len(needs)-1)
	for _, n := range needs[:len(needs)-1] { // a placeholder needs no more
		widen(n.level, min(n.good+share, values))
	}
	bands := make([]band, 0, len(needs))
	for level := backends.LevelVictim; level <= backends.LevelHandOver; level++ {
		for _, n := range needs {
			if n.level == level {
				b := band{level: level, base: n.base, width: widths[level]}
				if level == backends.LevelVictim && b.width >= n.good {
					b.leads = b.width / 2
				}
				bands = append(bands, b)
			}
		}
	}
	return bands
}

// goodMost is a MAX_USER_PRIORITY that gives each level good room.
const goodMost = 100

// unable returns why jobs can't be ranked, or nil.
func (s scale) unable() error {
	switch {
	case s.most < 1:
		return fmt.Errorf("%w: MAX_USER_PRIORITY is not set in lsb.params: set it to %d or more", backends.ErrUnable, goodMost)
	case s.most-s.normal < int64(len(needs)):
		return fmt.Errorf("%w: MAX_USER_PRIORITY is %d in lsb.params: set it to %d or more", backends.ErrUnable, s.most, goodMost)
	}
	return nil
}

// lost returns what a range that is too small does not keep of the order of priorities;
// "" if nothing that matters.
func (s scale) lost() string {
	for _, n := range needs {
		for _, b := range s.bands {
			if b.level != n.level || b.width >= n.enough {
				continue
			}
			switch n.level {
			case backends.LevelVictim:
				if b.width == 1 {
					return "how often jobs were taken back makes no difference to their order"
				}
				return fmt.Sprintf("jobs that were taken back %d times or more go in the order of their submission", b.width-1)
			case backends.LevelLow, backends.LevelNormal, backends.LevelPlaceholder, backends.LevelNext, backends.LevelPBA, backends.LevelHandOver:
				return "jobs of pools that were taken back before they got their place there go no sooner than others, or dummy jobs no sooner than the jobs that they are for"
			}
		}
	}
	return ""
}

// number returns the number that -sp gets for a priority. A normal job's at the default
// value is that of a job which names none; LevelLow has no numbers of its own: it is a
// queue.
func (s scale) number(p backends.Priority) int64 {
	if p.Level() > backends.LevelHandOver {
		return s.most
	}
	for _, b := range s.bands {
		if b.level == p.Level() {
			return b.number(p.Value())
		}
	}
	if p.Value() < backends.DefaultValue {
		return max((int64(p.Value())*s.normal+backends.DefaultValue-1)/backends.DefaultValue, 1)
	}
	return s.normal
}

// priority returns what a number stands for; 0, which is none, for the default. An unused
// number is a normal job's above the default.
func (s scale) priority(number int64) backends.Priority {
	switch {
	case number < 1 || s.unable() != nil:
		return backends.At(backends.LevelNormal, backends.DefaultValue)
	case number < s.normal:
		return backends.At(backends.LevelNormal, int(number*backends.DefaultValue/s.normal))
	}
	for _, b := range s.bands {
		if at := number - b.first; at >= 0 && (at < b.width || b.level == backends.LevelHandOver) {
			return backends.At(b.level, b.value(min(at, b.width-1)))
		}
	}
	return backends.At(backends.LevelNormal, backends.DefaultValue+int(min(number-s.normal, values)))
}
