// Package configfile reads the config file as a whole, and opens the queue that it
// names: this is the one place that decides which.
package configfile

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the farm's time zone must be known on a bare machine too

	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// Config is the whole config file, with the places of this run's files.
type Config struct {
	Paths    config.Paths
	Backend  string
	Mode     Mode
	Timezone Zone
	Queues   []string // managed queues; empty: every queue
	Hosts    []string // managed hosts; empty: every host
	Filter   esub.Config
	PBA      settings.Config
	Dummies  settings.Dummies
	Miniq    miniq.Config
	Slurm    slurm.Config
	LSF      lsf.Config
	Web      settings.Web
	Ahostd   settings.Ahostd
	Limits   settings.Limits
	Prices   settings.Prices
	Bus      settings.Bus
	Log      Log
}

// Mode says whether the engine acts.
type Mode string

// The modes (R7).
const (
	Live    Mode = "live"
	Observe Mode = "observe"
)

// UnmarshalText accepts the names of the modes.
func (m *Mode) UnmarshalText(text []byte) error {
	known := []string{string(Live), string(Observe)}
	if !slices.Contains(known, string(text)) {
		return fmt.Errorf("%q is no mode (known: %s)", text, strings.Join(known, ", "))
	}
	*m = Mode(text)
	return nil
}

// Zone is the time zone that weeks are counted in; the zero Zone is the
// system's.
type Zone struct{ location *time.Location }

// UnmarshalText accepts names of the IANA database, such as Europe/Berlin.
func (z *Zone) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		z.location = nil
		return nil
	}
	location, err := time.LoadLocation(string(text))
	if err != nil {
		return fmt.Errorf("%q is no time zone; write it like Europe/Berlin or UTC", text)
	}
	z.location = location
	return nil
}

// Location is the zone for package time.
func (z Zone) Location() *time.Location {
	if z.location == nil {
		return time.Local
	}
	return z.location
}

// OfSystem reports whether no zone is configured: then it is that of the process.
func (z Zone) OfSystem() bool { return z.location == nil }

// Load reads the config of this process's environment and user.
func Load(yaml config.Converter) (Config, error) { return LoadFor(os.Getuid(), yaml) }

// LoadFor is Load for the user who started the process, which may run as another by now.
func LoadFor(uid int, yaml config.Converter) (Config, error) {
	paths, err := config.Find(os.Getenv, uid)
	if err != nil {
		return Config{}, err
	}
	c, err := LoadFrom(paths, yaml)
	if err != nil {
		return Config{}, err
	}
	if backend := os.Getenv("ALLOTMENT_BACKEND"); backend != "" {
		c.Backend = backend
	}
	return c, nil
}

// LoadFrom is Load for known paths, without the environment.
func LoadFrom(paths config.Paths, yaml config.Converter) (Config, error) {
	c := Config{
		Paths:   paths,
		Backend: "miniq",
		Mode:    Live,
		Filter:  esub.DefaultConfig(),
		PBA:     settings.Default(),
		Dummies: settings.DefaultDummies(),
		Miniq:   miniq.DefaultConfig(),
		Slurm:   slurm.DefaultConfig(),
		LSF:     lsf.DefaultConfig(),
		Web:     settings.DefaultWeb(),
		Ahostd:  settings.DefaultAhostd(),
		Limits:  settings.DefaultLimits(),
		Bus:     settings.DefaultBus(),
		Log:     Log{Format: LogText},
	}
	err := config.Load(paths.Config, map[string]any{
		"backend":  &c.Backend,
		"mode":     &c.Mode,
		"timezone": &c.Timezone,
		"queues":   &c.Queues,
		"hosts":    &c.Hosts,
		"filter":   &c.Filter,
		"pba":      &c.PBA,
		"dummies":  &c.Dummies,
		"miniq":    &c.Miniq,
		"slurm":    &c.Slurm,
		"lsf":      &c.LSF,
		"web":      &c.Web,
		"ahostd":   &c.Ahostd,
		"limits":   &c.Limits,
		"prices":   &c.Prices,
		"bus":      &c.Bus,
		"log":      &c.Log,
	}, yaml)
	if err != nil {
		return Config{}, err
	}
	// After its limit a dummy job is missed for a cycle: it must last for many.
	if least := 10 * c.PBA.Every; c.Dummies.Mode != "" && c.Dummies.Limit < least {
		return Config{}, &config.Error{File: paths.Config, Why: fmt.Sprintf("dummies.limit: %v is less than ten cycles (pba.every: %v)", c.Dummies.Limit, c.PBA.Every)}
	}
	if c.Miniq.Ageing.Interval == 0 {
		c.Miniq.Ageing.Interval = c.PBA.Every // R10: age + 1 a cycle
	}
	return c, nil
}
