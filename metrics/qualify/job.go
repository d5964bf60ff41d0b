package qualify

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

// A qualification of several hosts has a directory that they all see. Its owner serves
// the link there, submits a job to each host that is Run with a number of its own, and
// reads the result by that number when the job has ended.

// LinkFile returns the path of the file that Serve writes.
func LinkFile(dir string) string { return filepath.Join(dir, "link.json") }

// ResultFile returns the path where the job of a number leaves its result.
func ResultFile(dir string, number int) string {
	return filepath.Join(dir, strconv.Itoa(number)+".json")
}

// Run is a job's whole work: it measures this host, or without fresh loads a measurement
// from the cache if there is one, and writes the result, or the error.
func Run(ctx context.Context, dir string, number int, cache Cache, fresh bool) error {
	if err := trusted.Dir(dir); err != nil {
		return fmt.Errorf("qualify this host: %s: %w", dir, err)
	}
	r, err := measureOrLoad(ctx, Options{Dir: dir, Link: LinkFile(dir)}, cache, fresh)
	if err != nil {
		r = Result{Version: version, Error: err.Error()}
	}
	if failed := writeFile(ResultFile(dir, number), r); failed != nil {
		err = errors.Join(err, fmt.Errorf("write the result: %w", failed))
	}
	return err
}

func measureOrLoad(ctx context.Context, o Options, cache Cache, fresh bool) (Result, error) {
	machine, err := Inspect(o.Dir)
	peer, err2 := readOffer(o.Link)
	if err := errors.Join(err, err2); err != nil {
		return Result{}, err
	}
	if !fresh {
		if r, ok := cache.Load(machine.Fingerprint(peer.Host)); ok {
			return r, nil
		}
	}
	r, err := measure(ctx, o.Dir, machine, peer)
	if err != nil {
		return Result{}, err
	}
	if err := cache.Store(r); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r, nil
}
