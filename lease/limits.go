package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// Limits bound a Manager. A zero is the default, in brackets; more than the maximum counts as the
// maximum.
type Limits struct {
	Workers int // that are there at a time [1,000; at most 100,000]
	Holders int // that have jobs at a time [1,000; at most 100,000]
	Jobs    int // of a holder at a time [1,000; at most 100,000]
	Waiting int // requests that wait, of all holders [100,000; at most 1,000,000]
	Each    int // requests of one holder that wait [10,000; at most 1,000,000]
	Held    int // slots that one holder holds and waits for [100,000; at most 1,000,000]
	Slots   int // of one request [10,000; at most 60,000]
	Tasks   int // bytes of the tasks that wait, of all holders [64 MiB; at most 1 GiB]

	// Idle is how long a worker stays without a lease; 0: for ever.
	Idle time.Duration
	// Milli and Memory are what a worker more would bring, as Want counts: milli-cores [1000] and
	// bytes; 0: not limited.
	Milli  int
	Memory int64
}

// Bounds of what an event says.
const (
	MaxName     = 256        // bytes of a name or ID
	MaxPostBack = 2048       // bytes
	MaxTask     = 16 << 10   // bytes
	MaxResult   = 64 << 10   // bytes
	MaxMilli    = 16_000_000 // milli-cores of a worker or slot
	MaxMemory   = 1 << 50    // bytes of one
)

func (l *Limits) settle() {
	for _, bound := range []struct {
		value         *int
		normal, limit int
	}{
		{&l.Workers, 1000, 100_000},
		{&l.Holders, 1000, 100_000},
		{&l.Jobs, 1000, 100_000},
		{&l.Waiting, 100_000, 1_000_000},
		{&l.Each, 10_000, 1_000_000},
		{&l.Held, 100_000, 1_000_000},
		{&l.Slots, 10_000, 60_000},
		{&l.Tasks, 64 << 20, 1 << 30},
		{&l.Milli, 1000, MaxMilli},
	} {
		if *bound.value <= 0 {
			*bound.value = bound.normal
		}
		*bound.value = min(*bound.value, bound.limit)
	}
	l.Idle = max(l.Idle, 0)
}

// share returns the milli-cores of a worker more that a slot uses up; 0: such a worker would not hold
// it.
func (l *Limits) share(milli, memory int64) int64 {
	slots := int64(l.Milli) / milli
	if l.Memory > 0 && memory > 0 {
		slots = min(slots, l.Memory/memory)
	}
	if slots == 0 {
		return 0
	}
	return int64(l.Milli) / slots
}

// The causes of errors of Step. An event that gets one changes nothing.
var (
	ErrInvalid = errors.New("invalid")
	ErrLimit   = errors.New("over a limit")
	ErrUnknown = errors.New("not known")
	ErrTaken   = errors.New("there already")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
}

func overLimit(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrLimit)...)
}

func taken(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrTaken)...)
}

func unknown(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrUnknown)...)
}

// checkName reports a name, a user's text, that is none.
func checkName(kind, name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) || strings.ContainsFunc(name, printable.Hidden) {
		return invalid("the name of a %s: want 1 to %d bytes of visible text", kind, MaxName)
	}
	return nil
}
