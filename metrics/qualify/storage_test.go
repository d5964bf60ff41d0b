package qualify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStorageLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("skip: it takes 2 s")
	}
	dir := t.TempDir()
	s, err := measureStorage(context.Background(), dir)
	if err != nil || s.Write <= 0 || s.Read <= 0 || s.Random <= 0 || s.Written > maxFile || s.Written < firstWrite {
		t.Errorf("%+v, %v", s, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A full disk is reported as one: a file system of 4 MiB stands in for it.
func TestStorageIsFull(t *testing.T) {
	full := measureSmallDisk(t, t.TempDir())
	if !errors.Is(full, unix.ENOSPC) || !strings.Contains(full.Error(), "free 64 MiB there") {
		t.Errorf("%v", full)
	}
	_, err := measureStorage(context.Background(), filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// measureSmallDisk measures on a file system of 4 MiB.
func measureSmallDisk(t *testing.T, dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("skip: a small file system can't be mounted here:", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	_, err := measureStorage(context.Background(), dir)
	return err
}
