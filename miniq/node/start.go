package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// MarkVariable is in the environment of every process of a run that did not remove it.
// Its value, the record's path, identifies what a killed keeper left.
const MarkVariable = "ALLOTMENT_RUN"

func mark(record string) string { return MarkVariable + "=" + record }

// start begins a run, unless it has begun already.
func (n *node) start(s *Start) error {
	if n.runs[s.Run] != nil {
		return nil
	}
	r, err := n.claim(s.Run)
	if errors.Is(err, os.ErrExist) { // the daemon does not order a run twice, but a record decides
		if r, err = n.reclaim(s.Run); r == nil {
			return errors.Join(err, n.adopt(Expected{Run: s.Run}))
		}
	}
	if err == nil {
		err = n.launch(r, s)
	}
	if err != nil { // the record is removed when the daemon has recorded the failure
		return n.report(Report{Kind: Failed, Run: s.Run, Text: err.Error(), Again: isTemporary(err)})
	}
	return n.report(Report{Kind: Started, Run: s.Run})
}

// isTemporary reports whether an error is the host's and passes: no fault of the job's.
func isTemporary(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// claim makes the record, which must not exist yet, locks it and reserves its room.
func (n *node) claim(id RunID) (*run, error) {
	f := n.spares.reuse(n.path(id, recordSuffix))
	if f == nil {
		var err error
		if f, err = os.OpenFile(n.path(id, recordSuffix), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, err
		}
	}
	if _, err := f.WriteString(claimLine(id)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &run{id: id, record: f, pidfd: -1}
	n.runs[id] = r
	if _, err := r.flock(); err != nil {
		return r, err
	}
	return r, r.reserve()
}

func (r *run) reserve() error {
	if err := keeper.Reserve(r.record); err != nil {
		return fmt.Errorf("find room for the run's record: %w", err)
	}
	return nil
}

// claimLine is the first line of a record that counts: it names the run.
func claimLine(id RunID) string { return "\nr " + id.String() + "\n" }

// KeeperEnv is a keeper's own environment: it has next to nothing to do, and nothing
// to collect, unless its job lives for long and is signalled or looked at all the time.
func KeeperEnv() []string {
	return []string{"GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"}
}

// reclaim takes the record of a run that was claimed and never got a keeper; nil: it got
// one. The record stays from the first claim on, whatever is killed meanwhile: a run that
// the daemon knows to have begun and that has no record is lost.
func (n *node) reclaim(id RunID) (*run, error) {
	r, err := n.openRun(id)
	if err != nil {
		return nil, err
	}
	free, err := r.lock()
	if err != nil || !free || r.begun() {
		return nil, errors.Join(err, r.record.Close())
	}
	n.runs[id] = r
	// The node that claimed it may have been killed before it wrote this line. Without it
	// the lines of an earlier run count, and the file never becomes this run's.
	if r.job.Run == "" {
		if _, err = r.record.WriteString(claimLine(id)); err != nil {
			return r, err
		}
	}
	return r, r.reserve()
}

// begun reports whether a keeper wrote its first line: before that it executes nothing.
func (r *run) begun() bool { return r.job.Keeper.PID != 0 || r.job.End != nil }

// launch gives the run to a keeper. The node's own descriptor of the record is replaced
// by a fresh one: the lock must go with the keeper's.
func (n *node) launch(r *run, s *Start) error {
	r.scripted = r.scripted || s.Script != nil
	order, err := n.order(s)
	if err != nil {
		return err
	}
	fresh, err := keeper.OpenFile(n.path(s.Run, recordSuffix), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	if err := n.hire(r, order); err != nil {
		return errors.Join(err, fresh.Close())
	}
	_ = r.record.Close()
	r.record = fresh
	return nil
}

// order adds to the daemon's order what only the node knows: mark and script file.
func (n *node) order(s *Start) (*keeper.Order, error) {
	o, err := keeper.Decode(s.Order)
	if err != nil {
		return nil, err
	}
	o.Env = append(o.Env, mark(n.path(s.Run, recordSuffix)))
	if s.Script == nil {
		return o, nil
	}
	path := n.path(s.Run, scriptSuffix)
	if o.As != nil {
		path = n.userScript(s.Run)
	}
	if err := writeScript(path, s.Script, o.As); err != nil {
		return nil, fmt.Errorf("write the script: %w", err)
	}
	argv := []string{path}
	if !bytes.HasPrefix(s.Script, []byte("#!")) {
		argv = []string{"/bin/sh", path}
	}
	o.Argv = append(argv, o.Argv...)
	return o, nil
}

// writeScript holds the fork lock: a process that is forked while the file is
// open for writing would keep it from being executed (ETXTBSY).
func writeScript(path string, script []byte, as *keeper.User) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if as == nil {
		return os.WriteFile(path, script, 0o700)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = f.Write(script)
	if err == nil {
		err = f.Chown(int(as.UID), int(as.GID))
	}
	return errors.Join(err, f.Close())
}

// makeScriptDir makes the directory of the scripts that other users run: to be
// passed through, not to be listed.
func makeScriptDir(dir string) error {
	const passable = 0o711
	if err := os.MkdirAll(dir, passable); err != nil {
		return err
	}
	return os.Chmod(dir, passable)
}

func (n *node) userScript(id RunID) string { return filepath.Join(n.Scripts, id.String()) }

// memoryFile returns a file in memory with the data, positioned at its beginning.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// forget removes what is left of a run.
func (n *node) forget(id RunID) {
	named, scripted := false, true
	if r := n.runs[id]; r != nil {
		named, scripted = r.job.Run != "" && r.log.Size() < maxSpare, r.scripted
		_ = r.record.Close()
		delete(n.runs, id)
	}
	if scripted {
		_ = os.Remove(n.path(id, scriptSuffix))
	}
	if scripted && n.Scripts != "" {
		_ = os.Remove(n.userScript(id))
	}
	if record := n.path(id, recordSuffix); named {
		n.spares.add(record)
	} else {
		_ = os.Remove(record)
	}
}
