package lsf

import (
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Config is the config file's section `lsf`.
type Config struct {
	Bin     string        `yaml:"bin"`     // directory of LSF's commands; empty: PATH
	EnvDir  string        `yaml:"envdir"`  // directory of lsf.conf; empty: $LSF_ENVDIR, or where the commands look by themselves
	Timeout unit.Duration `yaml:"timeout"` // of one command
}

// DefaultTimeout bounds one of LSF's commands: while LSF's daemons are away it waits, and
// says so now and then.
const DefaultTimeout = 30 * time.Second

// DefaultConfig returns the values that hold where the file has none.
func DefaultConfig() Config { return Config{Timeout: unit.Duration(DefaultTimeout)} }
