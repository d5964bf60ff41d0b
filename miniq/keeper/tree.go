package keeper

import (
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// mostRounds bounds the passes of eachBelow: a job that forks all the time must not
// keep its keeper from what else is wanted.
const mostRounds = 10

// eachBelow calls do once for every process below root. It looks again for those forked
// meanwhile until it finds no new one.
func eachBelow(root int, do func(proc.Process)) {
	done := make(map[proc.Process]bool)
	for range mostRounds {
		anew := false
		for _, p := range proc.Below(proc.All(), root) {
			if !done[p] {
				done[p], anew = true, true
				do(p)
			}
		}
		if !anew {
			return
		}
	}
}

// signalTree sends signals, in this order, to everything below root.
func signalTree(root int, signals ...syscall.Signal) {
	eachBelow(root, func(p proc.Process) { p.Signal(signals...) })
}

// signalJob sends signals, in this order, to all processes of the job, the first one before the
// others, whose ends may end it. It notes that it does unless the first one has ended already,
// be it that this has not been seen yet: the job has ended by itself then.
func (k *supervisor) signalJob(sent *atomic.Bool, signals ...syscall.Signal) {
	signalled := k.signalFirst(sent, signals...)
	eachBelow(os.Getpid(), func(p proc.Process) {
		if p.PID != signalled {
			p.Signal(signals...)
		}
	})
}

// askJob is signalJob for the processes that are there now: those that a handler of the signal
// starts, to save the job's work, would die of it.
func (k *supervisor) askJob(sent *atomic.Bool, signals ...syscall.Signal) {
	now := proc.Below(proc.All(), os.Getpid())
	signalled := k.signalFirst(sent, signals...)
	for _, p := range now {
		if p.PID != signalled {
			p.Signal(signals...)
		}
	}
}

// signalFirst sends signals to the job's first process, notes that, and returns its number; 0: it
// has ended.
func (k *supervisor) signalFirst(sent *atomic.Bool, signals ...syscall.Signal) int {
	if hasEnded(k.first) {
		return 0
	}
	sent.Store(true)
	proc.Process{PID: k.first, Start: proc.StartTime(k.first)}.Signal(signals...)
	return k.first
}

// hasEnded reports whether a child has ended, be it reaped or not.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := untilUninterrupted(func() error {
		return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	return err != nil || info.Signo != 0
}

// KillLeftovers kills what a killed keeper left behind: every process of the job's
// session, and every one of the job's user that has the mark in the environment
// that it was started with. It returns when there is none left.
func KillLeftovers(job proc.Process, user int, mark string) {
	for {
		left := leftovers(job, user, mark)
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			p.Signal(syscall.SIGKILL)
		}
		pause() // until the kernel has taken them away; only their parents get a signal
	}
}

func leftovers(job proc.Process, user int, mark string) []proc.Process {
	all := proc.All()
	leader, there := all[job.PID]
	ours := job.PID != 0 && (!there || leader.Start == job.Start) // else its number has been given away
	var left []proc.Process
	for pid, s := range all {
		if s.State == 'Z' || pid == os.Getpid() {
			continue
		}
		if ours && s.Session == job.PID && s.Start >= job.Start || proc.HasVariable(pid, mark) && proc.RealUser(pid) == user {
			left = append(left, proc.Process{PID: pid, Start: s.Start})
		}
	}
	return left
}
