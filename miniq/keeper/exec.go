package keeper

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A job may have two more commands, as bsub -E and -Ep on LSF: lines of its owner's for /bin/sh,
// which run as the job does, with its user, directory, environment, limits and output. What
// they leave behind is killed.
//
// The pre-execution command runs before the job. Unless it ends with 0 the job does not begin. It
// is killed, stopped and signalled as the job is, and its time counts for the job's run limit.
//
// The post-execution command runs when no process of the job is left, however that has ended, and
// before its slots are free. It finds the status that wait(2) gave of the job in
// LSB_JOBEXIT_STAT, and LSB_JOBPEND=Y if the job goes back into the queue. Its own status means
// nothing. Other jobs may wait for the slots: its time is bounded, and shorter if the job was
// killed; a kill while it runs leaves it no more.
const (
	postTime       = 10 * time.Minute
	killedPostTime = 30 * time.Second
	killedPreTime  = 10 * time.Second // between SIGTERM and SIGKILL of a pre-execution command
)

const shell = "/bin/sh"

// besides reports whether other commands than the job's own are run.
func (o *Order) besides() bool { return o.PreExec != "" || o.PostExec != "" }

func killedBefore() *startError {
	return &startError{status: 128 + int(syscall.SIGTERM), text: "killed before the job began", unbegun: true}
}

// preExec runs the pre-execution command; nil: it ended with 0.
func (k *supervisor) preExec(files [3]*os.File) *startError {
	in, err := OpenFile(os.DevNull, os.O_RDONLY) // the job's input is the job's to read
	if err != nil {
		return &startError{status: statusCannotRun, text: "run the pre-execution command: " + cause(err), unbegun: true}
	}
	defer func() { _ = in.Close() }()
	k.mu.Lock()
	k.preparing = true
	k.mu.Unlock()
	status, err := k.runBeside(k.order.PreExec, k.order.Env, [3]*os.File{in, files[1], files[2]}, true)
	k.mu.Lock()
	killed := k.killing
	k.preparing = false
	k.mu.Unlock()
	var failed *startError
	switch {
	case killed, errors.Is(err, errKilled):
		failed = killedBefore()
	case err != nil:
		failed = &startError{status: statusCannotRun, text: "run the pre-execution command: " + cause(err), unbegun: true}
	case status != 0:
		code := exitCode(status)
		failed = &startError{status: code, text: "its pre-execution command ended with status " + strconv.Itoa(code), unbegun: true}
	default:
		return nil
	}
	_, _ = files[2].WriteString("allotment: " + failed.text + "\n")
	return failed
}

// afterExec runs the post-execution command of a job that has ended, if its directory and files
// were open, and returns the end.
func (k *supervisor) afterExec(e End, tried bool) End {
	if k.order.PostExec == "" || !tried {
		return e
	}
	in, err := OpenFile(os.DevNull, os.O_RDWR)
	if err != nil {
		return e
	}
	defer func() { _ = in.Close() }()
	k.outputMu.Lock()
	out := k.output
	k.outputMu.Unlock()
	if out == nil {
		out = in
	}
	env := append(append([]string{}, k.order.Env...), "LSB_JOBEXIT_STAT="+strconv.Itoa(int(k.status)))
	left := postTime
	k.mu.Lock()
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.killing {
		left = killedPostTime
	}
	if k.back && !k.finished(e) {
		env = append(env, "LSB_JOBPEND=Y")
	}
	done := make(chan struct{})
	k.cleaner = time.AfterFunc(left, func() { killUntil(done) })
	k.mu.Unlock()
	_, err = k.runBeside(k.order.PostExec, env, [3]*os.File{in, out, out}, false)
	close(done)
	if err != nil {
		k.writeNote("the post-execution command can't be run: " + cause(err))
	}
	return e
}

// hurryPostExec leaves a post-execution command no more time than one of a killed job has. k.mu is
// held.
func (k *supervisor) hurryPostExec() {
	if k.cleaner != nil && k.cleaner.Stop() {
		k.cleaner.Reset(killedPostTime)
		k.cleaner = nil // a second kill leaves it no more
	}
}

func killUntil(done <-chan struct{}) {
	for {
		signalTree(os.Getpid(), syscall.SIGKILL)
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// finished reports whether a job that was to be requeued has ended by itself instead. The queue
// judges it in the same way (manager.Ended).
func (k *supervisor) finished(e End) bool {
	saved := e.Saved || e.Asked && e.Code == statusSaved
	return e.Code == 0 && !saved && (e.Self || e.Asked && !k.byCommand)
}

// runBeside runs a line of shell, and returns its status when nothing of it is left. Where a kill
// ends it, none that came before is passed over.
func (k *supervisor) runBeside(line string, env []string, files [3]*os.File, killable bool) (syscall.WaitStatus, error) {
	var pid int
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: k.order.As.credential()}
	fork := func() (err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if killable && k.killing {
			return errKilled
		}
		defer k.haltForked(&pid)
		pid, err = syscall.ForkExec(shell, []string{shell, "-c", line}, &syscall.ProcAttr{
			Env: env, Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}, Sys: sys,
		})
		return err
	}
	_, err := k.order.As.limits().runUnder(func() error {
		_, err := k.group.start(sys, fork)
		return err
	})
	if err != nil {
		return 0, err
	}
	return reap(pid), nil
}

// reap waits for a child, kills what it has left behind, and returns its status when no child is
// left.
func reap(pid int) (status syscall.WaitStatus) {
	gone := false
	for {
		if gone {
			signalTree(os.Getpid(), syscall.SIGKILL)
		}
		var one syscall.WaitStatus
		reaped, err := syscall.Wait4(-1, &one, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return status
		case reaped == pid:
			status, gone = one, true
		}
	}
}

// haltForked stops a process that was forked after a wish to stop. k.mu is held.
func (k *supervisor) haltForked(pid *int) {
	if k.halted && *pid != 0 {
		_ = unix.Kill(*pid, syscall.SIGSTOP)
	}
}

// lastWant returns the last of those signals that stops or continues; 0: none does.
func lastWant(signals []syscall.Signal) (last syscall.Signal) {
	for _, s := range signals {
		if s == syscall.SIGSTOP || s == syscall.SIGCONT {
			last = s
		}
	}
	return last
}

// exitCode returns the status as a shell has it.
func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
