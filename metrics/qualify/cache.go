package qualify

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Cache keeps measurements by their fingerprints, in a directory of the user's own. ""
// keeps nothing.
type Cache string

// CacheOf is below the run's own directory if that is the user's, else where the user's
// caches are; "" if there is no such place.
func CacheOf(paths home.Paths) Cache {
	if trusted.Dir(paths.State) == nil {
		return Cache(filepath.Join(paths.State, "cache"))
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return Cache(filepath.Join(dir, "allotment"))
}

// Load gives a measurement that was kept. One that can't be read or trusted is none.
func (c Cache) Load(fingerprint string) (Result, bool) {
	if c == "" || trusted.Dir(string(c)) != nil {
		return Result{}, false
	}
	r, err := ReadResult(c.path(fingerprint))
	return r, err == nil && r.Fingerprint == fingerprint
}

// Store keeps a measurement.
func (c Cache) Store(r Result) error {
	if c == "" {
		return nil
	}
	err := os.MkdirAll(string(c), 0o700)
	if err == nil {
		if err = trusted.Dir(string(c)); err != nil {
			err = fmt.Errorf("%s: %w", c, err)
		}
	}
	if err == nil {
		err = writeFile(c.path(r.Fingerprint), r)
	}
	if err != nil {
		return fmt.Errorf("keep the measurement: %w", err)
	}
	return nil
}

func (c Cache) path(fingerprint string) string {
	return filepath.Join(string(c), "qualify-"+filepath.Base(fingerprint)+".json")
}
