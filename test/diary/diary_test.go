package diary

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
)

// What a job wrote is read as it was, also before it has written anything.
func TestRunJob(t *testing.T) {
	for _, work := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "job")
		t.Setenv("LSB_HOSTS", "n1 n2")
		t.Setenv("ALLOTMENT_REQUEUES", "3")
		d := New("job", path)
		if err := d.Update(); err != nil || d.Ended() || !d.First().IsZero() {
			t.Fatalf("before it starts: %+v, %v", d, err)
		}
		const takes = 3*Step + Step/2
		if err := RunJob(path, takes, work); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(); err != nil {
			t.Fatal(err)
		}
		if !d.Ended() || d.Ends != 1 || len(d.Runs) != 1 || d.Suspensions() != 0 {
			t.Fatalf("%+v", d)
		}
		r := d.Runs[0]
		if r.PID != os.Getpid() || r.Host != "n1" || r.Requeues != "3" || r.Total() < takes || r.End.Sub(r.Start) != r.Total() {
			t.Errorf("%+v, worked %v", r, r.Total())
		}
		if text, _ := os.ReadFile(path); strings.Count(string(text), "\nat ") < 2 {
			t.Errorf("it wrote no line between start and end:\n%s", text)
		}
	}
}

// A job that is asked to save itself does, and its next run goes on from there.
func TestSave(t *testing.T) {
	for _, variable := range []string{backends.RestartedVariable, LooksForSaved} {
		t.Run(variable, func(t *testing.T) { testSave(t, variable) })
	}
}

