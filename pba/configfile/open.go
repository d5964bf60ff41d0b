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
func Open(ctx context.Context, c Config) (backends.Backend, error) { return open(ctx, c, false) }

// OpenToSubmit is Open for programs that submit jobs: the bundled queue is started at
// the first call if it does not run. That of the whole machine is left to root.
func OpenToSubmit(ctx context.Context, c Config) (backends.Backend, error) { return open(ctx, c, true) }

func open(ctx context.Context, c Config, start bool) (backends.Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open the queue: %w", err)
	}
	start = start && (os.Geteuid() == 0 || !c.Paths.OfTheSystem())
	return all.Open(c.Backend, all.Options{Paths: c.Paths, Miniq: c.Miniq, Slurm: c.Slurm, LSF: c.LSF, LowQueue: c.Filter.LowQueue, Start: start})
}

// OpenConfigured opens the queue that this process's environment and config name:
// to submit, by OpenToSubmit.
func OpenConfigured(ctx context.Context, toSubmit bool, yaml config.Converter) (backends.Backend, error) {
	c, err := Load(yaml)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, toSubmit)
}
