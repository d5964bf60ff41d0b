package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
)

// R47: what the last cycle knows of the jobs on a host reaches that host's agent over the bus, and so does a
// pause. What the agent says of its limits comes back.
func TestPromisesReachAgents(t *testing.T) {
	needed(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	f := farm.New(t, farm.Options{Programs: programs, Config: fmt.Sprintf(`miniq: {nodes: ["%s:4:8G"]}
pba: {every: 1s}
ahostd: {every: 1s}
limits: {mode: observe}
log: {level: debug}
`, host)})
	group, err := farm.OwnGroup()
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if _, err := f.Run(ctx, name, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("pba", "init")
	run("pba", "project", "add", "chipA", "--group", group)
	run("pba", "alloc", "set", "chipA", "2", "--weeks", "2")
	log := filepath.Join(f.Home, "ahostd.log")
	to, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"pba", "rebalance", "--every", "1s"}, {"allotd"}, {"ahostd"}} {
		cmd := f.Background(ctx, args[0], args[1:]...)
		if args[0] == "ahostd" {
			cmd.Stderr = to
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() }) // SIGTERM ends it
	}
	heard := func(want string) {
		t.Helper()
		if err := await.File(ctx, log, func(text string) bool { return strings.Contains(text, want) }); err != nil {
			t.Error(err)
		}
	}
	heard(`msg="promises are heard" jobs=0 within=0 paused=false`)
	run("asub", "-P", "chipA", "sleep", "600")
	run("asub", "sleep", "600")
	heard(`msg="promises are heard" jobs=2 within=1 paused=false`)
	says := func(want, name string, args ...string) {
		t.Helper()
		out := ""
		if !await.Soon(func() bool { out, _ = f.Run(ctx, name, args...); return strings.Contains(out, want) }) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	says("\nobserve\n", "ahosts", "--agents", "--csv", "-o", "limits")
	says("Note: limits: "+host+": no job was there yet\n", "pba", "doctor") // a job that has no control group does not count
	run("pba", "pause")
	heard(`msg="promises are heard" jobs=2 within=1 paused=true`)
}
