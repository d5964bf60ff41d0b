package split

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

func workDir(t *testing.T) string {
	t.Helper()
	work := t.TempDir()
	if err := os.Chmod(work, 0o700); err != nil {
		t.Fatal(err)
	}
	return work
}

func TestDirectories(t *testing.T) {
	work := workDir(t)
	d, name, err := CreateDir(work, "mine")
	if err != nil || name != "mine" {
		t.Fatal(name, err)
	}
	if info, err := os.Stat(d.Path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, _, err := CreateDir(work, "mine"); err == nil || !strings.Contains(err.Error(), "asplit --resume mine") {
		t.Errorf("made twice: %v", err)
	}
	if _, _, err := OpenDir(work, "mine"); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	other, given, err := CreateDir(work, "")
	if err != nil || CheckName(given) != nil {
		t.Fatal(given, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	last, name, err := OpenDir(work, "")
	if err != nil || name != given {
		t.Fatalf("the last one is %s, not %s: %v", name, given, err)
	}
	for _, d := range []*Dir{last, d} {
		if err := errors.Join(d.Remove(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(work, Folder)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if _, _, err := OpenDir(work, ""); err == nil || !strings.Contains(err.Error(), "nothing to resume") {
		t.Errorf("error is %v", err)
	}
}

// A directory that another user could have made is not trusted.
func TestDirectoriesOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(work, dir string) error{
		"others write the folder":    func(work, _ string) error { return os.Chmod(filepath.Join(work, Folder), 0o777) },
		"others write the directory": func(_, dir string) error { return os.Chmod(dir, 0o770) },
		"a link instead of it": func(work, dir string) error {
			return errors.Join(os.Rename(dir, filepath.Join(work, "elsewhere")), os.Symlink(filepath.Join(work, "elsewhere"), dir))
		},
		"a file instead of it": func(_, dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			work := workDir(t)
			d, _, err := CreateDir(work, "mine")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Close(), spoil(work, d.Path)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := OpenDir(work, "mine"); !errors.Is(err, trusted.ErrNotTrusted) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "run-7.b_2": true, "7": true, "": false, ".": false, "..": false, "-x": false, ".hidden": false, "_ended": false,
		"a/b": false, "a b": false, "a\x1b": false, "../x": false, "ä": false, strings.Repeat("x", 65): false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
