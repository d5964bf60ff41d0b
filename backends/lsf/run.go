package lsf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// answer is what one of LSF's commands printed. Its exit status says little: bmig prints
// an error with 0, and bkill of an array exits with 255 and succeeds (lava).
type answer struct{ stdout, stderr string }

// run runs one of LSF's commands. What the command says on failure becomes an error that
// callers know; what it printed until then is returned with it.
func (c *Client) run(ctx context.Context, argv ...string) (answer, error) {
	return c.runWith(ctx, nil, argv...)
}

// runWith is run with more variables.
func (c *Client) runWith(ctx context.Context, env []string, argv ...string) (answer, error) {
	return c.start(ctx, command.Command{Argv: argv, Env: append(c.environment(os.Environ()), env...)})
}

// patience is how often a listing command is run if its output does not come whole, on a
// machine too busy for it.
const patience = 3

// query is run for a command that changes nothing.
func (c *Client) query(ctx context.Context, argv ...string) (printed answer, err error) {
	for range patience {
		if printed, err = c.run(ctx, argv...); !errors.Is(err, exec.ErrWaitDelay) {
			break
		}
	}
	return printed, err
}

// start runs a command, found in Config.Bin by its name, and returns all that it printed.
func (c *Client) start(ctx context.Context, cmd command.Command) (answer, error) {
	c.latest.Invalidate()
	argv := cmd.Argv
	if c.config.Bin != "" {
		cmd.Argv = append([]string{filepath.Join(c.config.Bin, argv[0])}, argv[1:]...)
	}
	cmd.Timeout = time.Duration(c.config.Timeout)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := command.Run(ctx, cmd)
	printed := answer{string(out), stderr.String()}
	if err != nil && printed == (answer{}) { // a command that fails says why: the output was lost
		return printed, fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	}
	return printed, reconcile.Classify(err, failure)
}

// environment returns the engine's or a job's, without what changes the output of LSF's
// commands: formats and time zones. Variables by which the commands find their cluster
// are added if they are missing; Config.EnvDir replaces LSF_ENVDIR.
func (c *Client) environment(of []string) []string {
	env := []string{"TZ=UTC"}
	for _, variable := range of {
		switch key, _, _ := strings.Cut(variable, "="); key {
		case "TZ", "LC_ALL", "LSB_BJOBS_FORMAT", "LSB_BHOSTS_FORMAT", "LSB_DISPLAY_YEAR", "BSUB_QUIET", "BSUB_QUIET2", "LSB_BSUB_JOB_ID_ONLY":
		default:
			env = append(env, variable)
		}
	}
	for _, key := range []string{"LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR", "LSF_BINDIR"} {
		if value, ours := os.LookupEnv(key); ours && c.config.EnvDir == "" && !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, key+"=") }) {
			env = append(env, key+"="+value)
		}
	}
	if c.config.EnvDir != "" {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "LSF_ENVDIR=") })
		env = append(env, "LSF_ENVDIR="+c.config.EnvDir)
	}
	return env
}

// names returns IDs as LSF's commands take them: 12, and 12[3] for an element.
func names(ids []backends.ID) []string {
	var all []string
	for _, id := range ids {
		if possible(id) {
			all = append(all, id.String())
		}
	}
	return all
}

// maxID is the highest number that LSF may give to a job (IBM Spectrum LSF 10.1,
// lsb.params, MAX_JOBID). Commands take no higher one for an ID.
const maxID = 1<<31 - 1

func possible(id backends.ID) bool { return id.Job > 0 && id.Job <= maxID && id.Index >= 0 }

// atOnce is how many jobs one command gets at most.
const atOnce = 500

// runOnJobs runs a command on jobs, many at a time, and returns each job's error, as far as
// the command printed one: what became of the others has to be looked up.
func (c *Client) runOnJobs(ctx context.Context, ids []backends.ID, argv ...string) backends.Errors {
	return c.runOnJobsWith(ctx, nil, ids, argv...)
}

func (c *Client) runOnJobsWith(ctx context.Context, env []string, ids []backends.ID, argv ...string) backends.Errors {
	errs := make(backends.Errors, 0, len(ids))
	for some := range slices.Chunk(ids, atOnce) {
		printed, err := c.runWith(ctx, env, append(slices.Clone(argv), names(some)...)...)
		_, of := parseAnswers(printed.stdout, printed.stderr, some)
		for i := range of {
			if of[i] == nil && (errors.Is(err, backends.ErrUnreachable) || neverRan(err)) {
				of[i] = err
			} else if of[i] != nil {
				of[i] = fmt.Errorf("%s: %w", strings.Join(argv, " "), of[i])
			}
		}
		errs = append(errs, of...)
	}
	return errs
}

// neverRan reports whether err means that a command never ran, or that a signal ended it.
func neverRan(err error) bool {
	var failed *command.Error
	return errors.As(err, &failed) && (failed.Status < 0 || failed.Killed)
}
