package main

import (
	"context"
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// openBackend opens the queue that this process's environment and config name.
// Only a submission starts the bundled queue's daemon.
func openBackend(_ context.Context, start bool) (backends.Backend, error) {
	section := miniq.DefaultConfig()
	config, err := shell.Load(map[string]any{"miniq": &section})
	if err != nil {
		return nil, err
	}
	if config.Backend != "miniq" {
		return nil, fmt.Errorf("open the queue: %q is no backend (known: miniq)", config.Backend)
	}
	return miniq.Open(miniq.Options{Paths: config.Paths, Config: section, Start: start}), nil
}
