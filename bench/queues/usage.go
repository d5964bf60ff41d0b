package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is the processor time of the bundled queue's processes so far.
type usage struct {
	daemon time.Duration
	nodes  time.Duration
	runs   time.Duration // keepers, and jobs that have ended
}

// usage reads /proc. A process that can't be read counts as 0.
func (q *miniqQueue) usage(ctx context.Context) usage {
	var u usage
	status, err := q.client.Status(ctx)
	if err != nil {
		return u
	}
	u.daemon, _, _ = times(status.PID)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return u
	}
	nodes, alive := map[int]bool{}, map[int]time.Duration{} // keepers', by their parents
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		own, children, parent := times(pid)
		if parent == status.PID {
			nodes[pid] = true
			u.nodes += own
			u.runs += children
		} else {
			alive[parent] += own + children
		}
	}
	for pid := range nodes {
		u.runs += alive[pid]
	}
	return u
}

// times returns a process's own processor time, that of its children that it has waited
// for, and its parent.
func times(pid int) (own, children time.Duration, parent int) {
	const (
		tick       = 10 * time.Millisecond // USER_HZ, which Linux gives to programs
		parentAt   = 1                     // after the name
		ownAt      = 11
		childrenAt = 13
	)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < childrenAt+2 {
		return 0, 0, 0
	}
	number := func(at int) int {
		n, _ := strconv.Atoi(fields[at])
		return n
	}
	sum := func(at int) time.Duration { return time.Duration(number(at)+number(at+1)) * tick }
	return sum(ownAt), sum(childrenAt), number(parentAt)
}

// cost is a usage shared out over jobs.
type cost struct{ daemon, nodes, runs time.Duration }

func (u usage) since(before usage, jobs int) cost {
	n := time.Duration(jobs)
	return cost{(u.daemon - before.daemon) / n, (u.nodes - before.nodes) / n, (u.runs - before.runs) / n}
}

func (c cost) String() string {
	micro := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) + " µs" }
	return fmt.Sprintf("daemon %s, nodes %s, keepers and jobs %s", micro(c.daemon), micro(c.nodes), micro(c.runs))
}
