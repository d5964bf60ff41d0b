package qualify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Storage is the speed of the work directory's file system.
type Storage struct {
	Write   float64 `json:"write_mbytes"`  // million bytes written and synced a second, one after the other
	Read    float64 `json:"read_mbytes"`   // million bytes of them read again a second, past the page cache where that can be
	Random  float64 `json:"random_writes"` // writes of 4 KiB at random places a second, each synced
	Written uint64  `json:"written_bytes"`
}

const (
	maxFile    = 64 << 20
	firstWrite = 256 << 10
	maxWrite   = 16 << 20
	fastWrite  = 100 * time.Millisecond // the next write is twice as large if one took less
	readBlock  = 1 << 20
	page       = 4 << 10
)

// measureStorage measures in a file whose name is removed before it is written, so that
// none stays behind. When ctx ends, it does not wait for a file system that hangs.
func measureStorage(ctx context.Context, dir string) (Storage, error) {
	type answer struct {
		storage Storage
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		s, err := measureFile(ctx, dir)
		done <- answer{s, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		a.err = context.Cause(ctx)
	}
	switch {
	case errors.Is(a.err, unix.ENOSPC), errors.Is(a.err, unix.EDQUOT):
		return Storage{}, fmt.Errorf("measure the storage of %s: %w: free %d MiB there", dir, a.err, maxFile>>20)
	case a.err != nil:
		return Storage{}, fmt.Errorf("measure the storage of %s: %w", dir, a.err)
	}
	return a.storage, nil
}

func measureFile(ctx context.Context, dir string) (s Storage, err error) {
	f, err := os.CreateTemp(dir, ".qualify-*")
	if err != nil {
		return Storage{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return Storage{}, fmt.Errorf("%s stays behind: %w", filepath.Base(f.Name()), err)
	}
	for _, step := range []func(context.Context, *os.File) error{s.write, s.read, s.writeRandom} {
		if err := step(ctx, f); err != nil {
			return Storage{}, err
		}
		if ctx.Err() != nil {
			return Storage{}, context.Cause(ctx)
		}
	}
	return s, nil
}

// write writes larger and larger pieces, so that a slow disk is not given more than it
// writes in time. What is written can't be compressed.
func (s *Storage) write(ctx context.Context, f *os.File) error {
	noise := make([]byte, readBlock)
	fillNoise(noise)
	began := time.Now()
	until := began.Add(writeTime)
	for size := firstWrite; s.Written < maxFile && (s.Written == 0 || timeLeft(ctx, until)); {
		size = min(size, maxFile-int(s.Written))
		start := time.Now()
		for n := 0; n < size; {
			wrote, err := f.Write(noise[:min(len(noise), size-n)])
			if err != nil {
				return err
			}
			n += wrote
		}
		if err := f.Sync(); err != nil {
			return err
		}
		s.Written += uint64(size)
		if time.Since(start) < fastWrite {
			size = min(2*size, maxWrite)
		}
	}
	s.Write = perSecond(float64(s.Written), time.Since(began))
	return nil
}

func (s *Storage) read(ctx context.Context, f *os.File) error {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // best effort: a page cache that stays serves jobs, too
	buffer := make([]byte, readBlock)
	began := time.Now()
	until := began.Add(readTime)
	at := int64(0)
	for at < int64(s.Written) && (at == 0 || timeLeft(ctx, until)) {
		n, err := f.ReadAt(buffer[:min(len(buffer), int(int64(s.Written)-at))], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	s.Read = perSecond(float64(at), time.Since(began))
	return nil
}

// writeRandom writes pages at random places.
func (s *Storage) writeRandom(ctx context.Context, f *os.File) error {
	noise := make([]byte, page)
	fillNoise(noise)
	pages := int64(s.Written) / page
	began := time.Now()
	until := began.Add(randomTime)
	writes := 0
	for ; writes == 0 || timeLeft(ctx, until); writes++ {
		if _, err := f.WriteAt(noise, page*rand.Int64N(pages)); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return os.NewSyscallError("fdatasync", err)
		}
	}
	s.Random = rounded(float64(writes) / time.Since(began).Seconds())
	return nil
}

func fillNoise(b []byte) {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}
