package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/state"
)

// files are those of a state directory that have to do with jobs.
type files struct {
	patterns []pattern
	owner    uint32
	objects  map[backends.ID]bool
	records  map[string]node.RunID // by their names below the state directory
}

// kind is what a file's name says that it is.
type kind int

const (
	unknown kind = iota
	own          // the daemon's
	object
	record
	script
	log
	leftover // of a write that was interrupted, or set aside by an earlier version
)

// pattern is what the names of a kind of files look like.
type pattern struct {
	kind kind
	like *regexp.Regexp
}

// patterns are those of all files that may be below the state directory.
func patterns() []pattern {
	return []pattern{
		{object, regexp.MustCompile(`^jobs/\d+/\d+(\.\d+)?\.db$`)},
		{own, regexp.MustCompile(`^(queue|boot|hooked|stopped|lock|start\.lock|journal\.\d{20}|nodes/[^/]+/(lock|runs/spare\.\d+))$`)},
		{log, regexp.MustCompile(`^miniqd\.log(\.[^/]+)?$`)},
		{record, regexp.MustCompile(`^nodes/[^/]+/runs/\d+\.\d+\.\d+\.run$`)},
		{script, regexp.MustCompile(`^nodes/[^/]+/runs/\d+\.\d+\.\d+\.script$`)},
		{leftover, regexp.MustCompile(`^(queue\.new|boot\.new|hooked\.new|stopped\.new|journal\.\d{20}\.cut|jobs/\d+/[^/]+\.(db\.new|db\.damaged-\d+))$`)},
	}
}

func (x *examination) kindOf(name string) kind {
	for _, p := range x.files.patterns {
		if p.like.MatchString(name) {
			return p.kind
		}
	}
	return unknown
}

// checkFiles checks every file's name, owner and mode.
func (x *examination) checkFiles() error {
	x.files = files{patterns: patterns(), owner: uint32(os.Geteuid()), objects: map[backends.ID]bool{}, records: map[string]node.RunID{}}
	if info, err := os.Stat(x.State); err == nil {
		x.files.owner = ownerOf(info)
	}
	return filepath.WalkDir(x.State, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(x.State, path)
		var info fs.FileInfo
		if err == nil {
			info, err = os.Lstat(path)
		}
		switch {
		case err != nil && os.IsNotExist(err): // it was removed meanwhile
			return nil
		case err != nil:
			x.addFinding(name, "it can't be read: "+cause(err), "look at the disk's health, then "+restoreBackup, nil)
			return nil
		case path == filepath.Join(x.State, state.AsideDir):
			entries, err := os.ReadDir(path)
			x.Aside = len(entries)
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		x.checkFile(name, info)
		return nil
	})
}

func cause(err error) string {
	if p := new(fs.PathError); asPath(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

func ownerOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return 0
}

func (x *examination) checkFile(name string, info fs.FileInfo) {
	k := x.kindOf(name)
	if !info.IsDir() && !info.Mode().IsRegular() {
		if info.Mode()&fs.ModeSocket == 0 || k != unknown { // its socket may be here
			x.addFinding(name, "it is no regular file", "find out which program made it, and remove it", nil)
		}
		return
	}
	if k != script { // a job's own user has that
		x.checkAccess(name, info)
	}
	if info.IsDir() {
		return
	}
	switch k {
	case own, log, script:
	case record:
		var run node.RunID
		if run.UnmarshalText([]byte(strings.TrimSuffix(filepath.Base(name), ".run"))) == nil {
			x.files.records[name] = run
		} else {
			x.addFinding(name, "its name is not that of a run", asideRemedy, x.asideRepair(name))
		}
	case object:
		id, ok := state.IDOf(name)
		if !ok || state.Path("jobs", id) != name {
			x.addFinding(name, "its path is not that of a state object", asideRemedy, x.asideRepair(name))
			return
		}
		x.files.objects[id] = true
	case leftover:
		x.addFinding(name, "it was left over, by an interrupted write or an earlier version; nothing reads it", asideRemedy, x.asideRepair(name))
	case unknown:
		x.addFinding(name, "the queue has no such file", "move it away", nil)
	}
}

// checkAccess adds findings if a file's owner is not the state directory's, or if others
// can read or write it.
func (x *examination) checkAccess(name string, info fs.FileInfo) {
	if owner := ownerOf(info); owner != x.files.owner {
		x.addFinding(name, fmt.Sprintf("it belongs to user ID %d, the directory to %d", owner, x.files.owner), fmt.Sprintf("chown %d it", x.files.owner), nil)
	}
	others := fs.FileMode(0o077)
	if info.IsDir() {
		others = 0o066 // to pass through is no harm
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		x.addFinding(name, fmt.Sprintf("others can read or write it (mode %#o)", mode), "chmod go= it, as miniqd check --repair does", func() (string, error) {
			return fmt.Sprintf("mode %#o", mode&^0o077), os.Chmod(filepath.Join(x.State, name), mode&^0o077)
		})
	}
}
