package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// R31: it takes less than 2 MiB of anonymous memory and no processor time, and ends
// at SIGTERM, also where its parent ignores that.
func TestItDoesNothing(t *testing.T) {
	program := filepath.Join(t.TempDir(), "adummy")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build it: %v\n%s", err, text)
	}
	for arg, status := range map[string]int{"--help": 0, "-h": 0, "--version": 2, "x": 2} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, program, arg)
		text, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != status || !strings.Contains(string(text), "adummy") {
			t.Errorf("adummy %s: status %d, %q", arg, cmd.ProcessState.ExitCode(), text)
		}
		cancel()
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap "" TERM; exec "$0"`, program)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	asleep := func() bool {
		stat, err := os.ReadFile(proc + "stat")
		return err == nil && strings.HasPrefix(string(stat), fmt.Sprintf("%d (adummy) S ", cmd.Process.Pid))
	}
	for deadline := time.Now().Add(20 * time.Second); !asleep() && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	if !asleep() {
		t.Fatal("it does not sleep")
	}
	took := func() (ticks string) {
		stat, err := os.ReadFile(proc + "stat")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat))
		return fields[13] + " and " + fields[14]
	}
	before := took()
	time.Sleep(300 * time.Millisecond)
	if after := took(); after != before {
		t.Errorf("it took %s ticks of processor time, %s a moment before", after, before)
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	var anonymous int
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &anonymous); err == nil {
			break
		}
	}
	if anonymous == 0 || anonymous >= 2048 {
		t.Errorf("it takes %d KiB of anonymous memory, want less than 2 MiB:\n%s", anonymous, status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || said.Len() > 0 {
		t.Errorf("it ended with %v and said %q, want ended by SIGTERM and not a word", err, &said)
	}
}
