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
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/backends/miniq/manager"
	"github.com/allotment-hpc/allotment/internal/disk"
)

// snapshotName is the file that holds the queue's state up to an entry of the
// journal: a line "allotment-miniq 1 SEQ CRC", then manager.State.
const (
	snapshotName   = "queue"
	snapshotHeader = "allotment-miniq 1 %d %08x\n"
)

var errSnapshot = errors.New("the queue's state is damaged; put back a copy, or move it away to start with what the journal holds")

// writeSnapshot puts the state up to seq on disk.
func writeSnapshot(on disk.Disk, dir string, seq uint64, state []byte) error {
	head := fmt.Appendf(nil, snapshotHeader, seq, crc32.Checksum(state, castagnoli()))
	return disk.Replace(on, filepath.Join(dir, snapshotName), 0o600, head, state)
}

// readSnapshot gives an empty queue where there is none.
func readSnapshot(dir string, cfg manager.Config) (*manager.Manager, uint64, error) {
	path := filepath.Join(dir, snapshotName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return manager.New(cfg), 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	head, state, _ := bytes.Cut(data, []byte{'\n'})
	var seq uint64
	var sum uint32
	if _, err := fmt.Sscanf(string(head)+"\n", snapshotHeader, &seq, &sum); err != nil || sum != crc32.Checksum(state, castagnoli()) {
		if strings.HasPrefix(string(head), "allotment-miniq ") && !strings.HasPrefix(string(head), "allotment-miniq 1 ") {
			return nil, 0, fmt.Errorf("read %s: it was written by another version of Allotment", path)
		}
		return nil, 0, fmt.Errorf("read %s: %w", path, errSnapshot)
	}
	m, err := manager.Restore(state)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w: %w", path, errSnapshot, err)
	}
	return m, seq, nil
}

// replay applies what the journal holds beyond seq, and opens it for writing. A
// tail that was cut off by a kill or a power failure was never acknowledged: it
// is kept aside and taken away.
func replay(on disk.Disk, dir string, seq uint64, log *slog.Logger, apply func(*entry) error) (*journal, uint64, error) {
	j := &journal{disk: on, dir: dir}
	names, err := segments(dir)
	if err != nil {
		return nil, 0, err
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		next, err := firstEntry(dir, names[i+1:])
		if err != nil {
			return nil, 0, err
		}
		good, err := readSegment(path, func(e *entry) error {
			switch {
			case e.Seq <= seq || e.Seq >= next: // in the snapshot; or refused, and could not be taken back
				return nil
			case e.Seq != seq+1:
				return fmt.Errorf("%s: entry %d follows entry %d: a segment of the journal is missing", name, e.Seq, seq)
			}
			seq = e.Seq
			return apply(e)
		})
		var bad *damage
		switch {
		case !errors.As(err, &bad):
		case next == math.MaxUint64:
			err = cutTail(on, path, bad, log)
		case next <= seq+1: // all that was acknowledged of it has been read
			log.Warn("a segment of the journal ends in what was never acknowledged", "file", path, "from_byte", bad.at, "why", bad.err)
			err = nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the journal: %w", err)
		}
		j.total += good
		j.size = good
		j.name = name
	}
	if len(names) == 0 {
		return j, seq, j.rotate(seq + 1)
	}
	j.f, err = j.open(j.name)
	return j, seq, err
}

func cutTail(on disk.Disk, path string, bad *damage, log *slog.Logger) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tail := data[bad.at:]
	aside := path + ".cut"
	err = keepAside(on, aside, tail)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		aside, err = "", nil // nobody was told of it, and the queue must come up on a full disk
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
