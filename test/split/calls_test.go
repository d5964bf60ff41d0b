package split

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/programs"
)

// The environment of a child: it marks the process as a child, and names the call at which it is killed.
const (
	envHome    = "SPLIT_HOME" // of its farm
	envProgram = "SPLIT_PROGRAM"
	envCall    = "SPLIT_CALL" // the number of the call; 0: it is not killed
	envAfter   = "SPLIT_AFTER"
)

func TestMain(m *testing.M) {
	if os.Getenv(envHome) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child begins a split in the current directory, or resumes one.
func child() error {
	work, err := os.Getwd()
	if err != nil {
		return err
	}
	call, err := strconv.ParseInt(os.Getenv(envCall), 10, 64)
	if err != nil {
		return err
	}
	paths := home.Paths{State: os.Getenv(envHome), Runtime: os.Getenv(envHome)}
	q := client.Open(client.Options{Paths: paths, Config: miniq.DefaultConfig()})
	defer q.Close()
	g := &guard{Backend: q, dies: call, after: os.Getenv(envAfter) != ""}
	o := split.Options{
		Work: work, Queue: g, Spec: backends.Spec{Env: os.Environ(), Umask: 0o22}, Program: []string{os.Getenv(envProgram)},
		Stdin: strings.NewReader(numbered("", callItems)), Stdout: os.Stdout, Stderr: os.Stderr, Reporter: g,
	}
	found, err := split.Find(context.Background(), work, "")
	if err != nil {
		return split.Start(context.Background(), split.Definition{
			Argv: []string{"sh", "-c", item, "sh", "{}", "0.05"}, Mode: task.Each, Input: split.Input{Kind: split.Stdin}, Slots: 1,
			Balance: metrics.Options{RoundItems: callItems / 2},
		}, o)
	}
	return found.Resume(context.Background(), o)
}

// callItems is how many items each split has here: enough for some rounds.
const callItems = 18

// guard counts the calls to the queue and to the Reporter, and kills this process at one of
// them.
type guard struct {
	backends.Backend
	calls atomic.Int64
	dies  int64
	after bool
}

func (g *guard) call(do func()) {
	mine := g.calls.Add(1) == g.dies
	if mine && !g.after {
		die()
	}
	do()
	if mine {
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (g *guard) Snapshot(ctx context.Context, since time.Time) (farm *backends.Snapshot, err error) {
	g.call(func() { farm, err = g.Backend.Snapshot(ctx, since) })
	return farm, err
}

func (g *guard) Jobs(ctx context.Context, ids []backends.ID) (jobs []backends.Job, err error) {
	g.call(func() { jobs, err = g.Backend.Jobs(ctx, ids) })
	return jobs, err
}

func (g *guard) Submit(ctx context.Context, specs []backends.Spec) (results []backends.Submitted) {
	g.call(func() { results = g.Backend.Submit(ctx, specs) })
	return results
}

func (g *guard) Changes() func(context.Context) error {
	var seen uint64
	return func(ctx context.Context) (err error) {
		seen, err = g.Abilities().Changed(ctx, seen)
		return err
	}
}

func (g *guard) Log(string)              { g.call(func() {}) }
func (*guard) Progress(split.Progress)   {}
func (g *guard) Round(split.RoundReport) { g.call(func() {}) }

// minPoints is the least number of points of a valid test.
const minPoints = 20

// TestKilledAtAnyCall kills the process that runs a split before and after its call N,
// for N = 1, 2, … until it ends unkilled, and has another process resume the split.
func TestKilledAtAnyCall(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	built := programs.Build(t, "asplit-task")
	f := start(t, farm.Options{Programs: built, Config: roomyFarm})
	var points, next atomic.Int64
	var over atomic.Bool
	var workers sync.WaitGroup
	for range 4 { // they sleep, mostly
		workers.Go(func() {
			for !over.Load() && !t.Failed() {
				call, anyDied := next.Add(1), false
				for _, after := range []string{"", "1"} {
					died, err := killAt(t, f, filepath.Join(built, "asplit-task"), call, after)
					if err != nil {
						t.Errorf("killed at call %d, after it: %q: %v", call, after, err)
					}
					if died {
						points.Add(1)
						anyDied = true
					}
				}
				if !anyDied {
					over.Store(true)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d points", points.Load())
	if points.Load() < minPoints {
		t.Errorf("%d points, want %d at least", points.Load(), minPoints)
	}
}

func killAt(t *testing.T, f *farm.Farm, program string, call int64, after string) (died bool, err error) {
	work, err := os.MkdirTemp(f.Home, "work-")
	if err != nil {
		return false, err
	}
	if err := os.Mkdir(filepath.Join(work, "run"), 0o700); err != nil {
		return false, err
	}
	_, died, err = runChild(t, f, work, program, call, after)
	if err != nil || !died {
		return died, err
	}
	out, again, err := runChild(t, f, work, program, 0, "")
	switch {
	case err != nil || again:
		return true, fmt.Errorf("the run that resumes it was killed: %v, %w", again, err)
	case out != numbered("result ", callItems):
		return true, fmt.Errorf("results are %q", out)
	}
	return true, ranOnce(work, callItems)
}

func runChild(t *testing.T, f *farm.Farm, work, program string, call int64, after string) (out string, died bool, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envHome+"="+f.Home, envProgram+"="+program, envCall+"="+strconv.FormatInt(call, 10), envAfter+"="+after, "ALLOTMENT_HOME="+f.Home)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return stdout.String(), true, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), false, err
}
