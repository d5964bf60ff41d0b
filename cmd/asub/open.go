package main

import (
	"context"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// openBackend opens the queue that this process's environment and config name.
// Only a submission starts the bundled queue's daemon.
func openBackend(ctx context.Context, start bool) (backends.Backend, error) {
	config, err := shell.Load()
	if err != nil {
		return nil, err
	}
	if start {
		return shell.OpenToSubmit(ctx, config)
	}
	return shell.Open(ctx, config)
}
