// Package submit takes jobs from a command line to the queue: each goes through
// the submit filter by LSF's esub protocol, as bsub would do it, so that any
// site's own esub can be used and tried without LSF.
package submit

import (
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
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/command"
)

// ErrRejected is a job that the filter refused; why, it has told the user
// itself. The words are bsub's.
var ErrRejected = errors.New("Request aborted by esub. Job not submitted.") //nolint:staticcheck,revive // the very words that scripts look for

// abortValue is the exit status by which a filter rejects a job.
const abortValue = 97

// filterTime is how long a filter may take. After that the job goes through
// without it.
const filterTime = 10 * time.Second

// Options say where the filter is and where its words go.
type Options struct {
	Stderr  io.Writer     // gets the filter's stderr and our warnings, made printable; nil: ours
	Env     []string      // the filter's environment; nil: ours
	Filter  string        // the filter program; "": $ALLOTMENT_FILTER of Env, else esub beside this program, else in PATH
	Timeout time.Duration // 0: 10 s
}

// Queue is the part of a Backend that takes jobs.
type Queue interface {
	Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted
}

// Submit runs the filter for each job, in the current directory, and hands those
// that it accepts to the queue in one batch. The results are in the order of
// specs, which are not changed. A filter that fails, hangs or is missing never
// costs a submission: the job goes through unchanged, with a warning.
func Submit(ctx context.Context, queue Queue, specs []backends.Spec, opts Options) []backends.Submitted {
	results := make([]backends.Submitted, len(specs))
	accepted := make([]backends.Spec, 0, len(specs))
	places := make([]int, 0, len(specs))
	f := newFilter(opts)
	for i := range specs {
		spec, err := f.apply(ctx, specs[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		accepted = append(accepted, spec)
		places = append(places, i)
	}
	f.words.Flush()
	if len(accepted) == 0 {
		return results
	}
	for k, result := range queue.Submit(ctx, accepted) {
		results[places[k]] = result
	}
	return results
}

type filter struct {
	program string
	env     []string
	timeout time.Duration
	words   *printableLines
}

func newFilter(opts Options) *filter {
	f := &filter{program: opts.Filter, env: opts.Env, timeout: opts.Timeout, words: &printableLines{to: opts.Stderr}}
	if f.words.to == nil {
		f.words.to = os.Stderr
	}
	if f.env == nil {
		f.env = os.Environ()
	}
	if f.timeout == 0 {
		f.timeout = filterTime
	}
	if f.program == "" {
		f.program = find(f.env)
	}
	return f
}

// find is the filter program: the user's, the one installed with this program,
// or the first in PATH.
func find(env []string) string {
	for _, entry := range env {
		if program, ok := strings.CutPrefix(entry, "ALLOTMENT_FILTER="); ok && program != "" {
			return program
		}
	}
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "esub")
		if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
			return sibling
		}
	}
	return "esub"
}

// apply gives a job as the filter wants it, or ErrRejected, or why ctx is done.
func (f *filter) apply(ctx context.Context, spec backends.Spec) (backends.Spec, error) {
	dir, err := os.MkdirTemp("", "allotment-submit-") // mode 0700
	if err != nil {
		f.unfiltered(err)
		return spec, nil
	}
	defer func() { _ = os.RemoveAll(dir) }()
	parm, modify, env := filepath.Join(dir, "parm"), filepath.Join(dir, "modify"), filepath.Join(dir, "env")
	params := encode(&spec)
	err = errors.Join(os.WriteFile(parm, esub.EncodeParams(params), 0o600), os.WriteFile(modify, nil, 0o600), os.WriteFile(env, nil, 0o600))
	if err != nil {
		f.unfiltered(err)
		return spec, nil
	}
	filterEnv := append(append([]string(nil), f.env...),
		"LSB_SUB_PARM_FILE="+parm, "LSB_SUB_MODIFY_FILE="+modify, "LSB_SUB_MODIFY_ENVFILE="+env,
		"LSB_SUB_ABORT_VALUE="+strconv.Itoa(abortValue), "LSF_INVOKE_CMD=bsub")
	_, err = command.Run(ctx, command.Command{Argv: []string{f.program}, Env: filterEnv, Timeout: f.timeout, Stdout: io.Discard, Stderr: f.words})
	f.words.Flush()
	switch outcome, why := judge(ctx, err); outcome {
	case stopped:
		return backends.Spec{}, fmt.Errorf("run submit filter: %w", why)
	case rejected:
		return backends.Spec{}, ErrRejected
	case failed:
		f.unfiltered(why)
		return spec, nil
	case accepted:
	}
	changed, ignored := change(spec, params, read(modify), read(env))
	for _, line := range ignored {
		f.words.Line("esub: " + line)
	}
	return changed, nil
}

// unfiltered says why a job goes through without the filter.
func (f *filter) unfiltered(err error) {
	f.words.Line("submit filter: " + err.Error() + ": the job is submitted as it is")
}

// outcome is what a run of the filter means.
type outcome uint8

const (
	accepted outcome = iota // with its changes
	rejected
	failed  // without them
	stopped // nothing is to be submitted
)

// judge reads a filter's end as LSF does: the abort value or death by a signal
// rejects, every other exit status accepts.
func judge(ctx context.Context, err error) (outcome, error) {
	if err == nil {
		return accepted, nil
	}
	if ctx.Err() != nil {
		return stopped, context.Cause(ctx)
	}
	var end *command.Error
	if !errors.As(err, &end) {
		return failed, err
	}
	switch {
	case end.Status < 0 || errors.Is(err, context.DeadlineExceeded):
		return failed, fmt.Errorf("run %s: %w", end.Argv[0], end.Err) // its words have been passed on
	case end.Killed || end.Status == abortValue:
		return rejected, nil
	}
	return accepted, nil
}

// read gives a file's contents, as far as it may be read: the filter may have
// taken it away, or left something else there.
func read(path string) []byte {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > esub.MaxParmFile {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

// printableLines passes text on line by line, safe for a terminal.
type printableLines struct {
	to   io.Writer
	rest []byte // of a line that has no end yet
}

// maxLine is where a line without an end is broken.
const maxLine = 4096

func (p *printableLines) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, ended := strings.Cut(string(p.rest), "\n")
		if !ended {
			if len(p.rest) >= maxLine {
				p.Flush()
			}
			return len(b), nil
		}
		p.Line(line)
		p.rest = []byte(rest)
	}
}

// Flush passes on a line that had no end.
func (p *printableLines) Flush() {
	if len(p.rest) > 0 {
		p.Line(string(p.rest))
		p.rest = nil
	}
}

// Line passes one line on; that nobody can read it stops no submission.
func (p *printableLines) Line(line string) {
	line = strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "        ")
	_, _ = io.WriteString(p.to, shell.Printable(line)+"\n")
}
