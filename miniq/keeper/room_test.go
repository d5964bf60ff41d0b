package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk is a file system of a megabyte.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("skip: no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes until there is no space left.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// A record of any length has room for a run's lines on a disk that was filled since.
func TestReserve(t *testing.T) {
	for name, reserve := range map[string]func(*os.File) error{"fallocate": Reserve, "none": nil} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			var records []*os.File
			for size := 4000; size < 4100; size += 16 {
				f, err := os.OpenFile(filepath.Join(dir, "record"+string(rune('a'+len(records)))), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := f.WriteString(strings.Repeat("x", size)); err != nil {
					t.Fatal(err)
				}
				if reserve != nil {
					if err := reserve(f); err != nil {
						t.Fatal(err)
					}
					if info, err := f.Stat(); err != nil || info.Size() != int64(size) {
						t.Errorf("a record of %d bytes has %d now, %v", size, info.Size(), err)
					}
				}
				records = append(records, f)
			}
			fill(t, dir)
			for _, f := range records {
				n, err := f.WriteString(strings.Repeat("y", recordRoom))
				if full := errors.Is(err, syscall.ENOSPC) || n < recordRoom; full == (reserve != nil) {
					t.Errorf("%s: %d bytes written, %v", f.Name(), n, err)
				}
			}
			f, err := os.OpenFile(records[0].Name(), os.O_RDWR|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := Reserve(f); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("room on a full disk: %v, want none", err)
			}
		})
	}
}

// Where blocks can't be reserved the room is looked for by writing, and the record is
// as it was.
func TestTryRoom(t *testing.T) {
	dir := smallDisk(t)
	f, err := os.OpenFile(filepath.Join(dir, "record"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const line = "\nr 1.0.1\n"
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
	size := int64(len(line))
	if err := tryRoom(f, size); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(4096 - 100); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	if err := tryRoom(f, 4096-100); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("room on a full disk: %v, want none", err)
	}
	if data, err := os.ReadFile(f.Name()); err != nil || strings.TrimRight(string(data), "\x00") != line {
		t.Errorf("the record is %q, %v", data, err)
	}
}
