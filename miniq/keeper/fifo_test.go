package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A job that waits for the other end of a named pipe can be killed; one whose
// other end is opened has a pipe that blocks, as any.
func TestNamedPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY | unix.O_APPEND} {
		asked := 0
		f, err := openUserFile(path, flags, func() bool { asked++; return asked == 3 })
		if !errors.Is(err, errKilled) || f != nil {
			t.Errorf("flags %#x: %v", flags, err)
		}
	}
	type end struct {
		f   *os.File
		err error
	}
	reader := make(chan end)
	go func() {
		f, err := openUserFile(path, unix.O_RDONLY, func() bool { return false })
		reader <- end{f, err}
	}()
	w, err := openUserFile(path, unix.O_WRONLY|unix.O_APPEND, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	r := <-reader
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, f := range []*os.File{r.f, w} {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
	}
}

// A file of /proc is no job's input or output: it would be the keeper's own.
func TestFilesOfProcAreRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self/maps", link); err != nil {
		t.Fatal(err)
	}
	for path, flags := range map[string]int{"/proc/self/maps": os.O_RDONLY, link: os.O_RDONLY, "/proc/self/environ": os.O_RDONLY, "/proc/self/comm": os.O_WRONLY | os.O_APPEND, "/proc/thread-self/comm": os.O_WRONLY | os.O_TRUNC} {
		f, err := openUserFile(path, flags, func() bool { return true })
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "/proc") {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/dev/null", "/etc/passwd"} {
		f, err := openUserFile(path, os.O_RDONLY, func() bool { return true })
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f.Close()
	}
}
