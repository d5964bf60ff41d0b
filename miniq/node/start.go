package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// MarkVariable is in the environment of every process of a run that did not remove it.
// Its value, the record's path, identifies what a killed keeper left.
const MarkVariable = "ALLOTMENT_RUN"

// HostFileVariable has the path of a file with the name of a host for each slot of the job.
const HostFileVariable = "LSB_DJOB_HOSTFILE"

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
	r.filed = r.filed || s.Script != nil || s.Hosts != nil
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

// order adds to the daemon's order what only the node knows: mark, host file and script file.
func (n *node) order(s *Start) (*keeper.Order, error) {
	o, err := keeper.Decode(s.Order)
	if err != nil {
		return nil, err
	}
	o.Env = append(o.Env, mark(n.path(s.Run, recordSuffix)))
	if s.Hosts != nil {
		path := n.filePath(s.Run, hostsSuffix, o.As)
		if err := writeFile(path, s.Hosts, privateFile, o.As); err != nil {
			return nil, fmt.Errorf("write the file of its hosts: %w", err)
		}
		o.Env = append(o.Env, HostFileVariable+"="+path)
	}
	if s.Script == nil {
		return o, nil
	}
	path := n.filePath(s.Run, scriptSuffix, o.As)
	if err := writeFile(path, s.Script, privateScript, o.As); err != nil {
		return nil, fmt.Errorf("write the script: %w", err)
	}
	argv := []string{path}
	if !bytes.HasPrefix(s.Script, []byte("#!")) {
		argv = []string{"/bin/sh", path}
	}
	o.Argv = append(argv, o.Argv...)
	return o, nil
}

// Modes of the files that are written for a run: its user's alone.
const (
	privateFile   = 0o600
	privateScript = 0o700
)

// writeFile writes a file for a run, which belongs to the user that it runs as. It holds the
// fork lock: a process that is forked while a script is open for writing would keep it from
// being executed (ETXTBSY).
func writeFile(path string, data []byte, mode os.FileMode, as *keeper.User) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if as == nil {
		return os.WriteFile(path, data, mode)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chown(int(as.UID), int(as.GID))
	}
	return errors.Join(err, f.Close())
}

// makeScriptDir makes the directory of the scripts that other users run, and of their host
// files: to be passed through, not to be listed.
func makeScriptDir(dir string) error {
	const passable = 0o711
	if err := os.MkdirAll(dir, passable); err != nil {
		return err
	}
	return os.Chmod(dir, passable)
}

// filePath returns the path of a file of a run: in a directory that the run's user can enter.
func (n *node) filePath(id RunID, suffix string, as *keeper.User) string {
	if as == nil {
		return n.path(id, suffix)
	}
	return n.userPath(id, suffix)
}

func (n *node) userPath(id RunID, suffix string) string {
	return filepath.Join(n.Scripts, id.String()+strings.TrimSuffix(suffix, scriptSuffix))
}

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
	named, filed := false, true
	if r := n.runs[id]; r != nil {
		named, filed = r.job.Run != "" && r.log.Size() < maxSpare, r.filed
		_ = r.record.Close()
		delete(n.runs, id)
	}
	if filed {
		n.removeFiles(id)
	}
	if record := n.path(id, recordSuffix); named {
		n.spares.add(record)
	} else {
		_ = os.Remove(record)
	}
}

// removeFiles removes the files that were written for a run.
func (n *node) removeFiles(id RunID) {
	for _, suffix := range []string{scriptSuffix, hostsSuffix} {
		_ = os.Remove(n.path(id, suffix))
		if n.Scripts != "" {
			_ = os.Remove(n.userPath(id, suffix))
		}
	}
}
