package main

import (
	"context"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// process is all that astate uses of the process that it runs in.
type process struct {
	stdin, stdout, stderr *os.File
	out                   io.Writer // instead of stdout, but for programs that are run
	env                   func(string) string
	host                  func() (string, error)
	open                  func(context.Context) (backends.Backend, error)
	sockets               func() ([]string, error) // where ahostd may listen
	allotd                func() (socket, queue string, err error)
}

func thisProcess() process {
	return process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, out: os.Stdout, env: os.Getenv, host: os.Hostname,
		open: func(ctx context.Context) (backends.Backend, error) {
			return configfile.OpenConfigured(ctx, false, yamlplain.Convert)
		},
		sockets: agentSockets, allotd: allotd,
	}
}

const description = `A job's state object is a small file that the queue, or the agent of the host where the job runs, keeps of the job, and that
goes with it to the host of its next run. A job writes into it what its next run, its owner or a later job is to know: settings, its
progress, and small files. ajobs -l shows them, ajobs -o progress lists the progress of many jobs.

Within a job astate means that job. Elsewhere --job names one, whose owner may read its state; on the bundled queue the owner may
write it, too, until the job ends. Where agents keep the state, allotd finds it.

A job has at most 64 settings of 4 KiB and 16 files of 1 MiB, and may write 20 times a second.`

func newApp(p process) *cli.App {
	return &cli.App{
		Name: "astate", Usage: "read and write what travels with a job", Description: description,
		Writer: p.out, ErrWriter: p.stderr,
		Metadata: map[string]any{
			commands.CommandsThatRun: []string{"run"},
			commands.Examples: []grammar.Example{
				{Line: "astate progress 40 step 3 of 7", Does: "how far the job is, for ajobs -o progress"},
				{Line: "astate set phase solve", Does: "a setting of the job's own"},
				{Line: "astate get phase", Does: "its value, also in a later run"},
				{Line: "astate attach --executable clean-up", Does: "a program that goes where the job goes"},
				{Line: "astate run clean-up --all", Does: "run it, with your rights"},
				{Line: "astate get --job 12 --json", Does: "all that job 12 has written"},
			},
		},
		Commands: []*cli.Command{setCommand(p), getCommand(p), progressCommand(p), attachCommand(p), catCommand(p), runCommand(p), whereCommand(p), exportCommand(p)},
	}
}

// jobFlag is the option by which a job is named.
func jobFlag() cli.Flag {
	return &cli.StringFlag{Name: "job", Usage: "the job, such as `JOB` 12, or 12[3] of an array; else the one that runs this"}
}
