package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

// The story's figures.
const (
	nodes, slots = 4, 4
	jobsOfB      = 24
	jobsOfA      = 6 // as many as its guarantee has slots
	workOfA      = 8 * time.Second

	// Of B's jobs: these two are the last that are started before A's.
	indexOfSaver, indexOfStopped = nodes*slots - 2, nodes*slots - 1

	cycle      = time.Second
	threshold  = 3 * time.Second
	minRuntime = time.Second
	// longestCycle is more than a cycle may take on any machine.
	longestCycle = 10 * time.Second

	// tick is how often the diaries are read.
	tick = 50 * time.Millisecond
)

const config = `# The config file of the demo: as the default, but quick.
pba:
  every: 1s
  pending_threshold: 3s
  min_runtime: 1s
`

// platform is the farm that the demo runs on.
type platform struct {
	options     farm.Options
	workOfB     time.Duration // of each job of project B
	limit       time.Duration // when the demo gives up
	noRestarted bool          // it sets no ALLOTMENT_RESTARTED
}

// bundled returns the bundled queue. Without a fault the story takes 55 s on it.
func bundled() platform {
	return platform{
		options: farm.Options{Programs: "bin", Config: config + `miniq:
  nodes: ["n1:4:4G", "n2:4:4G", "n3:4:4G", "n4:4:4G"]
`},
		workOfB: 25 * time.Second,
		limit:   85 * time.Second,
	}
}

// onSlurm returns a Slurm cluster. It has no partition for jobs that fail a filter test.
func onSlurm() platform {
	return platform{
		options: farm.Options{
			Programs: "bin", Config: config + "filter:\n  low_queue: \"\"\n",
			Slurm: &farm.Slurm{Nodes: nodes, Slots: slots},
		},
		workOfB: 40 * time.Second, // Slurm is slower, and none of them may end while A waits
		limit:   175 * time.Second,
	}
}

// onLSF returns the stand-in for an LSF cluster. Its daemons act once a second, and a
// requeued job takes three seconds to be pending again.
func onLSF() platform {
	return platform{
		options: farm.Options{
			Programs: "bin", Config: config + "filter:\n  low_queue: \"\"\n",
			LSF: &farm.LSF{Hosts: nodes, Slots: slots},
		},
		workOfB:     40 * time.Second,
		limit:       175 * time.Second,
		noRestarted: true,
	}
}

// story is one demo.
type story struct {
	*farm.Farm
	*narrator
	platform
	self       string // this program
	rebalances bool   // pba rebalance runs
	group      string
	b, a       []*job
	printed    map[*job]progress
	engine     *farm.Rebalance // nil: there are no cycles
	reports    <-chan farm.Report
	cycles     int         // reports of pba that were printed
	warned     []string    // warnings of the last of them
	snapshots  []time.Time // when each of them took its snapshot
}

// job is one job: what it wrote, and its submission.
type job struct {
	*diary.Diary
	id        int64
	submitted time.Time // when asub returned
}

// progress is how much of a job's diary has been printed.
type progress struct {
	runs, ends, stretches int
	silent, saved         bool
}

// demo runs the story and checks it. It leaves nothing behind, also after an error.
func demo(ctx context.Context, out io.Writer, on platform, rebalances bool) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, on.limit, fmt.Errorf("not over after %v", on.limit))
	defer cancel()
	s, err := prepare(ctx, out, on, rebalances)
	if s != nil {
		defer func() { err = errors.Join(err, s.end()) }()
	}
	if err == nil {
		err = s.play(ctx)
	}
	if err != nil {
		if s != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.printState()
		}
		return err
	}
	return s.judge()
}

