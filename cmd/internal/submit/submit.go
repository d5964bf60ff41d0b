// Package submit takes jobs from a command line to the queue, each through the
// submit filter: ours in this very process, which is ready when another one would
// not have begun; a site's own by LSF's esub protocol, as bsub would do it, so
// that any can be used and tried without LSF.
package submit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/esub"
	own "github.com/allotment-hpc/allotment/esub/filter"
	"github.com/allotment-hpc/allotment/internal/command"
)

// ErrRejected is the error of a job that the filter refused; the filter has printed
// why. The words are bsub's.
var ErrRejected = errors.New("Request aborted by esub. Job not submitted.") //nolint:staticcheck,revive // the very words that scripts look for

// abortValue is the exit status by which a filter rejects a job.
const abortValue = 97

// filterTime is how long a filter may take. After that the job goes through
// without it.
const filterTime = 10 * time.Second

// Options say where the filter is and where its words go.
type Options struct {
	Stderr    io.Writer     // gets the filter's stderr and our warnings, made printable; nil: ours
	Env       []string      // the filter's environment; nil: ours
	Filter    string        // the filter program; "": $ALLOTMENT_FILTER of Env; where that is not set either, ours
	Timeout   time.Duration // 0: 10 s
	Unlimited bool          // our own filter may take as long as its file system does (see backends.Abilities)
	ByQueue   bool          // the queue asks the filter itself (see backends.Abilities): none is run here
}

// Queue is the part of a Backend that takes jobs.
type Queue interface {
	Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted
}

// Result is what became of a job. Its Queue is where it was sent, if that is known.
type Result struct {
	backends.Submitted
	ByDefault bool // neither the user nor the filter named the queue
}

// Submit runs the filter for each job, in the current directory, and hands those
// that it accepts to the queue in one batch. The results are in the order of
// specs, which are not changed; so are the filters' words, though they run side
// by side. A filter that fails, hangs or is missing never costs a submission: the
// job goes through unchanged, with a warning.
func Submit(ctx context.Context, queue Queue, specs []backends.Spec, opts Options) []Result {
	results := make([]Result, len(specs))
	accepted := make([]backends.Spec, 0, len(specs))
	positions := make([]int, 0, len(specs))
	f := newFilter(opts)
	if f.program != "" || opts.ByQueue || len(specs) > 1 { // other programs run, or it may take a while
		shell.CatchSignals(ctx)
	}
	applyFilter := f.applyAll
	if opts.ByQueue {
		applyFilter = f.prepareForQueue
	}
	for i, spec := range applyFilter(ctx, specs) {
		if spec.err != nil {
			results[i].Err = spec.err
			continue
		}
		accepted = append(accepted, spec.Spec)
		positions = append(positions, i)
	}
	if len(accepted) == 0 {
		return results
	}
	for k, result := range queue.Submit(ctx, accepted) {
		f.output.Text(result.Messages)
		named := accepted[k].Queue
		result.Queue = cmp.Or(named, result.Queue)
		results[positions[k]] = Result{result, named == ""}
	}
	return results
}

// preempt is the variable by which a user says how a job may be taken back.
const preempt = "ALLOTMENT_PREEMPT"

// ofJob are the variables by which a job says more to the filter than its options do.
func ofJob() []string {
	return []string{backends.CheckpointVariable, backends.MinimumVariable, backends.DeadlineVariable}
}

// jobVariable is one of them, as the job's own environment says (asub -k, --min, --deadline), or else the
// submission's.
func (f *filter) jobVariable(s *backends.Spec, name string) string {
	return cmp.Or(variableOf(s.Env, name), f.variable(name))
}

// prepareForQueue sees to it that the queue's own filter finds in a job what ours would
// find in this process.
func (f *filter) prepareForQueue(_ context.Context, specs []backends.Spec) []filtered {
	out := make([]filtered, len(specs))
	mode := f.variable(preempt)
	for i, spec := range specs {
		if mode != "" {
			spec.Env = withVariable(spec.Env, preempt, mode)
		}
		for _, name := range ofJob() {
			if value := f.jobVariable(&spec, name); value != "" {
				spec.Env = withVariable(spec.Env, name, absolute(name, value))
			}
		}
		out[i].Spec = spec
	}
	return out
}

