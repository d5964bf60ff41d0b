package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/follow"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/clock"
)

var errNoOutput = fmt.Errorf("show a job's output: %w: the queue does not say where it is; on LSF use bpeek", backends.ErrUnable)

func peekApp(p process) *cli.App {
	return &cli.App{
		Name: "apeek", Usage: "print the output of jobs so far", ArgsUsage: "JOB",
		Description: "Prints what is in the file that the job's standard output goes to, also after its end. JOB is an ID or a name, and may be\n" +
			"an array: then each of its elements that has started has a heading. The file is read with your own rights, on\n" +
			"this host. On a terminal control characters are made visible.",
		Metadata: map[string]any{commands.Examples: []grammar.Example{
			{Line: "apeek 12", Does: "what job 12 has printed so far"},
			{Line: "apeek -f '12[3]'", Does: "follow the output of an element of an array until it ends"},
		}},
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "f", Usage: "go on until the job ends; of a pending job, wait for its start", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			args, err := jobArgs(c.Args().Slice())
			if err != nil {
				return err
			}
			if len(args) != 1 || args[0].All {
				return shell.Usagef("name one job, such as 12, or 12[3] of an array")
			}
			return runPeek(c.Context, p, args, c.Bool("f"), c.App.Writer)
		},
	}
}

// runPeek is apeek.
func runPeek(ctx context.Context, p process, args []bsub.JobArg, followed bool, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	if queue.Abilities().Output == nil {
		return errNoOutput
	}
	ids, err := idsOf(ctx, queue, p, args)
	if err != nil {
		return err
	}
	jobs, err := queue.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	if shell.Terminal(out) {
		out = &visibleWriter{w: out}
	}
	switch {
	case len(jobs) == 0:
		return reportUnknown(p, "Job <%s> is not found\n", ids)
	case len(jobs) == 1:
		k := peek{queue: queue, id: jobs[0].ID, out: out, stderr: p.stderr}
		defer k.close()
		if followed {
			return k.follow(ctx, &jobs[0])
		}
		return k.once(ctx, &jobs[0])
	case followed:
		return shell.Usagef("-f follows one job: name an element of the array, such as %s", jobs[0].ID)
	}
	return peekArray(ctx, p, queue, jobs, out)
}

// peekArray prints the output of each element that has started.
func peekArray(ctx context.Context, p process, queue backends.Backend, jobs []backends.Job, out io.Writer) error {
	waiting := 0
	var failed error
	for i := range jobs {
		if !begun(&jobs[i]) {
			waiting++
			continue
		}
		if _, err := fmt.Fprintf(out, "<< output of job %s >>\n", jobs[i].ID); err != nil {
			return err
		}
		k := peek{queue: queue, id: jobs[i].ID, out: out, stderr: p.stderr}
		err := k.once(ctx, &jobs[i])
		k.close()
		if errors.Is(err, backends.ErrUnreachable) {
			return err
		}
		if err != nil {
			fmt.Fprintf(p.stderr, "apeek: %s\n", shell.OneLine(err.Error()))
			failed = &shell.ExitError{Code: shell.ExitFailure}
		}
	}
	if waiting > 0 {
		fmt.Fprintf(p.stderr, "%d of %d jobs have not started yet\n", waiting, len(jobs))
	}
	return failed
}

// begun reports whether a job may have printed something: it runs, or did.
func begun(j *backends.Job) bool {
	return j.State != backends.Pending && j.State != backends.Held || j.Requeues > 0
}

// peek is the reading of one job's output.
type peek struct {
	queue  backends.Backend
	id     backends.ID
	out    io.Writer
	stderr io.Writer

	path   string
	file   *os.File
	offset int64
	tail   []byte // what was read last, before offset
}

// once prints what there is.
func (k *peek) once(ctx context.Context, j *backends.Job) error {
	if !begun(j) {
		fmt.Fprintf(k.stderr, "Job <%s> has not started yet\n", k.id)
		return nil
	}
	if err := k.locate(ctx); err != nil {
		return err
	}
	err := k.copy()
	if errors.Is(err, fs.ErrNotExist) && !j.State.Ended() {
		fmt.Fprintf(k.stderr, "Job <%s> has no output yet: %s does not exist on this host\n", k.id, bsub.Visible(k.path))
		return nil
	}
	if err == nil && (j.State == backends.Pending || j.State == backends.Held) {
		fmt.Fprintf(k.stderr, "Job <%s> waits to start again: this is what it printed before\n", k.id)
	}
	return err
}

// locate asks the queue for the file, once.
func (k *peek) locate(ctx context.Context) error {
	if k.path != "" {
		return nil
	}
	path, err := k.queue.Abilities().Output(ctx, k.id)
	switch {
	case errors.Is(err, backends.ErrDenied):
		return fmt.Errorf("read the output of job %s: %w: it is another user's", k.id, backends.ErrDenied)
	case err != nil:
		return err
	case path == "":
		return &shell.ExitError{Code: shell.ExitFailure, Err: fmt.Errorf("job %s has no output file: it is at a terminal", k.id)}
	}
	k.path = path
	return nil
}

// peekPoll is the longest time between two reads: inotify does not report what other hosts write.
const peekPoll = time.Second

