// Package clock detects that a wall clock was set. The clock since boot runs on
// whatever is done to the wall clock: what one shows beyond the other is a jump.
package clock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Reading is what both clocks say at one instant. The zero Reading says nothing.
type Reading struct {
	Wall time.Time     `json:"wall,omitzero"`
	Boot uint64        `json:"boot,omitempty"` // names the boot that Up counts from; 0: not known
	Up   time.Duration `json:"up,omitempty"`   // since then, with the time that the machine slept
}

// A difference that is no jump. Daemons that keep the time put small errors right
// by running the clock up to 500 ppm fast or slow; they set it for larger ones.
const (
	slack = 5 * time.Second
	drift = 1000 // of the time between two readings: one part in so many
)

// Jump returns by how much the wall clock was set between two readings, ahead if it is
// positive; 0: it was not. Across boots only a clock that went back shows it: any time
// may have passed meanwhile.
func (was Reading) Jump(is Reading) time.Duration {
	if was.Wall.IsZero() || is.Wall.IsZero() {
		return 0
	}
	by, most := is.Wall.Sub(was.Wall), slack
	if was.Boot == is.Boot && is.Boot != 0 && is.Up >= was.Up {
		by -= is.Up - was.Up
		most += (is.Up - was.Up) / drift
	} else if by > 0 {
		return 0
	}
	if by.Abs() <= most {
		return 0
	}
	return by
}

// Read reads both clocks.
func Read() (Reading, error) {
	boot, err := bootID()
	if err != nil {
		return Reading{}, err
	}
	return At(boot)
}

// Reader is Read for a process that reads often: no process outlives the boot that it
// was started in, which is looked up once.
func Reader() func() (Reading, error) {
	boot := uint64(0)
	return func() (r Reading, err error) {
		if boot == 0 {
			if boot, err = bootID(); err != nil {
				return Reading{}, err
			}
		}
		return At(boot)
	}
}

// At is Read for a boot that is known.
func At(boot uint64) (Reading, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return Reading{}, fmt.Errorf("read the clock since boot: %w", err)
	}
	return Reading{Wall: time.Now().Round(0).UTC(), Boot: boot, Up: time.Duration(up.Nano())}, nil
}

// bootID is the first half of the kernel's identifier of this boot.
func bootID() (uint64, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, fmt.Errorf("read the boot ID: %w", err)
	}
	const digits = 16
	hex := strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")
	id, err := strconv.ParseUint(hex[:min(len(hex), digits)], 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read the boot ID: %w", err)
	}
	return id, nil
}

// Describe returns text about a jump: both dates, and by how much.
func Describe(is time.Time, by time.Duration) string {
	way, far := "ahead", by
	if by < 0 {
		way, far = "back", -by
	}
	const format = "2006-01-02 15:04:05"
	return fmt.Sprintf("was set %s by %s, from %s to %s", way, Long(far), is.Add(-by).Local().Format(format), is.Local().Format(format))
}

// Long returns a duration as text for people: from two days on in days, else rounded to
// seconds.
func Long(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Second).String()
}

// Sleep waits, and returns the context's cause if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
