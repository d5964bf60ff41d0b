package bsub

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// LSF's name of the option, and ours.
const (
	packOption  = "-pack"
	batchOption = "--batch"
)

// Options that bsub does not have.
const (
	minOption      = "--min"
	deadlineOption = "--deadline"
	AdviseOption   = "--advise"
)

// inEnvironment reports whether an option that bsub does not have stands in the job's environment.
func inEnvironment(name string) bool { return name == minOption || name == deadlineOption }

var errBatch = errors.New("its jobs and their commands are in the file; give none beside it")

func setBatch(*builder, string) error { return errBatch }

// Batch is the file that -pack or --batch names.
func (l Line) Batch() (file string, given bool) {
	for _, u := range l.uses {
		if u.opt.Name == packOption {
			file, given = u.value, true
		}
	}
	return file, given
}

// BatchRequests reads a file of submissions: each line is a command line of its
// own, with words quoted as in a shell; empty lines and those that begin with #
// are passed over. The line's own options win over those of l. Its errors begin
// with the line's number, and nothing is to be submitted then.
func (l Line) BatchRequests(text []byte, c Context) (all []Request, err error) {
	err = l.batch(text, func(line Line) error {
		request, err := line.Request(nil, c)
		if err == nil && request.Screen != NoScreen {
			err = errShared
		}
		all = append(all, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// BatchCalls is BatchRequests for a bsub of the queue's own: what Call returns for
// each job. Warnings are those of all lines, each once.
func (l Line) BatchCalls(text []byte, own map[string]backends.OptionMeaning, now time.Time) (all []Call, warnings []string, err error) {
	err = l.batch(text, func(line Line) error {
		for _, u := range line.uses {
			switch {
			case u.opt.group == "-I":
				return errShared
			case u.opt.Name == "-K":
				return errors.New("option -K: the jobs of a batch are submitted one after the other here; have one job wait for the others with -w")
			}
		}
		call, warned, err := line.Call(own, now)
		for _, warning := range warned {
			if !slices.Contains(warnings, warning) {
				warnings = append(warnings, warning)
			}
		}
		all = append(all, call)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return all, warnings, nil
}

var errShared = errors.New("option -I: the jobs of a batch can't share a terminal")

// batch gives each command line of a file to a function.
func (l Line) batch(text []byte, each func(Line) error) error {
	if len(l.Command) > 0 {
		return fmt.Errorf("option %s: %w", packOption, errBatch)
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return errors.New("it is no text: it holds a NUL character")
	}
	below := Line{warnings: l.warnings}
	below.uses = slices.DeleteFunc(slices.Clone(l.uses), func(u use) bool { return u.opt.Name == packOption })
	number, jobs := 0, 0
	for text := range strings.Lines(string(text)) {
		number++
		line, err := batchLine(strings.TrimRight(text, "\r\n"), below)
		if err == nil && line != nil {
			jobs++
			err = each(*line)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if jobs == 0 {
		return errors.New("there is no job in it")
	}
	return nil
}

// batchLine reads one line; nil: there is no job in it.
func batchLine(text string, below Line) (*Line, error) {
	words, err := splitWords(text)
	if err != nil || len(words) == 0 {
		return nil, err
	}
	line, err := Scan(words)
	if err != nil {
		return nil, err
	}
	_, nested := line.Batch()
	switch {
	case line.Help || line.Version:
		return nil, errors.New("-h and -V belong on the command line")
	case nested:
		return nil, fmt.Errorf("option %s belongs on the command line", packOption)
	case len(line.Command) == 0:
		return nil, errors.New("no command: write one after the options")
	}
	line.addDefaults(below)
	return &line, nil
}
