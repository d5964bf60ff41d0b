package main

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// A job that was forgotten while asub waited for it is no success.
func TestWaitFailsForForgottenJob(t *testing.T) {
	got := bob(t, fake.NewQueue(), "", "asub", "-K", "true")
	if got.code != 1 || !strings.Contains(got.stderr, "asub: the queue no longer knows job 99") {
		t.Errorf("%+v", got)
	}
}

func TestWaitReturnsJobExitCode(t *testing.T) {
	q := fake.NewQueue()
	ended := func(state backends.State, code int, ran bool) backends.Job {
		j := backends.Job{ID: backends.ID{Job: 99}, State: state, ExitCode: code}
		if ran {
			j.Started, j.Hosts = fake.Now(), []backends.Placement{{Host: "n1", Slots: 1}}
		}
		return j
	}
	for want, j := range map[int]backends.Job{
		0: ended(backends.Done, 0, true), 7: ended(backends.Exited, 7, true), 126: ended(backends.Exited, 143, false),
		1: ended(backends.Exited, -1, true), 255: ended(backends.Exited, 255, true),
	} {
		q.Content.Ended = []backends.Job{j}
		if got := bob(t, q, "", "asub", "-K", "true"); got.code != want {
			t.Errorf("%+v gives %+v, want %d", j, got, want)
		}
	}
}
