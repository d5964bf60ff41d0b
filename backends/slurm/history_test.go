package slurm_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/slurm"
)

// What sacct says where there is no accounting, and what it prints, become one line.
func TestHistoryErrors(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'Slurm accounting storage is disabled' >&2; exit 1": "ask sacct: this cluster keeps no accounting (AccountingStorageType in slurm.conf): an administrator can set up slurmdbd",
		"echo 'sacct: error: something' >&2; exit 1":              "sacct: error: something",
		"echo garbage": "sacct: 0 fields of 21 in the line ",
	} {
		config := slurm.DefaultConfig()
		config.Bin = t.TempDir()
		if err := os.WriteFile(filepath.Join(config.Bin, "sacct"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := slurm.Open(slurm.Options{Config: config})
		_, err := c.Abilities().History(t.Context(), backends.PastQuery{Most: 1})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, backends.ErrUnreachable) {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
		if none, err := c.Abilities().History(t.Context(), backends.PastQuery{User: "nobody-of-this-name", Most: 1}); err != nil || len(none.Jobs) != 0 {
			t.Errorf("an unknown user: %v, %v", none, err)
		}
		if none, err := c.Abilities().History(t.Context(), backends.PastQuery{IDs: []backends.ID{{Job: 1 << 40}}, Most: 1}); err != nil || len(none.Jobs) != 0 {
			t.Errorf("a job that Slurm can't have: %v, %v", none, err)
		}
	}
}
