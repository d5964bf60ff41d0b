package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/allotment-hpc/allotment/backends/miniq/manager"
)

// snapshotName is the file that holds the queue's state up to an entry of the
// journal: a line "allotment-miniq 1 SEQ CRC", then manager.State.
const (
	snapshotName   = "queue"
	snapshotHeader = "allotment-miniq 1 %d %08x\n"
)

var errSnapshot = errors.New("the queue's state is damaged; put back a copy, or move it away to start with what the journal holds")

// writeSnapshot puts the state up to seq on disk.
func writeSnapshot(dir string, seq uint64, state []byte) error {
	path := filepath.Join(dir, snapshotName)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, snapshotHeader, seq, crc32.Checksum(state, castagnoli()))
	if err == nil {
		_, err = f.Write(state)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
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
func replay(dir string, seq uint64, log *slog.Logger, apply func(*entry) error) (*journal, uint64, error) {
	j := &journal{dir: dir, create: createSegment}
	names, err := segments(dir)
	if err != nil {
		return nil, 0, err
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		good, err := readSegment(path, func(e *entry) error {
			switch {
			case e.Seq <= seq:
				return nil
			case e.Seq != seq+1:
				return fmt.Errorf("%s: entry %d follows entry %d: a segment of the journal is missing", name, e.Seq, seq)
			}
			seq = e.Seq
			return apply(e)
		})
		var bad *damage
		if errors.As(err, &bad) && i == len(names)-1 {
			err = cutTail(path, bad, log)
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
	j.f, err = j.create(filepath.Join(dir, j.name))
	return j, seq, err
}

func cutTail(path string, bad *damage, log *slog.Logger) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tail := data[bad.at:]
	aside := path + ".cut"
	log.Warn("the journal ends in an entry that was not finished and never acknowledged: cut off",
		"file", path, "from_byte", bad.at, "bytes", len(tail), "kept_as", aside, "why", bad.err)
	if err := os.WriteFile(aside, tail, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(path, bad.at); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// dropSegments removes the segments that hold nothing beyond seq: all but those
// whose successor begins beyond it.
func dropSegments(dir string, seq uint64) error {
	names, err := segments(dir)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(names) && names[i+1] <= segmentName(seq+1); i++ {
		if err := os.Remove(filepath.Join(dir, names[i])); err != nil {
			return err
		}
	}
	return nil
}
