package task

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"
)

// A result is a file: what the items wrote, one after the other as they ended; a
// record of each, in the order of the items; and a trailer. Numbers are
// little-endian.
const (
	recordSize  = 72
	trailerSize = 64
	magic       = "asplit\x003"
)

// sizes returns the size of a record in results of each version: the first had no times, the second no
// added items.
func sizes() map[string]int64 {
	return map[string]int64{magic: recordSize, "asplit\x002": recordSize - 8, "asplit\x001": recordSize - 32}
}

// Record is where the result of one execution stands. Items count from the task's
// first one, which is 0.
type Record struct {
	Item, Count int64
	At          int64     // of its output; what it wrote on standard error and what it added follow
	Out, Err    int64     // bytes
	Added       int64     // bytes of items that it added, each with its separator
	Status      int       // its exit status; 128 + signal
	Began       time.Time // of the last try, by the host's clock; zero: not known
	Took        time.Duration
	Tries       int // 0: not known
}

func (r *Record) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Item))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Count))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Out))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Err))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Status))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Began.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Took))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Tries))
	return binary.LittleEndian.AppendUint64(b, uint64(r.Added))
}

func parseRecord(b []byte) Record {
	r := Record{
		Item: int64(binary.LittleEndian.Uint32(b)), Count: int64(binary.LittleEndian.Uint32(b[4:])),
		At: int64(binary.LittleEndian.Uint64(b[8:])), Out: int64(binary.LittleEndian.Uint64(b[16:])),
		Err: int64(binary.LittleEndian.Uint64(b[24:])), Status: int(binary.LittleEndian.Uint64(b[32:])),
	}
	if len(b) >= recordSize-8 {
		r.Began, r.Took = time.Unix(0, int64(binary.LittleEndian.Uint64(b[40:]))), time.Duration(binary.LittleEndian.Uint64(b[48:]))
		r.Tries = int(binary.LittleEndian.Uint64(b[56:]))
	}
	if len(b) == recordSize {
		r.Added = int64(binary.LittleEndian.Uint64(b[64:]))
	}
	return r
}

// Result is the whole result of a task.
type Result struct {
	First, Count int64     // its items
	Failed       int64     // of them
	Began, Ended time.Time // of the first item and of the last, by the host's clock
	records      int64
	index        int64 // where the records stand
	size         int64 // of a record
	file         io.ReaderAt
	close        func() error
}

// Took returns the time that the items took.
func (r *Result) Took() time.Duration { return r.Ended.Sub(r.Began) }

// Close closes its file.
func (r *Result) Close() error { return r.close() }

func (r *Result) trailer(sum uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.index))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.records))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.First))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Count))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Began.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Ended.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, sum)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return append(b, magic...)
}

var errIncomplete = errors.New("not a complete task result")

