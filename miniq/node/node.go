package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// ConnFD is the descriptor of the socket to the daemon.
const ConnFD = 3

// Options of a node.
type Options struct {
	Dir    string // its directory; made if it is missing
	Keeper string // path of miniq-keeper
	// Scripts is the directory of the scripts and host files of jobs that run as other users than
	// the node: those can't enter Dir. Made if it is missing. Empty: there are none.
	Scripts string
	Log     *slog.Logger
}

// Main is the life of a node process: it serves the socket at ConnFD until the
// daemon hangs up.
func Main(o Options) error {
	f := os.NewFile(ConnFD, "daemon")
	if f == nil {
		return errors.New("serve as a node: no socket from a daemon: nodes are started by miniqd alone")
	}
	syscall.CloseOnExec(ConnFD)
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err == nil {
		err = adoptOrphans()
	}
	if err != nil {
		return fmt.Errorf("serve as a node: %w", err)
	}
	return serve(conn, o, true)
}

// Serve is a node on a connection. It returns when the daemon hangs up; no run
// is touched by that.
func Serve(conn net.Conn, o Options) error { return serve(conn, o, false) }

// serve is Serve; alone says that this process has no children but the node's.
func serve(conn net.Conn, o Options, alone bool) error {
	defer func() { _ = conn.Close() }()
	lock, err := lockDir(o.Dir)
	if err != nil {
		return fmt.Errorf("serve as node: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if o.Scripts != "" {
		if err := makeScriptDir(o.Scripts); err != nil {
			return fmt.Errorf("serve as node: %w", err)
		}
	}
	n := &node{
		Options: o, alone: alone, runs: map[RunID]*run{}, children: map[int]*keeperProcess{},
		idleTimer: time.NewTimer(0), flushTimer: time.NewTimer(0), flushArmed: true, nowIdle: make(chan *keeperProcess), wishTimer: time.NewTimer(0), large: make(chan struct{}, 1),
		out: bufio.NewWriter(conn), done: make(chan *run), cleared: make(chan *run), orphans: make(chan orphans), quit: make(chan struct{}),
	}
	defer close(n.quit)
	defer n.dismissAll()
	n.spares.find(filepath.Join(o.Dir, "runs"))
	if n.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	defer func() { _ = n.null.Close() }()
	return n.serve(conn)
}

// lockDir makes and locks a node's directory. It waits until the node before this one
// has ended.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return lock, nil
}

type node struct {
	Options
	alone      bool // this process does nothing else, and is a subreaper
	null       *os.File
	runs       map[RunID]*run
	children   map[int]*keeperProcess // by process ID
	idle       []*keeperProcess       // keepers without a run, the longest without one first
	idleTimer  *time.Timer            // when idle keepers are due to be dismissed
	nowIdle    chan *keeperProcess    // keepers that have ended a run
	spares     spares
	out        *bufio.Writer
	urgent     bool        // more than starts wait in out
	flushTimer *time.Timer // when they are sent by themselves
	flushArmed bool        // it runs
	done       chan *run   // adopted runs whose keeper is gone
	cleared    chan *run   // lost runs of which nothing is left
	orphans    chan orphans
	wishTimer  *time.Timer   // when wishes are due to be passed
	wishTime   time.Time     // when that will be; zero: they don't
	large      chan struct{} // holds an element while an order is in memory that is large
	quit       chan struct{}
}

// run is one that has a keeper, or whose end the daemon has not recorded yet.
type run struct {
	id     RunID
	record *os.File
	keeper int // process ID
	pidfd  int // of the keeper, -1: none
	log    keeper.Follower
	job    keeper.Record // as far as it was read
	over   bool
	wishes wishes
	asked  stopAsked
	// A script or a host file was written for it, or may have been by an earlier node.
	filed       bool
	earlierBoot bool // it may be of an earlier boot: its processes' numbers mean nothing
}

