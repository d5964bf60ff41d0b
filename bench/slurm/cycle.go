package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
)

const (
	// changes is the number of jobs that change their class in a measured cycle.
	changes = 10
	// nodes of perNode slots each, enough for a guarantee of one for each project.
	nodes   = 4
	perNode = 64
	// clients is the number of concurrent submitters where that is not measured.
	clients = 8

	patience = 5 * time.Minute
)

// testSite is a cluster with pba.
type testSite struct {
	options
	dir, home string
	*cluster.Cluster
	first [][]string // of each project: its pending jobs, in order
}

func project(i int) string { return fmt.Sprintf("p%03d", i+1) }

// measureCycles fills a queue, runs first cycles, and measures later ones, each after the first
// jobs of ten projects were cancelled, so that the jobs behind them change their class.
func (s *testSite) measureCycles(ctx context.Context) (cycles figures, err error) {
	s.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: s.makeDir("cycles"), Nodes: nodes, CPUs: perNode})
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	if err == nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		return nil, err
	}
	printf("%d jobs are being submitted", s.pending)
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	// The first cycle gives every project's first job its class; its commands are recorded.
	n, err := s.rebalance(ctx, recording)
	if err := ranked("the first cycle", n, s.projects, err); err != nil {
		return nil, err
	}
	n, err = s.rebalance(ctx, "")
	if err := ranked("a cycle without changes", n, 0, err); err != nil {
		return nil, err
	}
	list, err := s.readRecord()
	if err != nil {
		return nil, err
	}
	cycles = figures{}
	for round := range s.rounds {
		ids, err := s.change(ctx, round)
		if err != nil {
			return nil, err
		}
		if err := cycles.measure(squeue, func() error { return s.run(ctx, nil, list...) }); err != nil {
			return nil, err
		}
		err = cycles.measure(wholeCycle, func() error {
			n, err := s.rebalance(ctx, "")
			return ranked("a measured cycle", n, changes, err)
		})
		if err != nil {
			return nil, err
		}
		if err := cycles.measure(idle, func() error { _, err := s.rebalance(ctx, ""); return err }); err != nil {
			return nil, err
		}
		var orders strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&orders, "update JobId=%s SiteFactor=-%d\n", id, 1+round)
		}
		// On jobs of no project, and downwards: pba corrects every other change (R13).
		if err := cycles.measure(writes, func() error { return s.run(ctx, []byte(orders.String()), "scontrol") }); err != nil {
			return nil, err
		}
	}
	cycles.printTable(squeue, writes, wholeCycle, idle)
	return cycles, nil
}

// ranked returns the error of a cycle that set the priority of n jobs, not of want.
func ranked(cycle string, n, want int, err error) error {
	if err == nil && n != want {
		err = fmt.Errorf("it set the priority of %d jobs, want %d", n, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cycle, err)
	}
	return nil
}

// makeDir makes a directory and returns its path.
func (s *testSite) makeDir(name string) string {
	path := filepath.Join(s.dir, name)
	_ = os.Mkdir(path, 0o755) // its first use reports the error
	return path
}

// prepare configures pba and gives each project a guarantee.
func (s *testSite) prepare(ctx context.Context) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.home, 0o755); err != nil {
		return err
	}
	if err := s.configure(""); err != nil {
		return err
	}
	if _, err := s.pba(ctx, "init"); err != nil {
		return err
	}
	l, err := ledger.Open(filepath.Join(s.home, "ledger.db"))
	if err != nil {
		return err
	}
	now := time.Now()
	by := ledger.Editor{Who: me.Username, At: now}
	week := calendar.WeekOf(now, time.UTC) // and the next, should Monday come meanwhile
	var all []ledger.Change
	for i := range s.projects {
		if err := l.AddProject(ctx, by, ledger.Project{Name: project(i), Group: group.Name}); err != nil {
			return errors.Join(err, l.Close())
		}
		for next := range 2 {
			all = append(all, ledger.Change{Pool: ledger.Pool{Project: project(i)}, Week: calendar.AddWeeks(week, next), Terms: ledger.Terms{Slots: 1, SLA: plan.Velocity}})
		}
	}
	_, err = l.ChangeAllocations(ctx, ledger.Edit{Editor: by, ThisWeek: week}, all)
	return errors.Join(err, l.Close())
}

