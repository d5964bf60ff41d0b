package bsub

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LSF's name of the option, and ours.
const (
	packOption  = "-pack"
	batchOption = "--batch"
)

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
func (l Line) BatchRequests(text []byte, c Context) ([]Request, error) {
	if len(l.Command) > 0 {
		return nil, fmt.Errorf("option %s: %w", packOption, errBatch)
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("it is no text: it holds a NUL character")
	}
	below := Line{notes: l.notes}
	below.uses = slices.DeleteFunc(slices.Clone(l.uses), func(u use) bool { return u.opt.Name == packOption })
	var all []Request
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		request, err := batchLine(strings.TrimRight(line, "\r\n"), below, c)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if request != nil {
			all = append(all, *request)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no job in it")
	}
	return all, nil
}

// batchLine reads one line; nil: there is no job in it.
func batchLine(text string, below Line, c Context) (*Request, error) {
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
	line.under(below)
	request, err := line.Request(nil, c)
	if err != nil {
		return nil, err
	}
	if request.Screen != NoScreen {
		return nil, errors.New("option -I: the jobs of a batch can't share a terminal")
	}
	return &request, nil
}
