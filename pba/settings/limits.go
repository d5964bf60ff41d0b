package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Limits is the config file's section limits: what jobs within a guarantee were promised beside their slots,
// and what is done so that they have it (R47, R48).
type Limits struct {
	Mode     LimitsMode              `yaml:"mode"`
	Slot     Promised                `yaml:"slot"`     // what each slot of a job within a guarantee was promised
	Projects map[string]PromisedPart `yaml:"projects"` // instead of Slot, of these projects' jobs
	Most     PromisedPart            `yaml:"most"`     // the most that a job's minimum counts, for each of its slots; a resource that it does not name has Slot's amount
	Disk     unit.Size               `yaml:"disk"`     // bytes that the disks of a host read and write in a second; 0: it is found out
	Network  unit.Size               `yaml:"network"`  // bytes that a host sends in a second; likewise
	Kill     bool                    `yaml:"kill"`     // a job that has more memory than it asked for, and is not to be requeued, may be killed to save its host
}

// Promised is an amount of what a host has, in each second; 0: nothing.
type Promised struct {
	CPU     float64   `yaml:"cpu"`     // cores
	Disk    unit.Size `yaml:"disk"`    // bytes read and written
	Network unit.Size `yaml:"network"` // bytes sent
}

// PromisedPart is a Promised of which some may be named, and the rest is another one's.
type PromisedPart struct {
	CPU     *float64   `yaml:"cpu"`
	Disk    *unit.Size `yaml:"disk"`
	Network *unit.Size `yaml:"network"`
}

// over returns what the part names, and the rest of p.
func (part PromisedPart) over(p Promised) Promised {
	if part.CPU != nil {
		p.CPU = *part.CPU
	}
	if part.Disk != nil {
		p.Disk = *part.Disk
	}
	if part.Network != nil {
		p.Network = *part.Network
	}
	return p
}

// Bounds of the section.
const (
	maxLimitsProjects = 1000
	maxPromisedCores  = 1000
	maxPromisedBytes  = 1 << 40
)

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

// SlotOf returns what each slot of a project's jobs within a guarantee was promised.
func (l Limits) SlotOf(project string) Promised { return l.Projects[project].over(l.Slot) }

// MostOfSlot returns what a job's minimum counts up to, for each of its slots.
func (l Limits) MostOfSlot() Promised { return l.Most.over(l.Slot) }

// Validate says what is wrong with the section, if anything.
func (l Limits) Validate() error {
	if n := len(l.Projects); n > maxLimitsProjects {
		return fmt.Errorf("projects: %d: at most %d", n, maxLimitsProjects)
	}
	if err := l.Slot.check("slot"); err != nil {
		return err
	}
	if err := l.MostOfSlot().check("most"); err != nil {
		return err
	}
	nothing := l.Slot == (Promised{}) && l.MostOfSlot() == (Promised{})
	for _, project := range slices.Sorted(maps.Keys(l.Projects)) {
		p := l.SlotOf(project)
		if err := p.check("projects." + project); err != nil {
			return err
		}
		nothing = nothing && p == (Promised{})
	}
	switch {
	case l.Disk < 0 || l.Network < 0:
		return errors.New("a negative amount: want 0 or more bytes a second")
	case l.Looks() && nothing:
		return errors.New("slot: jobs within a guarantee are promised nothing: name cpu, disk or network")
	}
	return nil
}

// check says what is wrong with the amounts of a key, if anything.
func (p Promised) check(key string) error {
	if !(p.CPU >= 0 && p.CPU <= maxPromisedCores) {
		return fmt.Errorf("%s.cpu: %v: want 0 to %d cores", key, p.CPU, maxPromisedCores)
	}
	for name, bytes := range map[string]unit.Size{"disk": p.Disk, "network": p.Network} {
		if bytes < 0 || bytes > maxPromisedBytes {
			return fmt.Errorf("%s.%s: %v: want 0 to %v a second", key, name, bytes, unit.Size(maxPromisedBytes))
		}
	}
	return nil
}
