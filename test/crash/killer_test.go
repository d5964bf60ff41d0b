package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killer kills processes of a farm.
type killer struct {
	f       *farm
	book    *book
	dice    *rand.Rand
	keepers map[string]bool // runs whose keeper was killed: JOB.INDEX.RUN
	count   map[string]int  // kills of each kind
	amid    int             // while a submission was in progress
}

// process is one of the farm's processes.
type process struct {
	pid  int
	kind string // daemon, node, keeper, worker
	run  string // of a keeper: JOB.INDEX.RUN
}

// find lists the farm's processes of a kind.
func (f *farm) find(kind string) []process {
	dirs, _ := filepath.Glob("/proc/[1-9]*")
	var found []process
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := f.inspect(pid); ok && p.kind == kind {
			found = append(found, p)
		}
	}
	return found
}

// killAll kills what is left of the farm.
func (f *farm) killAll() {
	for _, kind := range []string{"daemon", "node", "keeper", "worker", "node", "keeper", "worker"} {
		for left := f.find(kind); len(left) > 0; left = f.find(kind) {
			for _, p := range left {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// inspect returns a process of the farm; false: it is none.
func (f *farm) inspect(pid int) (process, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	line, _ := os.ReadFile(dir + "/cmdline")
	args := strings.Split(string(line), "\x00")
	switch {
	case args[0] == "miniq-keeper" && !aboutToBeAJob(pid):
		record, _ := os.Readlink(dir + "/fd/3")
		if run, ok := strings.CutSuffix(filepath.Base(record), ".run"); ok && strings.HasPrefix(record, f.home+"/") {
			return process{pid, "keeper", run}, true
		}
	case filepath.Base(args[0]) == "worker" && len(args) > 1 && strings.HasPrefix(args[1], f.home+"/"):
		return process{pid: pid, kind: "worker"}, true
	case len(args) > 2 && args[1] == "node" && strings.Contains(string(line), "\x00"+f.home+"/"):
		return process{pid: pid, kind: "node"}, true
	case slices.Contains(args, "--foreground"):
		environment, _ := os.ReadFile(dir + "/environ")
		if bytes.Contains(append([]byte{0}, environment...), []byte("\x00ALLOTMENT_HOME="+f.home+"\x00")) {
			return process{pid: pid, kind: "daemon"}, true
		}
	}
	return process{}, false
}

// aboutToBeAJob reports whether a process is a keeper's child, which looks like a keeper
// until it executes the job.
func aboutToBeAJob(pid int) bool {
	parent, _ := os.ReadFile("/proc/" + strconv.Itoa(parentOf(pid)) + "/cmdline")
	return bytes.HasPrefix(parent, []byte("miniq-keeper\x00"))
}

// parentOf returns a process's parent, from stat of proc(5); 0: it is gone.
func parentOf(pid int) int {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// kill kills a process, if its ID was not used again.
func (k *killer) kill(p process) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := k.f.inspect(p.pid); !ok || now != p {
		return false
	}
	if p.kind == "keeper" {
		k.keepers[p.run] = true
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// run kills so many times, and lets the clients submit a part of the jobs after each.
func (k *killer) run(ctx context.Context, times int) error {
	for n := range times {
		k.book.allow(k.book.total * (n + 1) / (times + 1))
		if k.dice.IntN(5) > 0 { // else at once: the one that has just been started
			k.book.awaitWork(k.book.total * (2*n + 1) / (2 * (times + 1)))
		}
		if err := k.chance(ctx); err != nil {
			return err
		}
	}
	k.book.allow(k.book.total)
	return nil
}

// awaitWork waits until clients have begun to submit so many jobs.
func (b *book) awaitWork(jobs int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.taken < min(jobs, b.total) && !b.over {
		b.changed.Wait()
	}
}

// awaitCall waits for a submission, unless clients have submitted all that they may.
func (b *book) awaitCall() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.calling == 0 && b.taken < b.goal && !b.over {
		b.changed.Wait()
	}
}

// chance waits for a random moment and kills a random kind of process.
func (k *killer) chance(ctx context.Context) error {
	if k.dice.IntN(5) < 3 {
		k.book.awaitCall()
		pause(ctx, time.Duration(k.dice.IntN(6000))*time.Microsecond)
	} else {
		pause(ctx, time.Duration(k.dice.IntN(400))*time.Millisecond)
	}
	what := "daemon"
	switch n := k.dice.IntN(100); {
	case n < 50:
	case n < 70:
		what = "node"
	case n < 93:
		what = "both"
	default:
		what = "keeper"
	}
	for {
		if err := errors.Join(ctx.Err(), k.book.failed()); err != nil {
			return err
		}
		k.book.mu.Lock()
		calling := k.book.calling
		k.book.mu.Unlock()
		if k.killOne(what) {
			if calling > 0 {
				k.amid++
			}
			k.count[what]++
			return nil
		}
		// No client may have started the daemon since the last kill.
		if _, err := k.f.Status(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("start the daemon: %w", err)
		}
		if what == "keeper" && len(k.f.find("keeper")) == 0 {
			what = "daemon"
		}
	}
}

// killOne kills; false: there was no such process.
func (k *killer) killOne(what string) bool {
	one := func(kind string) bool {
		all := k.f.find(kind)
		return len(all) > 0 && k.kill(all[k.dice.IntN(len(all))])
	}
	if what != "both" {
		return one(what)
	}
	if k.dice.IntN(2) == 0 {
		node := one("node")
		return one("daemon") && node
	}
	daemon := one("daemon")
	return one("node") && daemon
}
