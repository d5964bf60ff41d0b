package settings

import (
	"errors"
	"fmt"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Limits is the config file's section limits: what jobs within a guarantee were promised beside their slots,
// and what is done so that they have it (R47).
type Limits struct {
	Mode    LimitsMode `yaml:"mode"`
	Slot    Promised   `yaml:"slot"`    // what each slot of a job within a guarantee was promised
	Disk    unit.Size  `yaml:"disk"`    // bytes that the disks of a host read and write in a second; 0: it is found out
	Network unit.Size  `yaml:"network"` // bytes that a host sends in a second; likewise
	Kill    bool       `yaml:"kill"`    // a job that has more memory than it asked for, and is not to be requeued, may be killed to save its host
}

// Promised is an amount of what a host has, in each second; 0: nothing.
type Promised struct {
	CPU     float64   `yaml:"cpu"`     // cores
	Disk    unit.Size `yaml:"disk"`    // bytes read and written
	Network unit.Size `yaml:"network"` // bytes sent
}

// LimitsMode says what agents do about promises that are not kept.
type LimitsMode string

// The modes.
const (
	LimitsOff     LimitsMode = "off"
	LimitsObserve LimitsMode = "observe" // they say what they would limit
	LimitsOn      LimitsMode = "on"      // they limit
)

// UnmarshalText accepts the names of the modes.
func (m *LimitsMode) UnmarshalText(text []byte) error {
	switch mode := LimitsMode(text); mode {
	case LimitsOff, LimitsObserve, LimitsOn:
		*m = mode
		return nil
	}
	return fmt.Errorf("%q is no mode (known: %s, %s, %s)", text, LimitsOff, LimitsObserve, LimitsOn)
}

// DefaultLimits is the section of a config file without it.
func DefaultLimits() Limits { return Limits{Mode: LimitsOff, Slot: Promised{CPU: 1}} }

// Looks reports whether agents look at promises at all.
func (l Limits) Looks() bool { return l.Mode != LimitsOff }

// Validate says what is wrong with the section, if anything.
func (l Limits) Validate() error {
	switch {
	case !(l.Slot.CPU >= 0 && l.Slot.CPU <= 1000):
		return fmt.Errorf("slot.cpu: %v: want 0 to 1000 cores", l.Slot.CPU)
	case l.Slot.Disk < 0 || l.Slot.Network < 0 || l.Disk < 0 || l.Network < 0:
		return errors.New("a negative amount: want 0 or more bytes a second")
	case l.Looks() && l.Slot == (Promised{}):
		return errors.New("slot: jobs within a guarantee are promised nothing: name cpu, disk or network")
	}
	return nil
}
