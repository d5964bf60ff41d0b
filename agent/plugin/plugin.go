// Package plugin takes in figures that a site's own programs measure: of shared file systems,
// switches and outside services. A plug-in is run as PROGRAM measure. It prints a line of JSON
// for each figure, such as
//
//	{"figure": "read_bytes_total", "of": "scratch", "value": 1.5e9}
//
// and ends. A figure that ends in _total only rises. "of" is the thing that is measured, where
// a plug-in has several.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/command"
)

// Every is how often a plug-in is run, and how long a run may take.
const Every = 15 * time.Second

// Bounds of what a plug-in prints.
const (
	maxOutput  = 64 << 10 // bytes
	maxFigures = 500
	maxFigure  = 64 // bytes of a name
	maxOf      = 64 // bytes
)

// Pauses after a run that failed, doubled up to the longest.
const (
	firstPause   = Every
	longestPause = 5 * time.Minute
)

// Figure is what a plug-in has measured.
type Figure struct {
	Name  string // letters, digits, _; one that ends in _total only rises
	Of    string // "": the plug-in measures one thing
	Value float64
}

// Program is a plug-in.
type Program struct{ Name, Path string }

// State is what is known of a plug-in. Its Figures are those of its last run; none: it failed.
type State struct {
	Name    string
	Figures []Figure
	Took    time.Duration
	Err     error
}

// Parse reads what a plug-in printed. An error means that none of it counts.
func Parse(text []byte) ([]Figure, error) {
	var all []Figure
	seen := map[[2]string]bool{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		f, err := parseLine(line)
		switch key := [2]string{f.Name, f.Of}; {
		case err != nil:
		case seen[key]:
			err = errors.New("that figure was there before")
		case len(all) == maxFigures:
			err = fmt.Errorf("it has more than %d figures", maxFigures)
		default:
			seen[key], all = true, append(all, f)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d, %.80q: %w", n+1, line, err)
		}
	}
	return all, nil
}

func parseLine(line []byte) (f Figure, err error) {
	var in struct {
		Figure string   `json:"figure"`
		Of     string   `json:"of"`
		Value  *float64 `json:"value"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return f, fmt.Errorf("it is no figure in JSON: %w", err)
	}
	switch {
	case d.More():
		return f, errors.New("it has more than one value")
	case !isName(in.Figure):
		return f, fmt.Errorf("figure: want 1 to %d small letters, digits and _, a letter first", maxFigure)
	case len(in.Of) > maxOf || strings.ContainsFunc(in.Of, func(c rune) bool { return c < ' ' || c > '~' }):
		return f, fmt.Errorf("of: want at most %d characters of ASCII", maxOf)
	case in.Value == nil:
		return f, errors.New("value is missing")
	case strings.HasSuffix(in.Figure, "_total") && *in.Value < 0, math.IsInf(*in.Value, 0):
		return f, fmt.Errorf("value: %v is no such figure", *in.Value)
	}
	return Figure{in.Figure, in.Of, *in.Value}, nil
}

func isName(s string) bool {
	if s == "" || len(s) > maxFigure || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' })
}

// Runner runs plug-ins.
type Runner struct {
	log *slog.Logger

	mu     sync.Mutex
	states []State
}

// run runs a program again and again.
func (r *Runner) run(ctx context.Context, i int, p Program) {
	pause := firstPause
	for {
		began := time.Now()
		figures, err := Measure(ctx, p.Path)
		if ctx.Err() != nil {
			return
		}
		wait := Every - time.Since(began)
		if err != nil {
			wait, pause = pause, min(2*pause, longestPause)
		} else {
			pause = firstPause
		}
		r.note(i, State{p.Name, figures, time.Since(began), err})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// Start runs each of these programs until the context ends, one beside the other.
func Start(ctx context.Context, all []Program, log *slog.Logger) *Runner {
	r := &Runner{log: log}
	for _, p := range all {
		r.states = append(r.states, State{Name: p.Name, Err: errNotYet})
	}
	for i, p := range all {
		go r.run(ctx, i, p)
	}
	return r
}

// errNotYet is a plug-in's error before its first run has ended.
var errNotYet = errors.New("it has not measured yet")

// note keeps the state of a plug-in, and logs what is new.
func (r *Runner) note(i int, s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.states[i].Err
	switch {
	case s.Err == nil && before != nil && !errors.Is(before, errNotYet):
		r.log.Info("a plug-in measures again", "plugin", s.Name)
	case s.Err != nil && (before == nil || before.Error() != s.Err.Error()):
		r.log.Warn("a plug-in does not measure", "plugin", s.Name, "error", s.Err)
	}
	r.states[i] = s
}

// States returns what is known of each plug-in, in the order of the config. A nil Runner has
// none.
func (r *Runner) States() []State {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]State(nil), r.states...)
}

// Measure runs a plug-in once.
func Measure(ctx context.Context, path string) ([]Figure, error) {
	var out output
	_, err := command.Run(ctx, command.Command{Argv: []string{path, "measure"}, Dir: "/", Stdout: &out, Timeout: Every})
	if out.tooMuch {
		return nil, fmt.Errorf("it printed more than %d bytes", maxOutput)
	}
	if err != nil {
		return nil, err
	}
	return Parse(out.text)
}

// output keeps what is printed, up to the bound; a program that goes on is ended by SIGPIPE.
type output struct {
	text    []byte
	tooMuch bool
}

func (o *output) Write(p []byte) (int, error) {
	if len(o.text)+len(p) > maxOutput {
		o.tooMuch = true
		return 0, errors.New("too much")
	}
	o.text = append(o.text, p...)
	return len(p), nil
}
