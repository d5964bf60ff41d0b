package node

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// spares are files that were records, to be records again: making a file and
// removing it for each run is dear where a file system goes out of the way of
// what was just removed (ext4 without a journal looks at all of it). They aren't
// emptied either: ext4 writes a file that was, when it is closed.
//
// The first line that counts in a record names its run. So a new name on old lines,
// which a crash of the machine may leave, is no run's record.
type spares struct {
	dir   string
	names []string
	made  int
}

const (
	sparePrefix = "spare."
	maxSpares   = 64
	longSpare   = 2 << 10 // bytes, from which on old lines are cut off
	maxSpare    = 1 << 20 // bytes of a record that is removed instead
)

// find adds those of an earlier node.
func (s *spares) find(dir string) {
	s.dir = dir
	found, _ := filepath.Glob(filepath.Join(dir, sparePrefix+"*"))
	for _, path := range found {
		if number, err := strconv.Atoi(filepath.Ext(path)[1:]); err == nil {
			s.made = max(s.made, number+1)
		}
		if len(s.names) == maxSpares {
			_ = os.Remove(path)
			continue
		}
		s.names = append(s.names, path)
	}
}

// add adds the record of a run whose end is recorded elsewhere; if it can't be kept it is
// removed.
func (s *spares) add(record string) {
	path := filepath.Join(s.dir, sparePrefix+strconv.Itoa(s.made))
	if len(s.names) == maxSpares || unix.Rename(record, path) != nil {
		_ = os.Remove(record)
		return
	}
	s.made++
	s.names = append(s.names, path)
}

// reuse gives a spare a record's name, which no file may have yet. It still holds the
// lines of earlier runs. nil: there is no spare, or it can't be used.
func (s *spares) reuse(record string) *os.File {
	if len(s.names) == 0 {
		return nil
	}
	path := s.names[len(s.names)-1]
	s.names = s.names[:len(s.names)-1]
	f, err := keeper.OpenFile(path, os.O_RDWR|os.O_APPEND)
	if err != nil {
		_ = os.Remove(path)
		return nil
	}
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size > longSpare && f.Truncate(1) != nil {
		_, _ = f.Close(), os.Remove(path)
		return nil
	}
	if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, record, unix.RENAME_NOREPLACE) != nil {
		_, _ = f.Close(), os.Remove(path)
		return nil
	}
	return f
}
