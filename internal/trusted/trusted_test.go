package trusted

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenReadsOwnFiles(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o644, 0o755} {
		path := write(t, mode)
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		if err != nil || string(text) != "text" {
			t.Errorf("got %q, %v", text, err)
		}
		if err := errors.Join(f.Close(), File(path)); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesWhatOthersCanWrite(t *testing.T) {
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		path := write(t, mode)
		_, err := Open(path)
		for _, err := range []error{err, File(path)} {
			if !errors.Is(err, ErrNotTrusted) || !strings.Contains(err.Error(), "chmod go-w") {
				t.Errorf("mode %#o: %v", mode, err)
			}
		}
	}
}

func TestOpenRefusesNonRegularFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, t.TempDir(), "/dev/null"} {
		if _, err := Open(path); !errors.Is(err, ErrNotTrusted) { // a named pipe must not block
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestOtherOwnersMustBeAllowed(t *testing.T) {
	path := write(t, 0o644)
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	owner := uint32(os.Geteuid()) + 1
	info.Uid = owner
	for _, allowed := range []uint32{owner, owner + 1} {
		err := check(path, &info, os.Geteuid(), func(uid uint32) bool { return uid == allowed })
		if refused := errors.Is(err, ErrNotTrusted); refused != (allowed != owner) {
			t.Errorf("owner %d, allowed %d: %v", owner, allowed, err)
		}
	}
}

// TestReadPrivate: a secret that others can read is refused, by the mode of the file that is
// read; a link to a private file is followed.
func TestReadPrivate(t *testing.T) {
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o400: "", 0o700: "",
		0o640: "others can read it (mode 0640): replace the secret in it, which may be known, and chmod 600 it",
		0o604: "others can read it (mode 0604)", 0o601: "others can read it (mode 0601)",
		0o620: "others can write it (mode 0620)",
	} {
		path := write(t, mode)
		link := path + "-link"
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{path, link} {
			text, err := ReadPrivate(path, 4, Others)
			if want == "" && (err != nil || string(text) != "text") {
				t.Errorf("mode %#o: %q, %v", mode, text, err)
			}
			if want != "" && (!errors.Is(err, ErrNotTrusted) || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), want)) {
				t.Errorf("mode %#o: %v", mode, err)
			}
			if exposed := errors.Is(err, ErrExposed); exposed != strings.Contains(want, "others can read") || exposed && string(text) != "text" {
				t.Errorf("mode %#o: %q, %v", mode, text, err)
			}
		}
	}
	if text, err := ReadPrivate(write(t, 0o440), 4, 0o007); err != nil || string(text) != "text" {
		t.Errorf("a group that may read: %q, %v", text, err)
	}
	if text, err := ReadPrivate(write(t, 0o644), 3, Others); err == nil || errors.Is(err, ErrExposed) || text != nil || !strings.Contains(err.Error(), "more than 3 bytes") {
		t.Errorf("a large file: %q, %v", text, err)
	}
	for _, path := range []string{t.TempDir(), "/dev/null"} {
		if _, err := ReadPrivate(path, 4, Others); !errors.Is(err, ErrNotTrusted) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A file that does not block is one for the runtime's poller, which asub does without.
func TestFilesBlock(t *testing.T) {
	f, err := Open(write(t, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