// absolute returns a variable's value with a deadline as it is in every zone: the queue's filter may run in
// another one.
func absolute(name, value string) string {
	if name == backends.DeadlineVariable {
		if at, err := backends.ParseDeadline(value, time.Now()); err == nil {
			return backends.DeadlineText(at)
		}
	}
	return value
}

// filtered is a job as the filter wants it, or why it is not to be submitted.
type filtered struct {
	backends.Spec
	err error
}

// applyAll runs the filter on each job, as many at a time as there are processors.
func (f *filter) applyAll(ctx context.Context, specs []backends.Spec) []filtered {
	out := make([]filtered, len(specs))
	if len(specs) == 1 { // mostly; a worker would cost asub a tenth of its time
		out[0].Spec, out[0].err = f.apply(ctx, specs[0])
		f.output.Flush()
		return out
	}
	output := make([]bytes.Buffer, len(specs))
	finished := make(chan int, len(specs))
	var workers sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(specs)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(specs); i = int(next.Add(1)) - 1 {
				one := *f
				one.output = &printableLines{to: &output[i]}
				out[i].Spec, out[i].err = one.apply(ctx, specs[i])
				one.output.Flush()
				finished <- i
			}
		})
	}
	done := make([]bool, len(specs))
	for at := 0; at < len(specs); {
		done[<-finished] = true
		for ; at < len(specs) && done[at]; at++ {
			_, _ = f.output.to.Write(output[at].Bytes()) // a closed stderr stops no submission
		}
	}
	workers.Wait()
	return out
}

type filter struct {
	program   string // "": ours
	command   string // LSF_INVOKE_CMD
	env       []string
	timeout   time.Duration
	unlimited bool // for ours
	output    *printableLines
}

func newFilter(opts Options) *filter {
	f := &filter{program: opts.Filter, command: "bsub", env: environment(opts), timeout: opts.Timeout, unlimited: opts.Unlimited, output: &printableLines{to: opts.Stderr}}
	if f.output.to == nil {
		f.output.to = os.Stderr
	}
	if f.timeout == 0 {
		f.timeout = filterTime
	}
	if f.program == "" {
		f.program = f.variable("ALLOTMENT_FILTER")
	}
	return f
}

func environment(opts Options) []string {
	if opts.Env == nil {
		return os.Environ()
	}
	return opts.Env
}

// variable is one of the filter's environment, "" if it is not set. The last one
// of a name counts, as it does for a program.
func (f *filter) variable(name string) string { return variableOf(f.env, name) }