func testSave(t *testing.T, variable string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job")
	t.Setenv(backends.CheckpointVariable, "SIGUSR1:5s")
	d := New("job", path)
	saved := make(chan error)
	go func() { saved <- RunJob(path, time.Hour, false) }()
	if !await.Soon(func() bool {
		return d.Update() == nil && len(d.Runs) == 1 && d.Runs[0].Last.After(d.Runs[0].Start.Add(Step))
	}) {
		t.Fatalf("it does not work: %+v", d.Runs)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := <-saved; !errors.Is(err, errSaved) {
		t.Fatal(err)
	}
	t.Setenv(variable, "1")
	if err := RunJob(path, 5*Step, false); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(); err != nil || len(d.Runs) != 2 || d.Runs[0].Saved == 0 || d.Runs[0].From != 0 || d.Runs[1].From != d.Runs[0].Saved || !d.Ended() {
		t.Errorf("%+v, %v", d.Runs, err)
	}
}

// The sum shows the work: equal jobs have equal sums, others another one.
func TestWorkIsDone(t *testing.T) {
	var sums []string
	for _, blocks := range []int{2, 2, 3} {
		w := newWorker()
		for range blocks {
			if err := w.block(); err != nil {
				t.Fatal(err)
			}
		}
		sums = append(sums, fmt.Sprintf("%x", w.sum))
	}
	if sums[0] != sums[1] || sums[1] == sums[2] {
		t.Errorf("sums of 2, 2 and 3 blocks: %v", sums)
	}
}

// lines writes a diary of one line per moment, in milliseconds.
func lines(format string) string {
	var b strings.Builder
	for line := range strings.Lines(format) {
		var verb, rest string
		var ms int64
		if n, _ := fmt.Sscan(line, &verb, &ms); n != 2 {
			b.WriteString(line)
			continue
		}
		if verb == "start" {
			rest = " 7 n1 0"
		}
		fmt.Fprintf(&b, "%s %d%s\n", verb, time.Duration(ms)*time.Millisecond, rest)
	}
	return b.String()
}

func write(t *testing.T, text string) *Diary {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return New("job", path)
}

// A silence before "on" is a suspension, a second start is not; neither counts as worked.
func TestRead(t *testing.T) {
	d := write(t, lines("start 0\nat 100\nat 200\non 5000\nat 5100\nstart 9000\nat 9100\nend 9200\n"))
	if err := d.Update(); err != nil {
		t.Fatal(err)
	}
	if len(d.Runs) != 2 || d.Ends != 1 || !d.Ended() || d.Suspensions() != 1 {
		t.Fatalf("%+v", d)
	}
	if first := d.Runs[0]; !first.End.IsZero() || first.Total() != 300*time.Millisecond || first.Last.UnixMilli() != 5100 {
		t.Errorf("first run: %+v, worked %v", first, first.Total())
	}
	if second := d.Runs[1]; second.Total() != 200*time.Millisecond || second.End.UnixMilli() != 9200 {
		t.Errorf("second run: %+v, worked %v", second, second.Total())
	}
}

// A job that is continued after a silence was stopped, also if it writes a line before the
// signal arrives; the pause of a busy machine is no stop.
func TestSilence(t *testing.T) {
	for text, want := range map[string][]Stretch{
		"start 0\nat 100\non 5000\nend 5100\n":                    {{time.UnixMilli(0), time.UnixMilli(100)}, {time.UnixMilli(5000), time.UnixMilli(5100)}},
		"start 0\nat 100\nat 5000\non 5200\nat 5300\nend 5400\n":  {{time.UnixMilli(0), time.UnixMilli(100)}, {time.UnixMilli(5000), time.UnixMilli(5400)}},
		"start 0\nat 100\nat 5000\nend 5100\n":                    {{time.UnixMilli(0), time.UnixMilli(5100)}},
		"start 0\nat 100\non 200\nat 4000\nend 4100\n":            {{time.UnixMilli(0), time.UnixMilli(4100)}},
		"start 0\nat 3000\nat 5000\nat 6000\non 6100\nend 6200\n": {{time.UnixMilli(0), time.UnixMilli(6200)}},
	} {
		d := write(t, lines(text))
		if err := d.Update(); err != nil || !slices.Equal(d.Runs[0].Stretches, want) {
			t.Errorf("%q: %+v, %v, want %v", text, d.Runs[0].Stretches, err, want)
		}
	}
}

// Jobs that are really stopped record it, also if their time is over when they continue.
func TestStopped(t *testing.T) {
	if path := os.Getenv("DIARY_TEST_JOB"); path != "" {
		duration, err := time.ParseDuration(os.Getenv("DIARY_TEST_TIME"))
		if err != nil {
			t.Fatal(err)
		}
		if err := RunJob(path, duration, false); err != nil {
			t.Fatal(err)
		}
		return
	}
	var jobs []*stoppable
	for i := range 16 {
		jobs = append(jobs, start(t, fmt.Sprint("job", i), []time.Duration{Gap, 6 * Gap}[i%2]))
	}
	for _, j := range jobs {
		j.await(t, "its start", func() bool { return len(j.Runs) == 1 && j.Runs[0].Last.After(j.Runs[0].Start) })
		j.signal(t, syscall.SIGSTOP)
	}
	for _, j := range jobs {
		j.await(t, "a silence", func() bool { return time.Since(j.Runs[0].Last) > Gap+Step })
		j.signal(t, syscall.SIGCONT)
	}
	for _, j := range jobs {
		j.await(t, "its continuation", func() bool { return j.Suspensions() == 1 || j.Ended() })
		if j.Suspensions() != 1 {
			t.Errorf("%s was stopped %d times: %+v", j.Name, j.Suspensions(), j.Runs)
		}
	}
}

// stoppable is a job in a process of its own.
type stoppable struct {
	*Diary
	process *os.Process
}

func start(t *testing.T, name string, duration time.Duration) *stoppable {
	t.Helper()
	d := New(name, filepath.Join(t.TempDir(), name))
	cmd := exec.Command(os.Args[0], "-test.run=^TestStopped$")
	cmd.Env = append(os.Environ(), "DIARY_TEST_JOB="+d.Path(), "DIARY_TEST_TIME="+duration.String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &stoppable{d, cmd.Process}
}

func (s *stoppable) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	var err error
	if !await.Soon(func() bool { err = s.Update(); return err != nil || is() }) || err != nil {
		t.Fatalf("%s of %s: not after a minute: %v: %+v", what, s.Name, err, s.Runs)
	}
}

func (s *stoppable) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := s.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// A line is read once it is complete.
func TestReadIncompleteLine(t *testing.T) {
	whole := lines("start 0\nat 100\nend 200\n")
	for cut := range whole {
		d := write(t, whole[:cut])
		if err := d.Update(); err != nil {
			t.Fatalf("%q: %v", whole[:cut], err)
		}
		if err := os.WriteFile(d.Path(), []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(); err != nil || d.Ends != 1 || len(d.Runs) != 1 {
			t.Errorf("cut after %q: %+v, %v", whole[:cut], d, err)
		}
	}
}

func TestReadNonsense(t *testing.T) {
	for _, text := range []string{"x\n", "at 1\n", "start 1\n", "start x 1 n 0\n", "start 1 x n 0\n", "start 1 1 n 0\nstop 2\n", "start 1 1 n 0\nsaved 2\n", "start 1 1 n 0\nfrom 2 x\n"} {
		if err := write(t, text).Update(); err == nil || !strings.Contains(err.Error(), "job:") {
			t.Errorf("%q: error is %v", text, err)
		}
	}
}
