package leased

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/lease"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/lease/serve"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/worker"
)

// manager serves a manager until the function that it returns is called, and returns its place.
func manager(t *testing.T, limits lease.Limits) (at client.Place, end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "leased-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	l, err := listen.Unix(t.Context(), path, listen.Names{Socket: "the socket", Program: "the test", Key: "none"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve.New(serve.Options{Limits: limits, UID: os.Getuid()}).Serve(ctx, l) }()
	end = func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(cancel)
	return client.Place{Socket: path}, end
}

// bring has a worker bring a slot until the function that it returns is called. Its program is a line of sh
// with the directory, the number and a word as arguments.
func bring(t *testing.T, at client.Place, name, script string) (kill func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "asplit-task")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	b := &worker.Bringer{Name: name, Host: "h-" + name, Slots: 1, Task: program, Log: func(string) {}}
	go func() { ended <- b.Run(ctx, at) }()
	kill = func() {
		cancel()
		if err := <-ended; !errors.Is(err, worker.ErrSignal) {
			t.Errorf("a worker that is killed ends with %v", err)
		}
	}
	return kill
}

// splitDir makes a split's directory.
func splitDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "split")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func spec(dir string, n int) backends.Spec {
	return backends.Spec{Name: "x", Hosts: []string{"slot-1"}, Slots: 1, Command: []string{"asplit-task", dir, fmt.Sprint(n)}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "WORD=there"}}
}

// await waits until a job is as it should be.
func await(t *testing.T, q *Queue, id backends.ID, is func(backends.Job) bool) backends.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for changes := q.Changes(); ; {
		jobs, err := q.Jobs(ctx, []backends.ID{id})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%v, %v", jobs, err)
		}
		if is(jobs[0]) {
			return jobs[0]
		}
		if err := changes(ctx); err != nil {
			t.Fatalf("the job is %+v", jobs[0])
		}
	}
}

func running(j backends.Job) bool { return j.State == backends.Running }
func ended(j backends.Job) bool   { return j.State.Ended() }

func open(t *testing.T, at client.Place, slots int) *Queue {
	t.Helper()
	q, err := Open(at, slots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// A task is executed by a worker in the split's surroundings, and ends as its process does.
func TestTasks(t *testing.T) {
	at, _ := manager(t, lease.Limits{})
	q, dir := open(t, at, 2), splitDir(t)
	results := q.Submit(t.Context(), []backends.Spec{spec(dir, 1), spec(dir, 7)})
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	bring(t, at, "w1", `echo "$PWD $WORD $@" >"$1/seen.$2"; exit $(($2 - 1))`)
	for i, want := range []int{0, 6} {
		j := await(t, q, results[i].ID, ended)
		if j.ExitCode != want || (j.State == backends.Done) != (want == 0) || len(j.Hosts) != 1 || j.Hosts[0].Host != "h-w1" {
			t.Errorf("%+v", j)
		}
		seen, err := os.ReadFile(fmt.Sprintf("%s/seen.%d", dir, want+1))
		if text := fmt.Sprintf("%s there %s %d %s\n", dir, dir, want+1, task.Stoppable); string(seen) != text || err != nil {
			t.Errorf("%q, %v", seen, err)
		}
	}
	s, err := q.Snapshot(t.Context(), time.Time{})
	if err != nil || len(s.Hosts) != 2 || len(s.Jobs) != 0 || len(s.Ended) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A task whose worker is killed is executed by another one, as a queue requeues a job.
func TestLostWorker(t *testing.T) {
	at, _ := manager(t, lease.Limits{})
	q, dir := open(t, at, 1), splitDir(t)
	r := q.Submit(t.Context(), []backends.Spec{spec(dir, 1)})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	kill := bring(t, at, "w1", "exec sleep 300")
	await(t, q, r.ID, running)
	kill()
	await(t, q, r.ID, func(j backends.Job) bool { return j.State == backends.Pending })
	bring(t, at, "w2", "exit 0")
	if j := await(t, q, r.ID, ended); j.State != backends.Done || j.Hosts[0].Host != "h-w2" {
		t.Errorf("%+v", j)
	}
}

// What is killed ends, whether it waits or runs, and its slot is free.
func TestKill(t *testing.T) {
	at, _ := manager(t, lease.Limits{})
	q, dir := open(t, at, 3), splitDir(t)
	results := q.Submit(t.Context(), []backends.Spec{spec(dir, 1), spec(dir, 2), spec(dir, 3)})
	bring(t, at, "w1", `[ $2 = 3 ] || exec sleep 300`)
	await(t, q, results[0].ID, running)
	errs := q.Kill(t.Context(), []backends.ID{results[1].ID, results[0].ID, {Job: 99}})
	if !slices.EqualFunc(errs, []error{nil, nil, backends.ErrUnknownJob}, errors.Is) {
		t.Errorf("%v", errs)
	}
	if j := await(t, q, results[2].ID, ended); j.State != backends.Done {
		t.Errorf("%+v", j)
	}
	for _, r := range results[:2] {
		if j := await(t, q, r.ID, ended); j.State != backends.Exited || j.ExitCode != killedStatus {
			t.Errorf("%+v", j)
		}
	}
	if err := q.Kill(t.Context(), []backends.ID{results[0].ID}).First(); !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("it ended before: %v", err)
	}
}

// The manager holds a requester to its limit, whatever that asks for.
func TestLimit(t *testing.T) {
	at, _ := manager(t, lease.Limits{Held: 2})
	q, dir := open(t, at, 40), splitDir(t)
	if s, err := q.Snapshot(t.Context(), time.Time{}); err != nil || len(s.Hosts) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	q.slots = 40 // it lies
	results := q.Submit(t.Context(), []backends.Spec{spec(dir, 1), spec(dir, 2), spec(dir, 3)})
	if results[0].Err != nil || results[1].Err != nil || !errors.Is(results[2].Err, ErrRefused) {
		t.Errorf("%+v", results)
	}
}

// When the manager ends, all calls say so.
func TestManagerEnds(t *testing.T) {
	at, end := manager(t, lease.Limits{})
	q, dir := open(t, at, 1), splitDir(t)
	end()
	<-q.ended
	_, err := q.Snapshot(t.Context(), time.Time{})
	if err == nil || errors.Is(err, backends.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if r := q.Submit(t.Context(), []backends.Spec{spec(dir, 1)})[0]; r.Err == nil {
		t.Error("it takes a task")
	}
	if _, err := Open(at, 1); err == nil {
		t.Error("a manager that has ended is joined")
	}
}
