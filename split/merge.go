package split

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// merged reads several sources side by side into one spool. Items stand there in the order
// in which they arrive; the file beside it says which bytes are of which source, so that a
// run that resumes compares each source with what it was.
type merged struct {
	*stream
	order *os.File

	mu    sync.Mutex // of one append, and what follows
	left  int        // sources that have not ended
	items int64
	err   error
}

// fileArrivals holds a line for each piece of the spool: its source, from 0, and its bytes.
const fileArrivals = "arrivals"

// MaxMerged is the longest item of several sources, in bytes: each is held until it is whole.
const MaxMerged = 16 << 20

// extent is a piece of the spool.
type extent struct{ from, size int64 }

// openMerged opens sources. stdin is standard input.
func openMerged(sources []Source, dir *Dir, separator byte, stdin io.Reader, before inputState) (source, error) {
	if len(sources) == 0 || len(sources) > MaxSources {
		return nil, fmt.Errorf("%d sources of items: want 1 to %d", len(sources), MaxSources)
	}
	sp, err := openSpool(dir.file(fileItems), separator)
	if err != nil {
		return nil, err
	}
	m := &merged{stream: &stream{spool: sp, news: make(chan struct{}, 1), state: make(chan streamState, 1)}, left: len(sources)}
	m.state <- streamState{}
	if m.order, err = os.OpenFile(dir.file(fileArrivals), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open the order of the items: %w", err), sp.close())
	}
	if err := m.open(sources, stdin, before); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *merged) open(sources []Source, stdin io.Reader, before inputState) error {
	known, size, err := m.readArrivals(len(sources))
	if err != nil {
		return err
	}
	if before.Ended {
		return m.reread(before.Items)
	}
	if err := m.spool.file.Truncate(size); err != nil {
		return fmt.Errorf("read the items: %w", err)
	}
	if err := m.indexAll(); err != nil {
		return err
	}
	for i, s := range sources {
		in, err := s.open(m.spool.separator, stdin)
		if err != nil {
			return err
		}
		go m.read(i, in, known[i])
	}
	return nil
}

// open returns the source's items, each but perhaps the last with its separator.
func (s *Source) open(separator byte, stdin io.Reader) (io.Reader, error) {
	switch s.Kind {
	case Stdin:
		return stdin, nil
	case Lines:
		f, err := os.Open(s.Path)
		if err != nil {
			return nil, fmt.Errorf("read the items: %w", err)
		}
		return f, nil // closed with this process
	case Words:
		var b strings.Builder
		for _, word := range s.Words {
			b.WriteString(word)
			b.WriteByte(separator)
		}
		return strings.NewReader(b.String()), nil
	case Range, Several, Again, Periods:
	}
	return nil, fmt.Errorf("source of kind %q", s.Kind)
}

// readArrivals returns the pieces of each source that an earlier run spooled, and their size in all. A
// line that was cut off is removed.
func (m *merged) readArrivals(sources int) (known [][]extent, size int64, err error) {
	known = make([][]extent, sources)
	r := bufio.NewReader(m.order)
	whole := int64(0)
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the order of the items: %w", err)
		}
		var from int
		var n int64
		if _, err := fmt.Sscanf(line, "%d %d\n", &from, &n); err != nil || from < 0 || from >= sources || n < 1 {
			return nil, 0, fmt.Errorf("read the order of the items in %s: %.40q is no piece", m.order.Name(), line)
		}
		known[from] = append(known[from], extent{size, n})
		size += n
		whole += int64(len(line))
	}
	if err := m.order.Truncate(whole); err != nil {
		return nil, 0, fmt.Errorf("read the order of the items: %w", err)
	}
	_, err = m.order.Seek(whole, io.SeekStart)
	return known, size, err
}

// indexAll indexes what the spool has.
func (m *merged) indexAll() error {
	buffer := make([]byte, 256<<10)
	for at := int64(0); ; {
		n, err := m.spool.file.ReadAt(buffer, at)
		m.items = m.spool.index(buffer[:n])
		at += int64(n)
		if errors.Is(err, io.EOF) {
			m.set(m.items, false, nil)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the items: %w", err)
		}
	}
}

// read reads one source to its end.
func (m *merged) read(n int, in io.Reader, known []extent) {
	parts := make([]io.Reader, len(known))
	for i, e := range known {
		parts[i] = io.NewSectionReader(m.spool.file, e.from, e.size)
	}
	old := io.MultiReader(parts...)
	var held []byte
	buffer := make([]byte, 256<<10)
	for {
		count, err := in.Read(buffer)
		held = append(held, buffer[:count]...)
		ended := errors.Is(err, io.EOF)
		if ended && len(held) > 0 && held[len(held)-1] != m.spool.separator {
			held = append(held, m.spool.separator)
		}
		if err != nil && !ended {
			m.fail(fmt.Errorf("read the items: %w", err))
			return
		}
		whole := bytes.LastIndexByte(held, m.spool.separator) + 1
		if err := m.arrive(n, held[:whole], old); err != nil {
			m.fail(err)
			return
		}
		held = append([]byte(nil), held[whole:]...)
		if len(held) > MaxMerged {
			m.fail(fmt.Errorf("read the items: one is longer than %d bytes, which is the most with several sources", MaxMerged))
			return
		}
		if ended {
			m.end(old)
			return
		}
	}
}

// arrive compares whole items with what an earlier run had of their source, and appends the
// rest.
func (m *merged) arrive(n int, items []byte, old io.Reader) error {
	had := make([]byte, len(items))
	count, err := io.ReadFull(old, had)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read %s: %w", m.spool.file.Name(), err)
	}
	if !bytes.Equal(had[:count], items[:count]) {
		return errSourceDiffers
	}
	if items = items[count:]; len(items) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.items, err = m.spool.append(items); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(m.order, "%d %d\n", n, len(items)); err != nil {
		return fmt.Errorf("write the order of the items: %w", err)
	}
	m.set(m.items, false, nil)
	return nil
}

var errSourceDiffers = errors.New("a source's items differ from the earlier run's: give the same input again to resume, or start a new split")

// end ends a source.
func (m *merged) end(old io.Reader) {
	if n, err := io.Copy(io.Discard, old); err != nil || n > 0 {
		m.fail(errSourceDiffers)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 && m.err == nil {
		m.set(m.items, true, nil)
	}
}

func (m *merged) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		m.set(m.items, false, err)
	}
}

func (m *merged) sync() error {
	if err := m.order.Sync(); err != nil {
		return fmt.Errorf("write the order of the items: %w", err)
	}
	return m.stream.sync()
}

func (m *merged) close() error { return errors.Join(m.order.Close(), m.stream.close()) }
