package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/random"
)

// run runs one of Slurm's commands. What it says on failure becomes an error that
// callers know.
func (c *Client) run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	out, err := command.Run(ctx, c.command(stdin, argv))
	return out, reconcile.Classify(err, failure)
}

// command returns one of Slurm's commands. It drops Reconcile's snapshot: the answer may be
// newer.
func (c *Client) command(stdin io.Reader, argv []string) command.Command {
	c.latest.Invalidate()
	if c.config.Bin != "" {
		argv = append([]string{filepath.Join(c.config.Bin, argv[0])}, argv[1:]...)
	}
	return command.Command{Argv: argv, Stdin: stdin, Env: c.environment(), Timeout: time.Duration(c.config.Timeout)}
}

// environment is this process's without what would change what Slurm's commands do:
// options of their own, and the job in which this process may run. Times are seconds, and
// no list of an array's elements is cut off.
func (c *Client) environment() []string {
	env := []string{"TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"}
	for _, variable := range os.Environ() {
		key, _, _ := strings.Cut(variable, "=")
		command, _, _ := strings.Cut(key, "_")
		switch command {
		case "SBATCH", "SALLOC", "SRUN", "SQUEUE", "SCANCEL", "SCONTROL", "SINFO", "TZ":
			continue
		case "SLURM":
			if key != "SLURM_CONF" && key != "SLURM_JWT" {
				continue
			}
		}
		env = append(env, variable)
	}
	if c.config.Conf != "" {
		env = append(env, "SLURM_CONF="+c.config.Conf)
	}
	return env
}

// newNonce is a word of 64 random bits that no user can have typed. It parts half a million
// fields of a long queue: each letter more is half a megabyte for squeue to print.
func newNonce() string {
	return "x" + random.Text()[:16]
}

// sendRequests sends requests to one scontrol, a line each, and returns the result of each.
// A line may contain nothing that a user typed, and no space within a value. Requests that
// Slurm refused by mistake are repeated (see errMistaken).
func (c *Client) sendRequests(ctx context.Context, requests []string) backends.Errors {
	const most = 20 // 24.11 refuses up to half of the changes, whatever they are
	errs, _ := c.sendAndShow(ctx, requests, nil)
	for range most {
		var repeated []string
		for i, err := range errs {
			if errors.Is(err, errMistaken) {
				repeated = append(repeated, requests[i])
			}
		}
		again, _ := c.sendAndShow(ctx, repeated, nil)
		if len(again) == 0 {
			break
		}
		for i, err := range errs {
			if errors.Is(err, errMistaken) {
				errs[i], again = again[0], again[1:]
			}
		}
	}
	return errs
}

// sendAndShow sends requests, and then has the same scontrol show jobs, as show does.
// What it did not show, or could not, is missing or empty.
func (c *Client) sendAndShow(ctx context.Context, requests []string, ids []backends.ID) (backends.Errors, map[backends.ID]string) {
	if len(requests) == 0 {
		return nil, nil
	}
	nonce := newNonce()
	var lines, stderr bytes.Buffer
	for i, r := range requests {
		lines.WriteString(r + "\n" + nonce + strconv.Itoa(i) + "\n")
	}
	lines.WriteString(showLines(ids, nonce))
	cmd := c.command(&lines, []string{"scontrol"})
	cmd.Stderr = &stderr
	out, err := command.Run(ctx, cmd)
	errs := parseAnswers(stderr.String(), nonce, len(requests))
	for i := range errs {
		if errs[i] != nil && errors.Is(errs[i], backends.ErrUnreachable) && err != nil {
			errs[i] = fmt.Errorf("%s: %w: %w", requests[i], backends.ErrUnreachable, err)
		} else if errs[i] != nil {
			errs[i] = fmt.Errorf("scontrol %s: %w", requests[i], errs[i])
		}
	}
	answers, _ := parseShown(out, nonce, ids)
	return errs, answers
}

// show is what scontrol shows of jobs, one by one. Users' texts stand in it as they
// are; it is empty for a job that the queue has forgotten.
func (c *Client) show(ctx context.Context, ids []backends.ID) (map[backends.ID]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var answers map[backends.ID]string
	var err error
	for range 3 { // one scontrol was seen to end with 0 before it had answered all (24.11)
		nonce := newNonce()
		out, failed := c.run(ctx, strings.NewReader(showLines(ids, nonce)), "scontrol")
		if failed != nil && !errors.Is(failed, backends.ErrUnknownJob) { // of one that the queue has forgotten meanwhile
			return nil, failed
		}
		if answers, err = parseShown(out, nonce, ids); err == nil {
			break
		}
	}
	return answers, err
}

// sendBatch is sendRequests for those jobs for which there is a request.
func (c *Client) sendBatch(ctx context.Context, b batch, request func(*item) string) {
	var requests []string
	requested := b.Where(func(it *item) bool {
		r := request(it)
		if r != "" {
			requests = append(requests, r)
		}
		return r != ""
	})
	requested.Do(func([]backends.ID) backends.Errors { return c.sendRequests(ctx, requests) })
}

// name is how Slurm's commands write an ID.
func name(id backends.ID) string {
	if id.Index == 0 {
		return strconv.FormatInt(id.Job, 10)
	}
	return strconv.FormatInt(id.Job, 10) + "_" + strconv.Itoa(max(id.Index, 0))
}

// maxID is the highest number that Slurm gives to a job; commands cut off what is
// above.
const maxID = 1<<32 - 1

func names(ids []backends.ID) []string {
	var all []string
	for _, id := range ids {
		if id.Job > 0 && id.Job <= maxID {
			all = append(all, name(id))
		}
	}
	return all
}
