package main

import (
	"os"
	"slices"
	"testing"
)

func TestAssignProcessors(t *testing.T) {
	for _, c := range []struct {
		processors, want []int
	}{
		{[]int{0, 1}, []int{1, 1, 1, 0}},
		{[]int{2, 5, 7, 8}, []int{8, 7, 5, 2}},
		{[]int{3}, nil},
	} {
		if got := assignProcessors(cores, c.processors); !slices.Equal(got, c.want) {
			t.Errorf("on processors %v: %v, want %v", c.processors, got, c.want)
		}
	}
}

func TestChildren(t *testing.T) {
	pids, err := children(os.Getppid())
	if err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%v: %v", pids, err)
	}
}
