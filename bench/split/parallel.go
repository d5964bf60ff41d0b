package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// parallelName begins the names of its runs.
const parallelName = "GNU parallel"

// runTime bounds the time of one run.
const runTime = 6 * time.Minute

// runParallel has GNU parallel hand the items to the hosts' cgroups, so many at a time,
// each host one lot after the other. It and its shells run beside the cgroups.
func (b *bench) runParallel(ctx context.Context, items, lot int) (run, error) {
	for i, g := range b.hosts.groups {
		where := fmt.Sprintf("%d %s\n", b.hosts.nodeProcessors[i], g.joinFile())
		if err := os.WriteFile(filepath.Join(b.dir, hostName(i)), []byte(where), 0o600); err != nil {
			return run{}, err
		}
	}
	// Slot {%} of parallel is the host of that number.
	argv := []string{"parallel", "--will-cite", "-k", "-j" + strconv.Itoa(len(cores)), "-n" + strconv.Itoa(lot)}
	argv = append(argv, b.worker.argv("-host", filepath.Join(b.dir, "node{%}"), "{}")...)
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Dir, cmd.Env = bytes.NewReader(numbers(items)), b.dir, append(os.Environ(), "HOME="+b.dir, "SHELL=/bin/sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it lets its jobs end
	r := run{name: fmt.Sprintf("%s, lots of %d", parallelName, lot), items: items}
	return r, b.execute(&r, cmd)
}

// missingParallel returns why GNU parallel can't be compared; "": it can.
func missingParallel(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "parallel", "--version").Output()
	if err != nil {
		return "GNU parallel is not installed (apt-get install parallel)"
	}
	if !bytes.HasPrefix(text, []byte("GNU parallel")) {
		return "the parallel that is installed is not GNU's"
	}
	return ""
}
