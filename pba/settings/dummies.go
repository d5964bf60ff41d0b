package settings

import (
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// Dummies is the config file's section dummies (R28–R31).
type Dummies struct {
	Mode          DummyMode     `yaml:"mode"`
	MaxGathering  unit.Share    `yaml:"max_gathering"`  // of the farm: what gathers for normal jobs, after the first one
	GatherTimeout unit.Duration `yaml:"gather_timeout"` // a normal job that gathered so long gives way to others
	LightFraction unit.Share    `yaml:"light_fraction"` // of a slot's share of memory
	Limit         unit.Duration `yaml:"limit"`          // run limit of a dummy job
	Heavy         []HeavyRule   `yaml:"heavy"`
}

// DummyMode is a dummy.Mode that knows its names.
type DummyMode dummy.Mode

// offText is how dummy.Off is written.
const offText = "off"

// UnmarshalText accepts the names of the modes.
func (m *DummyMode) UnmarshalText(text []byte) error {
	switch mode := dummy.Mode(text); mode {
	case offText:
		*m = DummyMode(dummy.Off)
	case dummy.Reserve, dummy.Surround:
		*m = DummyMode(mode)
	default:
		return fmt.Errorf("%q is no mode (known: %s, %s, %s)", text, offText, dummy.Reserve, dummy.Surround)
	}
	return nil
}

// HeavyRule says that jobs need at least so much memory, whatever they ask for.
// What is left out matches every job.
type HeavyRule struct {
	Project string    `yaml:"project"`
	Step    string    `yaml:"step"`
	Queue   string    `yaml:"queue"`
	Memory  unit.Size `yaml:"memory"` // of a whole job
}

// Validate says what is wrong with the rule, if anything.
func (r HeavyRule) Validate() error {
	if r.Memory <= 0 {
		return errors.New("memory: want how much such a job needs, such as 24G")
	}
	return nil
}

// DefaultDummies returns the section's defaults: jobs are held for their memory only
// where a site configures it.
func DefaultDummies() Dummies {
	return Dummies{
		MaxGathering:  0.05,
		GatherTimeout: unit.Duration(time.Hour),
		LightFraction: 0.25,
		Limit:         unit.Duration(time.Hour),
	}
}

// Validate says what is wrong with the section, if anything.
func (d Dummies) Validate() error {
	if d.GatherTimeout <= 0 {
		return errors.New("gather_timeout: want a time above zero, such as 1h")
	}
	// Slurm and LSF count a run limit in minutes.
	if time.Duration(d.Limit) < time.Minute {
		return fmt.Errorf("limit: %v: want 1m or more", d.Limit)
	}
	return nil
}

// Policy is the section in the planner's words; what the planner knows itself, of
// cycles, holds and the managed farm, is still missing in it.
func (d Dummies) Policy() dummy.Policy {
	p := dummy.Policy{
		Mode:          dummy.Mode(d.Mode),
		MaxGathering:  float64(d.MaxGathering),
		GatherTimeout: time.Duration(d.GatherTimeout),
		LightFraction: float64(d.LightFraction),
		Limit:         time.Duration(d.Limit),
	}
	for _, r := range d.Heavy {
		p.Rules = append(p.Rules, dummy.Rule{Project: r.Project, Step: r.Step, Queue: r.Queue, Memory: int64(r.Memory)})
	}
	return p
}
