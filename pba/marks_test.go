package pba

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/esub"
)

// TestMarksBringCycles leaves marks in virtual time, and writes down when cycles start, in
// seconds.
func TestMarksBringCycles(t *testing.T) {
	for _, c := range []struct {
		name  string
		marks []int // seconds
		looks int   // cycles after a mark that wait for the queue to decide
		want  string
	}{
		{"none", nil, 0, "[0 60]"},
		{"one", []int{10}, 0, "[0 11 13 60]"},
		{"the queue decides late", []int{10}, 3, "[0 11 13 15 60]"},
		{"the queue never decides", []int{10}, 100, "[0 11 13 15 17 19 21 60]"},
		{"without a mark no cycle comes sooner", nil, 100, "[0 60]"},
		{"many at a time", []int{10, 10, 10, 11}, 0, "[0 11 13 16 18 60]"},
		{"without an end", []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26}, 0, "[0 11 13 16 18 21 23 26 28 31 33 60]"},
		{"at a beat", []int{58}, 0, "[0 59 60 61]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithDeadline(t.Context(), start.Add(70*time.Second))
				defer cancel()
				heard := make(chan struct{}, 1) // the kernel keeps one of equal notices
				for _, at := range c.marks {
					time.AfterFunc(time.Duration(at)*time.Second, func() {
						select {
						case heard <- struct{}{}:
						default:
						}
					})
				}
				var starts []int
				looks := c.looks
				s := Schedule{Every: time.Minute, Marks: func() <-chan struct{} { return heard }}
				err := s.Run(ctx, start, func(context.Context) (Then, error) {
					starts = append(starts, int(time.Since(start).Seconds()))
					if len(starts) > 1 || c.marks == nil {
						looks--
					}
					if looks > 0 {
						return GoOnSoon, nil
					}
					return GoOn, nil
				})
				if got := fmt.Sprint(starts); got != c.want || err != nil {
					t.Errorf("cycles at %s, %v; want %s", got, err, c.want)
				}
			})
		})
	}
}

func TestMarksAreHeard(t *testing.T) {
	dir := t.TempDir()
	m, err := ListenForMarks(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Heard() // the file is not there yet
	mark := filepath.Join(dir, esub.MarkName)
	if err := os.WriteFile(mark, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		heard := m.Heard()
		if n == 1 { // it was exchanged
			if err := os.Rename(mark, mark+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(mark, nil, 0o444); err != nil {
				t.Fatal(err)
			}
			heard = m.Heard()
		}
		if _, err := os.ReadFile(mark); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-t.Context().Done():
		case <-time.After(time.Minute):
			t.Fatalf("mark %d is not heard", n)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
