package configfile

import (
	"context"
	"fmt"
	"os"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/all"
	"github.com/allotment-hpc/allotment/internal/config"
)

// Open returns the queue that the config names. It may be out of reach: then the first
// call fails.
func Open(ctx context.Context, c Config) (backends.Backend, error) {
	return open(ctx, c, all.Options{})
}

// OpenToSubmit is Open for programs that submit jobs: the bundled queue is started at
// the first call if it does not run. That of the whole machine is left to root.
func OpenToSubmit(ctx context.Context, c Config) (backends.Backend, error) {
	return open(ctx, c, all.Options{Start: true})
}

func open(ctx context.Context, c Config, o all.Options) (backends.Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open the queue: %w", err)
	}
	o.Start = o.Start && (os.Geteuid() == 0 || !c.Paths.OfTheSystem())
	o.Paths, o.Miniq, o.Slurm, o.LSF, o.LowQueue = c.Paths, c.Miniq, c.Slurm, c.LSF, c.Filter.LowQueue
	return all.Open(c.Backend, o)
}

// OpenConfigured opens the queue that this process's environment and config name:
// to submit, by OpenToSubmit. It is for a command that asks and ends.
func OpenConfigured(ctx context.Context, toSubmit bool, yaml config.Converter) (backends.Backend, error) {
	c, err := Load(yaml)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, all.Options{Start: toSubmit, Brief: true})
}
