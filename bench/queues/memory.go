package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// memoryBudget bounds the daemon's memory while a queue is filled and when it is
// full, in MiB.
const memoryBudget = 300

// measureMemory measures the daemon of a queue that has been filled.
func (b *bench) measureMemory(ctx context.Context, q *miniqQueue) error {
	status, err := q.client.Status(ctx)
	if err != nil {
		return err
	}
	now, most, err := memoryOf(status.PID)
	if err != nil {
		return err
	}
	b.printf("\nmemory of the daemon with %d pending jobs: %d MiB, at most %d MiB until now", status.Pending, now, most)
	b.memory = most
	return nil
}

// memoryOf returns the memory that a process takes and the most that it took, in MiB.
func memoryOf(pid int) (now, most int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	if now, err = kibibytes(text, "VmRSS:"); err == nil {
		most, err = kibibytes(text, "VmHWM:")
	}
	return now >> 10, most >> 10, err
}

func (b *bench) judgeMemory() bool {
	if b.memory == 0 {
		b.printf("  not judged  the daemon's memory with %d pending jobs: not measured", pausePending)
		return true
	}
	met := b.memory <= memoryBudget
	verdict := "met"
	if !met {
		verdict = "missed"
	}
	b.printf("  %-10s  the daemon's memory with %d pending jobs ≤ %d MiB: it is %d MiB", verdict, pausePending, memoryBudget, b.memory)
	return met
}

// kibibytes returns the number in a line of /proc/PID/status.
func kibibytes(status []byte, name string) (int, error) {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
		}
	}
	return 0, fmt.Errorf("no line %s in a process's status", name)
}
