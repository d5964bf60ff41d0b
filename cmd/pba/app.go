package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// process is all that the commands take from the process that they run in.
type process struct {
	args           []string
	stdout, stderr io.Writer
	now            func() time.Time
	identify       func(configfile.Config) (caller, error) // by the system's word
	load           func() (configfile.Config, error)
	open           func(context.Context, configfile.Config) (backends.Backend, error)
	openAndStart   func(context.Context, configfile.Config) (backends.Backend, error)
	lookup         lookup
	executable     func() (string, error)
	editWait       time.Duration
}

// lookup asks the system for users and groups.
type lookup struct {
	user  func(name string) error
	group func(name string) error
}

func thisProcess() process {
	uid := os.Getuid() // before it becomes another one's
	return process{
		args: os.Args, stdout: os.Stdout, stderr: os.Stderr, now: time.Now,
		identify: func(c configfile.Config) (caller, error) { return identify(c, uid) },
		load: func() (configfile.Config, error) { // each cycle reads it anew
			c, err := configfile.LoadFor(uid)
			if err == nil {
				err = becomeOwner(c)
			}
			return c, err
		},
		open: configfile.Open, openAndStart: configfile.OpenToSubmit,
		executable: os.Executable, editWait: editWait,
		lookup: lookup{
			user:  func(name string) error { _, err := user.Lookup(name); return err },
			group: func(name string) error { _, err := user.LookupGroup(name); return err },
		},
	}
}

func newApp(p process) *cli.App {
	return &cli.App{
		Name:      "pba",
		Usage:     "promise job slots to projects, and take them back for whom they were promised",
		UsageText: "pba COMMAND [OPTION]… [ARGUMENT]…",
		Writer:    p.stdout, ErrWriter: p.stderr,
		Commands: []*cli.Command{
			initCommand(p), flowCommand(p), projectCommand(p), allocCommand(p),
			rebalanceCommand(p), statusCommand(p), explainCommand(p), reportCommand(p), simulateCommand(p), metricsCommand(p), doctorCommand(p),
			pauseCommand(p), resumeCommand(p), restoreCommand(p), dummiesCommand(p), backupCommand(p),
		},
	}
}

// editWait is how long a command waits for a cycle, or another edit, to end.
const editWait = 10 * time.Second

// locked does something while no cycle and no other edit goes on.
func (p *process) locked(ctx context.Context, dir string, do func() error) error {
	unlock, err := pba.Lock(ctx, dir, pba.EditLock, p.editWait)
	if err != nil {
		return busy(err)
	}
	defer unlock()
	return do()
}

// duration is the option of a time above zero.
type duration struct{ value unit.Duration }

// Set reads the option's text.
func (d *duration) Set(text string) error {
	var parsed unit.Duration
	if err := parsed.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	if parsed == 0 {
		return fmt.Errorf("%q is no time above zero", text)
	}
	d.value = parsed
	return nil
}

func (d *duration) String() string {
	if d == nil || d.value == 0 {
		return ""
	}
	return d.value.String()
}
