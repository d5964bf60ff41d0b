package trace

import (
	"bufio"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/heap"
)

// Store holds a trace in order of submission, for several readings. Beyond
// chunkRecords records it holds them in temporary files, so that memory does not
// grow with the trace. The zero Store is empty and ready to use.
type Store struct {
	Jobs    int            // that can be simulated
	Out     map[string]int // records that can't, by why
	First   time.Time      // submission
	Last    time.Time
	Bad     []string // what is wrong with the lines that were passed over
	chunk   []Record
	files   []*os.File
	names   map[string]string // each user and project once
	perFile int               // 0: chunkRecords
}

const chunkRecords = 1 << 15

// Fill reads a trace to its end. It skips at most skipBad bad lines.
func (s *Store) Fill(source iter.Seq2[Record, error], skipBad int) error {
	for r, err := range source {
		var bad *LineError
		switch {
		case errors.As(err, &bad) && len(s.Bad) < skipBad:
			s.Bad = append(s.Bad, err.Error())
			continue
		case err != nil:
			return err
		}
		if err := s.add(r); err != nil {
			return err
		}
	}
	s.sort()
	return nil
}

func (s *Store) add(r Record) error {
	if r.LeftOut != "" {
		if s.Out == nil {
			s.Out = map[string]int{}
		}
		s.Out[r.LeftOut]++
		return nil
	}
	if s.Jobs == 0 || r.Submitted.Before(s.First) {
		s.First = r.Submitted
	}
	if s.Jobs == 0 || r.Submitted.After(s.Last) {
		s.Last = r.Submitted
	}
	s.Jobs++
	for _, name := range []*string{&r.User, &r.Project, &r.Step, &r.Group, &r.Queue, &r.Partition} {
		*name = s.intern(*name)
	}
	s.chunk = append(s.chunk, r)
	if len(s.chunk) >= cmp.Or(s.perFile, chunkRecords) {
		return s.spill()
	}
	return nil
}

func (s *Store) intern(name string) string {
	if s.names == nil {
		s.names = map[string]string{}
	}
	if same, ok := s.names[name]; ok {
		return same
	}
	s.names[name] = name
	return name
}

func (s *Store) sort() {
	slices.SortStableFunc(s.chunk, func(a, b Record) int { return a.Submitted.Compare(b.Submitted) })
}

// spill writes the chunk into a file of its own, which is gone with the process.
func (s *Store) spill() error {
	s.sort()
	f, err := os.CreateTemp("", "allotment-trace-")
	if err != nil {
		return fmt.Errorf("sort the trace: %w", err)
	}
	s.files = append(s.files, f)
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("sort the trace: %w", err)
	}
	out := bufio.NewWriter(f)
	encoder := gob.NewEncoder(out)
	for i := range s.chunk {
		if err := encoder.Encode(&s.chunk[i]); err != nil {
			return fmt.Errorf("sort the trace: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("sort the trace: %w", err)
	}
	s.chunk = s.chunk[:0]
	return nil
}

// Close closes the temporary files, which removes them.
func (s *Store) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// All yields the records in order of submission; those of one instant in the
// order of the trace. An error is the last value. Readings must not overlap.
func (s *Store) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		merged := heap.New(func(a, b *sortedRun) bool {
			c := a.record.Submitted.Compare(b.record.Submitted)
			return c < 0 || c == 0 && a.order < b.order
		}, nil)
		fail := func(err error) { yield(Record{}, fmt.Errorf("read the sorted trace: %w", err)) }
		add := func(next func() (Record, error)) error {
			first, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				merged.Push(&sortedRun{merged.Len(), first, next})
			}
			return err
		}
		for _, f := range s.files {
			decoder := gob.NewDecoder(bufio.NewReader(io.NewSectionReader(f, 0, 1<<62)))
			err := add(func() (r Record, err error) {
				err = decoder.Decode(&r)
				return r, err
			})
			if err != nil {
				fail(err)
				return
			}
		}
		at := 0
		_ = add(func() (Record, error) { // it is in memory
			if at == len(s.chunk) {
				return Record{}, io.EOF
			}
			at++
			return s.chunk[at-1], nil
		})
		for merged.Len() > 0 {
			run := merged.Top()
			if !yield(run.record, nil) {
				return
			}
			next, err := run.next()
			switch {
			case errors.Is(err, io.EOF):
				merged.Pop()
			case err != nil:
				fail(err)
				return
			default:
				run.record = next
				merged.Fix(0)
			}
		}
	}
}

// sortedRun is a part of the trace that is in order.
type sortedRun struct {
	order  int
	record Record
	next   func() (Record, error)
}
