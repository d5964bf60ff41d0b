// Package home knows where the files of a run are: in ALLOTMENT_HOME, in the
// system's directories, or in the user's own.
package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Paths are the places of one run. Two homes never share one.
type Paths struct {
	Config  string // the config file; it may be missing
	State   string // directory of what must survive: ledger, snapshot, jobs
	Runtime string // directory of sockets and locks
}

// Directories of a run by root, and of users without their own.
const (
	systemConfig  = "/etc/allotment/config.yaml"
	systemState   = "/var/lib/allotment"
	systemRuntime = "/run/allotment"
)

// Find returns where the files are, for an environment and a user.
//
//   - ALLOTMENT_HOME names the one directory of a run, for any user.
//   - Root has /etc/allotment, /var/lib/allotment and /run/allotment.
//   - A user has the XDG directories, unless only the system has a config file:
//     then the site's farm is meant.
//
// ALLOTMENT_CONFIG names another config file in each of these. Nothing is
// created: see Prepare.
func Find(env func(string) string, uid int) (Paths, error) {
	return find(env, uid, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

func find(env func(string) string, uid int, exists func(string) bool) (Paths, error) {
	paths, err := defaultPaths(env, uid, exists)
	if err != nil {
		return Paths{}, err
	}
	if config := env("ALLOTMENT_CONFIG"); config != "" {
		if paths.Config, err = filepath.Abs(config); err != nil {
			return Paths{}, fmt.Errorf("find ALLOTMENT_CONFIG %q: %w", config, err)
		}
	}
	return paths, nil
}

func defaultPaths(env func(string) string, uid int, exists func(string) bool) (Paths, error) {
	if dir := env("ALLOTMENT_HOME"); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return Paths{}, fmt.Errorf("find ALLOTMENT_HOME %q: %w", env("ALLOTMENT_HOME"), err)
		}
		return Paths{Config: filepath.Join(dir, "config.yaml"), State: dir, Runtime: dir}, nil
	}
	system := Paths{Config: systemConfig, State: systemState, Runtime: systemRuntime}
	if uid == 0 {
		return system, nil
	}
	config, err := xdg(env, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return Paths{}, err
	}
	state, err := xdg(env, "XDG_STATE_HOME", ".local/state")
	if err != nil {
		return Paths{}, err
	}
	own := Paths{Config: filepath.Join(config, "config.yaml"), State: state, Runtime: state}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		own.Runtime = filepath.Join(dir, "allotment")
	}
	if exists(systemConfig) && !exists(own.Config) {
		return system, nil
	}
	return own, nil
}

// xdg is our directory below one of the XDG base directories. As their
// specification wants, a relative value counts as none.
func xdg(env func(string) string, name, below string) (string, error) {
	if dir := env(name); filepath.IsAbs(dir) {
		return filepath.Join(dir, "allotment"), nil
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, below, "allotment"), nil
	}
	return "", fmt.Errorf("neither HOME nor %s names a directory: set ALLOTMENT_HOME", name)
}

// OfTheSystem reports whether the run is that of the whole machine, which root
// alone starts.
func (p Paths) OfTheSystem() bool { return p.State == systemState }

// Prepare makes the directories that are missing: the system's are open to read
// for everyone, a user's are private. A runtime directory that belongs to another user,
// or that others can write, is an error.
func (p Paths) Prepare() error {
	mode := os.FileMode(0o700)
	if p.OfTheSystem() {
		mode = 0o755
	}
	for _, dir := range []string{p.State, p.Runtime} {
		_, err := os.Stat(dir)
		missing := errors.Is(err, fs.ErrNotExist)
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make the directory of this run: %w", err)
		}
		if missing && p.OfTheSystem() { // whatever root's umask is
			if err := os.Chmod(dir, mode); err != nil {
				return fmt.Errorf("make the directory of this run: %w", err)
			}
		}
	}
	return ownDirectory("runtime directory", p.Runtime)
}

func ownDirectory(what, dir string) error {
	err := trusted.Dir(dir)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &trusted.ForeignOwner{}):
		err = fmt.Errorf("%w: set ALLOTMENT_HOME to a directory of your own", err)
	}
	return fmt.Errorf("use %s %s: %w", what, dir, err)
}

// CheckOwner returns an error if one of these directories is another user's, or others can
// write it: root's daemon, which serves every user, must not use it.
func (p Paths) CheckOwner() error {
	if err := ownDirectory("state directory", p.State); err != nil {
		return err
	}
	return ownDirectory("runtime directory", p.Runtime)
}
