package daemon

import (
	"bufio"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

func runID(job int) node.RunID { return node.RunID{ID: backends.ID{Job: int64(job)}, Run: 1} }

// sentCommands returns what an outbox sends, in words.
func sentCommands(o *outbox) []string {
	var all []string
	for !o.empty() {
		next := o.pop()
		if next.start != nil {
			all = append(all, "start "+next.start.ID.String())
		}
		for _, c := range next.commands {
			switch {
			case c.Attach != nil:
				all = append(all, "attach")
			case c.Forget != nil:
				all = append(all, "forget "+c.Forget.ID.String())
			case c.Want != nil && c.Want.Verb == keeper.Signal:
				all = append(all, "sig "+strconv.Itoa(int(c.Want.Signal))+" "+c.Want.Run.ID.String())
			case c.Want != nil:
				all = append(all, string(c.Want.Verb)+" "+c.Want.Run.ID.String())
			}
		}
	}
	return all
}

// Kills go first, each after its own run's start; the rest goes as it came, and
// what is wanted of one run together.
func TestOutboxOrder(t *testing.T) {
	var o outbox
	sig := func(n int) keeper.Want { return keeper.Want{Verb: keeper.Signal, Signal: syscall.Signal(n)} }
	start := func(job int) { o.addStart(manager.StartRun{ID: runID(job).ID, Run: 1}) }
	o.addWant(runID(1), sig(10))
	start(2)
	start(2)
	o.addForget(runID(3))
	o.addWant(runID(2), sig(12))
	o.addWant(runID(1), sig(10))
	o.addWant(runID(4), keeper.Want{Verb: keeper.Stop})
	o.addWant(runID(1), keeper.Want{Verb: keeper.Kill})
	o.addWant(runID(2), keeper.Want{Verb: keeper.Kill})
	o.addWant(runID(1), keeper.Want{Verb: keeper.Kill})
	o.addWant(runID(4), keeper.Want{Verb: keeper.Continue})
	o.attach = new(node.Attach)
	want := []string{"attach", "kill 1", "sig 10 1", "start 2", "forget 3", "kill 2", "sig 12 2", "cont 4"}
	if got := sentCommands(&o); !slices.Equal(got, want) {
		t.Errorf("sent is %q, want %q", got, want)
	}
	start(2)
	o.addWant(runID(1), sig(10))
	if got, want := sentCommands(&o), []string{"start 2", "sig 10 1"}; !slices.Equal(got, want) {
		t.Errorf("then sent is %q, want %q", got, want)
	}
	if len(o.wanted)+len(o.starts)+len(o.messages) > 0 {
		t.Errorf("%+v is left", o)
	}
}

// socketPair returns both ends of a connection.
func socketPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// newTestLink returns a link to a node that takes nothing, and the node's end of it.
func newTestLink(t *testing.T) (*link, net.Conn) {
	t.Helper()
	ours, theirs := socketPair(t)
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return &link{conn: ours, raw: raw, gone: make(chan struct{}), waiting: make(chan struct{}, 1)}, theirs
}

// What waits for a node that takes nothing is bounded, however much is wanted of
// its runs. When it takes something again a kill comes right behind what was on
// its way.
func TestOutboxIsBounded(t *testing.T) {
	const runs, rounds = 16, 2000
	l, there := newTestLink(t)
	d := newDaemon(Options{Log: slog.New(slog.DiscardHandler)}, t.TempDir())
	more := make(chan struct{}, 1)
	go l.writeRest(func() { more <- struct{}{} })
	defer close(l.gone)
	for round := range rounds {
		for job := 1; job <= runs; job++ {
			for s := 1; s <= 64; s++ {
				l.out.addWant(runID(job), keeper.Want{Verb: keeper.Signal, Signal: syscall.Signal(s)})
			}
			l.out.addWant(runID(job), keeper.Want{Verb: keeper.Note, Text: strconv.Itoa(round)})
		}
		d.flush(l)
	}
	l.mu.Lock()
	left := len(l.unsent)
	l.mu.Unlock()
	if left > 2*window || len(l.out.messages) > runs || len(l.out.wanted) > runs {
		t.Fatalf("%d bytes and %d letters wait for it", left, len(l.out.messages))
	}
	l.out.addWant(runID(7), keeper.Want{Verb: keeper.Kill})
	d.flush(l)
	in := bufio.NewReader(there)
	for heard := 0; ; heard++ {
		select {
		case <-more:
			d.flush(l)
		default:
		}
		c, err := node.ReadCommand(in)
		if err != nil {
			t.Fatal(err)
		}
		if c.Want.Verb == keeper.Kill {
			t.Logf("%d commands were on their way before the kill", heard)
			if heard > rounds*runs { // all that was wanted is 65 times as much
				t.Errorf("the kill came after %d others", heard)
			}
			return
		}
	}
}
