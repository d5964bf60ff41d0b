package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// host is a node as the loop knows it.
type host struct {
	miniq.Node
	retired bool // no longer in the config: it takes no jobs and goes with its last run
	link    *link
	quick   int // starts in a row that did not last
}

// link is the connection to a node process. The loop never waits for a node: what
// it does not take yet stays in the outbox, except the frames that are on their
// way.
type link struct {
	conn  net.Conn
	raw   syscall.RawConn
	cmd   *exec.Cmd
	began time.Time
	gone  chan struct{} // closed when the process has ended
	out   outbox        // the loop's

	mu      sync.Mutex
	unsent  []byte // what the socket had no room for, and writeOn is writing
	waiting chan struct{}
}

// window is how many bytes of frames are made at a time, and one frame more.
const window = 128 << 10

// flush sends a node what it takes. What the socket has no room for is left to
// writeOn, which wakes the loop for the rest.
func (d *daemon) flush(l *link) {
	for !l.out.empty() && !l.full() {
		frames, err := d.frames(l)
		if err != nil {
			_ = l.conn.Close() // the reader sees it, and another node is started
			return
		}
		l.write(frames)
	}
}

// full reports whether the node has yet to take what it was sent.
func (l *link) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsent) > 0
}

// frames pops messages of about a window's length from the outbox.
func (d *daemon) frames(l *link) ([]byte, error) {
	var frames []byte
	for len(frames) < window && !l.out.empty() {
		next := l.out.pop()
		if next.start != nil {
			frames = d.startFrame(frames, next.start)
		}
		for _, c := range next.commands {
			var err error
			if frames, err = c.Append(frames); err != nil {
				return nil, err
			}
		}
	}
	return frames, nil
}

func (l *link) write(frames []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames = frames[l.writeNow(frames):]
	if len(frames) == 0 {
		return
	}
	l.unsent = frames
	l.waiting <- struct{}{} // it has room: nothing is left but these
}

// writeNow writes what the socket has room for, and returns how many bytes that was.
// An error is left to writeOn.
func (l *link) writeNow(b []byte) int {
	written := 0
	_ = l.raw.Write(func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), b); err == nil {
			written = n
		}
		return true
	})
	return written
}

// writeRest writes what flush left, until the node is gone. It calls more each time.
func (l *link) writeRest(more func()) {
	for {
		select {
		case <-l.waiting:
		case <-l.gone:
			return
		}
		l.mu.Lock()
		left := l.unsent
		l.mu.Unlock()
		if _, err := l.conn.Write(left); err != nil {
			_ = l.conn.Close() // as above
			return
		}
		l.mu.Lock()
		l.unsent = nil
		l.mu.Unlock()
		more()
	}
}

// begin starts the nodes of the config, and those that are no longer in it but
// have runs. Clients wait until each has attached or failed: without hosts every
// job would be too large for the farm.
func (d *daemon) begin() {
	for _, n := range d.Config.Nodes {
		d.hosts[n.Name] = &host{Node: n}
	}
	busy := make(map[string]bool)
	for _, r := range d.m.Runs() {
		busy[r.Hosts[0].Host] = true
	}
	var batch []input
	batch = append(batch, input{event: manager.Configure{Config: d.managerConfig()}})
	for _, h := range d.m.Hosts() {
		if d.hosts[h.Name] != nil {
			continue
		}
		if busy[h.Name] {
			d.log.Warn("a node is no longer in the config: it is closed and goes with its last job", "node", h.Name)
			d.hosts[h.Name] = &host{Node: miniq.Node{Name: h.Name, Slots: h.Slots, Memory: h.Memory, Has: h.Has, Features: h.Features}, retired: true}
		} else {
			batch = append(batch, input{event: manager.NodeDown{Name: h.Name}}, input{event: manager.NodeGone{Name: h.Name}})
		}
	}
	d.process(batch)
	for _, h := range d.hosts {
		d.awaited[h.Name] = true
	}
	for _, h := range d.hosts {
		d.attach(h)
	}
	d.forgetEnded()
	d.setAlarm()
}

// attach starts a node process and sends it the runs that the manager has there,
// with those that were ordered while no node was attached.
func (d *daemon) attach(h *host) {
	l, err := d.spawn(h.Name)
	if err != nil {
		d.log.Error("a node can't be started", "node", h.Name, "error", err)
		d.restartNode(h)
		return
	}
	h.link = l
	all := node.Attach{Doubtful: d.rebooted}
	for _, r := range d.m.Runs() {
		if r.Hosts[0].Host != h.Name {
			continue
		}
		run := node.RunID{ID: r.ID, Run: r.Run}
		all.Runs = append(all.Runs, node.Expected{Run: run, Confirmed: r.Confirmed, Stopped: r.Stopped, Doubtful: d.doubtful[run]})
		if r.Killing {
			l.out.addWant(run, d.killOf(&r))
		}
	}
	l.out.attach = &all
	d.flush(l)
	go l.writeRest(func() { d.post(input{do: func() {}}) })
	go d.readReports(h, l)
}

