package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A task that is to say how far it is does so when it begins and when it ends, and a failure of that is
// not the task's.
func TestProgress(t *testing.T) {
	bin, said := t.TempDir(), filepath.Join(t.TempDir(), "said")
	program := "#!/bin/sh\nprintf '%s|' \"$@\" >>" + said + "\necho >>" + said + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "astate"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, name := range []string{"", "sweep"} {
		o := Order{Argv: []string{"true", "{}"}, Mode: Each, First: 5, Count: 4, Numbers: true, Slots: 2, States: name}
		if err := Run(directory(t, o, ""), 1); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "progress|") || lines[1] != "progress|100|sweep task 1: 4 of 4 items from 5|" {
		t.Errorf("%q", lines)
	}
}