// OpenResult opens the result of a task with these items; one that was halted has a result
// of the first of them. The error is fs.ErrNotExist if the file is missing.
func OpenResult(path string, first, count int64) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var r *Result
	if err == nil {
		r, err = ReadResult(f, info.Size())
	}
	if err == nil && (r.First != first || r.Count > count) {
		err = fmt.Errorf("it has items %d to %d instead of %d to %d", r.First, r.First+r.Count-1, first, first+count-1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	r.close = f.Close
	return r, nil
}

// ReadResult reads the trailer of a result of so many bytes, and checks all of its
// records: each item has exactly one.
func ReadResult(f io.ReaderAt, size int64) (*Result, error) {
	b := make([]byte, trailerSize)
	if size < trailerSize {
		return nil, errIncomplete
	}
	if _, err := f.ReadAt(b, size-trailerSize); err != nil {
		return nil, err
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	r := &Result{
		index: number(0), records: number(8), First: number(16), Count: number(24),
		Began: time.Unix(0, number(32)), Ended: time.Unix(0, number(40)), file: f, close: func() error { return nil },
	}
	r.size = sizes()[string(b[56:])]
	if r.size == 0 || binary.LittleEndian.Uint32(b[52:]) != crc32.ChecksumIEEE(b[:52]) ||
		r.index < 0 || r.records < 1 || r.records > MaxItems || r.Count < 1 || r.Count > MaxItems ||
		r.index != size-trailerSize-r.records*r.size {
		return nil, errIncomplete
	}
	return r, r.check(binary.LittleEndian.Uint32(b[48:]))
}

func (r *Result) check(sum uint32) error {
	digest := crc32.NewIEEE()
	next := int64(0)
	err := r.each(digest, func(record Record) error {
		within := record.At >= 0 && record.Out >= 0 && record.Err >= 0 && record.Added >= 0 && record.At <= r.index &&
			record.Out <= r.index-record.At && record.Err <= r.index-record.At-record.Out &&
			record.Added <= min(r.index-record.At-record.Out-record.Err, MaxAdded)
		if record.Item != next || record.Count < 1 || !within {
			return errIncomplete
		}
		next += record.Count
		if record.Status != 0 {
			r.Failed += record.Count
		}
		return nil
	})
	if err == nil && (next != r.Count || digest.Sum32() != sum) {
		err = errIncomplete
	}
	return err
}

// Each calls do for each record, in the order of the items.
func (r *Result) Each(do func(Record) error) error { return r.each(io.Discard, do) }

func (r *Result) each(also io.Writer, do func(Record) error) error {
	index := bufio.NewReaderSize(io.NewSectionReader(r.file, r.index, r.records*r.size), 64<<10)
	b := make([]byte, r.size)
	for range r.records {
		if _, err := io.ReadFull(index, b); err != nil {
			return err
		}
		_, _ = also.Write(b) // no digest fails
		if err := do(parseRecord(b)); err != nil {
			return err
		}
	}
	return nil
}

// Output returns what the execution of a record wrote.
func (r *Result) Output(record Record) io.Reader {
	return io.NewSectionReader(r.file, record.At, record.Out)
}

// Errors returns what it wrote on standard error.
func (r *Result) Errors(record Record) io.Reader {
	return io.NewSectionReader(r.file, record.At+record.Out, record.Err)
}

// Added returns the items that it added, each with its separator.
func (r *Result) Added(record Record) io.Reader {
	return io.NewSectionReader(r.file, record.At+record.Out+record.Err, record.Added)
}

// writer writes a result.
type writer struct {
	result  Result
	to      *bufio.Writer
	at      int64
	records []Record

	ended, failed int64 // items
}

func newWriter(to io.Writer, first, count int64) *writer {
	return &writer{result: Result{First: first, Count: count}, to: bufio.NewWriterSize(to, 64<<10)}
}

// add records one execution, whose items, status and times the record has: what the files hold, and a
// message of asplit itself.
func (w *writer) add(record Record, out, errs *os.File, message string, added *os.File) (err error) {
	record.At = w.at
	if record.Out, err = w.copy(out); err != nil {
		return err
	}
	if record.Err, err = w.copy(errs); err != nil {
		return err
	}
	if _, err := w.to.WriteString(message); err != nil {
		return err
	}
	record.Err += int64(len(message))
	if record.Added, err = w.copy(added); err != nil {
		return err
	}
	w.at += record.Out + record.Err + record.Added
	w.records = append(w.records, record)
	w.ended += record.Count
	if record.Status != 0 {
		w.failed += record.Count
	}
	return nil
}

// copy copies a file from its beginning; nil is an empty one.
func (w *writer) copy(from *os.File) (int64, error) {
	if from == nil {
		return 0, nil
	}
	info, err := from.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	return io.Copy(w.to, io.NewSectionReader(from, 0, info.Size()))
}

// cut leaves the records of the first items, up to one without a result, and returns the
// number of their items.
func (w *writer) cut() int64 {
	slices.SortFunc(w.records, func(a, b Record) int { return int(a.Item - b.Item) })
	w.ended, w.failed = 0, 0
	for i, r := range w.records {
		if r.Item != w.ended {
			w.records = w.records[:i]
			break
		}
		w.ended += r.Count
		if r.Status != 0 {
			w.failed += r.Count
		}
	}
	return w.ended
}

// finish writes the records and the trailer. The task was halted if it has fewer items.
func (w *writer) finish(began, ended time.Time) error {
	slices.SortFunc(w.records, func(a, b Record) int { return int(a.Item - b.Item) })
	w.result.index, w.result.records, w.result.Count = w.at, int64(len(w.records)), w.ended
	w.result.Began, w.result.Ended = began, ended
	digest := crc32.NewIEEE()
	var b []byte
	for i := range w.records {
		b = w.records[i].append(b[:0])
		_, _ = digest.Write(b)
		if _, err := w.to.Write(b); err != nil {
			return err
		}
	}
	if _, err := w.to.Write(w.result.trailer(digest.Sum32())); err != nil {
		return err
	}
	return w.to.Flush()
}
