package command

import (
	"os"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// GraceTime is what AttachedUntil leaves a program between SIGTERM and SIGKILL.
const GraceTime = 2 * time.Second

// AttachedUntil is Attached, but ends the program, with all that it has started, when stop
// closes or the limit is over (0: there is none): by SIGTERM, and SIGKILL after GraceTime.
// timedOut reports that the limit ended it.
func AttachedUntil(path string, argv, env []string, stdin, stdout, stderr *os.File, limit time.Duration, stop <-chan struct{}) (exit int, timedOut bool, err error) {
	process, err := start(path, argv, env, stdin, stdout, stderr)
	if err != nil {
		return -1, false, err
	}
	pid := process.Pid
	root := proc.Process{PID: pid, Start: proc.StartTime(pid)}
	ended := make(chan struct{})
	over := make(chan bool)
	go func() {
		over <- endBy(root, limit, stop, ended)
	}()
	exit, err = wait(process, argv)
	close(ended)
	return exit, <-over, err
}

// endBy ends a process and what is below it when stop closes or the limit is over, and
// reports whether it was the limit. It returns when the process has ended.
func endBy(root proc.Process, limit time.Duration, stop, ended <-chan struct{}) (timedOut bool) {
	var due <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ended:
		return false
	case <-stop:
	case <-due:
		timedOut = true
	}
	// A shell comes before its command: else it goes on with the next one.
	family := append([]proc.Process{root}, proc.Below(proc.All(), root.PID)...)
	for _, p := range family {
		p.Signal(syscall.SIGTERM, syscall.SIGCONT)
	}
	grace := time.NewTimer(GraceTime)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		family = append(family, proc.Below(proc.All(), root.PID)...)
	}
	for _, p := range family { // what ignores SIGTERM, and outlives the program
		p.Signal(syscall.SIGKILL)
	}
	<-ended
	return timedOut
}
