package split

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// source counts the items, and copies them.
type source interface {
	// count returns the number of items so far, and whether the input has ended. The error
	// is the reason why they can't be read.
	count() (items int64, ended bool, err error)
	// changed receives when the result of count changes; it is nil if that never happens.
	changed() <-chan struct{}
	// copy writes items, each with its separator.
	copy(to io.Writer, first, count int64) error
	// text returns the beginning of an item, for users.
	text(item int64) string
	sync() error
	close() error
	separator() byte
}

// numbers are the items of a range.
type numbers struct{ from, to int64 }

func (n numbers) count() (int64, bool, error) { return n.to - n.from + 1, true, nil }
func (numbers) changed() <-chan struct{}      { return nil }
func (n numbers) text(item int64) string      { return fmt.Sprint(n.from + item) }
func (numbers) sync() error                   { return nil }
func (numbers) close() error                  { return nil }
func (numbers) separator() byte               { return '\n' }

func (n numbers) copy(to io.Writer, first, count int64) error {
	for i := range count {
		if _, err := fmt.Fprintln(to, n.from+first+i); err != nil {
			return err
		}
	}
	return nil
}

// stream reads items as they arrive, and spools them.
type stream struct {
	spool *spool
	news  chan struct{}
	state chan streamState // holds one
}

type streamState struct {
	items int64
	ended bool
	err   error
}

// maxText bounds what users see of an item, in bytes.
const maxText = 200

func (s *stream) count() (int64, bool, error) {
	state := <-s.state
	s.state <- state
	return state.items, state.ended, state.err
}

func (s *stream) set(items int64, ended bool, err error) {
	<-s.state
	s.state <- streamState{items, ended, err}
	select {
	case s.news <- struct{}{}:
	default: // an earlier signal is pending
	}
}

func (s *stream) changed() <-chan struct{}                    { return s.news }
func (s *stream) copy(to io.Writer, first, count int64) error { return s.spool.copy(to, first, count) }

func (s *stream) text(item int64) string { return s.spool.text(item, maxText) }
func (s *stream) sync() error            { return s.spool.sync() }
func (s *stream) close() error           { return s.spool.close() }
func (s *stream) separator() byte        { return s.spool.separator }

// openStream opens the spool in a file and reads in from its beginning: the stream has
// an error if in differs from what the spool holds. If the input ended in an earlier
// run, in is not read.
func openStream(path string, separator byte, in io.Reader, before inputState) (*stream, error) {
	sp, err := openSpool(path, separator)
	if err != nil {
		return nil, err
	}
	s := &stream{spool: sp, news: make(chan struct{}, 1), state: make(chan streamState, 1)}
	s.state <- streamState{}
	if before.Ended {
		if err := s.reread(before.Items); err != nil {
			return nil, errors.Join(err, sp.close())
		}
		return s, nil
	}
	go s.read(in)
	return s, nil
}

// reread indexes a spool that holds the whole input.
func (s *stream) reread(items int64) error {
	n, err := s.spool.load()
	if err != nil {
		return fmt.Errorf("read the items: %w", err)
	}
	if n != items {
		return fmt.Errorf("read %s: %d of %d items: %w", s.spool.file.Name(), n, items, errSpool)
	}
	s.set(n, true, nil)
	return nil
}

// read reads to the input's end.
func (s *stream) read(in io.Reader) {
	items, err := int64(0), error(nil)
	buffer := make([]byte, 256<<10)
	for err == nil {
		var n int
		n, err = in.Read(buffer)
		if n > 0 {
			var failed error
			if items, failed = s.consume(buffer[:n]); failed != nil {
				s.set(items, false, failed)
				return
			}
			s.set(items, false, nil)
		}
	}
	if !errors.Is(err, io.EOF) {
		s.set(items, false, fmt.Errorf("read the items: %w", err))
		return
	}
	if items, err = s.finish(); err != nil {
		s.set(items, false, err)
		return
	}
	s.set(items, true, nil)
}

// consume compares a part of the input with what the spool has of it already, and
// appends the rest.
func (s *stream) consume(part []byte) (int64, error) {
	had := make([]byte, len(part))
	n, err := s.spool.file.ReadAt(had, s.spool.size)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read %s: %w", s.spool.file.Name(), err)
	}
	if !bytes.Equal(had[:n], part[:n]) {
		return 0, s.differs()
	}
	items := s.spool.index(part[:n])
	if n < len(part) {
		return s.spool.append(part[n:])
	}
	return items, nil
}

func (s *stream) differs() error {
	return fmt.Errorf("the items differ from the earlier run's near item %d: give the same input again to resume, or start a new split", s.spool.items+1)
}

// finish ends the last item. It is an error if the spool holds more.
func (s *stream) finish() (int64, error) {
	size := s.spool.size
	items, err := s.spool.end()
	if err != nil {
		return items, err
	}
	info, err := s.spool.file.Stat()
	if err == nil && info.Size() > s.spool.size {
		err = fmt.Errorf("the items end at byte %d, and the earlier run had more: give the same input again to resume, or start a new split", size)
	}
	return items, err
}

// openSource opens the definition's input. in is standard input.
func openSource(d *Definition, dir *Dir, in io.Reader, before inputState) (source, error) {
	separator := byte('\n')
	if d.Input.Null {
		separator = 0
	}
	switch d.Input.Kind {
	case Range:
		return numbers{d.Input.From, d.Input.To}, nil
	case Periods:
		return &periods{first: d.Input.From, blocks: d.Input.To - d.Input.From + 1, most: d.Resident.Periods}, nil
	case Lines:
		if !before.Ended {
			f, err := os.Open(d.Input.Path)
			if err != nil {
				return nil, fmt.Errorf("read the items: %w", err)
			}
			in = f // closed with this process
		}
	case Again:
		_, items, err := readFailed(d.Input.Path)
		if err != nil {
			return nil, fmt.Errorf("read the items that failed in %s: %w", d.Input.Path, err)
		}
		in = bytes.NewReader(items)
	case Several:
		return openMerged(d.Input.Sources, dir, separator, in, before)
	case Stdin:
	default:
		return nil, fmt.Errorf("input of kind %q", d.Input.Kind)
	}
	return openStream(dir.file(fileItems), separator, in, before)
}
