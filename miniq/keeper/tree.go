package keeper

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// mostRounds bounds how often signalTree looks again: a job that forks all the
// time must not keep its keeper from what else is wanted.
const mostRounds = 10

// processes are all processes of the machine, by their ID.
func processes() map[int]stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]stat, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			all[pid] = s
		}
	}
	return all
}

// descendants are the living processes below root.
func descendants(all map[int]stat, root int) []int {
	children := make(map[int][]int, len(all))
	for pid, s := range all {
		children[s.parent] = append(children[s.parent], pid)
	}
	var found []int
	for queue := children[root]; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		queue = append(queue, children[pid]...)
		if all[pid].state != 'Z' {
			found = append(found, pid)
		}
	}
	return found
}

// Families are the living children of a process, each with what lives below it.
func Families(root int) map[Process][]Process {
	all := processes()
	families := make(map[Process][]Process)
	for pid, s := range all {
		if s.parent != root || s.state == 'Z' {
			continue
		}
		child := Process{PID: pid, Start: s.start}
		families[child] = nil
		for _, below := range descendants(all, pid) {
			families[child] = append(families[child], Process{PID: below, Start: all[below].start})
		}
	}
	return families
}

// signalTree sends signals, in this order, to everything below root, again for
// what was forked meanwhile, until nobody new is found.
func signalTree(root int, signals ...syscall.Signal) {
	told := make(map[Process]bool)
	for range mostRounds {
		anew := false
		all := processes()
		for _, pid := range descendants(all, root) {
			p := Process{PID: pid, Start: all[pid].start}
			if told[p] {
				continue
			}
			told[p], anew = true, true
			p.Signal(signals...)
		}
		if !anew {
			return
		}
	}
}

// Signal sends signals to this very process: root's keeper must not hit another
// user's that was given its number since somebody looked.
func (p Process) Signal(signals ...syscall.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		for _, sig := range signals {
			_ = syscall.Kill(p.PID, sig)
		}
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if StartTime(p.PID) != p.Start {
		return
	}
	for _, sig := range signals {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// KillLeft kills what a killed keeper left behind: every process of the job's
// session, and every one of the job's user that has the mark in the environment
// that it was started with. It returns when there is none left.
func KillLeft(job Process, user int, mark string) {
	for {
		left := leftovers(job, user, []byte(mark))
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			p.Signal(syscall.SIGKILL)
		}
		pause() // until the kernel has taken them away; nothing tells that of others' children
	}
}

func leftovers(job Process, user int, mark []byte) []Process {
	all := processes()
	leader, there := all[job.PID]
	ours := job.PID != 0 && (!there || leader.start == job.Start) // else its number has been given away
	var left []Process
	for pid, s := range all {
		if s.state == 'Z' || pid == os.Getpid() {
			continue
		}
		if ours && s.session == job.PID && s.start >= job.Start || marked(pid, mark) && RealUser(pid) == user {
			left = append(left, Process{PID: pid, Start: s.start})
		}
	}
	return left
}

// marked tells whether a process was started with a variable in its environment.
func marked(pid int, variable []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, variable) {
			return true
		}
	}
	return false
}
