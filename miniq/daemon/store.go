package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// snapshotName is the file that holds the queue's state up to an entry of the
// journal: a line "allotment-miniq FORMAT SEQ CRC", then manager.State.
const (
	snapshotName   = "queue"
	snapshotHeader = "allotment-miniq %d %d %08x\n"
)

// format is that of the whole state directory. A program refuses a newer one,
// reads an older one, and makes it its own before it writes: what it adds to the
// journal and to state objects must not be taken for something else by an older
// program, which goes by this number alone.
//
//	1  the first one
//	2  jobs of users, which a program of format 1 would run as its own user; state
//	   objects have a checksum
//	3  dummy jobs, which a program of format 2 would take for jobs like others; jobs
//	   that the submit filter holds, which it would start
//	4  elements' state objects without what is in their array's, which a program of
//	   format 3 would take for damaged; ends of past jobs in submissions and changes,
//	   which it would refuse
//	5  standby jobs: dummy jobs that are for no job, which a program of format 4 would refuse
//	   where its journal has them
//	6  runs that save their work before they are requeued, which a program of format 5 would
//	   take for runs that end otherwise; the number of guaranteed slots
//	7  commands that are run before and after a job, which a program of format 6 would not run
//	8  jobs that have ended and are reopened, and ends without a grace, which a program of format 7
//	   would refuse; job groups, which it would lose; how slots lie on hosts and
//	   conditions on these, which it would not heed
//	9  settings and files of jobs, which a program of format 8 would refuse where its journal
//	   has them
const (
	format       = 9
	oldestFormat = 1
)

// stateError is a state that can't be read, and what to do about it.
type stateError struct{ problem, remedy string }

func (t *stateError) Error() string { return t.problem + ": " + t.remedy }

func errNewer() error {
	return &stateError{"a newer version of Allotment wrote it", "use that version"}
}

const (
	restoreBackup = "put back a backup of the state directory"
	beginsWith1   = "; where the journal begins with entry 1, move this file away instead: the journal holds all of it"
)

func errSnapshot(why error) error {
	problem := "it is damaged"
	if why != nil {
		problem += " (" + why.Error() + ")"
	}
	return &stateError{problem, restoreBackup + beginsWith1}
}

// writeSnapshot puts the state up to seq on disk.
func writeSnapshot(on disk.Disk, dir string, seq uint64, state ...[]byte) error {
	sum := uint32(0)
	for _, part := range state {
		sum = crc32.Update(sum, castagnoli(), part)
	}
	head := fmt.Appendf(nil, snapshotHeader, format, seq, sum)
	return disk.Replace(on, filepath.Join(dir, snapshotName), 0o600, append([][]byte{head}, state...)...)
}

// snapshot is the queue up to an entry of the journal.
type snapshot struct {
	m      *manager.Manager
	seq    uint64
	format int // 0: there was none
	state  []byte
}

// readSnapshot returns an empty queue if there is no snapshot.
func readSnapshot(dir string, cfg manager.Config) (*snapshot, error) {
	path := filepath.Join(dir, snapshotName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		m := manager.New(cfg)
		state, err := m.State()
		return &snapshot{m: m, state: state}, err
	}
	if err != nil {
		return nil, err
	}
	s, err := parseSnapshot(data)
	if err != nil {
		return nil, fmt.Errorf("read the queue's state %s: %w", path, err)
	}
	return s, nil
}

func parseSnapshot(data []byte) (*snapshot, error) {
	head, state, _ := bytes.Cut(data, []byte{'\n'})
	s := &snapshot{state: state}
	var sum uint32
	_, err := fmt.Sscanf(string(head)+"\n", snapshotHeader, &s.format, &s.seq, &sum)
	switch {
	case s.format > format:
		return nil, errNewer()
	case err != nil || s.format < oldestFormat || sum != crc32.Checksum(state, castagnoli()):
		return nil, errSnapshot(nil)
	}
	if s.m, err = manager.Restore(state); err != nil {
		return nil, errSnapshot(err)
	}
	return s, nil
}

