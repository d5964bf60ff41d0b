package backends

import "strconv"

// Level is the coarse part of a priority: a job of a higher level goes before
// every job of a lower one, whatever their values. The order is R11's:
// three bands (normal, PBA, hand-over) and the ranks within the normal band.
type Level int

// The levels, lowest first.
const (
	LevelLow         Level = iota - 1 // failed a test of the submit filter (R1)
	LevelNormal                       // every other normal job
	LevelVictim                       // lost its slots to a reclaim
	LevelPlaceholder                  // keeps a slot for a suspended victim (R20)
	LevelNext                         // next in line for its pool (R12)
	LevelPBA                          // given room in a pool
	LevelHandOver                     // slots are being reclaimed for it (R19)
)

func (l Level) String() string {
	switch l {
	case LevelLow:
		return "low"
	case LevelNormal:
		return "normal"
	case LevelVictim:
		return "victim"
	case LevelPlaceholder:
		return "placeholder"
	case LevelNext:
		return "next in line"
	case LevelPBA:
		return "pba"
	case LevelHandOver:
		return "hand-over"
	}
	return "level " + strconv.Itoa(int(l))
}

// levelStep parts the levels; a value never reaches it (R11 caps it far below).
const levelStep = 1000

// DefaultValue is the value of a job that was given no other (R10).
const DefaultValue = 20

// GaveWay is added to the value of a victim that lost no work by giving way (R33): no other
// victim's value reaches it.
const GaveWay = 200

// Spread is added, once or twice, to the value of a job at LevelHandOver that waits for slots
// on several hosts (R19): the value of no job that waits on one host reaches it.
const Spread = 200

// Priority is a job's place in its queue as one number: higher goes first, equal ones
// go in order of submission. It joins a Level and a value in 0…999; users are shown the
// value, and ageing adds to it.
type Priority int64

// At is the priority of a value within a level. Values outside 0…999 are
// clamped, so that no value ever leaves its level.
func At(level Level, value int) Priority {
	return Priority(int64(level)*levelStep + int64(min(max(value, 0), levelStep-1)))
}

// Level is the level that p lies in.
func (p Priority) Level() Level {
	if p < 0 {
		return Level((int64(p) - levelStep + 1) / levelStep)
	}
	return Level(int64(p) / levelStep)
}

// Value is p's place within its level, the number that R10 speaks of.
func (p Priority) Value() int { return int(int64(p) - int64(p.Level())*levelStep) }
