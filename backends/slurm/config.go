package slurm

import (
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Config is the config file's section `slurm`.
type Config struct {
	Conf        string        `yaml:"conf"`         // slurm.conf; empty: $SLURM_CONF, or where the commands look by themselves
	Bin         string        `yaml:"bin"`          // directory of Slurm's commands; empty: PATH
	ProjectFrom ProjectFrom   `yaml:"project_from"` // what of a job names its project
	Timeout     unit.Duration `yaml:"timeout"`      // of one command
}

// DefaultTimeout bounds one of Slurm's commands.
const DefaultTimeout = 30 * time.Second

// DefaultConfig is what holds where the file says nothing.
func DefaultConfig() Config {
	return Config{ProjectFrom: FromAccount, Timeout: unit.Duration(DefaultTimeout)}
}

// ProjectFrom says what of a job names its project.
type ProjectFrom string

// Where a job's project stands.
const (
	FromAccount ProjectFrom = "account" // sbatch -A
	FromWCKey   ProjectFrom = "wckey"   // sbatch --wckey
	FromComment ProjectFrom = "comment" // sbatch --comment, up to its first space
)

// UnmarshalText accepts the names of the places.
func (p *ProjectFrom) UnmarshalText(text []byte) error {
	switch from := ProjectFrom(text); from {
	case FromAccount, FromWCKey, FromComment:
		*p = from
		return nil
	}
	return fmt.Errorf("%q names no project (known: %s, %s, %s)", text, FromAccount, FromWCKey, FromComment)
}