// prepare starts the farm, and configures it as an administrator and a resource manager do.
func prepare(ctx context.Context, out io.Writer, on platform, rebalances bool) (*story, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	group, err := farm.OwnGroup()
	if err != nil {
		return nil, err
	}
	n := newNarrator(out)
	n.title("A farm of %d hosts with %d slots each", nodes, slots)
	f, err := farm.Start(ctx, on.options)
	if err != nil {
		return nil, err
	}
	s := &story{Farm: f, narrator: n, platform: on, self: self, rebalances: rebalances, group: group, printed: map[*job]progress{}}
	n.log("all of it is in %s (ALLOTMENT_HOME); its config.yaml:", f.Home)
	n.quote(f.Config)
	for _, dir := range []string{"jobs", "out"} {
		if err := os.Mkdir(filepath.Join(f.Home, dir), 0o700); err != nil {
			return s, err
		}
	}
	for _, line := range [][]string{
		{"init"},
		{"project", "add", "A", "--group", group},
		{"project", "add", "B", "--group", group},
		{"alloc", "set", "A", strconv.Itoa(jobsOfA), "--weeks", "2"}, // should Monday come meanwhile
	} {
		n.log("$ pba %s", strings.Join(line, " "))
		if _, err := f.Run(ctx, "pba", line...); err != nil {
			return s, err
		}
		install := f.InstallHook
		if on.options.LSF != nil {
			install = f.InstallESUB
		}
		if line[0] == "init" && (on.options.Slurm != nil || on.options.LSF != nil) {
			typed, err := install()
			if err != nil {
				return s, err
			}
			n.log("$ %s", typed)
		}
	}
	return s, nil
}

// play runs the story.
func (s *story) play(ctx context.Context) error {
	if s.rebalances {
		s.log("$ pba rebalance --every %v --for %v &", cycle, 2*s.limit)
		engine, err := s.Rebalance(ctx, cycle, 2*s.limit)
		if err != nil {
			return err
		}
		s.engine, s.reports = engine, engine.Reports
		if err := engine.AwaitFirstCycle(ctx); err != nil { // until then the filter changes no job
			return err
		}
	} else {
		s.log("BREAK=norebalance: pba rebalance is not started")
	}
	s.title("Project B fills the farm with %d jobs that work for %v", jobsOfB, s.workOfB)
	for i := range jobsOfB {
		var env []string
		switch i {
		case indexOfSaver:
			env = []string{"ALLOTMENT_CHECKPOINT=SIGUSR1:5s"}
			if s.noRestarted {
				env = append(env, diary.LooksForSaved+"=1")
			}
		case indexOfStopped:
			env = []string{"ALLOTMENT_PREEMPT=suspend"}
		}
		if err := s.submit(ctx, &s.b, "B", i, s.workOfB, env); err != nil {
			return err
		}
	}
	if err := s.await(ctx, "16 jobs of B to run", func() bool { return started(s.b) >= nodes*slots }); err != nil {
		return err
	}
	if err := s.awaitMidCycle(ctx); err != nil {
		return err
	}
	s.title("Project A holds %d slots and wants them: %d jobs that work for %v", jobsOfA, jobsOfA, workOfA)
	for i := range jobsOfA {
		if err := s.submit(ctx, &s.a, "A", i, workOfA, nil); err != nil {
			return err
		}
	}
	if err := s.await(ctx, "A's jobs to run", func() bool { return started(s.a) == jobsOfA }); err != nil {
		return err
	}
	if s.rebalances {
		target := s.cycles + 2
		if err := s.await(ctx, "two cycles", func() bool { return s.cycles >= target }); err != nil {
			return err
		}
	}
	if err := s.show(ctx, "pba", "status"); err != nil {
		return err
	}
	if s.rebalances {
		if err := s.show(ctx, "pba", "explain", strconv.FormatInt(s.a[0].id, 10)); err != nil {
			return err
		}
	}
	s.title("A's jobs end; B gets its slots back and works on")
	err := s.await(ctx, "every job to end", func() bool { return ended(s.a)+ended(s.b) == jobsOfA+jobsOfB })
	if err != nil {
		return err
	}
	for _, j := range []*job{s.b[indexOfStopped], s.b[indexOfSaver]} {
		text, err := os.ReadFile(filepath.Join(s.Home, "out", j.Name))
		if err != nil {
			return err
		}
		s.log("the output file of %s:", j.Name)
		s.quote(printable(string(text)))
	}
	return nil
}

