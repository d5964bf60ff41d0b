package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func killApp(p process) *cli.App {
	app := actionApp(p, "akill", "end jobs, pending ones too", runKill)
	app.Description += "\nOf 0 each array is one line, and jobs that have just ended by themselves are no error."
	app.Flags = append(app.Flags,
		&cli.StringFlag{Name: "s", Usage: "only send `SIGNAL` (a name or a number), to all processes of running jobs"},
		&cli.StringFlag{Name: "m", Usage: "jobs on `HOST`"},
		&cli.BoolFlag{Name: "b", Usage: "in bulk, as LSF's option: jobs are always ended so", DisableDefaultText: true},
		&cli.BoolFlag{Name: "r", Usage: "end jobs at once, without the grace that they have; LSF takes them off its records before their processes are gone, also where a host can't be reached", DisableDefaultText: true},
		&cli.StringFlag{Name: "g", Usage: "jobs in the job group `PATH` itself (asub -g), with 0"},
		&cli.StringFlag{Name: "app", Usage: "jobs with the application profile `NAME`, on LSF, with 0"},
	)
	return app
}

// runKill is akill.
func runKill(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	switch {
	case o.now && o.signal != "":
		return shell.Usagef("-r and -s exclude each other")
	case o.now:
		return action{verb: bsub.Kill, operationFor: killNowOperation}.run(ctx, p, o, out)
	case o.signal == "":
		return action{verb: bsub.Kill, operationFor: killOperation}.run(ctx, p, o, out)
	}
	number, err := signalNumber(o.signal)
	if err != nil {
		return err
	}
	switch number {
	case unix.SIGSTOP, unix.SIGTSTP: // as LSF does it: the queue knows that they stand still
		return runStop(ctx, p, o, out)
	case unix.SIGCONT:
		return runResume(ctx, p, o, out)
	default:
	}
	return action{verb: bsub.Signal, signal: int(number), operationFor: func(state backends.State) (operation, error) {
		switch {
		case state.Ended():
			return 0, errFinished
		case state == backends.Running || state == backends.Suspended:
			return sendSignal, nil
		case number == unix.SIGKILL:
			return kill, nil
		}
		return 0, errNotStarted
	}}.run(ctx, p, o, out)
}

func killOperation(state backends.State) (operation, error) {
	if state.Ended() {
		return 0, errFinished
	}
	return kill, nil
}

func killNowOperation(state backends.State) (operation, error) {
	switch {
	case state.Ended():
		return 0, errFinished
	case state == backends.Running || state == backends.Suspended:
		return killNow, nil
	}
	return kill, nil
}

// signalNumber reads a signal as kill(1) does: 10, USR1 or SIGUSR1.
func signalNumber(text string) (syscall.Signal, error) {
	const most = 64
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= most {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); n != 0 {
		return n, nil
	}
	return 0, shell.Usagef("option -s: unknown signal %s: give a name such as USR1, or a number", bsub.Visible(text))
}
