package command_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
