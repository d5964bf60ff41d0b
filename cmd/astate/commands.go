package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// progressKey is the setting that holds a job's progress.
const progressKey = "progress"

// maxFile is how many bytes of a file travel: state.MaxFile.
const maxFile = 1 << 20

func setCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "set", Usage: "keep a setting", ArgsUsage: "KEY VALUE", Flags: []cli.Flag{jobFlag()},
		Description: "A key begins with a letter; letters, digits, dots, hyphens and underscores follow. A later value replaces an earlier one.",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 2, 2)
			if err != nil {
				return err
			}
			return p.with(c, func(k keeper) error { return k.set(c.Context, args[0], args[1]) })
		},
	}
}

func progressCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "progress", Usage: "say how far the job is", ArgsUsage: "PERCENT [TEXT...]", Flags: []cli.Flag{jobFlag()},
		Description: "Lists show the percentage, from 0 to 100, and the first 128 bytes of it with the text.",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, -1)
			if err != nil {
				return err
			}
			percent, err := strconv.Atoi(strings.TrimSuffix(args[0], "%"))
			if err != nil || percent < 0 || percent > 100 {
				return shell.Usagef("%q is no percentage: want a number from 0 to 100", args[0])
			}
			value := strings.TrimRight(fmt.Sprint(percent, " ", strings.Join(args[1:], " ")), " ")
			return p.with(c, func(k keeper) error { return k.set(c.Context, progressKey, value) })
		},
	}
}

func attachCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "attach", Usage: "keep a file", ArgsUsage: "FILE",
		Description: "The file is known by its own name, without its directory; its names are those of settings. A later one of the same name replaces it.",
		Flags: []cli.Flag{
			jobFlag(),
			&cli.BoolFlag{Name: "executable", Usage: "astate run may run it", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			data, err := readFile(args[0])
			if err != nil {
				return err
			}
			f := backends.Attachment{Name: filepath.Base(args[0]), Executable: c.Bool("executable"), Data: data}
			return p.with(c, func(k keeper) error { return k.attach(c.Context, f) })
		},
	}
}

// readFile reads a regular file that may travel.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("attach a file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("attach %s: it is no regular file", printable.Text(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("attach a file: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("attach a file: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("attach %s: it has more than %d bytes: keep it in a directory that all hosts have, and set its path", printable.Text(path), maxFile)
	}
	return data, nil
}

func catCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "cat", Usage: "print an attached file", ArgsUsage: "NAME", Flags: []cli.Flag{jobFlag()},
		Description: "At a terminal control characters are made visible.",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			return p.with(c, func(k keeper) error {
				f, err := k.file(c.Context, args[0])
				if err != nil {
					return err
				}
				return write(c.App.Writer, string(f.Data), "")
			})
		},
	}
}

// write writes a job's text as it is, and to a terminal with its control characters made visible.
func write(out io.Writer, text, end string) error {
	if shell.Terminal(out) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			lines[i] = printable.Text(line)
		}
		text = strings.Join(lines, "\n")
	}
	_, err := io.WriteString(out, text+end)
	return err
}

func runCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run an attached program", ArgsUsage: "NAME [ARGUMENT...]", Flags: []cli.Flag{jobFlag()},
		Description: "It was attached as executable. It runs with your rights, in this directory and with this environment, from a temporary file of its own\n" +
			"(in TMPDIR) that is removed when it ends; astate ends with its status. No shell reads the arguments.",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, -1)
			if err != nil {
				return err
			}
			var f backends.Attachment
			err = p.with(c, func(k keeper) error {
				if f, err = k.file(c.Context, args[0]); err == nil && !f.Executable {
					err = fmt.Errorf("job %s: %s was not attached as executable: attach it again by astate attach --executable", k.job(), printable.Text(f.Name))
				}
				return err
			})
			if err != nil {
				return err
			}
			return p.run(f, args)
		},
	}
}

// run runs a program from a file that only this user may read.
func (p process) run(f backends.Attachment, argv []string) (err error) {
	dir, err := os.MkdirTemp("", "astate-")
	if err != nil {
		return fmt.Errorf("run an attached program: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, f.Data, fs.FileMode(0o700)); err != nil {
		return fmt.Errorf("run an attached program: %w", err)
	}
	exit, err := command.Attached(path, argv, os.Environ(), p.stdin, p.stdout, p.stderr)
	if err != nil {
		return fmt.Errorf("%w: if programs in %s may not be run, set TMPDIR", err, printable.Text(os.TempDir()))
	}
	if exit != 0 {
		return &shell.ExitError{Code: exit}
	}
	return nil
}

// with does something with the state of the job that is named.
func (p process) with(c *cli.Context, do func(keeper) error) error {
	k, err := p.openKeeper(c)
	if err != nil {
		return err
	}
	defer k.close()
	return do(k)
}
