package desk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// hookPath is the submit filter for a queue that asks it by itself: a script that
// knows where this run's snapshot is.
func hookPath(c configfile.Config) string { return filepath.Join(c.Paths.State, "job_submit.lua") }

// writeHook brings the script up to date with this program: a new version of that
// brings a new one.
func writeHook(c configfile.Config) error {
	if old, err := trusted.Read(hookPath(c)); err == nil && bytes.Equal(old, esub.JobSubmit(c.Paths.State)) {
		return nil
	}
	if err := disk.Put(hookPath(c), 0o644, esub.JobSubmit(c.Paths.State)); err != nil {
		return fmt.Errorf("write the submit filter: %w", err)
	}
	return nil
}

// hookRemedy says how the queue comes to ask our script.
func hookRemedy(c configfile.Config, h *backends.Hook) string {
	ours := printable.Text(hookPath(c))
	content, err := os.ReadFile(h.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("ln -s %s %s", ours, h.File)
	case err != nil || bytes.Contains(content, []byte("allotment")):
		return "see why slurmctld could not load " + h.File + " in its log"
	}
	return fmt.Sprintf("let %s call %s (docs/slurm.md: a script of your own)", h.File, ours)
}