// upgrade makes a state directory one of this program's format.
func (s *snapshot) upgrade(on disk.Disk, dir string) error {
	if s.format == format {
		return nil
	}
	return writeSnapshot(on, dir, s.seq, s.state)
}

// replay applies what the journal holds beyond seq, and opens it for writing. A
// tail that was cut off by a kill or a power failure was never acknowledged: it
// is kept aside and taken away.
func replay(on disk.Disk, dir string, seq uint64, log *slog.Logger, apply func(*entry) error) (*journal, uint64, error) {
	j := &journal{disk: on, dir: dir}
	read, seq, err := walkJournal(dir, seq, apply, func(path string, bad *damage, last bool) error {
		if last {
			return cutTail(on, path, bad, log)
		}
		log.Warn("a segment of the journal ends in what was never acknowledged", "file", path, "from_byte", bad.at, "why", bad.err)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the journal in %s: %w", dir, err)
	}
	for _, s := range read {
		j.total += s.good
		j.size, j.name = s.good, s.name
	}
	if len(read) == 0 {
		return j, seq, j.rotate(seq + 1)
	}
	if j.f, err = j.open(j.name); err == nil {
		err = j.f.Truncate(j.size)
	}
	j.room = j.size
	return j, seq, err
}

// segment is one that was read, and up to where it is good.
type segment struct {
	name string
	good int64
}

// walkJournal hands the entries beyond seq to apply. It returns what it has read and
// the number of the last entry. An end of a segment that was never acknowledged
// goes to unfinished; any other damage is an error.
func walkJournal(dir string, seq uint64, apply func(*entry) error, unfinished func(path string, bad *damage, last bool) error) ([]segment, uint64, error) {
	names, err := segments(dir)
	if err != nil {
		return nil, seq, err
	}
	var read []segment
	for i, name := range names {
		path := filepath.Join(dir, name)
		next, err := firstEntry(dir, names[i+1:])
		if err != nil {
			return read, seq, err
		}
		good, err := readSegment(path, func(e *entry) error {
			switch {
			case e.Seq <= seq || e.Seq >= next: // in the snapshot; or refused, and could not be removed
				return nil
			case e.Seq != seq+1:
				return &stateError{fmt.Sprintf("%s: entry %d follows entry %d: a part of the journal is missing", name, e.Seq, seq), restoreBackup}
			}
			seq = e.Seq
			return apply(e)
		})
		last := next == math.MaxUint64
		var bad *damage
		if errors.As(err, &bad) && (last && bad.torn || !last && next <= seq+1) { // all that was acknowledged of it has been read
			err = unfinished(path, bad, last)
		}
		if err != nil {
			return read, seq, err
		}
		read = append(read, segment{name, good})
	}
	return read, seq, nil
}

func cutTail(on disk.Disk, path string, bad *damage, log *slog.Logger) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tail := bytes.TrimRight(data[bad.at:], "\x00")
	aside := filepath.Join(filepath.Dir(path), state.AsideDir, fmt.Sprintf("%s.cut-%s", filepath.Base(path), time.Now().UTC().Format("20060102-150405")))
	if err = disk.MkdirAll(on, filepath.Dir(aside), 0o700); err == nil {
		err = keepAside(on, aside, tail)
	}
	if diskFull(err) {
		aside, err = "", nil // it was not acknowledged, and the queue must come up on a full disk
	}
	if err != nil {
		return err
	}
	log.Warn("the journal ends in an entry that was not finished and never acknowledged: cut off",
		"file", path, "from_byte", bad.at, "bytes", len(tail), "kept_as", aside, "why", bad.err)
	f, err := on.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(bad.at); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func keepAside(on disk.Disk, path string, data []byte) error {
	f, err := on.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// dropSegments removes the segments that hold nothing beyond seq: all but those
// whose successor begins beyond it.
func dropSegments(on disk.Disk, dir string, seq uint64) error {
	names, err := segments(dir)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(names) && names[i+1] <= segmentName(seq+1); i++ {
		if err := on.Remove(filepath.Join(dir, names[i])); err != nil {
			return err
		}
	}
	return nil
}