// follow prints what there is, and what is added, until the job has ended.
func (k *peek) follow(ctx context.Context, j *backends.Job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := k.watchQueue(ctx)
	var written <-chan struct{}
	waits := false
	for {
		switch {
		case begun(j):
			if err := k.locate(ctx); err != nil {
				return err
			}
			if written == nil {
				written = follow.Dir(ctx, filepath.Dir(k.path))
			}
		case !waits:
			waits = true
			fmt.Fprintf(k.stderr, "Job <%s> has not started yet: waiting for it\n", k.id)
		}
		if k.path != "" {
			if err := k.copy(); err != nil && (j.State.Ended() || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
		if j.State.Ended() {
			return nil
		}
		if err := k.await(ctx, changed, written, j); err != nil {
			return err
		}
	}
}

// await waits until the queue has changed, in which case it reads the job again, or the output may
// have.
func (k *peek) await(ctx context.Context, changed, written <-chan struct{}, j *backends.Job) error {
	poll := time.NewTimer(peekPoll)
	defer poll.Stop()
	select {
	case <-written:
		return nil
	case <-poll.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	}
	jobs, err := k.queue.Jobs(ctx, []backends.ID{k.id})
	switch {
	case errors.Is(err, backends.ErrUnreachable) && ctx.Err() == nil:
		return nil // it may come back: the output goes on meanwhile
	case err != nil:
		return err
	case len(jobs) == 0:
		j.State = backends.Done // the queue has forgotten it: it has ended
	default:
		*j = jobs[0]
	}
	return nil
}

// watchQueue returns a channel that receives when the queue has changed, or may have.
func (k *peek) watchQueue(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{})
	next := follow.Changes(k.queue)
	go func() {
		for ctx.Err() == nil {
			pause := follow.ReadInterval
			if next(ctx) != nil {
				pause = follow.RetryPause
			}
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
			_ = clock.Sleep(ctx, pause)
		}
	}()
	return changed
}

// copy prints what was added since the last call. A file that is shorter than it was, another one, or
// has another text in the place of what was read last (a run that overwrites it) is read from its
// beginning.
func (k *peek) copy() error {
	if k.file != nil && k.replaced() {
		k.close()
	}
	if k.file == nil {
		file, err := openRegular(k.path)
		if err != nil {
			return err
		}
		k.file, k.offset, k.tail = file, 0, nil
	}
	if k.overwritten() {
		k.offset, k.tail = 0, nil
	}
	buffer := make([]byte, copySize)
	for {
		n, err := k.file.ReadAt(buffer, k.offset)
		if n > 0 {
			k.offset += int64(n)
			k.tail = append(k.tail, buffer[:n]...)
			k.tail = append([]byte(nil), k.tail[max(len(k.tail)-tailSize, 0):]...)
			if _, err := k.out.Write(buffer[:n]); err != nil {
				return fmt.Errorf("write the output of job %s: %w", k.id, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the output of job %s: %w", k.id, err)
		}
	}
}

const (
	copySize = 64 << 10 // bytes that are read at once
	tailSize = 4 << 10  // bytes by which an overwritten file is known
)

// overwritten reports whether the text that was read last is no longer there.
func (k *peek) overwritten() bool {
	now := make([]byte, len(k.tail))
	n, err := k.file.ReadAt(now, k.offset-int64(len(k.tail)))
	return (err == nil || errors.Is(err, io.EOF)) && !bytes.Equal(now[:n], k.tail)
}

// replaced reports whether the path names another file than the one that is open.
func (k *peek) replaced() bool {
	is, err := os.Stat(k.path)
	was, err2 := k.file.Stat()
	return err == nil && err2 == nil && !os.SameFile(is, was)
}

func (k *peek) close() {
	if k.file != nil {
		_ = k.file.Close()
		k.file = nil
	}
}

// openRegular opens a regular file for reading, and nothing else: to open a named pipe or a
// device has effects of its own.
func openRegular(path string) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: bsub.Visible(path), Err: err}
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.Stat_t
	switch err := unix.Fstat(fd, &info); {
	case err != nil:
		return fail(err)
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return fail(errors.New("not a regular file"))
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) // what is open already, whatever the path names now
	if err != nil {
		return fail(cmp.Or(errors.Unwrap(err), err))
	}
	return file, nil
}

// visibleWriter makes a job's output fit for a terminal: all but its lines and tabs.
type visibleWriter struct {
	w    io.Writer
	rest []byte // of a character that has not come whole
}

func (v *visibleWriter) Write(p []byte) (int, error) {
	text := append(v.rest, p...)
	cut := len(text) - incomplete(text)
	v.rest = append([]byte(nil), text[cut:]...)
	var b strings.Builder
	for line := range strings.SplitAfterSeq(string(text[:cut]), "\n") {
		line, ended := strings.CutSuffix(line, "\n")
		if ended {
			line = strings.TrimSuffix(line, "\r")
		}
		for i, part := range strings.Split(line, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(bsub.Visible(part))
		}
		if ended {
			b.WriteByte('\n')
		}
	}
	if _, err := io.WriteString(v.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// incomplete returns how many bytes at the end of a text begin a character, or the end of a line,
// that goes on.
func incomplete(text []byte) int {
	if len(text) > 0 && text[len(text)-1] == '\r' {
		return 1
	}
	for n := 1; n <= min(len(text), utf8.UTFMax-1); n++ {
		if start := text[len(text)-n:]; utf8.RuneStart(start[0]) {
			if utf8.FullRune(start) {
				return 0
			}
			return n
		}
	}
	return 0
}
