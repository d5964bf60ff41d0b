// Package all opens a queue by its name in the config file. It is the only
// package that knows every backend.
package all

import (
	"fmt"
	"path/filepath"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

// Options are what the backends need of the config file and of this run.
type Options struct {
	Paths home.Paths
	Miniq miniq.Config
	Slurm slurm.Config
	LSF   lsf.Config
	// LowQueue is where lowered jobs go, for a queue that has no lower priority.
	LowQueue string
	Brief    bool // the process makes few calls and ends
	Start    bool // a queue that belongs to this run is started when it is not running
}

// Open opens the queue of a name. Nothing is asked of it yet.
func Open(name string, o Options) (backends.Backend, error) {
	switch name {
	case "miniq":
		return client.Open(client.Options{Paths: o.Paths, Config: o.Miniq, Start: o.Start, Blocking: o.Brief}), nil
	case "slurm":
		return slurm.Open(slurm.Options{Config: o.Slurm, Exclusions: filepath.Join(o.Paths.State, "slurm-exclusions.json")}), nil
	case "lsf":
		return lsf.Open(lsf.Options{Config: o.LSF, LowQueue: o.LowQueue, Record: filepath.Join(o.Paths.State, "lsf-jobs.json")}), nil
	default:
		return nil, fmt.Errorf("backend %q is not known; known: miniq, slurm, lsf", name)
	}
}
