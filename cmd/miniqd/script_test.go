package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// TestMain makes the test binary each of the programs, by the name that it is called
// by. A keeper is a copy of it beside miniqd.
func TestMain(m *testing.M) {
	if os.Args[0] == "miniq-keeper" {
		exit(keeper.Run())
	}
	testscript.Main(m, map[string]func(){
		"miniqd":       main,
		"miniq-keeper": func() { exit(keeper.Run()) },
		"first-use":    firstUse,
		"one-job":      oneJob,
		"one-dummy":    oneDummy,
		"adummy":       func() { time.Sleep(time.Hour) },
	})
}

// exit ends a keeper without the second that the race detector sleeps at an end.
func exit(status int) { _, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(status), 0, 0) }

// firstUse does as asub: it queries a queue, and starts it if necessary.
func firstUse() {
	os.Exit(shell.Run("first-use", os.Stdout, os.Stderr, use))
}

// oneJob submits a job, which runs its arguments, and waits for its end.
func oneJob() {
	os.Exit(shell.Run("one-job", os.Stdout, os.Stderr, func(ctx context.Context, out io.Writer) error {
		config, err := configfile.Load(yamlplain.Convert)
		if err != nil {
			return err
		}
		q := miniq.Open(miniq.Options{Paths: config.Paths, Config: config.Miniq})
		defer func() { _ = q.Close() }()
		r := q.Submit(ctx, []backends.Spec{{Name: "one 'job'", Slots: 1, Command: os.Args[1:], Dir: "/", Stdout: os.DevNull}})[0]
		if r.Err != nil {
			return r.Err
		}
		_, err = q.WaitEnded(ctx, []backends.ID{r.ID})
		fmt.Fprintln(out, "job", r.ID)
		return err
	}))
}

// oneDummy submits a dummy job for a waiting job, and prints what it runs.
func oneDummy() {
	os.Exit(shell.Run("one-dummy", os.Stdout, os.Stderr, func(ctx context.Context, out io.Writer) error {
		config, err := configfile.Load(yamlplain.Convert)
		if err != nil {
			return err
		}
		q := miniq.Open(miniq.Options{Paths: config.Paths, Config: config.Miniq})
		defer func() { _ = q.Close() }()
		heavy := q.Submit(ctx, []backends.Spec{{Slots: 1, Command: []string{"true"}, Hold: true}})[0]
		if heavy.Err != nil {
			return heavy.Err
		}
		dummy := q.Abilities().Place(ctx, []backends.Dummy{{For: heavy.ID, Host: "n1", Limit: time.Second}})[0]
		if dummy.Err != nil {
			return dummy.Err
		}
		ended, err := q.WaitEnded(ctx, []backends.ID{dummy.ID})
		if err != nil {
			return err
		}
		record, err := q.Record(ctx, dummy.ID)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, filepath.Base(record.Spec.Command[0]), "for", ended[0].DummyFor, ended[0].State, ended[0].Reason)
		return nil
	}))
}

func use(ctx context.Context, out io.Writer) error {
	config, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return err
	}
	q, err := configfile.OpenToSubmit(ctx, config)
	if err != nil {
		return err
	}
	farm, err := q.Snapshot(ctx, time.Time{})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, len(farm.Hosts), "hosts")
	return q.Close()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("ALLOTMENT_HOME", filepath.Join(e.WorkDir, "home"))
			e.Defer(func() { stopDaemon(t, filepath.Join(e.WorkDir, "home")) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"daemons": daemons, "sqlite": sqlite},
	})
}

// stopDaemon stops the daemon that a script left, whether or not it failed.
func stopDaemon(t *testing.T, dir string) {
	paths, err := home.Find(func(name string) string { return map[string]string{"ALLOTMENT_HOME": dir}[name] }, os.Getuid())
	if err != nil {
		t.Error(err)
		return
	}
	c := miniq.Open(miniq.Options{Paths: paths})
	defer c.Close()
	_ = c.Stop(t.Context(), true)
}

// daemons requires the number of daemons that run for the script's home.
func daemons(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		if strings.Contains(string(line), "--foreground") && strings.Contains(string(env), "ALLOTMENT_HOME="+ts.Getenv("ALLOTMENT_HOME")) {
			got++
		}
	}
	if got != want {
		ts.Fatalf("%d daemons run, want %d", got, want)
	}
}
