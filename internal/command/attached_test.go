package command_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

func TestAttached(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for script, want := range map[string]int{"echo $A; echo no >&2": 0, "exit 3": 3, "kill -9 $$": 137} {
		status, err := command.Attached("/bin/sh", []string{"sh", "-c", script}, []string{"A=yes"}, in, out, out)
		if status != want || err != nil {
			t.Errorf("%s: %d, %v", script, status, err)
		}
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(out); string(text) != "yes\nno\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	status, err := command.Attached("/nonexistent/program", []string{"program"}, nil, in, out, out)
	if status != -1 || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "program") {
		t.Errorf("%d, %v", status, err)
	}
}

// A program that is stopped, or exceeds its limit, ends with all that it has started.
func TestAttachedUntil(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stopped := make(chan struct{})
	close(stopped)
	for _, x := range []struct {
		script   string
		limit    time.Duration
		stop     chan struct{}
		exit     int
		timedOut bool
	}{
		{"exit 3", time.Hour, nil, 3, false},
		{"sleep 300", 0, stopped, 143, false},
		{"sleep 300; true", 100 * time.Millisecond, nil, 143, true},
		{"trap '' TERM; sleep 300; sleep 300; true", 500 * time.Millisecond, nil, 137, true},
	} {
		exit, timedOut, err := command.AttachedUntil("/bin/sh", []string{"sh", "-c", x.script}, nil, null, null, null, x.limit, x.stop)
		if exit != x.exit || timedOut != x.timedOut || err != nil {
			t.Errorf("%s: %d, %v, %v", x.script, exit, timedOut, err)
		}
	}
}
