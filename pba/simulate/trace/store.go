package trace

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"
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

const chunkRecords = 1 << 17

// Fill reads a trace to its end. It passes over at most skipBad bad lines.
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
	r.User, r.Project, r.Step = s.once(r.User), s.once(r.Project), s.once(r.Step)
	s.chunk = append(s.chunk, r)
	if len(s.chunk) >= cmp.Or(s.perFile, chunkRecords) {
		return s.spill()
	}
	return nil
}

func (s *Store) once(name string) string {
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

// Close gives the temporary files back.
func (s *Store) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// All gives the records in order of submission; those of one instant in the
// order of the trace. An error is the last value. Readings must not overlap.
func (s *Store) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var merged runs
		for i, f := range s.files {
			decoder := gob.NewDecoder(bufio.NewReader(io.NewSectionReader(f, 0, 1<<62)))
			merged = append(merged, &sortedRun{place: i, next: func() (r Record, err error) {
				err = decoder.Decode(&r)
				return r, err
			}})
		}
		at := 0
		merged = append(merged, &sortedRun{place: len(s.files), next: func() (Record, error) {
			if at == len(s.chunk) {
				return Record{}, io.EOF
			}
			at++
			return s.chunk[at-1], nil
		}})
		if err := merged.start(); err != nil {
			yield(Record{}, fmt.Errorf("read the sorted trace: %w", err))
			return
		}
		for len(merged) > 0 {
			if !yield(merged[0].record, nil) {
				return
			}
			if err := merged.step(); err != nil {
				yield(Record{}, fmt.Errorf("read the sorted trace: %w", err))
				return
			}
		}
	}
}

// sortedRun is a part of the trace that is in order.
type sortedRun struct {
	place  int
	record Record
	next   func() (Record, error)
}

// runs is a heap of them, by their next record.
type runs []*sortedRun

// start reads the first record of each.
func (r *runs) start() error {
	all := *r
	*r = nil
	for _, one := range all {
		record, err := one.next()
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return err
		}
		one.record = record
		*r = append(*r, one)
	}
	heap.Init(r)
	return nil
}

// step reads the next record of the first one.
func (r *runs) step() error {
	first := (*r)[0]
	record, err := first.next()
	switch {
	case errors.Is(err, io.EOF):
		heap.Pop(r)
		return nil
	case err != nil:
		return err
	}
	first.record = record
	heap.Fix(r, 0)
	return nil
}

func (r runs) Len() int { return len(r) }

func (r runs) Less(i, k int) bool {
	if c := r[i].record.Submitted.Compare(r[k].record.Submitted); c != 0 {
		return c < 0
	}
	return r[i].place < r[k].place
}

func (r runs) Swap(i, k int) { r[i], r[k] = r[k], r[i] }
func (r *runs) Push(x any)   { *r = append(*r, x.(*sortedRun)) }
func (r *runs) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}