// awaitMidCycle waits until B's jobs may be preempted, and then for the middle between two
// cycles: R14's promise has no time to spare for a job that is submitted right after a
// cycle's snapshot, and this machine may be busy.
func (s *story) awaitMidCycle(ctx context.Context) error {
	ready := time.Now().Add(minRuntime)
	if err := s.await(ctx, "B's jobs to run for min_runtime", func() bool { return time.Now().After(ready) }); err != nil {
		return err
	}
	if !s.rebalances {
		return nil
	}
	next := s.cycles + 1
	if err := s.await(ctx, "a cycle", func() bool { return s.cycles >= next }); err != nil {
		return err
	}
	ready = time.Now().Add(cycle / 2)
	return s.await(ctx, "half a cycle", func() bool { return time.Now().After(ready) })
}

// submit runs one asub.
func (s *story) submit(ctx context.Context, jobs *[]*job, project string, i int, work time.Duration, env []string) error {
	name := fmt.Sprintf("%s%d", strings.ToLower(project), i+1)
	path := filepath.Join(s.Home, "jobs", name)
	line := []string{"-P", project, "-J", name, "-o", filepath.Join(s.Home, "out", name), s.self, "job", path, work.String()}
	out, err := s.RunWith(ctx, env, "asub", line...)
	if err != nil {
		return err
	}
	submitted := time.Now()
	id, err := farm.Submitted(out)
	if err != nil {
		return err
	}
	switch {
	case i == 0:
		s.log("$ asub -P %s -J %s -o out/%s demo job %v        … and so on", project, name, name, work)
		s.log("%s", strings.TrimSpace(out))
	case len(env) > 0:
		s.log("$ %s asub -P %s -J %s …        one of the last jobs that start", strings.Join(env, " "), project, name)
	}
	*jobs = append(*jobs, &job{Diary: diary.New(name, path), id: id, submitted: submitted})
	return s.readDiaries()
}

// await prints what happens until so returns true.
func (s *story) await(ctx context.Context, what string, done func() bool) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if err := s.readDiaries(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		select {
		case r, ok := <-s.reports:
			if !ok {
				return s.engine.Err()
			}
			s.printReport(r)
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// show runs a command and prints its output.
func (s *story) show(ctx context.Context, program string, args ...string) error {
	out, err := s.Run(ctx, program, args...)
	if err != nil {
		return err
	}
	s.log("$ %s %s", program, strings.Join(args, " "))
	s.quote(out)
	return nil
}

// printState prints the state of a demo that did not end in time.
func (s *story) printState() {
	s.title("Not over: the state now")
	for _, j := range s.all() {
		if !j.Ended() {
			text := "never started"
			if n := len(j.Runs); n > 0 {
				text = fmt.Sprintf("run %d on %s, last line at %.1f s", n, j.Runs[n-1].Host, s.seconds(j.Runs[n-1].Last))
			}
			s.log("%s (job %d): %s", j.Name, j.id, text)
		}
	}
	for _, line := range [][]string{{"ajobs", "-a"}, {"pba", "status"}} {
		if out, err := s.Run(context.Background(), line[0], line[1:]...); err != nil {
			s.log("%v", err)
		} else {
			s.quote(out)
		}
	}
	s.quote(s.Log())
}

// end stops the engine and removes the farm.
func (s *story) end() error {
	if s.engine != nil {
		s.engine.Stop()
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	s.log("cleaned up: no process and no file is left")
	return nil
}

func (s *story) all() []*job { return append(s.a[:len(s.a):len(s.a)], s.b...) }

// printable replaces what could control the terminal in a job's output.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

func started(jobs []*job) int {
	n := 0
	for _, j := range jobs {
		if len(j.Runs) > 0 {
			n++
		}
	}
	return n
}

func ended(jobs []*job) int {
	n := 0
	for _, j := range jobs {
		if j.Ended() {
			n++
		}
	}
	return n
}
