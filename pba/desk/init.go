package desk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Made is what Init made, and what is still to be done.
type Made struct {
	Config, Ledger string // files
	Written        bool   // the config file; else there was one
	Hook           string // the submit filter of a queue that asks it by itself; "": another queue
	Setup          []backends.Finding
	Cron           string // what an operator adds to cron
}

// Init makes the ledger, the config file unless there is one, and the submit filter for
// a queue that asks it by itself. Backend names the queue; "": the config does.
func (d *Desk) Init(ctx context.Context, backend string) (*Made, error) {
	if err := d.mayDo("init"); err != nil {
		return nil, err
	}
	if backend != "" && backend != d.Backend {
		if exists(d.Paths.Config) {
			return nil, fmt.Errorf("init: %s is there already and says `backend: %s`: correct it, or leave --backend out", d.Paths.Config, d.Backend)
		}
		d.Backend = backend
	}
	made, err := d.init(ctx)
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	return made, nil
}

func (d *Desk) init(ctx context.Context) (*Made, error) {
	made := &Made{Config: d.Paths.Config, Ledger: d.LedgerPath(), Cron: d.cronLine()}
	if exists(made.Ledger) {
		return nil, fmt.Errorf("%s is there already; nothing was changed", made.Ledger)
	}
	setup, queues, open, err := d.examineQueue(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(open); err != nil {
		return nil, err
	}
	l, err := ledger.Create(made.Ledger)
	if err != nil {
		return nil, err
	}
	err = l.Close()
	if err == nil && setup.Hook != nil {
		made.Hook = hookPath(d.Config)
		err = writeHook(d.Config)
	}
	if err == nil {
		made.Written, err = configfile.Write(d.Paths.Config, configfile.First(d.Backend, queues, setup.Settings))
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(made.Ledger))
	}
	if !made.Written {
		made.Setup = settingsMissing(d.Config, setup.Settings)
	}
	made.Setup = append(made.Setup, setup.Findings...)
	if h := setup.Hook; h != nil {
		if h.Answer == "" {
			made.Setup = append(made.Setup, backends.Finding{What: "it does not ask our filter at submission", Remedy: hookRemedy(d.Config, h)})
		}
		if !h.Enabled {
			made.Setup = append(made.Setup, backends.Finding{What: "it asks no script at all", Remedy: h.Remedy})
		}
	}
	return made, nil
}

// examineQueue asks a queue that has a set-up of its own how it is set up, and for the
// names of its queues; open: other users than pba's read what it writes there. Other
// queues are not asked.
func (d *Desk) examineQueue(ctx context.Context) (setup backends.Examination, queues []string, open bool, err error) {
	b, err := d.sys.Open(ctx, d.Config)
	if err != nil {
		return setup, nil, false, err
	}
	defer func() { _ = b.Close() }()
	a := b.Abilities()
	if a.Examine == nil {
		return setup, nil, false, nil
	}
	if a.Queues != nil {
		known, err := a.Queues(ctx)
		if err != nil {
			return setup, nil, false, err
		}
		for _, q := range known {
			queues = append(queues, q.Name)
		}
	}
	by := d.installation(os.Getuid())
	if len(queues) > 0 && !slices.Contains(queues, by.Low) && !exists(d.Paths.Config) {
		by.Low = "" // not configured, and not in the first config file
	}
	setup, err = a.Examine(ctx, by)
	return setup, queues, setup.Hook != nil || a.FilterFacts != nil, err
}

// installation is what a queue's examination needs to know of this installation.
func (d *Desk) installation(uid int) backends.Installation {
	by := backends.Installation{UID: uid, Queues: d.Queues, Low: d.Filter.LowQueue, Cycle: time.Duration(d.PBA.Every), FreeTimeout: time.Duration(d.PBA.FreeTimeout)}
	if self, err := d.sys.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			self = target // the programs are together there
		}
		by.Filter = filepath.Join(filepath.Dir(self), "esub")
	}
	return by
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// settingsMissing says what the config file should say, since this process knows it
// from its environment alone.
func settingsMissing(c configfile.Config, settings map[string]string) []backends.Finding {
	var all []backends.Finding
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		all = append(all, backends.Finding{
			What:   fmt.Sprintf("where the queue is (%s) is known from this shell's environment alone: cron's is another", settings[key]),
			Remedy: fmt.Sprintf("write `%s: {%s: %s}` into %s", c.Backend, key, settings[key], c.Paths.Config),
		})
	}
	return all
}

// prepare makes the directories of a run; those that the queue's own user reads
// in are open.
func (d *Desk) prepare(open bool) error {
	_, err := os.Stat(d.Paths.State)
	missing := errors.Is(err, fs.ErrNotExist)
	if err := d.Paths.Prepare(); err != nil || !open || !missing {
		return err
	}
	return os.Chmod(d.Paths.State, 0o755)
}

// cronLine returns the line that an operator adds to cron.
func (d *Desk) cronLine() string {
	program, err := d.sys.Executable()
	if err != nil {
		program = "pba"
	}
	home, user := "", ""
	if dir := os.Getenv("ALLOTMENT_HOME"); dir != "" {
		home = "ALLOTMENT_HOME=" + quote(d.Paths.State) + " "
	}
	where := "`crontab -e`"
	if os.Getuid() == 0 {
		user, where = "root ", "/etc/cron.d/allotment"
	}
	return fmt.Sprintf("in %s the line\n     * * * * * %s%s%s rebalance --every %v --for 1m", where, user, home, quote(program), d.PBA.Every)
}

// quote makes a path one word of a crontab, where % ends a command.
func quote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+@", r))
	}) < 0 {
		return path
	}
	return strings.ReplaceAll("'"+strings.ReplaceAll(path, "'", `'\''`)+"'", "%", `\%`)
}
