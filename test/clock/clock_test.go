package clock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
	"github.com/allotment-hpc/allotment/test/programs"
)

// clockFile names the file that holds how many seconds the programs' clock is ahead.
const clockFile = "TEST_CLOCK_FILE"

// added is added to the time package. Now reads the file each time, also on the system
// stack, where the runtime's timers send the time. Elapsed time still comes from the
// monotonic clock.
const added = `package time

import (
	"syscall"
	"unsafe"
)

var testClock = func() []byte {
	name, _ := syscall.Getenv("` + clockFile + `")
	return append([]byte(name), 0)
}()

func testAhead() (seconds int64) {
	if len(testClock) <= 1 {
		return 0
	}
	here := -100 // AT_FDCWD
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, uintptr(here), uintptr(unsafe.Pointer(&testClock[0])), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	var text [20]byte
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&text)), uintptr(len(text)))
	syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return 0
	}
	for i := 0; i < int(n); i++ {
		seconds = 10*seconds + int64(text[i]-'0')
	}
	return seconds
}
`

// overlay writes a time package whose clock can be put ahead, and returns the list for go
// build's -overlay.
func overlay(dir string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	pkg := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	original := filepath.Join(pkg, "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const reads = "\tsec, nsec, mono := runtimeNow()\n"
	if bytes.Count(text, []byte(reads)) != 1 {
		return "", fmt.Errorf("%s has no single %q: this Go is another one: see what its Now is like", original, reads)
	}
	text = bytes.Replace(text, []byte(reads), []byte(reads+"\tsec += testAhead()\n"), 1)
	changed, more, list := filepath.Join(dir, "time.go"), filepath.Join(dir, "testclock.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed, filepath.Join(pkg, "testclock.go"): more}})
	return list, errors.Join(err, os.WriteFile(changed, text, 0o644), os.WriteFile(more, []byte(added), 0o644), os.WriteFile(list, replace, 0o644))
}

// built is the directory of the programs.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clock-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func prepare(dir string) error {
	list, err := overlay(dir)
	if err != nil {
		return err
	}
	built = filepath.Join(dir, "bin")
	// The stand-in's programs are built so, too.
	return errors.Join(os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+list)), os.Chmod(dir, 0o755), os.Mkdir(built, 0o755), programs.Make(context.Background(), built, "pba"))
}

// patience bounds what takes seconds, on a machine that may be busy.
const patience = time.Minute

const config = "pba: {every: 1s, pending_threshold: 2s, min_runtime: 1s, hold_limit: 20s}\n"

// slots is how many the one host has. The project's guarantee is two of them.
const slots = 4

// testCluster is a farm and its engine.
type testCluster struct {
	*testing.T
	*farm.Farm
	clock string
	stop  func() // the engine
}

// A clock goes ahead, by hours or by years, and is put right, while jobs run and while
// the engine works. Each time the project gets a guaranteed slot, and doctor names the
// clock with both dates.
func TestGuaranteesHoldWhenClockIsSet(t *testing.T) { // R8, R14
	for name, ahead := range map[string]time.Duration{"2 h": 2 * time.Hour, "10 years": 3653 * 24 * time.Hour} {
		for _, queue := range []string{"miniq", "miniq, restarted", "lsf"} {
			t.Run(queue+", "+name, func(t *testing.T) { testGuarantees(t, queue, ahead) })
		}
	}
}

