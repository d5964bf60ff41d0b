package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/internal/disk/crashfs"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/daemon"
)

// envMachine makes the test binary a daemon on a machine that loses its power.
const envMachine = "CRASH_MACHINE"

func TestMain(m *testing.M) {
	text := os.Getenv(envMachine)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := machineMain(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// machine is a computer that is on until its power is lost.
type machine struct {
	Home   string
	Bin    string
	After  string // the directory for the disk's content after the power failure
	Boot   string
	Seed   uint64
	OffAt  int     // the operation of the disk before which the power is lost; 0: never
	Faults float64 // the share of operations that fail
	Fault  syscall.Errno
	Full   string // while this file exists, writes fail
}

func machineMain(text string) error {
	var m machine
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	f := &farm{bin: m.Bin, home: m.Home}
	state := miniq.StateDir(f.paths())
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	d, err := m.disk(state)
	if err != nil {
		return err
	}
	config := miniq.DefaultConfig()
	config.Nodes = []miniq.Node{{Name: "n1", Slots: 4}, {Name: "n2", Slots: 4}}
	ready := os.NewFile(miniq.ReadyFD, "ready")
	return daemon.Run(context.Background(), daemon.Options{
		Paths: f.paths(), Config: config, Program: filepath.Join(m.Bin, "miniqd"), Keeper: filepath.Join(m.Bin, "miniq-keeper"),
		Version: "test", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func() { _, _ = ready.WriteString(miniq.ReadyLine); _ = ready.Close() },
		Disk:  d, Boot: m.Boot, CompactAt: 40_000, // short, so that the journal is compacted often
	})
}

// disk returns the machine's disk, which kills the machine at operation OffAt.
func (m *machine) disk(state string) (d *crashfs.Disk, err error) {
	faults := rand.New(rand.NewPCG(m.Seed, 2))
	ops := 0
	d, err = crashfs.New(state, rand.New(rand.NewPCG(m.Seed, 1)), func(op crashfs.Op) error {
		if ops++; ops == m.OffAt {
			if err := d.Image(m.After); err != nil {
				panic(err)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if strings.HasSuffix(op.Path, "/boot") || strings.HasSuffix(op.Path, "/boot.new") || op.Kind == crashfs.Remove {
			return nil
		}
		if m.Full != "" && there(m.Full) && (op.Kind == crashfs.Write || (op.Kind == crashfs.Create || op.Kind == crashfs.Mkdir) && !there(op.Path)) {
			return syscall.ENOSPC
		}
		chance := m.Faults
		if strings.HasSuffix(op.Path, ".db") || strings.HasSuffix(op.Path, ".db.new") {
			chance /= 20 // there are many, and if one fails all are written again
		}
		if faults.Float64() < chance {
			return m.Fault
		}
		return nil
	})
	return d, err
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// on starts the machine and returns when it serves, or its power is lost.
func (m *machine) on(ctx context.Context) (*running, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	log, err := os.OpenFile(filepath.Join(m.Home, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = append(os.Environ(), envMachine+"="+string(text)), log, log, []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	r := &running{machine: m, cmd: cmd, gone: make(chan struct{})}
	line := make([]byte, 16)
	n, _ := ready.Read(line)
	go func() {
		r.err = cmd.Wait()
		close(r.gone)
	}()
	if n > 0 {
		return r, nil
	}
	<-r.gone
	switch {
	case r.lostPower():
		return r, nil
	case m.Faults > 0: // it may fail to read or write: the next one has fewer faults
		m.Faults /= 2
		m.Seed += 500
		return m.on(ctx)
	}
	return nil, fmt.Errorf("the daemon does not start after a power failure: %w", r.err)
}

// running is a machine that is, or was, on.
type running struct {
	*machine
	cmd  *exec.Cmd
	gone chan struct{} // closed when it is off
	err  error
}

func (r *running) lostPower() bool {
	var exit *exec.ExitError
	return errors.As(r.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL //nolint:forcetypeassert // of this system
}

// off kills all that the power failure ends, and puts the disk's content in place.
func (r *running) off(dice *rand.Rand) error {
	<-r.gone
	f := &farm{home: r.Home}
	f.killAll()
	state := miniq.StateDir(f.paths())
	if err := loseRecords(filepath.Join(state, "nodes"), filepath.Join(r.After, "nodes"), dice); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(state), os.Rename(r.After, state))
}

// loseRecords copies the nodes' records, which are never synced, as far as chance has
// them on disk.
func loseRecords(from, to string, dice *rand.Rand) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() || dice.IntN(3) == 0 {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if dice.IntN(2) == 0 {
			data = data[:dice.IntN(len(data)+1)]
		}
		target := to + strings.TrimPrefix(path, from)
		return errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, data, 0o600))
	})
}

// bootName returns the nth boot ID.
func bootName(n int) string { return "boot " + strconv.Itoa(n) }
