package qualify

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/allotment-hpc/allotment/internal/home"
)

// Cache keeps measurements by their fingerprints, in a directory of the user's own. ""
// keeps nothing.
type Cache string

// CacheOf is below the run's own directory if that is the user's, else where the user's
// caches are; "" if there is no such place.
func CacheOf(paths home.Paths) Cache {
	if owned(paths.State) == nil {
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
	if c == "" || owned(string(c)) != nil {
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
		err = owned(string(c))
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

// owned refuses a directory in which somebody else could put files.
func owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case int64(stat.Uid) != int64(os.Geteuid()):
		return fmt.Errorf("%s belongs to user ID %d, not to you", dir, stat.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %#o): chmod go-w it", dir, info.Mode().Perm())
	}
	return nil
}
