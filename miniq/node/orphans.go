package node

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// A keeper is a subreaper: whatever becomes of their parents, its job's processes
// stay below it. So is the node process: those of a keeper that was killed become
// the node's own children, also where they have left session and environment.
// The node has no children but these and its keepers.
//
// A keeper that an earlier node started is no descendant of this one. What such a
// keeper leaves is found by its control group, or where there is none by session
// and environment alone.

// adoptOrphans makes this process a subreaper.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// orphanPause is the pause between two searches for orphans: killed processes take a
// moment to end.
const orphanPause = 20 * time.Millisecond

// orphans asks the loop to kill those of the families that are of no keeper.
type orphans struct {
	families map[proc.Process][]proc.Process
	left     chan bool // there were some
}

// killOrphans kills what killed keepers left to this process, and returns when all of
// it is gone.
func (n *node) killOrphans() {
	for {
		o := orphans{families: proc.Families(os.Getpid()), left: make(chan bool, 1)}
		select {
		case n.orphans <- o:
		case <-n.quit:
			return
		}
		if !<-o.left {
			return
		}
		time.Sleep(orphanPause)
	}
}

// killFamilies runs in the loop: no keeper is being started meanwhile, so each is known.
func (n *node) killFamilies(o orphans) {
	left := false
	for child, below := range o.families {
		if n.children[child.PID] != nil {
			continue
		}
		left = true
		child.Signal(unix.SIGKILL)
		for _, p := range below {
			p.Signal(unix.SIGKILL)
		}
	}
	o.left <- left
}