// stopAwaiting accepts clients once every node has attached or failed.
func (d *daemon) stopAwaiting(h *host) {
	delete(d.awaited, h.Name)
	if len(d.awaited) == 0 {
		d.openSocket()
	}
}

func (d *daemon) openSocket() {
	if d.opened {
		return
	}
	d.opened = true
	d.socket.open()
	if d.Ready != nil {
		d.Ready()
	}
}

// restartNode starts a node again, after a pause that grows with its failures.
func (d *daemon) restartNode(h *host) {
	const first, longest = 20 * time.Millisecond, 30 * time.Second
	d.stopAwaiting(h)
	pause := min(first<<min(h.quick, 20), longest)
	h.quick++
	time.AfterFunc(pause, func() {
		d.post(input{do: func() {
			if d.hosts[h.Name] == h && h.link == nil && (d.stopping == nil || !d.stopping.over) {
				d.attach(h)
			}
		}})
	})
}

func (d *daemon) spawn(name string) (*link, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "node"), os.NewFile(uintptr(pair[1]), "daemon")
	defer func() { _ = theirs.Close() }()
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	args := append([]string{"node", "--name", name, "--dir", filepath.Join(d.state, "nodes", name), "--keeper", d.Keeper, "--scripts", d.scriptDir()}, d.NodeOptions...)
	cmd := exec.Command(d.Program, args...) //nolint:noctx // it ends with its connection
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", os.Stderr, []*os.File{theirs}
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GOMEMLIMIT=96MiB") // it does one thing at a time
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &link{conn: conn, raw: raw, cmd: cmd, began: time.Now(), gone: make(chan struct{}), waiting: make(chan struct{}, 1)}, nil
}

// readReports turns what a node reports into events, until it is gone.
func (d *daemon) readReports(h *host, l *link) {
	in := bufio.NewReader(l.conn)
	var why error
	for {
		var r node.Report
		if why = miniq.ReadFrame(in, &r); why != nil {
			break
		}
		d.post(d.inputOf(h, l, r))
	}
	_ = l.conn.Close()
	err := l.cmd.Wait()
	close(l.gone)
	d.post(input{do: func() { d.detached(h, l, fmt.Errorf("%w (%w)", why, err)) }})
}

// inputOf returns the input for a report.
func (d *daemon) inputOf(h *host, l *link, r node.Report) input {
	id, run := r.Run.ID, r.Run.Run
	forget := func() {
		l.out.addForget(r.Run)
		delete(d.doubtful, r.Run)
		d.retire(h)
	}
	switch r.Kind {
	case node.Started:
		return input{event: manager.Started{ID: id, Run: run}}
	case node.Stopped:
		return input{event: manager.Stopped{ID: id, Run: run}}
	case node.Failed:
		return input{event: manager.StartFailed{ID: id, Run: run, Reason: r.Text, Again: r.Again}, after: forget}
	case node.Ended:
		if r.End.Unbegun {
			return input{event: manager.StartFailed{ID: id, Run: run, Reason: r.End.Text, PreExec: r.End.Code}, after: forget}
		}
		return input{event: manager.Ended{ID: id, Run: run, ExitCode: r.End.Code, Reason: r.End.Text, Self: r.End.Self, Asked: r.End.Asked, Saved: r.End.Saved}, end: r.End, after: forget}
	case node.Lost:
		return input{event: manager.RunLost{ID: id, Run: run, Reason: r.Text}, after: forget}
	case node.Absent:
		return input{do: func() { d.absent(r.Run) }}
	case node.Attached:
		return input{event: h.up(h.retired || d.stopping != nil), after: func() { d.attached(h) }}
	}
	return input{do: func() { d.log.Error("a node sent a report of an unknown kind", "node", h.Name, "kind", r.Kind) }}
}

// up returns the event that the host is there.
func (h *host) up(closed bool) manager.NodeUp {
	return manager.NodeUp{Name: h.Name, Slots: h.Slots, Memory: h.Memory, Closed: closed, Has: h.Has, Features: h.Features}
}

func (d *daemon) attached(h *host) {
	h.quick = 0
	d.stopAwaiting(h)
	for run := range d.doubtful { // adopted ones are doubtful no more, lost ones are reported by now
		if r, ok := d.run(run); !ok || r.Hosts[0].Host == h.Name {
			delete(d.doubtful, run)
		}
	}
	if err := d.recordBoot(); err != nil {
		d.log.Error("the machine's boot ID can't be written", "error", err)
	}
	d.retire(h)
}

func (d *daemon) run(id node.RunID) (manager.Run, bool) {
	return d.m.Run(id.ID, id.Run)
}

