package miniq_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/await"
)

// hookScript writes one line for each call, and keeps the environment of the last
// call for each job.
func hookScript(t *testing.T, more string) (script, dir string) {
	t.Helper()
	dir = t.TempDir()
	script = filepath.Join(dir, "hook")
	text := "#!/bin/sh\nenv >" + dir + "/$ALLOTMENT_JOBID.env\necho \"$ALLOTMENT_JOBID $1 $ALLOTMENT_STATE $ALLOTMENT_EXIT_STATUS\" >>" + dir + "/calls\n" + more
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script, dir
}

func (q *queue) awaitCalls(dir string, want ...string) {
	q.t.Helper()
	slices.Sort(want)
	err := await.File(soon(q.t), filepath.Join(dir, "calls"), func(text string) bool {
		got := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	if err != nil {
		q.t.Fatalf("calls of the hook, want %q: %v", want, err)
	}
}

func TestEndHookIsRunOnceForEachJob(t *testing.T) {
	script, dir := hookScript(t, "")
	q := newQueue(t, setup{Hook: []string{script, "arg"}})
	fails := q.run("exit 3")
	fails.Name, fails.Project, fails.Description = "it's $(hostile) \xff\n", "chipA:synth", "free words"
	fails.Slots = 2
	many := q.run("true")
	many.Array = &backends.Array{Indices: []int{1, 2}}
	held := q.run("true")
	held.Hold = true
	ids := q.submit(fails, many, held)
	if err := q.Kill(t.Context(), ids[2:]).First(); err != nil {
		t.Fatal(err)
	}
	want := []string{"1 arg exited 3", "2[1] arg done 0", "2[2] arg done 0", "3 arg exited 143"}
	q.awaitCalls(dir, want...)
	env, err := os.ReadFile(filepath.Join(dir, "1.env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ALLOTMENT_USER=" + userName(t), "ALLOTMENT_NAME=it's $(hostile) \xff\n", "ALLOTMENT_PROJECT=chipA", "ALLOTMENT_STEP=synth",
		"ALLOTMENT_QUEUE=normal", "ALLOTMENT_SLOTS=2", "ALLOTMENT_HOSTS=n1 n1", "ALLOTMENT_REQUEUES=0", "ALLOTMENT_DUMMY_FOR=",
	} {
		if !strings.Contains("\n"+string(env), "\n"+line+"\n") {
			t.Errorf("%q is not in the hook's environment:\n%q", line, env)
		}
	}
	if strings.Contains(string(env), "HOME=") {
		t.Errorf("the daemon's own environment is handed on: %q", env)
	}
	q.restart() // calls of the last second may not be recorded: they are made again
	again := q.submit(q.run("true"))
	q.awaitState(again[0], backends.Done)
	text, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if n := strings.Count(string(text), "\n"); n > len(want)+len(want)+1 {
		t.Errorf("%d calls: %s", n, text)
	}
}

// A daemon that is killed while hooks run, or before they could, leaves them to
// the next one.
func TestEndHookOutlivesTheDaemon(t *testing.T) {
	script, dir := hookScript(t, "test -e $(dirname $0)/gate || { echo $$ >$(dirname $0)/x$$; mv $(dirname $0)/x$$ $(dirname $0)/pid.$ALLOTMENT_JOBID; exec sleep 1000; }\n")
	q := newQueue(t, setup{Hook: []string{script}})
	const jobs = 10 // more than run at a time
	var want []string
	ids := q.submit(slices.Repeat([]backends.Spec{q.run("true")}, jobs)...)
	for _, id := range ids {
		q.awaitState(id, backends.Done) // whatever becomes of hooks: the queue goes on
		want = append(want, id.String()+"  done 0")
	}
	q.killWithHooks(dir)
	if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
		t.Fatal(err)
	}
	q.start()
	q.awaitCalls(dir, want...)
	if err := q.Stop(t.Context(), false); err != nil { // now it is recorded
		t.Fatal(err)
	}
	_ = q.cmd.Wait()
	q.start()
	last := q.submit(q.run("true"))
	q.awaitCalls(dir, append(want, last[0].String()+"  done 0")...)
}

// killWithHooks kills the daemon while four hooks run, and the hooks.
func (q *queue) killWithHooks(dir string) {
	q.t.Helper()
	files := q.awaitFiles(dir, "pid.*", 4) // at a time
	q.kill()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			q.t.Fatal(err)
		}
		killText(q.t, string(text))
	}
}

// A hook that fails is logged, and affects no job.
func TestFailingEndHook(t *testing.T) {
	script, dir := hookScript(t, "echo no such luck >&2; exit 7\n")
	q := newQueue(t, setup{Hook: []string{script}})
	id := q.submit(q.run("true"))
	q.awaitState(id[0], backends.Done)
	q.awaitLog("no such luck")
	if err := os.Chmod(script, 0o777); err != nil { // every user can change it
		t.Fatal(err)
	}
	id = q.submit(q.run("true"))
	q.awaitState(id[0], backends.Done)
	q.awaitLog("others can write it")
	q.awaitCalls(dir, "1  done 0")
}

func TestEndHookNeedsAbsolutePath(t *testing.T) {
	for program, wrong := range map[string]bool{"/bin/true": false, "true": true, "./true": true, "": true} {
		c := miniq.DefaultConfig()
		c.EndHook = []string{program, "x"}
		if err := c.Validate(); (err != nil) != wrong {
			t.Errorf("%q: %v", program, err)
		}
	}
}
