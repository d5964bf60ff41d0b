package lsf

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// scale turns priorities into what bmod -sp takes, 1 to MAX_USER_PRIORITY, and
// back. LSF refuses more to everybody, an administrator included, and a job's owner
// may set any of it (lava): what he raises reads as the level that he claims.
type scale struct {
	most   int64 // MAX_USER_PRIORITY; 0: jobs have no priority of their own
	normal int64 // that of a job which names none
}

// newScale reads the scale from what bparams tells.
func newScale(p params) scale {
	s := scale{most: p.maxPriority, normal: p.defaultPriority}
	if s.normal < 1 || s.normal > s.most {
		s.normal = s.most / 2 // lava: "The default job priority is: 50" of 100
	}
	return s
}

// steps are the levels above what owners give themselves, in their order, each with
// the least value that R10 gives a job of it. Each has as many numbers as the others,
// and the highest of them stands for all values beyond.
var steps = [...]struct {
	level backends.Level
	base  int
}{
	{backends.LevelNormal, backends.DefaultValue},
	{backends.LevelVictim, backends.DefaultValue},
	{backends.LevelPlaceholder, backends.DefaultValue},
	{backends.LevelNext, backends.DefaultValue},
	{backends.LevelPBA, 100 + backends.DefaultValue},
	{backends.LevelHandOver, 200 + backends.DefaultValue},
}

// goodMost is a MAX_USER_PRIORITY that gives each level some numbers.
const goodMost = 100

// width is how many numbers a level has.
func (s scale) width() int64 { return (s.most - s.normal) / int64(len(steps)) }

// unable says why jobs can't be ranked, or nothing.
func (s scale) unable() error {
	switch {
	case s.most < 1:
		return fmt.Errorf("%w: MAX_USER_PRIORITY is not set in lsb.params: set it to %d or more", backends.ErrUnable, goodMost)
	case s.width() < 1:
		return fmt.Errorf("%w: MAX_USER_PRIORITY is %d in lsb.params: set it to %d or more", backends.ErrUnable, s.most, goodMost)
	}
	return nil
}

// number is what -sp is given for a priority. A normal job's at the default value is
// that of a job which names none; LevelLow has none of its own either: it is a queue.
func (s scale) number(p backends.Priority) int64 {
	level := min(max(p.Level(), backends.LevelNormal), backends.LevelHandOver)
	if level == backends.LevelNormal && p.Value() < backends.DefaultValue {
		return max((int64(p.Value())*s.normal+backends.DefaultValue-1)/backends.DefaultValue, 1)
	}
	for k, step := range steps {
		if step.level == level {
			value := int64(p.Value() - step.base)
			if p.Level() > backends.LevelHandOver {
				value = s.width()
			}
			return s.normal + int64(k)*s.width() + min(max(value, 0), s.width()-1)
		}
	}
	return s.normal
}

// priority is what a number stands for; 0, which is none, for the default.
func (s scale) priority(number int64) backends.Priority {
	switch {
	case number < 1 || s.unable() != nil:
		return backends.At(backends.LevelNormal, backends.DefaultValue)
	case number < s.normal:
		return backends.At(backends.LevelNormal, int(number*backends.DefaultValue/s.normal))
	}
	above := number - s.normal
	k := min(above/s.width(), int64(len(steps))-1)
	return backends.At(steps[k].level, steps[k].base+int(min(above-k*s.width(), s.width()-1)))
}
