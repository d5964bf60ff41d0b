package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// cost is an item's processor time.
const cost = 4 * time.Millisecond

// ideal returns the time that all hosts' quotas together take for so many items.
func ideal(items int) time.Duration {
	return time.Duration(float64(items) * float64(cost) / total())
}

// worker is the program that does the items.
type worker struct {
	path string
	tail time.Duration // processor time of its process's end
}

// buildWorker builds the program, and measures what it costs beside the items.
func buildWorker(ctx context.Context, dir string) (w worker, err error) {
	w.path = filepath.Join(dir, "worker")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", w.path, "./bench/split/worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return w, fmt.Errorf("build the worker: %w\n%s", err, text)
	}
	const times = 100
	bare, err := w.mean(ctx, times, 0, 0)
	if err != nil {
		return w, err
	}
	whole, err := w.mean(ctx, times, cost, 0)
	if err != nil {
		return w, err
	}
	w.tail = max(0, whole-cost)
	if whole, err = w.mean(ctx, times, cost, w.tail); err != nil {
		return w, err
	}
	printf("an item: %.2f ms of processor time (%.2f if it is a process of its own: its start and its end are %.2f of them)",
		milliseconds(cost), milliseconds(whole), milliseconds(bare))
	if bare > cost*3/4 {
		return w, errors.New("this machine is too slow, or too busy, for such items")
	}
	return w, nil
}

// mean returns the mean processor time of a process with one item, fork to exit.
func (w worker) mean(ctx context.Context, times int, cost, tail time.Duration) (time.Duration, error) {
	var sum time.Duration
	for range times {
		cmd := exec.CommandContext(ctx, w.path, "-cost", cost.String(), "-tail", tail.String(), "1")
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("run the worker: %w", err)
		}
		sum += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return sum / time.Duration(times), nil
}

// argv returns a command line of the worker, to which items may be added.
func (w worker) argv(more ...string) []string {
	return append([]string{w.path, "-cost", cost.String(), "-tail", w.tail.String()}, more...)
}

// numbers returns the items, one a line.
func numbers(items int) []byte {
	var b bytes.Buffer
	for i := range items {
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// check compares results with what the worker prints for so many items, in order.
func check(results []byte, items int) error {
	n := 0
	for line := range bytes.Lines(results) {
		n++
		item := strconv.Itoa(n)
		if want := fmt.Sprintf("%s %08x\n", item, crc32.ChecksumIEEE([]byte(item))); string(line) != want {
			return fmt.Errorf("result %d is %q, want %q", n, line, want)
		}
	}
	if n != items {
		return fmt.Errorf("%d results, want %d", n, items)
	}
	return nil
}
