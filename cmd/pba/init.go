package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	_ "embed"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// configTemplate is the config file with every key, its default and what it means.
//
//go:embed config.yaml
var configTemplate string

func initCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "make the config file and the ledger; overwrites nothing",
		Action: func(c *cli.Context) error {
			config, err := p.load()
			if err != nil {
				return err
			}
			if err := p.adminOnly(config, "init"); err != nil {
				return err
			}
			return initialize(p, config, c.App.Writer)
		},
	}
}

// initialize makes the ledger, and the config file unless somebody wrote one.
func initialize(p process, c shell.Config, out io.Writer) error {
	path := ledgerPath(c)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("init: %s is there already; nothing was changed", path)
	}
	if err := c.Paths.Prepare(); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	l, err := ledger.Create(path)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	err = l.Close()
	written := false
	if err == nil {
		written, err = writeConfig(c.Paths.Config)
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
	fmt.Fprintf(out, `
Next:
  1. pba project add NAME --group UNIXGROUP    who may use it
  2. pba alloc set NAME SLOTS                  how many slots it has this week
  3. pba rebalance --dry-run                   what would be done now, and why
  4. let cron do it: %s
`, cronLine(p, c))
	return nil
}

func writeConfig(path string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = io.WriteString(f, configTemplate)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}

// cronLine is what an operator adds to cron.
func cronLine(p process, c shell.Config) string {
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