func testGuarantees(t *testing.T, queue string, ahead time.Duration) {
	s := &testCluster{T: t, clock: filepath.Join(t.TempDir(), "clock")}
	t.Setenv(clockFile, s.clock)
	s.setClock(0)
	o := farm.Options{Programs: built, Config: config}
	if queue == "lsf" {
		o.LSF = &farm.LSF{Hosts: 1, Slots: slots, Flavour: lsfstandin.Lava, Second: 100 * time.Millisecond}
	} else {
		o.Config += fmt.Sprintf("miniq: {nodes: [\"n1:%d:4G\"]}\n", slots)
	}
	s.Farm = farm.New(t, o)
	group, err := farm.OwnGroup()
	if err != nil {
		t.Fatal(err)
	}
	s.run("pba", "init")
	s.run("pba", "project", "add", "chipa", "--group", group)
	s.run("pba", "alloc", "set", "chipa", "2", "--weeks", "2")
	s.run("pba", "rebalance") // a clock that goes ahead is noticed from the second cycle on
	s.rebalance()
	for range slots {
		s.run("asub", "-J", "filler", "sleep", "600")
	}
	s.await("the farm to be full", func() bool { return s.running("filler") == slots })

	s.setClock(ahead)
	s.run("pba", "alloc", "set", "chipa", "2", "--weeks", "2") // this week is another one by now
	s.run("asub", "-P", "chipa", "-J", "first", "sleep", "600")
	s.await("a guaranteed slot, the clock being ahead", func() bool { return s.running("first") == 1 })
	s.doctor(time.Now(), time.Now().Add(ahead))

	if queue == "miniq, restarted" {
		s.stop()
		s.run("miniqd", "stop")
	}
	s.setClock(0)
	if queue == "miniq, restarted" {
		s.run("miniqd")
		s.rebalance()
	}
	s.run("asub", "-P", "chipa", "-J", "second", "sleep", "600")
	s.await("a guaranteed slot, the clock being right again", func() bool { return s.running("second") == 1 })
	s.doctor(time.Now().Add(ahead), time.Now())
	if n := s.running("first"); n != 1 {
		t.Errorf("%d of the jobs that started while the clock was ahead run on", n)
	}
}

// setClock puts the programs' clock ahead.
func (s *testCluster) setClock(ahead time.Duration) {
	s.Helper()
	text := strconv.FormatInt(int64(ahead/time.Second), 10)
	if err := errors.Join(os.WriteFile(s.clock+".new", []byte(text), 0o644), os.Rename(s.clock+".new", s.clock)); err != nil {
		s.Fatal(err)
	}
}

func (s *testCluster) run(program string, args ...string) string {
	s.Helper()
	out, err := s.Farm.Run(s.Context(), program, args...)
	if err != nil {
		s.Fatalf("%s %s: %v\n%s\n%s", program, strings.Join(args, " "), err, out, s.Log())
	}
	return out
}

// rebalance starts the engine.
func (s *testCluster) rebalance() {
	s.Helper()
	s.stop = farm.StartForTest(s.T, s.Background(context.Background(), "pba", "rebalance", "--every", "1s", "--verbose"))
}

// running returns how many jobs of a name run.
func (s *testCluster) running(name string) int {
	s.Helper()
	queue := s.Queue()
	defer func() { _ = queue.Close() }()
	f, err := queue.Snapshot(s.Context(), time.Now())
	if err != nil {
		return -1
	}
	n := 0
	for i := range f.Jobs {
		if j := &f.Jobs[i]; j.Name == name && j.State == backends.Running && !j.Ending {
			n++
		}
	}
	return n
}

func (s *testCluster) await(what string, is func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if !await.Every(ctx, 50*time.Millisecond, is) { // each check queries the queue
		status, _ := s.Farm.Run(s.Context(), "pba", "status")
		s.Fatalf("no %s within %v:\n%s\n%s", what, patience, status, s.Log())
	}
}

var setFrom = regexp.MustCompile(`^clock: .* from (\S+ \S+) to (\S+ \S+)$`)

// doctor must name the clock, with both dates.
func (s *testCluster) doctor(from, to time.Time) {
	s.Helper()
	out, err := s.Farm.Run(s.Context(), "pba", "doctor")
	if err == nil {
		s.Errorf("doctor finds nothing:\n%s", out)
	}
	is := func(text string, want time.Time) bool {
		at, err := time.ParseInLocation(time.DateTime, text, time.Local)
		return err == nil && want.Sub(at).Abs() < patience
	}
	for line := range strings.Lines(out) {
		if m := setFrom.FindStringSubmatch(strings.TrimSpace(line)); m != nil && is(m[1], from) && is(m[2], to) {
			return
		}
	}
	s.Errorf("doctor does not name the clock, from %s to %s:\n%s", from.Format(time.DateTime), to.Format(time.DateTime), out)
}
