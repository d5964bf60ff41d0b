// Package nvml is a stand-in for NVIDIA's library NVML, for tests of what reads GPUs by it.
package nvml

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/nvml.c
var source []byte

// StandIn is a library that is built.
type StandIn struct {
	Env  []string // of a process that shall load it
	says string
}

// Build builds the stand-in, with these options of gcc. Without gcc the test is skipped.
func Build(t *testing.T, options ...string) *StandIn {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skip: gcc is not installed: no stand-in for NVML can be built")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), gcc, append([]string{"-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "-x", "c", "-"}, options...)...)
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := &StandIn{says: filepath.Join(dir, "says")}
	s.Env = []string{"LD_LIBRARY_PATH=" + dir, "NVML_STANDIN=" + s.says}
	return s
}

// Says sets what the library says from now on: a word on what goes wrong, and processes
// (testdata/nvml.c).
func (s *StandIn) Says(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.says+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.says+".new", s.says); err != nil {
		t.Fatal(err)
	}
}
