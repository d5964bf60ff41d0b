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

const description = `Reads items (the lines of standard input as they arrive, of files, a range of numbers, or words behind :::) and works on them in
rounds. In each round every host gets one task, a job pinned to it with as many items as suit its speed. The results
are printed in the order of the items.

In COMMAND's arguments {} stands for the item: COMMAND runs once for each. {.} is the item without its extension, {/} its
last part, {//} its directory, {/.} its last part without extension, {#} its place in the order of arrival, from 1.
{start} and {count} stand for a task's first number and how many there are: COMMAND runs once a task. With none of them
COMMAND runs once a task, with the task's items on its standard input; but where items are words behind :::, {} is added
as the last argument. No shell reads COMMAND: --shell has /bin/sh run a LINE, in which {} is one word, whatever the item.

Each job runs in the working directory: all hosts must have it. The state is in .asplit/NAME there until the end.
An item whose command fails is reported; --retries repeats it, and --retry-failed runs it again later. A task that is killed is repeated on another host; an item
that kills three tasks is reported and left out.

Where another round would follow, a job stays after its task as a worker, which gets its host's tasks of further rounds at
once, without the queue. It ends when nothing is left to do, or after a while without work.

To run a program that has the name of a command below, write ./NAME or its path.`

func newApp(p process) *cli.App {
	return &cli.App{
		Name: "asplit", Usage: "split work over unequal hosts", ArgsUsage: "COMMAND [ARGUMENT...]",
		UsageText:   "asplit [OPTION]… COMMAND [ARGUMENT]… [::: ITEM…]\nasplit [OPTION]… --shell LINE [::: ITEM…]\nasplit --resume [OPTION]… [NAME]\nasplit --retry-failed JOBLOG [OPTION]…",
		Description: description,
		Writer:      p.stdout, ErrWriter: p.stderr,
		DisableSliceFlagSeparator: true, // a file's name may contain a comma
		Metadata: map[string]any{commands.RunsCommand: true, commands.CommandsThatRun: []string{"serve", "resident"}, commands.Examples: []grammar.Example{
			{Line: "asplit -P chipA --range 1-20000 ./simulate --seed {}", Does: "20,000 runs, one for each number"},
			{Line: "find . -name '*.gz' -print0 | asplit --null zcat {} >all", Does: "a file an item, the results in the order of the files"},
			{Line: "asplit --file words.txt --round 10s ./look-up", Does: "each task's lines on the standard input of one ./look-up"},
			{Line: "asplit --joblog log --retries 2 gzip {} ::: *.txt", Does: "words of the command line, with a line for each in log"},
			{Line: "ls | asplit --shell 'sort {} >{.}.sorted && rm {}'", Does: "a line of /bin/sh for each item"},
			{Line: "asplit resident --period 10s --blocks 1-12 --reduce ./sum ./compute {}", Does: "12 blocks each 10 s, and their sum, until Ctrl-C"},
			{Line: "asplit --resume >all", Does: "all results of the last one again, of which only what is missing is run"},
		}},
		Flags:    flags(),
		Commands: []*cli.Command{qualifyCommand(p), qualifyJobCommand(p), workerCommand(p), joinCommand(p), serveCommand(p), topCommand(p), addCommand(p), residentCommand(p), bringCommand(p)},
		Action:   p.runApp,
	}
}

// jobFlags are the options of the jobs that asplit submits.
func jobFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "P", Usage: "project of the jobs, or its step: `PROJECT[:STEP]`"},
		&cli.StringFlag{Name: "q", Usage: "`QUEUE` of the jobs"},
		&cli.StringFlag{Name: "M", Usage: "memory of each job: `SIZE`, such as 4G"},
		&cli.StringFlag{Name: "R", Usage: "resources of each job: `REQUIREMENT` as of asub -R"},
		&cli.StringFlag{Name: "W", Usage: "run limit of each job, `[HOURS:]MINUTES`"},
	}
}

