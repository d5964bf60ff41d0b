package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Hosts are measured concurrently, and the filter prints the same lines for each job.
func TestDedupWriter(t *testing.T) {
	var shown bytes.Buffer
	once := &dedupWriter{to: &shown, seen: map[string]bool{}}
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			for i := range 900 {
				if _, err := fmt.Fprintf(once, "the same\nline %d\n", (i+100*n)%900); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if lines := strings.Count(shown.String(), "\n"); lines != 901 || strings.Count(shown.String(), "the same\n") != 1 {
		t.Errorf("%d lines, want each of 901 once:\n%s", lines, shown.String())
	}
}