func variableOf(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// apply gives a job as the filter wants it, or ErrRejected, or why ctx is done.
func (f *filter) apply(ctx context.Context, spec backends.Spec) (backends.Spec, error) {
	if f.program == "" {
		return f.applyOurs(ctx, spec)
	}
	return f.applyProgram(ctx, spec)
}

// applyOurs asks our own filter. Should a file system not answer it, it is left
// behind, unless there is no limit.
func (f *filter) applyOurs(ctx context.Context, spec backends.Spec) (backends.Spec, error) {
	params := encode(&spec)
	ours := own.OfThisProcess(func(name string) string {
		if slices.Contains(ofJob(), name) {
			return f.jobVariable(&spec, name)
		}
		return f.variable(name)
	})
	judge := func() own.Verdict {
		// As another program would read them, with its limits.
		return ours.Judge(func() (esub.Params, error) { return esub.ParseParams(esub.EncodeParams(params)) })
	}
	if f.unlimited { // another thread and a timer cost asub a twentieth of its time
		return f.conclude(spec, params, judge())
	}
	verdicts := make(chan own.Verdict, 1)
	go func() { verdicts <- judge() }()
	timeout := time.NewTimer(f.timeout)
	defer timeout.Stop()
	select {
	case v := <-verdicts:
		return f.conclude(spec, params, v)
	case <-ctx.Done():
		return backends.Spec{}, fmt.Errorf("run submit filter: %w", context.Cause(ctx))
	case <-timeout.C:
		f.warnUnfiltered(fmt.Errorf("timed out after %v: %w", f.timeout, context.DeadlineExceeded))
		return spec, nil
	}
}

// conclude gives a job as a verdict of ours wants it.
func (f *filter) conclude(spec backends.Spec, params esub.Params, v own.Verdict) (backends.Spec, error) {
	_, _ = io.WriteString(f.output, v.Text)
	if v.Reject {
		return backends.Spec{}, ErrRejected
	}
	changed, ignored := applyChanges(spec, params, v.Changes)
	f.warnIgnored(ignored)
	return changed, nil
}

// warnIgnored says what of the filter's wishes can't be had.
func (f *filter) warnIgnored(lists ...[]string) {
	for _, line := range slices.Concat(lists...) {
		f.output.Line("esub: " + line)
	}
}

// applyProgram runs a filter by the protocol.
func (f *filter) applyProgram(ctx context.Context, spec backends.Spec) (backends.Spec, error) {
	dir, err := scratch(f.env)
	if err != nil {
		f.warnUnfiltered(err)
		return spec, nil
	}
	defer func() { _ = os.RemoveAll(dir) }()
	parm, modify, env := filepath.Join(dir, "parm"), filepath.Join(dir, "modify"), filepath.Join(dir, "env")
	params := encode(&spec)
	err = errors.Join(os.WriteFile(parm, esub.EncodeParams(params), 0o600), os.WriteFile(modify, nil, 0o600), os.WriteFile(env, nil, 0o600))
	if err != nil {
		f.warnUnfiltered(err)
		return spec, nil
	}
	filterEnv := append(append([]string(nil), f.env...),
		"LSB_SUB_PARM_FILE="+parm, "LSB_SUB_MODIFY_FILE="+modify, "LSB_SUB_MODIFY_ENVFILE="+env,
		"LSB_SUB_ABORT_VALUE="+strconv.Itoa(abortValue), "LSF_INVOKE_CMD="+f.command)
	for _, name := range ofJob() {
		if value := f.jobVariable(&spec, name); value != "" {
			filterEnv = append(filterEnv, name+"="+value)
		}
	}
	_, err = command.Run(ctx, command.Command{Argv: []string{f.program}, Env: filterEnv, Timeout: f.timeout, Stdout: io.Discard, Stderr: f.output})
	f.output.Flush()
	switch outcome, why := classifyExit(ctx, err); outcome {
	case stopped:
		return backends.Spec{}, fmt.Errorf("run submit filter: %w", why)
	case rejected:
		return backends.Spec{}, ErrRejected
	case failed:
		f.warnUnfiltered(why)
		return spec, nil
	case accepted:
	}
	changes, badLines := esub.ParseModify(readRegular(modify))
	changed, ignored := applyChanges(spec, params, changes)
	variables, badVariables := esub.ParseModify(readRegular(env))
	for _, v := range variables {
		changed.Env = withVariable(changed.Env, v.Key, v.Value)
	}
	f.warnIgnored(badLines, ignored, badVariables)
	return changed, nil
}

// scratch makes a private directory for the files between filter and caller: in
// memory, unless the user has a place for temporary files.
func scratch(env []string) (string, error) {
	const name = "allotment-submit-"
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") }) {
		if dir, err := os.MkdirTemp("/dev/shm", name); err == nil { // mode 0700
			return dir, nil
		}
	}
	return os.MkdirTemp("", name)
}

// warnUnfiltered says why a job goes through without the filter.
func (f *filter) warnUnfiltered(err error) {
	f.output.Line("submit filter: " + err.Error() + ": the job is submitted unchanged")
}

// outcome is what a run of the filter means.
type outcome uint8

const (
	accepted outcome = iota // with its changes
	rejected
	failed  // without them
	stopped // nothing is to be submitted
)

// classifyExit reads a filter's end as LSF does: the abort value or death by a signal
// rejects, every other exit status accepts.
func classifyExit(ctx context.Context, err error) (outcome, error) {
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

// readRegular gives a file's contents, as far as it may be read: the filter may have
// taken it away, or left something else there.
func readRegular(path string) []byte {
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

// Text passes a whole text on.
func (p *printableLines) Text(text string) {
	for line := range strings.Lines(text) {
		p.Line(strings.TrimSuffix(line, "\n"))
	}
}

// Flush passes on a line that had no end.
func (p *printableLines) Flush() {
	if len(p.rest) > 0 {
		p.Line(string(p.rest))
		p.rest = nil
	}
}

// Line passes one line on; a closed stderr stops no submission.
func (p *printableLines) Line(line string) {
	line = strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "        ")
	_, _ = io.WriteString(p.to, shell.Printable(line)+"\n")
}
