package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(envJob) != "":
		err = job(os.Getenv(envJob))
	case os.Getenv(envEngine) != "":
		err = engine()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// point is where an engine dies.
type point struct {
	call  int
	after bool
	back  bool // another engine is started afterwards
}

func (p point) String() string {
	when, then := "before", "never comes back"
	if p.after {
		when = "after"
	}
	if p.back {
		then = "comes back"
	}
	return fmt.Sprintf("killed %s call %d, %s", when, p.call, then)
}

// fewest is how many kill points a valid test has.
const fewest = 20

// TestKill kills an engine before and after its call N, for N = 1, 2, … until a
// run ends unkilled (R18, R21). Nothing may be forgotten, held for ever, or taken
// twice, whether an engine comes back or not.
func TestKill(t *testing.T) {
	const programs = "../../bin"
	if _, err := os.Stat(filepath.Join(programs, "miniqd")); err != nil {
		t.Skip("skip: there is no bin/miniqd; make test-kill builds it")
	}
	const workers = 6
	var (
		mu     sync.Mutex
		next   = 1
		over   bool
		killed int
		wg     sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				call, stop := next, over
				next++
				mu.Unlock()
				if stop || t.Failed() {
					return
				}
				for _, p := range []point{{call, false, true}, {call, true, true}, {call, false, false}, {call, true, false}} {
					died, err := scenario(t, programs, p)
					mu.Lock()
					if err != nil {
						t.Errorf("%s: %v", p, err)
					}
					if died {
						killed++
					} else {
						over = true
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d kill points: before and after each of %d calls, with an engine that comes back and without\n", killed, killed/4)
	if killed < fewest {
		t.Errorf("only %d kill points, want %d at least", killed, fewest)
	}
}

// scenario fills three slots with jobs of no project, one to be requeued, one to be suspended
// and one that saves itself (R33), submits a job of chipA that needs all, and kills the engine
// at the point.
// It reports whether the engine died there.
func scenario(t *testing.T, programs string, p point) (died bool, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := farm.Start(ctx, farm.Options{Programs: programs, Config: fmt.Sprintf("miniq: {nodes: [\"n1:3:4G\"], ageing: {interval: %s}}\n", cycle)})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	dir := f.Home
	homePaths := home.Paths{Config: filepath.Join(dir, "config.yaml"), State: dir, Runtime: dir}
	if err := prepare(ctx, homePaths); err != nil {
		return false, err
	}
	client := miniq.Open(miniq.Options{Paths: homePaths, Config: miniqConfig()})
	defer client.Close()

	ids, err := submit(ctx, client, dir)
	if err != nil {
		return false, err
	}
	died, err = runEngine(ctx, dir, p)
	if err == nil && died && p.back {
		_, err = runEngine(ctx, dir, point{})
	}
	if err != nil {
		return died, err
	}
	jobs, err := client.WaitEnded(ctx, ids)
	if err != nil {
		return died, errors.Join(fmt.Errorf("the jobs don't end: %w", err), describe(client))
	}
	return died, errors.Join(check(ctx, client, dir, jobs), checkLedger(ctx, homePaths, p, died))
}

// submit submits the three jobs that fill the farm, waits until they run, and submits the
// one that needs their slots.
func submit(ctx context.Context, client *miniq.Client, dir string) ([]backends.ID, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec := func(name, project string, slots int, work time.Duration, tag backends.Tag) backends.Spec {
		return backends.Spec{
			Name: name, Project: project, Slots: slots, OneHost: true, Command: []string{self}, Dir: dir, Stdout: "/dev/null",
			Description: tag.String(),
			Env:         append(os.Environ(), envJob+"="+filepath.Join(dir, name), envWork+"="+work.String()),
		}
	}
	var ids []backends.ID
	submitAll := func(specs ...backends.Spec) error {
		for _, s := range client.Submit(ctx, specs) {
			if s.Err != nil {
				return s.Err
			}
			ids = append(ids, s.ID)
		}
		return nil
	}
	if err := submitAll(spec("requeue", "", 1, 1600*time.Millisecond, backends.Tag{}),
		spec("suspend", "", 1, 1600*time.Millisecond, backends.Tag{Preempt: backends.PreemptSuspend}),
		spec("save", "", 1, 1600*time.Millisecond, backends.Tag{Checkpoint: backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Second}})); err != nil {
		return nil, err
	}
	if _, err := await.Jobs(ctx, client, ids, await.In(backends.Running)); err != nil {
		return nil, err
	}
	if err := await.File(ctx, filepath.Join(dir, "save"), func(text string) bool { return text != "" }); err != nil { // it hears the signal
		return nil, err
	}
	return ids, submitAll(spec("beneficiary", "chipA", 3, 200*time.Millisecond, backends.Tag{}))
}

func runEngine(ctx context.Context, dir string, p point) (died bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envEngine+"=1", "ALLOTMENT_HOME="+dir, fmt.Sprintf("%s=%d", envAt, p.call))
	if p.after {
		cmd.Env = append(cmd.Env, envAfter+"=1")
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL && ctx.Err() == nil {
			return true, nil
		}
		return false, fmt.Errorf("engine: %w: %s", err, out)
	}
	return false, err
}

// check returns an error unless, by what the jobs wrote themselves, each ended once, the
// requeued one and the one that saves itself started again once at most, the latter where it was,
// and the suspended one never.
func check(ctx context.Context, client *miniq.Client, dir string, jobs []backends.Job) error {
	var errs []error
	for name, starts := range map[string]int{"requeue": 2, "suspend": 1, "save": 2, "beneficiary": 1} {
		tally, err := judge.CountRuns(name, filepath.Join(dir, name))
		if errs = append(errs, err); tally.Starts > starts {
			errs = append(errs, fmt.Errorf("%s lost its slots twice: %d starts", name, tally.Starts))
		}
		for _, wrong := range judge.EndedOnce([]judge.Tally{tally}) {
			errs = append(errs, errors.New(wrong))
		}
		if name == "save" && tally.Starts == 2 && !wentOn(filepath.Join(dir, name)) {
			errs = append(errs, errors.New("the job that saves itself began anew"))
		}
	}
	for i := range jobs {
		if jobs[i].State != backends.Done {
			errs = append(errs, fmt.Errorf("job %s is %s (exit %d)", jobs[i].ID, jobs[i].State, jobs[i].ExitCode))
		}
	}
	snapshot, err := client.Snapshot(ctx, time.Now())
	if err == nil && len(snapshot.Jobs) != 0 {
		err = fmt.Errorf("%d jobs are left in the queue", len(snapshot.Jobs))
	}
	return errors.Join(append(errs, err)...)
}

// checkLedger returns an error if a ledger has open reclaims although an engine ran to the
// end.
func checkLedger(ctx context.Context, homePaths home.Paths, p point, died bool) error {
	if died && !p.back {
		return nil
	}
	memory, err := judge.Memory(ctx, ledgerPath(homePaths))
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range judge.OpenReclaims(&memory) {
		errs = append(errs, fmt.Errorf("reclaim %d is left %s: %+v", r.ID, r.Phase, r.Victims))
	}
	if len(memory.Reclaims) == 0 {
		errs = append(errs, errors.New("the ledger knows no reclaim"))
	}
	return errors.Join(errs...)
}

// describe returns the jobs of a scenario that hangs, as an error.
func describe(client *miniq.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	snapshot, err := client.Snapshot(ctx, time.Time{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range snapshot.Jobs {
		j := &snapshot.Jobs[i]
		errs = append(errs, fmt.Errorf("%s %s: %s (%s) at %d, pinned %v, held until %s, mark %q", j.ID, j.Name, j.State, j.Reason, j.Priority, j.Pinned, j.HeldUntil, j.Mark))
	}
	return errors.Join(errs...)
}
