// Package all opens a queue by its name in the config file. It is the only
// package that knows every backend.
package all

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
)

// Config is what the backends need of the config file and of this run.
type Config struct {
	Paths home.Paths
	Miniq miniq.Config
	Start bool // a queue that belongs to this run is started when it is not running
}

// Open opens the queue of a name. It asks nothing of it yet.
func Open(name string, c Config) (backends.Backend, error) {
	switch name {
	case "miniq":
		return miniq.Open(miniq.Options{Paths: c.Paths, Config: c.Miniq, Start: c.Start}), nil
	}
	return nil, fmt.Errorf("backend %q is unknown (known: miniq): set `backend:` in the config file", name)
}