func flags() []cli.Flag {
	return append(jobFlags(), []cli.Flag{
		&cli.StringFlag{Name: "J", Usage: "`NAME` of the split and of its jobs"},
		&cli.StringFlag{Name: "range", Usage: "the items are whole numbers: `FROM-TO`"},
		&cli.StringSliceFlag{Name: "file", Usage: "the items are the lines of `FILE`; - is standard input; several: in the order in which items arrive", KeepSpace: true},
		&cli.BoolFlag{Name: "null", Aliases: []string{"0"}, Usage: "items end in NUL, not in a newline", DisableDefaultText: true},
		&cli.BoolFlag{Name: "shell", Usage: "COMMAND is one LINE of /bin/sh, in which {} is one word", DisableDefaultText: true},
		&cli.BoolFlag{Name: "from-here", Usage: "run on slots of the asplit serve that this process belongs to, --max-workers of them at most", DisableDefaultText: true},
		&cli.BoolFlag{Name: "joined", Usage: "run on the machines that joined (asplit worker --join), without a queue", DisableDefaultText: true},
		joinDirFlag(),
		&cli.StringFlag{Name: "hosts", Usage: "only these hosts: `HOST,HOST...`"},
		&cli.StringFlag{Name: "slots", Usage: "slots of each job, and items that run side by side: `N`, free (all that are free on the host; the default with {}), or all of the host; 1 without {}"},
		&cli.StringFlag{Name: "round", Value: "30s", Usage: "length of a round, or number of its items: `TIME|N`"},
		&cli.StringFlag{Name: "adjust", Value: "rate", Usage: "`RULE` by which task sizes are adjusted: rate (each host's measured rate), step (step by step) or equal (not at all)"},
		&cli.StringFlag{Name: "profile", Value: "balanced", Usage: "what the work needs of a host: cpu, io, gpu, balanced, or by hand as C=70,M=30: `PROFILE`"},
		&cli.StringFlag{Name: "threshold", Usage: "gap between the first host and the last of a round up to which nothing is adjusted: `PERCENT` of the last one's time, 0 to 100 (default: 5)"},
		&cli.StringFlag{Name: "step", Usage: "what the last host loses to the others with --adjust step: `POINTS` of its CU, above 0 up to 100 (default: 5)"},
		&cli.BoolFlag{Name: "no-qualify", Usage: "don't measure hosts first; begin with equal shares", DisableDefaultText: true},
		&cli.StringFlag{Name: "retries", Usage: "run an item that fails again at once, `N` times at most (0 to 100)"},
		&cli.StringFlag{Name: "timeout", Usage: "end an item that runs longer than `TIME`, such as 10m; its exit status is 124"},
		&cli.StringFlag{Name: "halt", Usage: "`WHEN` to halt because items fail: never, or soon (no item begins) or now (items that run are ended) with a number or percentage, as in now,fail=1 or soon,fail=10%"},
		&cli.BoolFlag{Name: "speculate", Usage: "begin a task that takes 1.5 times as long as the others of its round on an idle host, too: the first result counts", DisableDefaultText: true},
		&cli.StringFlag{Name: "copies", Usage: "execute each task on `N` hosts (1 to 8) at the same time: the first result counts, and a host that is lost costs no time"},
		&cli.StringSliceFlag{Name: "try", Usage: "set the variable NAME of COMMAND's environment to each value for a part of the items, to the best one for the others: `NAME=V1,V2,...`; up to three variables, 16 combinations", KeepSpace: true},
		&cli.BoolFlag{Name: "adds", Usage: "items may add items to the run: asplit add", DisableDefaultText: true},
		&cli.BoolFlag{Name: "states", Usage: "each job says in its state object how far its task is: ajobs -o progress, ajobs -l and the page show it", DisableDefaultText: true},
		&cli.StringFlag{Name: "joblog", Usage: "write a line for each item to the new `FILE`: number, start, seconds, exit, host"},
		&cli.StringFlag{Name: "retry-failed", Usage: "run the items again that failed, by the command and options of this `JOBLOG`"},
		&cli.BoolFlag{Name: "tag", Usage: "begin each line of an item's output with the item and a tab", DisableDefaultText: true},
		&cli.BoolFlag{Name: "dry-run", Usage: "print the command lines instead of running them", DisableDefaultText: true},
		&cli.StringFlag{Name: "workers", Value: "auto", Usage: "`WHEN` jobs stay as workers, which take tasks of further rounds at once: auto (where another round would follow) or no (each task is a job)"},
		&cli.StringFlag{Name: "idle", Value: "30s", Usage: "a worker without work ends after `TIME`"},
		&cli.StringFlag{Name: "max-workers", Usage: "`N` jobs stay at a time, at most (default: 1000)"},
		&cli.BoolFlag{Name: "unordered", Usage: "print results as tasks end", DisableDefaultText: true},
		&cli.BoolFlag{Name: "resume", Usage: "continue an interrupted split; prints all results, from the first one on", DisableDefaultText: true},
		&cli.BoolFlag{Name: "report", Usage: "print a table of the rounds on standard error at the end", DisableDefaultText: true},
		&cli.StringFlag{Name: "json", Usage: "write the report as JSON to `FILE` at the end; - is standard error"},
		&cli.BoolFlag{Name: "quiet", Usage: "print no progress", DisableDefaultText: true},
		&cli.BoolFlag{Name: "keep", Usage: "don't remove .asplit/NAME at the end", DisableDefaultText: true},
	}...)
}

// runApp begins a split or goes on with one.
func (p process) runApp(c *cli.Context) error {
	args := c.Args().Slice()
	switch {
	case c.Bool("resume") && c.IsSet("retry-failed"):
		return shell.Usagef("--resume continues a split, --retry-failed begins one: use one of the two")
	case c.Bool("resume"):
		return p.resume(c, args)
	case c.IsSet("retry-failed"):
		return p.retryFailed(c, args)
	case len(args) == 0:
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
