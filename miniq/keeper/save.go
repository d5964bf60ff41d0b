package keeper

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// A kill may ask the run to save its work first (R33): by a signal to all its processes
// instead of SIGTERM, or by a command that runs beside them, with the job's user, directory,
// environment and limits. Either way SIGKILL comes when the grace is over. It comes sooner if
// the job's first process says by its status that it has saved its work or is done, or when
// the command has ended. A job that is stopped is continued for it.
//
// What the command writes goes to the job's standard error.

// statusSaved is backends.ExitSaved.
const statusSaved = 85

// saves reports whether a kill asks the run to save its work.
func (w Want) saves() bool { return w.Verb == Kill && (w.Signal != 0 || w.Text != "") }

// ask asks the run to save its work. k.mu is held.
func (k *supervisor) ask(w Want) {
	if w.Text != "" {
		go k.save(w.Text, w.Grace)
		return
	}
	k.asked = true
	k.askJob(&k.signalled, w.Signal, syscall.SIGCONT)
}

// saidAll reports whether a job that was asked by a signal says by the status of its first
// process that what it has left behind need not be waited for.
func (k *supervisor) saidAll(status int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked && !k.byCommand && (status == 0 || status == statusSaved)
}

// save starts the command that saves the run's work.
func (k *supervisor) save(command string, grace time.Duration) {
	signalTree(os.Getpid(), syscall.SIGCONT)
	out := k.openErrors()
	err := k.startSaver(command, out)
	if out != nil {
		_ = out.Close()
	}
	if err != nil {
		k.endSave(false, fmt.Sprintf("run %s, which saves it: %s", command, cause(err)))
	}
}

// openErrors opens the job's standard error again. It waits for no reader: where that is a named
// pipe without one, or can't be opened, what the command writes is dropped.
func (k *supervisor) openErrors() *os.File {
	path := k.order.Stderr
	if path == "" {
		path = k.order.Stdout
	}
	var out *os.File
	_ = k.order.As.as(func() (err error) {
		if path != "" {
			out, err = openOutput(path, false, func() bool { return true })
		}
		if out == nil {
			out, err = OpenFile(os.DevNull, os.O_WRONLY)
		}
		return err
	})
	return out
}

// startSaver starts the command. The run can't end meanwhile, nor is the command's end seen
// before its process ID is known.
func (k *supervisor) startSaver(command string, out *os.File) error {
	in, err := OpenFile(os.DevNull, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if out == nil {
		return os.ErrNotExist
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over || !time.Now().Before(k.due) {
		return nil
	}
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: k.order.As.credential()}
	fork := func() (err error) {
		k.saver, err = syscall.ForkExec(command, []string{command}, &syscall.ProcAttr{
			Env: k.order.Env, Files: []uintptr{in.Fd(), out.Fd(), out.Fd()}, Sys: sys,
		})
		return err
	}
	_, err = k.order.As.limits().runUnder(func() error {
		_, err := k.group.start(sys, fork)
		return err
	})
	k.asked = k.asked || err == nil
	return err
}

// reaped notes the end of a process of the run that is not its first.
func (k *supervisor) reaped(pid int, status syscall.WaitStatus) {
	k.mu.Lock()
	saver, late := k.saver, !time.Now().Before(k.due)
	k.mu.Unlock()
	if pid != saver {
		return
	}
	switch why := "the command that saves it "; {
	case status.ExitStatus() == 0:
		k.endSave(true, "")
	case status.Signaled() && late:
		k.endSave(false, why+"took too long")
	case status.Signaled():
		k.endSave(false, why+"was ended by signal "+status.Signal().String())
	default:
		k.endSave(false, fmt.Sprintf("%sended with status %d", why, status.ExitStatus()))
	}
}

// endSave ends the run when its command has ended.
func (k *supervisor) endSave(saved bool, why string) {
	k.mu.Lock()
	k.saved, k.whyNot = saved, why
	k.mu.Unlock()
	k.kill(Want{Verb: Kill})
}
