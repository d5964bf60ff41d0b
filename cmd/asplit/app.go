package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// process is all that asplit uses of the process that it runs in.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	submitContext  func() (bsub.Context, error)
	load           func() (configfile.Config, error)
	open           func(context.Context, configfile.Config) (backends.Backend, error)
	executable     func() (string, error)
}

func thisProcess() process {
	return process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		submitContext: submit.Context, load: loadConfig, open: configfile.OpenToSubmit, executable: os.Executable,
	}
}

// taskProgram is asplit-task, beside this very program.
func (p process) taskProgram() (string, error) {
	path, err := p.executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		path = filepath.Join(filepath.Dir(path), "asplit-task")
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("find asplit-task, which runs on the hosts: %w: it is installed beside asplit", err)
	}
	return path, nil
}

const description = `Reads items (the lines of standard input as they arrive, of a file, or a range of numbers) and works on them in
rounds. In each round every host gets one task, a job pinned to it with as many items as suit its speed. The results
are printed in the order of the items.

In COMMAND's arguments {} stands for the item: COMMAND runs once for each. {start} and {count} stand for a task's
first number and how many there are: COMMAND runs once a task. With none of them COMMAND runs once a task, with the
task's items on its standard input. No shell reads COMMAND; in sh -c 'LINE' sh {} the item is $1.

Each job runs in the working directory: all hosts must have it. The state is in .asplit/NAME there until the end.
An item whose command fails is reported and not repeated. A task that is killed is repeated on another host; an item
that kills three tasks is reported and left out.

To run a program that has the name of a command below, write ./NAME or its path.`

func newApp(p process) *cli.App {
	return &cli.App{
		Name: "asplit", Usage: "split work over unequal hosts", ArgsUsage: "COMMAND [ARGUMENT...]",
		UsageText:   "asplit [OPTION]… COMMAND [ARGUMENT]…\nasplit --resume [OPTION]… [NAME]",
		Description: description,
		Writer:      p.stdout, ErrWriter: p.stderr,
		Metadata: map[string]any{commands.RunsCommand: true, commands.Examples: []grammar.Example{
			{Line: "asplit -P chipA --range 1-20000 ./simulate --seed {}", Does: "20,000 runs, one for each number"},
			{Line: "find . -name '*.gz' -print0 | asplit --null zcat {} >all", Does: "a file an item, the results in the order of the files"},
			{Line: "asplit --file words.txt --round 10s ./look-up", Does: "each task's lines on the standard input of one ./look-up"},
			{Line: "asplit --resume >all", Does: "all results of the last one again, of which only what is missing is run"},
		}},
		Flags:    flags(),
		Commands: []*cli.Command{qualifyCommand(p), qualifyJobCommand(p)},
		Action:   p.runApp,
	}
}

func flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "P", Usage: "project of the jobs, or its step: `PROJECT[:STEP]`"},
		&cli.StringFlag{Name: "q", Usage: "`QUEUE` of the jobs"},
		&cli.StringFlag{Name: "M", Usage: "memory of each job: `SIZE`, such as 4G"},
		&cli.StringFlag{Name: "R", Usage: "resources of each job: `REQUIREMENT` as of asub -R"},
		&cli.StringFlag{Name: "W", Usage: "run limit of each job, `[HOURS:]MINUTES`"},
		&cli.StringFlag{Name: "J", Usage: "`NAME` of the split and of its jobs"},
		&cli.StringFlag{Name: "range", Usage: "the items are whole numbers: `FROM-TO`"},
		&cli.StringFlag{Name: "file", Usage: "the items are the lines of `FILE`"},
		&cli.BoolFlag{Name: "null", Aliases: []string{"0"}, Usage: "items end in NUL, not in a newline", DisableDefaultText: true},
		&cli.StringFlag{Name: "hosts", Usage: "only these hosts: `HOST,HOST...`"},
		&cli.StringFlag{Name: "slots", Usage: "slots of each job, and items that run side by side: `N`, free (all that are free on the host; the default with {}), or all of the host; 1 without {}"},
		&cli.StringFlag{Name: "round", Value: "30s", Usage: "length of a round, or number of its items: `TIME|N`"},
		&cli.StringFlag{Name: "adjust", Value: "rate", Usage: "`RULE` by which task sizes are adjusted: rate (each host's measured rate), step (step by step) or equal (not at all)"},
		&cli.StringFlag{Name: "profile", Value: "balanced", Usage: "what the work needs of a host: cpu, io, gpu, balanced, or by hand as C=70,M=30: `PROFILE`"},
		&cli.BoolFlag{Name: "no-qualify", Usage: "don't measure hosts first; begin with equal shares", DisableDefaultText: true},
		&cli.BoolFlag{Name: "unordered", Usage: "print results as tasks end", DisableDefaultText: true},
		&cli.BoolFlag{Name: "resume", Usage: "continue an interrupted split; prints all results, from the first one on", DisableDefaultText: true},
		&cli.BoolFlag{Name: "report", Usage: "print a table of the rounds on standard error at the end", DisableDefaultText: true},
		&cli.StringFlag{Name: "json", Usage: "write the report as JSON to `FILE` at the end; - is standard error"},
		&cli.BoolFlag{Name: "quiet", Usage: "print no progress", DisableDefaultText: true},
		&cli.BoolFlag{Name: "keep", Usage: "don't remove .asplit/NAME at the end", DisableDefaultText: true},
	}
}

// runApp begins a split or goes on with one.
func (p process) runApp(c *cli.Context) error {
	args := c.Args().Slice()
	if c.Bool("resume") {
		return p.resume(c, args)
	}
	if len(args) == 0 {
		return shell.Usagef("no command: see asplit --help")
	}
	return p.start(c, args)
}

// withExitCode returns an error with its exit code.
func withExitCode(err error) error {
	const interrupted = 130 // 128 + SIGINT, as a shell has it
	switch {
	case errors.Is(err, errInterrupted):
		return &shell.ExitError{Code: interrupted, Err: err}
	case errors.Is(err, errBusy):
		return shell.TryAgain(err)
	}
	return err
}

func loadConfig() (configfile.Config, error) { return configfile.Load(yamlplain.Convert) }
