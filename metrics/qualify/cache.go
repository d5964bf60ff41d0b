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

// CacheOf returns a directory below the state directory if that is the user's, else below
// the user's cache directory; "" if there is none.
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

// Load returns a cached measurement, and whether there is one that can be read and
// trusted.
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
		return fmt.Errorf("cache the measurement: %w", err)
	}
	return nil
}

func (c Cache) path(fingerprint string) string {
	return filepath.Join(string(c), "qualify-"+filepath.Base(fingerprint)+".json")
}