// configure writes the config file. bin is the directory of Slurm's commands; "": PATH.
func (s *testSite) configure(bin string) error {
	text := fmt.Sprintf(`backend: slurm
timezone: UTC
filter: {low_queue: ""}
pba: {pending_threshold: 24h, headroom: 0}
slurm: {conf: %s, bin: %q}
`, s.Conf(), bin)
	return os.WriteFile(filepath.Join(s.home, "config.yaml"), []byte(text), 0o600)
}

func (s *testSite) pba(ctx context.Context, args ...string) ([]byte, error) {
	return command.Run(ctx, command.Command{
		Argv: append([]string{filepath.Join(s.programs, "pba")}, args...), Timeout: patience,
		Env: append(os.Environ(), "ALLOTMENT_HOME="+s.home, envRecord+"="+s.recordPath()),
	})
}

// recording is a cycle that records which of Slurm's commands run.
const recording = "recording"

// rebalance runs one cycle and returns the number of jobs whose priority it set.
func (s *testSite) rebalance(ctx context.Context, how string) (ranked int, err error) {
	if how == recording {
		bin, err := s.linkStandIns()
		if err == nil {
			err = s.configure(bin)
		}
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.configure("")) }()
	}
	out, err := s.pba(ctx, "rebalance", "--json")
	if err != nil {
		return 0, err
	}
	var report struct {
		Actions []struct{ Verb, Outcome, Error string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, err
	}
	for _, a := range report.Actions {
		if a.Verb != "rank" || a.Outcome != "done" {
			return 0, fmt.Errorf("%s is %s: %s", a.Verb, a.Outcome, a.Error)
		}
	}
	return len(report.Actions), nil
}

// fill fills all slots with jobs that pba does not preempt, and submits the pending ones.
func (s *testSite) fill(ctx context.Context) error {
	for range nodes {
		if _, err := s.submit(ctx, "#!/bin/sh\nexec sleep 86400\n", "--exclusive"); err != nil {
			return err
		}
	}
	var failed error
	await.Every(ctx, 100*time.Millisecond, func() bool {
		var out string
		out, failed = s.Run(ctx, "squeue", "--noheader", "--states=RUNNING", "--format=%i")
		return failed != nil || strings.Count(out, "\n") == nodes
	})
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	perProject := s.pending / 5 / s.projects
	s.first = make([][]string, s.projects)
	return inParallel(clients, func(n int) error {
		for i := n; i < s.projects; i += clients {
			for range perProject {
				id, err := s.submit(ctx, idleScript, "--account="+project(i))
				if err != nil {
					return err
				}
				s.first[i] = append(s.first[i], id)
			}
		}
		return s.fillUp(ctx, share(s.pending-perProject*s.projects, clients, n))
	})
}

// fillUp submits jobs of no project.
func (s *testSite) fillUp(ctx context.Context, jobs int) error {
	for range jobs {
		if _, err := s.submit(ctx, idleScript); err != nil {
			return err
		}
	}
	return nil
}

const idleScript = "#!/bin/sh\ntrue\n"

func (s *testSite) submit(ctx context.Context, script string, options ...string) (id string, err error) {
	out, err := command.Run(ctx, command.Command{
		Argv: append([]string{"sbatch", "--parsable", "--output=/dev/null", "--ntasks=1", "--chdir=/"}, options...), Env: s.Env(),
		Stdin: strings.NewReader(script), Timeout: patience,
	})
	return strings.TrimSpace(string(out)), err
}

func (s *testSite) run(ctx context.Context, stdin []byte, argv ...string) error {
	_, err := command.Run(ctx, command.Command{Argv: argv, Env: s.Env(), Stdin: bytes.NewReader(stdin), Timeout: patience})
	return err
}

// change cancels the first job of ten projects, and submits ten jobs of no project, so
// that as many wait as before. It returns those ten.
func (s *testSite) change(ctx context.Context, round int) (others []string, err error) {
	argv := []string{"scancel"}
	for i := range changes {
		p := (round*changes + i) % s.projects
		argv = append(argv, s.first[p][0])
		s.first[p] = s.first[p][1:]
	}
	if err := s.run(ctx, nil, argv...); err != nil {
		return nil, err
	}
	for range changes {
		id, err := s.submit(ctx, idleScript)
		if err != nil {
			return nil, err
		}
		others = append(others, id)
	}
	return others, nil
}

// share returns the number of jobs that client n submits.
func share(jobs, clients, n int) int { return (jobs + n) / clients }

func inParallel(n int, do func(n int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