// absent deals with a run that was decided and never begun.
func (d *daemon) absent(id node.RunID) {
	r, ok := d.run(id)
	switch {
	case !ok:
		return
	case r.Killing: // it must not begin any more
		const terminated = 128 + int(syscall.SIGTERM)
		forget := func() {
			if h := d.hosts[r.Hosts[0].Host]; h != nil && h.link != nil { // it may have been claimed
				h.link.out.addForget(id)
			}
		}
		d.enqueue(input{event: manager.Ended{ID: r.ID, Run: r.Run, ExitCode: terminated, Unbegun: true}, after: forget})
		return
	}
	d.orderRun(&r.StartRun)
	if r.Stopped {
		d.carryOut(manager.StopRun{ID: r.ID, Run: r.Run})
	}
}

func (d *daemon) detached(h *host, l *link, why error) {
	if h.link != l {
		return
	}
	h.link = nil
	if d.stopping != nil && d.stopping.over || d.hosts[h.Name] != h {
		return
	}
	d.log.Warn("a node ended; its jobs run on, another one takes its place", "node", h.Name, "why", why)
	d.enqueue(input{event: manager.NodeDown{Name: h.Name}})
	if time.Since(l.began) > time.Minute {
		h.quick = 0
	}
	d.restartNode(h)
}

// retire removes a node that is no longer in the config, after its last run.
func (d *daemon) retire(h *host) {
	if !h.retired || slices.ContainsFunc(d.m.Runs(), func(r manager.Run) bool { return r.Hosts[0].Host == h.Name }) {
		return
	}
	delete(d.hosts, h.Name)
	if h.link != nil {
		_ = h.link.conn.Close()
	}
	d.enqueue(input{event: manager.NodeDown{Name: h.Name}})
	d.enqueue(input{event: manager.NodeGone{Name: h.Name}})
}

// detachAll hangs up on the nodes and waits until they are gone. Keepers stay.
func (d *daemon) detachAll() {
	for _, h := range d.hosts {
		if h.link != nil {
			_ = h.link.conn.Close()
		}
	}
	for _, h := range d.hosts {
		if h.link != nil {
			<-h.link.gone
		}
	}
}

// orderRun has a run started, if its node is attached; else attach will.
func (d *daemon) orderRun(s *manager.StartRun) {
	if h := d.hosts[s.Hosts[0].Host]; h != nil && h.link != nil {
		h.link.out.addStart(*s)
	}
}

// startFrame appends the order to start a run, if it is still to be started and
// the name service need not be asked first.
func (d *daemon) startFrame(frames []byte, s *manager.StartRun) []byte {
	run := node.RunID{ID: s.ID, Run: s.Run}
	if r, ok := d.run(run); !ok || r.Killing {
		d.absent(run)
		return frames
	}
	b, err := d.bodyOf(s.ID)
	var u *knownUser
	var later bool
	if err == nil {
		u, later, err = d.runUser(s, b)
	}
	if later {
		return frames
	}
	var start *node.Start
	if err == nil {
		start, err = startOf(s, b, u, d.Config.Environment)
	}
	var longer []byte
	if err == nil {
		longer, err = node.Command{Start: start}.Append(frames)
	}
	if err != nil {
		d.cannotRun(s.ID, s.Run, err)
		return frames
	}
	return longer
}

// cannotRun ends a job that can't be started, now or later.
func (d *daemon) cannotRun(id backends.ID, run int, why error) {
	const cannotRun = 126
	d.log.Error("a job can't be started, now or later: it ends", "job", id, "error", why)
	end := &keeper.End{Code: cannotRun, At: time.Now(), Text: why.Error()}
	d.enqueue(input{event: manager.Ended{ID: id, Run: run, ExitCode: cannotRun, Reason: why.Error()}, end: end})
}

// enqueue adds an input from within the loop, which handles it next.
func (d *daemon) enqueue(in input) { d.soon = append(d.soon, in) }

// sendWant sends what is wanted of a run to its node, for its keeper.
func (d *daemon) sendWant(id backends.ID, run int, w keeper.Want) {
	r, ok := d.run(node.RunID{ID: id, Run: run})
	if !ok {
		return
	}
	if h := d.hosts[r.Hosts[0].Host]; h != nil && h.link != nil {
		h.link.out.addWant(node.RunID{ID: id, Run: run}, w)
	}
}

// killWant is what is wanted of a keeper that is to end a run, which is asked before to save
// its work, if that is wanted; requeue says that the job goes back into the queue then.
func killWant(grace time.Duration, save backends.Checkpoint, requeue bool) keeper.Want {
	w := keeper.Want{Verb: keeper.Kill, Grace: grace, Text: save.Command, Requeue: requeue}
	if save.Signal != "" {
		w.Signal = unix.SignalNum(save.Signal)
	}
	return w
}

// killOf returns a kill that was decided earlier, with what is left of its grace. A run that is
// asked to save its work has all of it: it may not have been asked yet, and where it was, its
// keeper knows by when it is to end.
func (d *daemon) killOf(r *manager.Run) keeper.Want {
	left := r.Grace - d.m.Now().Sub(r.KilledAt)
	if r.Save.OnDemand() {
		left = r.Grace
	}
	return killWant(min(max(left, 0), r.Grace), r.Save, r.Requeued)
}
