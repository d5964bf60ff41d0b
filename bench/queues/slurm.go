package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// slurmQueue is a real Slurm in a directory of its own.
type slurmQueue struct {
	script, dir string
	env         []string
}

// hook is a submit hook of the kind that a site has: it looks the project up in
// a table that it has read.
//
//go:embed testdata/job_submit.lua
var hook string

// startSlurm gives a cluster, or says what is missing.
func startSlurm(ctx context.Context, o options) (queue, string, error) {
	if os.Getuid() != 0 {
		return nil, "Slurm: only root can run its daemons", nil
	}
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, "Slurm: " + program + " is not installed: " + o.cluster + " deps names its packages", nil
		}
	}
	dir, err := os.MkdirTemp(o.below, "allotment-slurm-")
	if err != nil {
		return nil, "", err
	}
	s := &slurmQueue{script: o.cluster, dir: dir, env: append(os.Environ(), "SLURM_CONF="+filepath.Join(dir, "slurm.conf"))}
	lua := filepath.Join(dir, "hook.lua")
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(lua, []byte(hook), 0o644), os.WriteFile(s.file("true.sh"), []byte("#!/bin/sh\ntrue\n"), 0o755),
		os.WriteFile(s.file("sleep.sh"), []byte("#!/bin/sh\nexec sleep 86400\n"), 0o755))
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	_, err = command.Run(ctx, command.Command{
		Argv: []string{o.cluster, "up", dir}, Timeout: 2 * time.Minute, Stdout: os.Stderr, // its daemons keep the descriptor
		Env: append(os.Environ(), fmt.Sprintf("NODES=%d", nodes), fmt.Sprintf("CPUS=%d", perNode), "JOB_SUBMIT_LUA="+lua),
	})
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("start Slurm: %w", err), s.close())
	}
	return s, "", nil
}

func (s *slurmQueue) file(name string) string { return filepath.Join(s.dir, name) }

func (s *slurmQueue) name() string { return slurmName }

func (s *slurmQueue) close() error {
	_, err := command.Run(context.Background(), command.Command{Argv: []string{s.script, "down", s.dir}, Timeout: 3 * time.Minute})
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *slurmQueue) do(ctx context.Context, argv ...string) ([]byte, error) {
	return command.Run(ctx, command.Command{Argv: argv, Env: s.env, Dir: s.dir, Timeout: 5 * time.Minute})
}

func (s *slurmQueue) batch(ctx context.Context, options ...string) error {
	_, err := s.do(ctx, append(append([]string{"sbatch", "--quiet", "--output=/dev/null"}, options...), s.file("true.sh"))...)
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

// awaitEmpty waits until nothing is left, looking ten times a second: nothing
// tells.
func (s *slurmQueue) awaitEmpty(ctx context.Context) error {
	for {
		out, err := s.do(ctx, "squeue", "--noheader", "--format=%A")
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(out)) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *slurmQueue) list(ctx context.Context, pending int) (int, time.Duration, error) {
	out, err := s.do(ctx, "squeue", "--noheader", "--states=PENDING", "--format=%A")
	if err != nil {
		return 0, 0, err
	}
	if missing := pending - bytes.Count(out, []byte{'\n'}); missing > 0 {
		if err := s.submit(ctx, clientsAtOnce, missing); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	out, err = s.do(ctx, "squeue", "--states=PENDING", "--format=%A %u %t %P %N %j %V %Q %C %m %r")
	return len(out), time.Since(began), err
}

func (s *slurmQueue) block(ctx context.Context) error {
	if _, err := s.do(ctx, "sbatch", "--quiet", "--output=/dev/null", fmt.Sprintf("--array=1-%d", slots), s.file("sleep.sh")); err != nil {
		return err
	}
	for {
		out, err := s.do(ctx, "squeue", "--noheader", "--states=RUNNING", "--array", "--format=%A")
		if err != nil {
			return err
		}
		if strings.Count(string(out), "\n") >= slots {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *slurmQueue) clear(ctx context.Context) error {
	if _, err := s.do(ctx, "scancel", "--quiet", "--state=PENDING", "--partition=main"); err != nil {
		return err
	}
	if _, err := s.do(ctx, "scancel", "--quiet", "--partition=main"); err != nil {
		return err
	}
	return s.awaitEmpty(ctx)
}
