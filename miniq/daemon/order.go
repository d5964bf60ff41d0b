package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// startOf returns the order to start a run.
func startOf(s *manager.StartRun, b *body, u *knownUser, as miniq.Environment) (*node.Start, error) {
	out := b.Stdout
	if out == "" && b.Terminal == "" || strings.HasSuffix(out, "/") {
		out = filepath.Join(out, defaultOutput(s.ID))
	}
	plain := backends.Unescape
	order := keeper.Order{
		Argv: slices.Clone(b.Command), Env: environment(jobVariables(s, b.Dir, as), s.Restarted, u.environ(b.Env)), Dir: plain(b.Dir), Umask: b.Umask,
		Stdin: plain(s.ID.FileName(b.Stdin)), Stdout: plain(s.ID.FileName(out)), Stderr: plain(s.ID.FileName(b.Stderr)),
		Terminal: plain(b.Terminal), PreExec: plain(b.PreExec), PostExec: plain(b.PostExec), MemoryLimit: s.Spec.MemoryLimit, As: u.keeperUser(b.As),
		TruncateStdout: b.Truncate.Stdout, TruncateStderr: b.Truncate.Stderr,
	}
	for _, list := range [][]string{order.Argv, order.Env} {
		for i, text := range list {
			list[i] = plain(text)
		}
	}
	encoded, err := order.Encode()
	if err == nil && len(encoded) > keeper.MaxOrder {
		err = fmt.Errorf("its command, environment and paths are %d bytes, at most %d can be run", len(encoded), keeper.MaxOrder)
	}
	return &node.Start{Run: node.RunID{ID: s.ID, Run: s.Run}, Order: encoded, Script: b.Script, Hosts: hostFile(s.Hosts)}, err
}

// defaultOutput returns the output file of a job that names none: JOB.out, or
// JOB.INDEX.out, in its directory. (LSF would send mail.)
func defaultOutput(id backends.ID) string {
	if id.Index > 0 {
		return "%J.%I.out"
	}
	return "%J.out"
}
