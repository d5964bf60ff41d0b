package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// startOf returns the order to start a run.
func startOf(s *manager.StartRun, b *body, u *knownUser) (*node.Start, error) {
	out := b.Stdout
	if out == "" && b.Terminal == "" || strings.HasSuffix(out, "/") {
		out = filepath.Join(out, defaultOutput(s.ID))
	}
	plain := backends.Unescape
	order := keeper.Order{
		Argv: slices.Clone(b.Command), Env: environment(s, u.environ(b.Env)), Dir: plain(b.Dir), Umask: b.Umask,
		Stdin: plain(s.ID.FileName(b.Stdin)), Stdout: plain(s.ID.FileName(out)), Stderr: plain(s.ID.FileName(b.Stderr)),
		Terminal: plain(b.Terminal), MemoryLimit: s.Spec.MemoryLimit, As: u.keeperUser(b.As),
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
	return &node.Start{Run: node.RunID{ID: s.ID, Run: s.Run}, Order: encoded, Script: b.Script}, err
}

// defaultOutput returns the output file of a job that names none: JOB.out, or
// JOB.INDEX.out, in its directory. (LSF would send mail.)
func defaultOutput(id backends.ID) string {
	if id.Index > 0 {
		return "%J.%I.out"
	}
	return "%J.out"
}

// environment returns the user's environment with the variables about the job.
func environment(s *manager.StartRun, own []string) []string {
	var hosts, counted []string
	for _, p := range s.Hosts {
		hosts = append(hosts, slices.Repeat([]string{p.Host}, p.Slots)...)
		counted = append(counted, p.Host, strconv.Itoa(p.Slots))
	}
	name := s.Spec.Name
	if s.ID.Index > 0 {
		name += "[" + strconv.Itoa(s.ID.Index) + "]"
	}
	jobVariables := [][2]string{
		{"LSB_JOBID", strconv.FormatInt(s.ID.Job, 10)},
		{"LSB_JOBINDEX", strconv.Itoa(s.ID.Index)},
		{"LSB_QUEUE", s.Queue},
		{"LSB_JOBNAME", name},
		{"LSB_HOSTS", strings.Join(hosts, " ")},
		{"LSB_MCPU_HOSTS", strings.Join(counted, " ")},
		{"LSB_DJOB_NUMPROC", strconv.Itoa(len(hosts))},
		{"ALLOTMENT_JOBID", s.ID.String()},
		{"ALLOTMENT_REQUEUES", strconv.Itoa(s.Requeues)},
	}
	env := make([]string, 0, len(own)+len(jobVariables)+1)
	for _, e := range own {
		name, _, _ := strings.Cut(e, "=")
		if name == node.MarkVariable || name == backends.RestartedVariable || slices.ContainsFunc(jobVariables, func(t [2]string) bool { return t[0] == name }) {
			continue
		}
		env = append(env, e)
	}
	for _, t := range jobVariables {
		env = append(env, t[0]+"="+t[1])
	}
	if s.Restarted {
		env = append(env, backends.RestartedVariable+"=1")
	}
	return env
}
