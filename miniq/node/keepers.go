package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// keeperProcess is a keeper that this node started and that has not been reaped.
type keeperProcess struct {
	pid  int
	next *os.File // the socket for further orders; nil: it takes none
	as   *keeper.User
	run  *run // nil: it is idle, or was dismissed

	since time.Time // when it became idle
}

// Keepers without a run wait for another one of the same user, but not for long:
// they are there for floods of short jobs.
const (
	maxIdle  = 16
	idleTime = time.Second
)

// hire gives a run to an idle keeper, or to a new one. When it returns the keeper holds
// the lock of the record.
func (n *node) hire(r *run, order *keeper.Order) error {
	order.More = order.Terminal == "" && order.MemoryLimit == 0
	data, err := order.Encode()
	if err != nil {
		return err
	}
	if order.More && len(data) <= keeper.MaxNext {
		for {
			h := n.popIdle(order.As)
			if h == nil {
				break
			}
			if err := keeper.SendOrder(h.next, r.record, data); err == nil {
				h.run, r.keeper = r, h.pid
				return nil
			}
			h.dismiss() // it was killed
		}
	}
	h, err := n.startKeeper(r, order, data)
	if err != nil {
		return err
	}
	h.run, r.keeper = r, h.pid
	n.children[h.pid] = h
	return nil
}

func (n *node) startKeeper(r *run, order *keeper.Order, data []byte) (*keeperProcess, error) {
	memory, err := memoryFile(data)
	if err != nil {
		return nil, fmt.Errorf("write the order: %w", err)
	}
	defer func() { _ = memory.Close() }()
	null := n.null.Fd()
	files := []uintptr{null, null, null, r.record.Fd(), memory.Fd()}
	h := &keeperProcess{as: order.As}
	if order.More {
		ours, theirs, err := keeper.NewNextSocket()
		if err != nil {
			return nil, fmt.Errorf("make a keeper's socket: %w", err)
		}
		defer func() { _ = theirs.Close() }()
		h.next, files = ours, append(files, theirs.Fd())
	}
	h.pid, err = syscall.ForkExec(n.Keeper, []string{"miniq-keeper", r.id.String()}, &syscall.ProcAttr{
		Dir: "/", Env: KeeperEnv(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		h.dismiss()
		return nil, fmt.Errorf("start %s: %w", n.Keeper, err)
	}
	if h.next != nil {
		go n.listen(h, h.next)
	}
	return h, nil
}

// listen reports to the loop each time that a keeper has ended a run, until the keeper
// is gone or dismissed.
func (n *node) listen(h *keeperProcess, next *os.File) {
	for keeper.AwaitIdle(next) == nil {
		select {
		case n.nowIdle <- h:
		case <-n.quit:
			return
		}
	}
}

// dismiss dismisses a keeper: it hangs up, and the keeper ends at once if it is idle, else
// with its run.
func (h *keeperProcess) dismiss() {
	if h.next != nil {
		_ = h.next.Close()
		h.next = nil
	}
}

// keeperIdle handles a keeper that has ended its run and is idle, and reports the run's end.
func (n *node) keeperIdle(h *keeperProcess) error {
	r := h.run
	if n.children[h.pid] != h || r == nil { // it has been reaped since
		return nil
	}
	h.run, h.since = nil, time.Now()
	if n.idle = append(n.idle, h); len(n.idle) > maxIdle {
		n.idle[0].dismiss()
		n.idle = n.idle[1:]
	}
	if len(n.idle) == 1 {
		n.idleTimer.Reset(idleTime)
	}
	return n.finish(r)
}

// popIdle takes the keeper of a user that has been idle for the shortest time; nil:
// there is none.
func (n *node) popIdle(as *keeper.User) *keeperProcess {
	for i := len(n.idle) - 1; i >= 0; i-- {
		if h := n.idle[i]; h.as.Same(as) {
			n.idle = slices.Delete(n.idle, i, i+1)
			return h
		}
	}
	return nil
}

// dismissIdle dismisses keepers that have been idle for idleTime.
func (n *node) dismissIdle() {
	for len(n.idle) > 0 && time.Since(n.idle[0].since) >= idleTime {
		n.idle[0].dismiss()
		n.idle = n.idle[1:]
	}
	if len(n.idle) > 0 {
		n.idleTimer.Reset(max(idleTime-time.Since(n.idle[0].since), 0))
	}
}

// dismissAll dismisses all keepers, which is the last thing that a node does. Idle ones
// end, others when their runs do. So they would if the node were killed.
func (n *node) dismissAll() {
	for _, h := range n.children {
		h.dismiss()
	}
}

// reap reaps keepers that ended, and reports the ends of their runs.
func (n *node) reap() error {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return nil
		}
		h := n.children[pid]
		if h == nil {
			continue
		}
		delete(n.children, pid)
		h.dismiss()
		n.idle = slices.DeleteFunc(n.idle, func(other *keeperProcess) bool { return other == h })
		if h.run != nil {
			if err := n.finish(h.run); err != nil {
				return err
			}
		}
	}
}
