package gpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/command"
)

// How long NVML may be silent: at its start, when it may have to wake up all GPUs; and later,
// at least.
const (
	firstSilence = time.Minute
	leastSilence = 10 * time.Second
)

// Pauses after the process has ended, doubled up to the longest. Where no GPUs are it is the
// longest at once: a driver may be loaded later.
const (
	firstPause   = 15 * time.Second
	longestPause = 5 * time.Minute
)

// missed is of how many intervals a reading may be old.
const missed = 3

// noAnswer is why nothing is known of GPUs whose last reading is old.
const noAnswer = "NVML does not answer: a GPU may have fallen off the bus"

// Reader keeps the last reading of the GPUs.
type Reader struct {
	every time.Duration
	first time.Duration // the first pause
	argv  []string
	log   *slog.Logger // nil: none

	mu      sync.Mutex
	reading measure.GPUReading
	at      time.Time // zero: there is none, or none is needed
	said    string    // in the log, last
}

// Start reads the GPUs every so often, until the context ends, by a process that this command
// line starts and that calls Serve.
func Start(ctx context.Context, every time.Duration, argv []string, log *slog.Logger) *Reader {
	r := &Reader{every: every, first: firstPause, argv: argv, log: log}
	go r.run(ctx)
	return r
}

// Last returns the last reading. One that is older than three intervals is none.
func (r *Reader) Last(now time.Time) measure.GPUReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && now.Sub(r.at) > missed*r.every {
		return measure.GPUReading{Why: noAnswer}
	}
	return r.reading
}

func (r *Reader) run(ctx context.Context) {
	pause := r.first
	for {
		got, err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case got == nothing && err == nil:
			pause = longestPause
		case got == readings:
			pause = r.first
		}
		if err != nil {
			r.note(measure.GPUReading{Why: cut(err.Error())}, time.Time{})
		}
		if clock.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// outcome is what a process has told.
type outcome int

const (
	failure outcome = iota
	nothing         // there are no GPUs
	readings
)

// once runs the process to its end.
func (r *Reader) once(ctx context.Context) (got outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The process ends when the pipe's other end is closed, by this process or by its end.
	stdin, held, err := os.Pipe()
	if err != nil {
		return failure, err
	}
	defer func() { _, _ = stdin.Close(), held.Close() }()
	silent := time.AfterFunc(firstSilence, func() { cancel(errors.New(noAnswer)) })
	defer silent.Stop()
	out := &lines{take: func(text []byte) error {
		l, reading, err := parse(text)
		if err != nil {
			return err
		}
		silent.Reset(max(missed*r.every, leastSilence))
		switch {
		case l.None:
			got = nothing
			r.note(measure.GPUReading{}, time.Time{})
		case l.Why != "":
			err = errors.New(l.Why)
		default:
			got = readings
			r.note(reading, time.Now())
		}
		return err
	}}
	_, err = command.Run(ctx, command.Command{Argv: r.argv, Dir: "/", Stdin: stdin, Stdout: out})
	if out.err != nil {
		return got, out.err
	}
	if failed := new(command.Error); errors.As(err, &failed) && ctx.Err() == nil {
		err = fmt.Errorf("what reads NVML has failed: %w%s", failed.Err, lastLine(failed.Stderr))
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return got, err
}

// lastLine is the last line of a text, after a colon; "": it has none.
func lastLine(text string) string {
	all := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	if last := all[len(all)-1]; len(last) > 0 {
		return ": " + string(last)
	}
	return ""
}

// note keeps a reading, and logs what is new.
func (r *Reader) note(reading measure.GPUReading, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading, r.at = reading, at
	said := reading.Why
	if said == "" {
		said = fmt.Sprint(len(reading.GPUs))
	}
	if r.log == nil || said == cmp.Or(r.said, "0") {
		return
	}
	r.said = said
	if reading.Why != "" {
		r.log.Warn("GPUs are not measured", "error", reading.Why)
		return
	}
	r.log.Info("GPUs are measured", "gpus", len(reading.GPUs))
}

// lines cuts what is written into lines. After an error nothing more is taken.
type lines struct {
	take func([]byte) error
	text []byte
	err  error
}

func (l *lines) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	for l.err == nil {
		line, rest, ok := bytes.Cut(l.text, []byte("\n"))
		if !ok {
			if len(line) > maxLine {
				l.err = fmt.Errorf("a reading of GPUs has more than %d bytes", maxLine)
			}
			break
		}
		l.err = l.take(line)
		l.text = rest
	}
	if l.err != nil {
		l.text = nil
		return 0, l.err
	}
	if len(l.text) == 0 {
		l.text = nil
	}
	return len(p), nil
}

// Check reads the GPUs once, by such a process, and says in a line what is found.
func Check(ctx context.Context, argv []string) string {
	const patience = 20 * time.Second
	out, err := command.Run(ctx, command.Command{Argv: argv, Dir: "/", Timeout: patience})
	first, _, _ := bytes.Cut(out, []byte("\n"))
	l, r, parsed := parse(first)
	switch failed := new(command.Error); {
	case errors.Is(err, context.DeadlineExceeded) && len(first) == 0:
		return fmt.Sprintf("GPUs are not measured: NVML has not answered within %v.", patience)
	case errors.As(err, &failed) && len(first) == 0:
		return "GPUs are not measured: " + cut(fmt.Sprint(failed.Err, lastLine(failed.Stderr))) + "."
	case parsed != nil:
		return "GPUs are not measured: " + cut(parsed.Error()) + "."
	case l.None:
		return "There are no GPUs to measure: " + l.Why + "."
	case l.Why != "":
		return "GPUs are not measured: " + l.Why + "."
	}
	text := fmt.Sprintf("GPUs are measured: %d, driver %s.", len(r.GPUs), l.Driver)
	for i := range r.GPUs {
		if g := &r.GPUs[i]; g.Why != "" {
			text += fmt.Sprintf(" GPU %d: %s.", g.Index, g.Why)
		}
	}
	return text
}
