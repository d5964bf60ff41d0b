package task

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
)

// A task that is stopped has a result of its first items; what ran is ended and has none.
func TestStopped(t *testing.T) {
	for name, x := range map[string]struct {
		slots   int
		script  string
		last    string // is there when what is to end has ended
		results string // "": none
	}{
		"the first items":        {1, "echo $1; test $1 != 3 || { touch began; sleep 300; }", "began", "0+1 0 \"1\\n\" \"\"\n1+1 0 \"2\\n\" \"\"\n"},
		"none behind a gap":      {2, "echo $1; test $1 != 1 || sleep 300; test $1 != 4 || { touch began; sleep 300; }", "began", ""},
		"an item that is caught": {1, "trap 'exit 0' TERM; touch began; while :; do sleep 0.01; done", "began", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Order{Argv: []string{"sh", "-c", x.script, "sh", "{}"}, Mode: Each, First: 1, Count: 6, Numbers: true, Slots: x.slots}
			dir := directory(t, o, "")
			t.Chdir(dir)
			stop, over := make(chan struct{}), make(chan error, 1)
			go func() { over <- RunUntil(dir, 1, stop) }()
			if !await.Soon(func() bool { _, err := os.Stat(x.last); return err == nil }) {
				t.Fatal("the item did not begin")
			}
			close(stop)
			if err := <-over; !errors.Is(err, ErrStopped) {
				t.Fatalf("error is %v", err)
			}
			if _, err := os.Stat(File(dir, 1, KindNew)); err == nil {
				t.Error("it is still at work")
			}
			if x.results != "" {
				if got := results(t, dir, o); got != x.results {
					t.Errorf("%s", got)
				}
				return
			}
			if _, err := os.Stat(File(dir, 1, KindResult)); err == nil {
				t.Error("it has a result")
			}
		})
	}
}

// An item that the same signal ended before its task was stopped has no result.
func TestStoppedAfterItsItem(t *testing.T) {
	o := Order{Argv: []string{"sh", "-c", "echo $$ >pid.part; mv pid.part pid; sleep 300", "sh", "{}"}, Mode: Each, First: 1, Count: 1, Numbers: true, Slots: 1}
	dir := directory(t, o, "")
	t.Chdir(dir)
	stop, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- RunUntil(dir, 1, stop) }()
	var text []byte
	if !await.Soon(func() (ok bool) { text, _ = os.ReadFile(filepath.Join(dir, "pid")); return len(text) > 0 }) {
		t.Fatal("the item did not begin")
	}
	pid := 0
	for _, c := range text[:len(text)-1] {
		pid = 10*pid + int(c-'0')
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(signalTime/4, func() { close(stop) })
	if err := <-over; !errors.Is(err, ErrStopped) {
		t.Fatalf("error is %v", err)
	}
}
