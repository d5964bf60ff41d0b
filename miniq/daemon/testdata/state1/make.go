//go:build ignore

// Command make fills a queue in as many ways as there are, kills it, and says
// what it held: see make.sh. It is compiled in the tree of the version whose
// state is wanted.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

// known is what the queue said before it was killed; texts are escaped (miniq.Escape).
type known struct {
	Farm    *backends.Snapshot
	Records map[string]*backends.Record
	Specs   map[string]backends.Spec // as they were submitted
}

const hostile = "a 'b' \"c\"\n\x1b[31m\xff\xfe; DROP TABLE spec; --"

func main() {
	m := &maker{dir: os.Args[1], bin: os.Args[2], specs: map[string]backends.Spec{}}
	m.fill()
}

type maker struct {
	dir, bin string
	paths    home.Paths
	q        *client.Client
	daemon   *exec.Cmd
	specs    map[string]backends.Spec
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (m *maker) start() {
	paths, err := home.Find(func(name string) string {
		return map[string]string{"ALLOTMENT_HOME": m.dir}[name]
	}, os.Getuid())
	must(err)
	m.paths = paths
	ready, theirs, err := os.Pipe()
	must(err)
	m.daemon = exec.Command(filepath.Join(m.bin, "miniqd"), "--foreground", miniq.ReadyArgument)
	m.daemon.Env = append(os.Environ(), "ALLOTMENT_HOME="+m.dir)
	m.daemon.Stderr, m.daemon.ExtraFiles = os.Stderr, []*os.File{theirs}
	must(m.daemon.Start())
	_ = theirs.Close()
	line := make([]byte, 100)
	n, _ := ready.Read(line)
	if !strings.HasPrefix(string(line[:n]), miniq.ReadyLine) {
		panic(string(line[:n]))
	}
	m.q = client.Open(client.Options{Paths: paths, Config: miniq.DefaultConfig()})
}

// job is one that does no harm wherever it runs.
func (m *maker) job(script string) backends.Spec {
	return backends.Spec{
		Name: "job", Project: "chipA:synthesis", Slots: 1, Command: []string{"/bin/sh", "-c", script, "sh"}, Dir: "/tmp",
		Env: []string{"PATH=/usr/bin:/bin", "HOSTILE=" + hostile}, Umask: 0o027, Stdout: "/dev/null",
	}
}

func (m *maker) submit(s backends.Spec) backends.ID {
	r := m.q.Submit(context.Background(), []backends.Spec{s})[0]
	must(r.Err)
	m.specs[r.ID.String()] = s
	return r.ID
}

func (m *maker) await(id backends.ID, cond func(backends.Job) bool) backends.Job {
	for changes := uint64(0); ; {
		jobs, err := m.q.Jobs(context.Background(), []backends.ID{id})
		must(err)
		if len(jobs) == 1 && cond(jobs[0]) {
			return jobs[0]
		}
		changes, err = m.q.WaitChange(context.Background(), changes)
		must(err)
	}
}

func is(s backends.State) func(backends.Job) bool {
	return func(j backends.Job) bool { return j.State == s }
}

func runs(n int) func(backends.Job) bool {
	return func(j backends.Job) bool { return j.State == backends.Running && !j.Ending && j.Requeues == n }
}

func (m *maker) fill() {
	ctx := context.Background()
	far := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	m.start()
	extra := m.q.Abilities()

	// In the snapshot: jobs that ended, each in another way.
	done := m.job("exit 0")
	done.Name, done.Description = hostile, hostile
	m.await(m.submit(done), is(backends.Done))
	m.await(m.submit(m.job("exit 3")), is(backends.Exited))
	m.await(m.submit(m.job("kill -9 $$")), is(backends.Exited))
	script := m.job("")
	script.Command, script.Script = nil, []byte("#!/bin/sh\n# \xff\nexit 5\n")
	m.await(m.submit(script), is(backends.Exited))
	finished := m.job("exit $LSB_JOBINDEX")
	finished.Array = &backends.Array{Indices: []int{1, 3}}
	array := m.submit(finished)
	m.await(backends.ID{Job: array.Job, Index: 1}, is(backends.Exited))
	m.await(backends.ID{Job: array.Job, Index: 3}, is(backends.Exited))
	missing := m.job("")
	missing.Command = []string{"/no/such/program"}
	m.await(m.submit(missing), is(backends.Exited))

	// Jobs that wait, each for something else.
	held := m.job("exit 0")
	held.Hold, held.Name = true, "held "+hostile
	keep := m.submit(held)
	begin := m.job("exit 0")
	begin.BeginTime = far
	m.submit(begin)
	after := m.job("exit 0")
	after.After = fmt.Sprintf("done(%d)", keep.Job)
	m.submit(after)
	ended := m.job("exit 0")
	ended.After = fmt.Sprintf("ended(%d) && exit(2)", keep.Job)
	m.submit(ended)
	large := m.job("exit 0")
	large.Slots, large.Exclusive, large.NoRequeue, large.Name = 6, true, true, "large"
	m.submit(large)
	wide := m.job("exit 0")
	wide.Slots, wide.Memory, wide.MemoryLimit = 6, 5<<30, 6<<30
	m.submit(wide)
	limited := held
	limited.Array = &backends.Array{Indices: []int{1, 2, 3, 7}, Limit: 2}
	part := m.submit(limited)
	must(m.q.Kill(ctx, []backends.ID{{Job: part.Job, Index: 2}}).First())
	held.Name = "pinned"
	pinned := m.submit(held)
	must(extra.Pin(ctx, []backends.Pin{{ID: pinned, Hosts: []string{"n2"}}}).First())
	must(extra.HoldUntil(ctx, []backends.HoldUntil{{ID: pinned, Until: far}}).First())
	must(m.q.SetPriority(ctx, []backends.PriorityChange{{ID: pinned, Priority: backends.At(backends.LevelNext, 30)}}).First())
	held.Name = "low"
	low := m.submit(held)
	must(extra.Move(ctx, []backends.ID{low}, "low").First())

	must(m.q.Stop(ctx, false)) // this writes the snapshot
	_ = m.daemon.Wait()
	m.start()
	extra = m.q.Abilities()

	// In the journal: what runs, what ran, and what is done to what waits.
	file := filepath.Join(m.dir, "go")
	suspended := m.submit(m.job("sleep 1000"))
	m.await(suspended, runs(0))
	must(m.q.Suspend(ctx, []backends.Act{{ID: suspended, Until: far, Mark: "r7", Notice: "suspended for r7"}}).First())
	requeued := m.job("sleep 1000")
	requeued.Name = "requeued"
	again := m.submit(requeued)
	m.await(again, runs(0))
	must(m.q.Requeue(ctx, []backends.Act{{ID: again, Until: far, Mark: "r8"}}).First())
	m.await(again, is(backends.Pending))
	lost := m.job("sleep 1000")
	lost.Name = "lost"
	m.await(m.submit(lost), runs(0))
	rerun := m.job(`test "$ALLOTMENT_REQUEUES" != 0 || test ! -e ` + file + `.first || exit 0; sleep 1000`)
	rerun.Name, rerun.Rerunnable = "rerun", true
	m.await(m.submit(rerun), runs(0))
	unseen := m.job("while test ! -e " + file + "; do sleep 0.02; done; exit 7")
	unseen.Name = "unseen"
	last := m.submit(unseen)
	m.await(last, runs(0))
	name := "changed " + strconv.Itoa(1)
	must(extra.Modify(ctx, []backends.ID{low}, backends.Change{Name: &name}).First())
	must(m.q.Kill(ctx, []backends.ID{pinned}).First())
	m.submit(held)
	m.await(m.submit(m.job("exit 0")), is(backends.Done))

	m.say()
	must(m.daemon.Process.Kill())
	_ = m.daemon.Wait()
	// One job ends while no daemon serves, the others as if the machine went down.
	must(os.WriteFile(file, nil, 0o600))
	record := filepath.Join(m.dir, "miniq", "nodes")
	for over := false; !over; time.Sleep(10 * time.Millisecond) {
		found, _ := filepath.Glob(filepath.Join(record, "*", "runs", fmt.Sprintf("%d.0.1.run", last.Job)))
		data, _ := os.ReadFile(found[0])
		over = strings.Contains(string(data), "\nx 7 ")
	}
	m.killKeepers()
}

// say writes down what the queue knows, and what stands in the state objects.
func (m *maker) say() {
	ctx := context.Background()
	farm, err := m.q.Snapshot(ctx, time.Time{})
	must(err)
	k := known{Farm: farm, Records: map[string]*backends.Record{}, Specs: map[string]backends.Spec{}}
	for id, s := range m.specs {
		k.Specs[id] = miniq.EscapeSpec(s)
	}
	for _, list := range [][]backends.Job{farm.Jobs, farm.Ended} {
		for i := range list {
			r, err := m.q.Record(ctx, list[i].ID)
			must(err)
			r.Spec = miniq.EscapeSpec(r.Spec)
			k.Records[list[i].ID.String()] = r
			list[i].Name = miniq.Escape(list[i].Name)
		}
	}
	data, err := json.MarshalIndent(k, "", "\t")
	must(err)
	must(os.WriteFile(filepath.Join(m.dir, "known.json"), data, 0o600))
}

func (m *maker) killKeepers() {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		record, _ := os.Readlink(dir + "/fd/3")
		line, _ := os.ReadFile(dir + "/cmdline")
		if strings.HasPrefix(record, m.dir+"/") && strings.HasPrefix(string(line), "miniq-keeper\x00") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
