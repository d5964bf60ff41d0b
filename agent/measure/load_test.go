package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// loadUsed is what test/hostload prints.
type loadUsed struct {
	CPU             time.Duration
	Memory, Written int64
	Direct          bool
}

var builtLoad = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hostload-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "github.com/allotment-hpc/allotment/test/hostload").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := builtLoad(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// load is a load that runs.
type load struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// start starts a load with a variable in its environment; in: control groups' cgroup.procs
// that it enters first.
func start(t *testing.T, variable string, in []string, args ...string) *load {
	t.Helper()
	dir, err := builtLoad()
	if err != nil {
		t.Fatal(err)
	}
	script := `for f; do [ "$f" = -- ] && break; echo $$ >"$f" || exit 1; shift; done; shift; exec "$@"`
	words := append([]string{"-c", script, "sh"}, in...)
	words = append(append(words, "--", filepath.Join(dir, "hostload")), args...)
	cmd := exec.CommandContext(t.Context(), "sh", words...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), variable}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &load{cmd, bufio.NewScanner(out)}
}

// used waits until the load has used what it was asked to, and returns that.
func (l *load) used(t *testing.T) (u loadUsed) {
	t.Helper()
	if !l.lines.Scan() {
		t.Fatalf("the load has printed nothing: %v", l.lines.Err())
	}
	if err := json.Unmarshal(l.lines.Bytes(), &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// find returns a job of a sample.
func find(s Sample, q Queue, id int64) *Job {
	for i := range s.Jobs {
		if s.Jobs[i].Queue == q && s.Jobs[i].ID == (backends.ID{Job: id}) {
			return &s.Jobs[i]
		}
	}
	return nil
}

func within(t *testing.T, what string, got Value, want, share, slack float64) {
	t.Helper()
	off := math.Abs(float64(got.N) - want)
	t.Logf("%s: measured %d, the load's own count is %.0f (%+.2f %%)", what, got.N, want, 100*(float64(got.N)-want)/want)
	if !got.Known || off > share*want+slack {
		t.Errorf("%s: measured %+v, want %.0f within %.0f %% and %.0f", what, got, want, 100*share, slack)
	}
}

// ticks are what /proc leaves out of a process's times: parts of 10 ms, of two times.
const ticks = float64(20 * time.Millisecond)

// testID is a job's ID that no other test has.
func testID() int64 { return 1e9 + int64(os.Getpid()) }

func TestLoadByProcesses(t *testing.T) {
	l := start(t, "SLURM_JOB_ID="+strconv.FormatInt(testID(), 10), nil,
		"-cpu", "2s", "-memory", strconv.Itoa(512<<20), "-disk", strconv.Itoa(64<<20), "-dir", t.TempDir())
	s := New(Options{})
	defer s.Close()
	var last Value
	done := make(chan loadUsed, 1)
	go func() { done <- l.used(t) }()
	var u loadUsed
	for tick := time.NewTicker(100 * time.Millisecond); u.CPU == 0; {
		select {
		case u = <-done:
			tick.Stop()
		case <-tick.C:
		}
		if j := find(s.Sample(time.Now()), Slurm, testID()); j != nil {
			if j.CPU.N < last.N {
				t.Errorf("processor time fell from %d to %d", last.N, j.CPU.N)
			}
			last = j.CPU
		}
	}
	sample := s.Sample(time.Now())
	j := find(sample, Slurm, testID())
	if j == nil {
		t.Fatalf("the job is not found: %+v", sample)
	}
	within(t, "processor time, ns", j.CPU, float64(u.CPU), 0.02, 2*ticks)
	within(t, "memory, bytes", j.Memory, float64(u.Memory), 0.03, 0)
	if !u.Direct {
		t.Logf("skip: no O_DIRECT in %s: bytes written are not compared", t.TempDir())
	} else if len(j.Disks) != 1 {
		t.Errorf("disks: %+v", j.Disks)
	} else {
		within(t, "written, bytes", j.Disks[0].WrittenBytes, float64(u.Written), 0.02, 0)
	}
	if j.Source != FromProcesses || j.User != os.Getuid() || j.Processes != known(1) || j.Threads.N < 2 || j.Pressure.CPUSome.Known || j.Cache.Known {
		t.Errorf("%+v", j)
	}
	wantLacks(t, sample, PressureStalls, DiskOperations)
}

// wantLacks compares the figures that are lacking.
func wantLacks(t *testing.T, s Sample, want ...Figure) {
	t.Helper()
	has := map[Figure]bool{}
	for _, l := range s.Lacks {
		has[l.Figure] = true
	}
	for _, f := range want {
		if !has[f] {
			t.Errorf("no lack of %s in %+v", f, s.Lacks)
		}
	}
}

// groupsHere makes a job's control groups below where these controllers are mounted; it
// skips where it can't.
func groupsHere(t *testing.T, path string, controllers ...string) (procs []string) {
	t.Helper()
	for _, c := range controllers {
		dir := filepath.Join("/sys/fs/cgroup", c, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Skipf("skip: no control group can be made here: %v", err)
		}
		t.Cleanup(func() {
			for range strings.Count(path, "/") + 1 { // and those above it that are empty then
				os.Remove(dir)
				dir = filepath.Dir(dir)
			}
		})
		procs = append(procs, filepath.Join("/sys/fs/cgroup", c, path, "cgroup.procs"))
	}
	return procs
}

func TestLoadByGroupsOfVersion1(t *testing.T) {
	in := groupsHere(t, fmt.Sprintf("slurm/uid_%d/job_%d", os.Getuid(), testID()), "cpuacct", "memory", "blkio")
	l := start(t, "A=B", in, "-cpu", "2s", "-memory", strconv.Itoa(512<<20), "-disk", strconv.Itoa(64<<20), "-dir", t.TempDir())
	s := New(Options{})
	defer s.Close()
	u := l.used(t)
	sample := s.Sample(time.Now())
	j := find(sample, Slurm, testID())
	if j == nil {
		t.Fatalf("the job is not found: %+v", sample)
	}
	within(t, "processor time, ns", j.CPU, float64(u.CPU), 0.02, 2*ticks) // it began as a shell
	j.Memory = less(j.Memory, j.Cache)
	within(t, "memory without cache, bytes", j.Memory, float64(u.Memory), 0.03, 0)
	if j.Source != FromGroupV1 || j.User != os.Getuid() || j.Processes != known(1) || j.Peak.N < 512<<20 {
		t.Errorf("%+v", j)
	}
	if !u.Direct {
		t.Logf("skip: no O_DIRECT in %s: bytes written are not compared", t.TempDir())
		return
	}
	var written uint64
	for _, d := range j.Disks {
		written += d.WrittenBytes.N
		if d.Device != "" && d.WrittenBytes.N > 1<<26 && d.Writes.N < 64 {
			t.Errorf("%+v", d)
		}
	}
	within(t, "written, bytes", known(written), float64(u.Written), 0.02, 0)
}

func TestLoadByGroupsOfVersion2(t *testing.T) {
	in := groupsHere(t, fmt.Sprintf("lsf/test/job.%d.1.1", testID()), "unified")
	l := start(t, "A=B", in, "-cpu", "2s", "-memory", strconv.Itoa(512<<20))
	s := New(Options{})
	defer s.Close()
	u := l.used(t)
	s.Sample(time.Now())
	sample := s.Sample(time.Now())
	j := find(sample, LSF, testID())
	if j == nil {
		t.Fatalf("the job is not found: %+v", sample)
	}
	within(t, "processor time, ns", j.CPU, float64(u.CPU), 0.02, 2*ticks)
	within(t, "memory, bytes", j.Memory, float64(u.Memory), 0.03, 0)
	if j.Source != FromGroupV2 || j.Processes != known(1) || !j.Pressure.CPUSome.Known {
		t.Errorf("%+v", j)
	}
}
