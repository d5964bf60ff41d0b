package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// configTemplate is the config file with every key, its default and what it means.
//
//go:embed config.yaml
var configTemplate string

func initCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "make the config file and the ledger; overwrites nothing",
		Flags: []cli.Flag{&cli.StringFlag{Name: "backend", Usage: "for the queue `NAME`: miniq, the bundled one, slurm or lsf"}},
		Action: func(c *cli.Context) error {
			config, err := p.load()
			if err != nil {
				return err
			}
			if err := p.adminOnly(config, "init"); err != nil {
				return err
			}
			if name := c.String("backend"); name != "" && name != config.Backend {
				if _, err := os.Lstat(config.Paths.Config); err == nil {
					return fmt.Errorf("init: %s is there already and says `backend: %s`: correct it, or leave --backend out", config.Paths.Config, config.Backend)
				}
				config.Backend = name
			}
			return initialize(c.Context, p, config, c.App.Writer)
		},
	}
}

// initialize makes the ledger, the config file unless somebody wrote one, and the
// submit filter for a queue that asks it by itself.
func initialize(ctx context.Context, p process, c configfile.Config, out io.Writer) error {
	path := ledgerPath(c)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("init: %s is there already; nothing was changed", path)
	}
	setup, queues, open, err := lookAt(ctx, p, c)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := prepare(c, open); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	l, err := ledger.Create(path)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	err = l.Close()
	if err == nil && setup.Hook != nil {
		err = writeHook(c)
	}
	written := false
	if err == nil {
		written, err = writeConfig(c.Paths.Config, firstConfig(c.Backend, queues, setup.Settings))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("init: %w", err), os.Remove(path))
	}
	if written {
		fmt.Fprintf(out, "Wrote  %s  (every key with its default; all of it may stay as it is)\n", shell.Printable(c.Paths.Config))
	} else {
		fmt.Fprintf(out, "Kept   %s\n", shell.Printable(c.Paths.Config))
	}
	fmt.Fprintf(out, "Made   %s\n", shell.Printable(path))
	if setup.Hook != nil {
		fmt.Fprintf(out, "Made   %s  (the submit filter; kept up to date by pba rebalance)\n", shell.Printable(hookPath(c)))
	}
	if !written {
		setup.Findings = append(settingsMissing(c, setup.Settings), setup.Findings...)
	}
	printSetup(out, c, setup)
	fmt.Fprintf(out, `
Next:
  1. pba project add NAME --group UNIXGROUP    who may use it
  2. pba alloc set NAME SLOTS                  how many slots it has this week
  3. pba rebalance --dry-run                   what would be done now, and why
  4. let cron do it: %s
`, cronLine(p, c))
	return nil
}

// lookAt asks a queue that has a set-up of its own how it is set up, and for the
// names of its queues; open: others than the user who runs pba read what it writes
// there. Other queues are not asked.
func lookAt(ctx context.Context, p process, c configfile.Config) (setup backends.Examination, queues []string, open bool, err error) {
	b, err := p.open(ctx, c)
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
	by := installation(p, c, os.Getuid())
	if len(queues) > 0 && !slices.Contains(queues, by.Low) && !exists(c.Paths.Config) {
		by.Low = "" // nobody has asked for it, and firstConfig won't
	}
	setup, err = a.Examine(ctx, by)
	return setup, queues, setup.Hook != nil || a.FilterFacts != nil, err
}

// installation is what a queue is told of who will use it.
func installation(p process, c configfile.Config, uid int) backends.Installation {
	by := backends.Installation{UID: uid, Queues: c.Queues, Low: c.Filter.LowQueue, FreeTimeout: time.Duration(c.PBA.FreeTimeout)}
	if self, err := p.executable(); err == nil {
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
func prepare(c configfile.Config, open bool) error {
	_, err := os.Stat(c.Paths.State)
	missing := errors.Is(err, fs.ErrNotExist)
	if err := c.Paths.Prepare(); err != nil || !open || !missing {
		return err
	}
	return os.Chmod(c.Paths.State, 0o755)
}

// firstConfig is the config file for a queue, with settings in its section. Where it
// is known which queues there are, it names none that is not.
func firstConfig(backend string, queues []string, settings map[string]string) string {
	text := strings.Replace(configTemplate, "backend: miniq ", "backend: "+backend+" ", 1)
	if len(queues) > 0 && !slices.Contains(queues, lowQueue) {
		text = strings.Replace(text, "low_queue: "+lowQueue, `low_queue: ""`, 1)
	}
	before, section, ok := strings.Cut(text, "\n"+backend+":")
	if !ok {
		return text
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		section = strings.Replace(section, "\n  "+key+`: "" `, "\n  "+key+": "+strconv.Quote(settings[key])+" ", 1)
	}
	return before + "\n" + backend + ":" + section
}

const lowQueue = "low"

func writeConfig(path, content string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return false, fmt.Errorf("%w: write it first: its backend is enough, as in `backend: lsf`", err)
	}
	if err != nil {
		return false, err
	}
	_, err = io.WriteString(f, content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}

// cronLine is what an operator adds to cron.
func cronLine(p process, c configfile.Config) string {
	program, err := p.executable()
	if err != nil {
		program = "pba"
	}
	home, user := "", ""
	if dir := os.Getenv("ALLOTMENT_HOME"); dir != "" {
		home = "ALLOTMENT_HOME=" + quote(c.Paths.State) + " "
	}
	where := "`crontab -e`"
	if os.Getuid() == 0 {
		user, where = "root ", "/etc/cron.d/allotment"
	}
	return fmt.Sprintf("in %s the line\n     * * * * * %s%s%s rebalance --every %v --for 1m", where, user, home, quote(program), c.PBA.Every)
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
