package split

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// stride is the distance, in items, of the offsets in memory.
const stride = 1024

// spool stores the items that were read in a file, each with its separator, unchanged.
// One goroutine writes, others read.
type spool struct {
	file      *os.File
	separator byte

	mu      sync.Mutex
	size    int64   // indexed bytes
	items   int64   // whole ones
	offsets []int64 // of items 0, stride, 2 × stride …
}

// openSpool opens a spool, or makes it. None of its items are known yet.
func openSpool(path string, separator byte) (*spool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the spool of items: %w", err)
	}
	return &spool{file: f, separator: separator, offsets: []int64{0}}, nil
}

// index indexes bytes that follow the indexed ones in the file, and returns the number of
// items.
func (s *spool) index(part []byte) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := 0; ; {
		i := bytes.IndexByte(part[at:], s.separator)
		if i < 0 {
			break
		}
		at += i + 1
		s.items++
		if s.items%stride == 0 {
			s.offsets = append(s.offsets, s.size+int64(at))
		}
	}
	s.size += int64(len(part))
	return s.items
}

// load indexes what the file holds behind the indexed bytes, and returns the number of items.
func (s *spool) load() (items int64, err error) {
	buffer := make([]byte, 256<<10)
	for {
		n, err := s.file.ReadAt(buffer, s.size) // without mu: only this goroutine changes size
		items = s.index(buffer[:n])
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return items, err
		}
	}
}

// append writes bytes behind the indexed ones.
func (s *spool) append(part []byte) (int64, error) {
	if _, err := s.file.WriteAt(part, s.size); err != nil { // without mu: only this goroutine changes size
		return 0, fmt.Errorf("write the spool of items: %w", err)
	}
	return s.index(part), nil
}

// end ends the last item with a separator if it has none, and returns the number of
// items.
func (s *spool) end() (int64, error) {
	var last [1]byte
	if s.size > 0 {
		if _, err := s.file.ReadAt(last[:], s.size-1); err != nil {
			return 0, fmt.Errorf("read %s: %w", s.file.Name(), err)
		}
		if last[0] != s.separator {
			return s.append([]byte{s.separator})
		}
	}
	return s.index(nil), nil
}

var errSpool = errors.New("items are missing in the spool")

// copy writes items with their separators.
func (s *spool) copy(to io.Writer, first, count int64) error {
	s.mu.Lock()
	if first < 0 || first+count > s.items {
		s.mu.Unlock()
		return fmt.Errorf("read items %d to %d of %s: %w", first, first+count-1, s.file.Name(), errSpool)
	}
	from, size := s.offsets[first/stride], s.size
	s.mu.Unlock()
	r := bufio.NewReaderSize(io.NewSectionReader(s.file, from, size-from), 64<<10)
	if err := copyItems(io.Discard, r, s.separator, first%stride); err != nil {
		return fmt.Errorf("read %s: %w", s.file.Name(), err)
	}
	return copyItems(to, r, s.separator, count)
}

// copyItems copies count items.
func copyItems(to io.Writer, r *bufio.Reader, separator byte, count int64) error {
	for count > 0 {
		part, err := r.ReadSlice(separator)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if err == nil {
			count--
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// text returns the beginning of an item, at most this many bytes.
func (s *spool) text(item int64, most int) string {
	b := &prefixWriter{most: most}
	if err := s.copy(b, item, 1); err != nil {
		return ""
	}
	return string(bytes.TrimSuffix(b.text, []byte{s.separator}))
}

type prefixWriter struct {
	text []byte
	most int
}

func (b *prefixWriter) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), b.most-len(b.text))]...)
	return len(p), nil
}

// sync syncs the file.
func (s *spool) sync() error {
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("write the spool of items: %w", err)
	}
	return nil
}

func (s *spool) close() error { return s.file.Close() }
