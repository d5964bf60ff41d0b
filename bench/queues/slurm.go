package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// slurmQueue is a real Slurm in a directory of its own.
type slurmQueue struct{ *cluster.Cluster }

// hook is a typical submit hook of a site: it finds the project in a table that it has
// read.
//
//go:embed testdata/job_submit.lua
var hook string

// startSlurm starts a cluster, or returns what is missing.
func startSlurm(ctx context.Context, o options) (queue, string, error) {
	if missing := cluster.Missing(); missing != "" {
		return nil, "Slurm: " + missing, nil
	}
	dir, err := os.MkdirTemp(o.below, "allotment-slurm-")
	if err != nil {
		return nil, "", err
	}
	lua := filepath.Join(dir, "hook.lua")
	err = errors.Join(os.WriteFile(lua, []byte(hook), 0o644), os.WriteFile(filepath.Join(dir, "true.sh"), []byte("#!/bin/sh\ntrue\n"), 0o755),
		os.WriteFile(filepath.Join(dir, "sleep.sh"), []byte("#!/bin/sh\nexec sleep 86400\n"), 0o755))
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Nodes: nodes, CPUs: perNode, JobSubmit: lua})
	s := &slurmQueue{c}
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("start Slurm: %w", err), s.close())
	}
	return s, "", nil
}

func (s *slurmQueue) file(name string) string { return filepath.Join(s.Dir, name) }

func (s *slurmQueue) name() string { return slurmName }

func (s *slurmQueue) close() error {
	return errors.Join(s.Stop(context.Background()), os.RemoveAll(s.Dir))
}

func (s *slurmQueue) batch(ctx context.Context, options ...string) error {
	_, err := s.Run(ctx, append(append([]string{"sbatch", "--quiet", "--output=/dev/null"}, options...), s.file("true.sh"))...)
	return err
}

func (s *slurmQueue) submit(ctx context.Context, clients, jobs int) error {
	return inParallel(clients, func(n int) error {
		for range share(jobs, clients, n) {
			if err := s.batch(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *slurmQueue) command(ctx context.Context) error { return s.batch(ctx) }

func (s *slurmQueue) run(ctx context.Context, jobs int) error {
	if err := s.submit(ctx, clientsAtOnce, jobs); err != nil {
		return err
	}
	return s.awaitEmpty(ctx)
}

// slurmPause is the interval between two queries: long, since each costs Slurm time.
const slurmPause = 100 * time.Millisecond

// awaitEmpty waits until nothing is left.
func (s *slurmQueue) awaitEmpty(ctx context.Context) error {
	return awaitList(ctx, slurmPause, func() (bool, error) {
		out, err := s.Run(ctx, "squeue", "--noheader", "--format=%A")
		return len(strings.TrimSpace(out)) == 0, err
	})
}

func (s *slurmQueue) list(ctx context.Context, pending int) (int, time.Duration, error) {
	out, err := s.Run(ctx, "squeue", "--noheader", "--states=PENDING", "--format=%A")
	if err != nil {
		return 0, 0, err
	}
	if missing := pending - strings.Count(out, "\n"); missing > 0 {
		if err := s.submit(ctx, clientsAtOnce, missing); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	out, err = s.Run(ctx, "squeue", "--states=PENDING", "--format=%A %u %t %P %N %j %V %Q %C %m %r")
	return len(out), time.Since(began), err
}

func (s *slurmQueue) block(ctx context.Context) error {
	if _, err := s.Run(ctx, "sbatch", "--quiet", "--output=/dev/null", fmt.Sprintf("--array=1-%d", slots), s.file("sleep.sh")); err != nil {
		return err
	}
	return awaitList(ctx, slurmPause, func() (bool, error) {
		out, err := s.Run(ctx, "squeue", "--noheader", "--states=RUNNING", "--array", "--format=%A")
		return strings.Count(out, "\n") >= slots, err
	})
}

func (s *slurmQueue) clear(ctx context.Context) error {
	if _, err := s.Run(ctx, "scancel", "--quiet", "--state=PENDING", "--partition=main"); err != nil {
		return err
	}
	if _, err := s.Run(ctx, "scancel", "--quiet", "--partition=main"); err != nil {
		return err
	}
	return s.awaitEmpty(ctx)
}