// serve is the node's one loop: everything below it runs in this goroutine.
func (n *node) serve(conn net.Conn) error {
	commands, failed := make(chan Command, 64), make(chan error, 1)
	go n.read(conn, commands, failed)
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, syscall.SIGCHLD)
	defer signal.Stop(dead)
	for {
		var err error
		select {
		case c := <-commands:
			err = n.obey(c)
		case h := <-n.nowIdle:
			err = n.keeperIdle(h)
		case <-n.idleTimer.C:
			n.dismissIdle()
		case <-n.flushTimer.C:
			n.flushArmed, n.urgent = false, true
		case <-dead:
			err = n.reap()
		case r := <-n.done:
			err = n.finish(r)
		case <-n.wishTimer.C:
			n.wishTime = time.Time{}
			n.sendAllWishes()
			err = n.reportStopped()
		case o := <-n.orphans:
			n.killFamilies(o)
		case r := <-n.cleared:
			err = n.report(Report{Kind: Lost, Run: r.id, Text: "its keeper was killed: how it ended is not known"})
		case err = <-failed:
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return fmt.Errorf("read from the daemon: %w", err)
		}
		if err == nil && len(commands) == 0 {
			err = n.flushReports()
		}
		if errors.Is(err, syscall.EPIPE) {
			return nil // the daemon is gone: its last words are about to be read
		}
		if err != nil {
			return err
		}
	}
}

func (n *node) read(conn net.Conn, commands chan<- Command, failed chan<- error) {
	in := bufio.NewReader(conn)
	for {
		c, err := ReadCommand(in)
		if err != nil {
			failed <- err
			return
		}
		if c.large() {
			select {
			case n.large <- struct{}{}:
			case <-n.quit:
				return
			}
		}
		select {
		case commands <- c:
		case <-n.quit:
			return
		}
	}
}

// startPause is how long the report of a start may wait to be sent together with what
// comes next: with its own end, if the job is short.
const startPause = 3 * time.Millisecond

// flushReports sends the reports that wait; starts alone wait for a timer.
func (n *node) flushReports() error {
	switch {
	case n.out.Buffered() == 0:
		n.urgent = false
	case n.urgent:
		n.urgent = false
		return n.out.Flush()
	case !n.flushArmed:
		n.flushArmed = true
		n.flushTimer.Reset(startPause)
	}
	return nil
}

func (n *node) report(r Report) error {
	n.urgent = n.urgent || r.Kind != Started
	r.Text = backends.Escape(r.Text)
	return miniq.WriteFrame(n.out, r)
}

func (n *node) obey(c Command) error {
	switch {
	case c.Attach != nil:
		return n.attach(c.Attach)
	case c.Start != nil:
		err := n.start(c.Start)
		if c.large() {
			<-n.large
		}
		return err
	case c.Want != nil:
		return n.want(c.Want)
	case c.Forget != nil:
		n.forget(*c.Forget)
	}
	return nil
}

func (n *node) path(id RunID, suffix string) string {
	return filepath.Join(n.Dir, "runs", id.String()+suffix)
}

// Names of a run's files, after its RunID.
const (
	recordSuffix = ".run"
	scriptSuffix = ".script"
	hostsSuffix  = ".hosts"
)

// RecordPath is where the node in a directory keeps a run's record.
func RecordPath(dir string, id RunID) string {
	return filepath.Join(dir, "runs", id.String()+recordSuffix)
}

// attach compares what the daemon believes with what the records say.
func (n *node) attach(a *Attach) error {
	found, err := n.records()
	if err != nil {
		return err
	}
	for _, e := range a.Runs {
		delete(found, e.Run)
		if err := n.adopt(e); err != nil {
			return err
		}
	}
	for id := range found {
		if err := n.killUnknown(id, a.Doubtful); err != nil {
			return err
		}
	}
	return n.report(Report{Kind: Attached})
}

func (n *node) records() (map[RunID]bool, error) {
	entries, err := os.ReadDir(filepath.Join(n.Dir, "runs"))
	if err != nil {
		return nil, err
	}
	found := make(map[RunID]bool, len(entries))
	for _, e := range entries {
		var id RunID
		if name, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && id.UnmarshalText([]byte(name)) == nil {
			found[id] = true
		}
	}
	return found, nil
}
