package workers

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// lostTime is above the time after which asplit calls a silent machine's jobs lost.
const lostTime = 65 * time.Second

// machines are those that joined. They have a host of the cluster each, and not its queue.
type machines struct {
	*scene
	offers map[string]*exec.Cmd
}

// offer has a machine join.
func (m *machines) offer(n *cluster.Node) {
	m.Helper()
	cmd := m.Background(m.ctx, "asplit", "worker", "--join", "--join-dir", filepath.Join(m.Home, "joined"), "--name", n.Name(),
		"--state", filepath.Join(m.Home, "of-"+n.Name()), "--slots", strconv.Itoa(slots))
	if err := n.Enter(cmd); err != nil {
		m.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	m.offers[n.Name()] = cmd
}

// R50: each item has exactly one result, in order, where there is no queue, whatever happens to the machines
// that joined, or to their links.
func TestJoined(t *testing.T) {
	m := &machines{scene: newFarm(t), offers: map[string]*exec.Cmd{}}
	for n := range hosts {
		m.offer(m.Node(n + 1))
	}
	records := func() []string {
		left, err := filepath.Glob(filepath.Join(m.Home, "joined", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	if !await.Soon(func() bool { return len(records()) == hosts }) {
		t.Fatalf("of %d machines these have joined: %v", hosts, records())
	}
	const items = 6000
	m.begin(items, "0.35", "--joined", "--join-dir", filepath.Join(m.Home, "joined"))
	m.trouble(map[string]func(*cluster.Node){
		"a short cut": func(n *cluster.Node) { m.cut(n, 500*time.Millisecond, 10*time.Second) },
		"a long cut":  func(n *cluster.Node) { m.cut(n, lostTime, lostTime+10*time.Second) },
		"a kill": func(n *cluster.Node) {
			if err := n.Kill(m.ctx); err != nil {
				m.Error(err)
			}
			_ = m.offers[n.Name()].Wait()
			m.pause(m.between(0, 20*time.Second))
			m.offer(n)
		},
	})
	m.judge(items)
	for _, name := range []string{"a short cut", "a long cut", "a kill"} {
		if m.counts[name] < fewest {
			t.Errorf("%s came %d times: this proves nothing", name, m.counts[name])
		}
	}
	slurmd := 1 // and nothing else of the node
	for n := range hosts {
		node := m.Node(n + 1)
		cmd := m.offers[node.Name()]
		if err := cmd.Cancel(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", node.Name(), err)
		}
		if !await.Soon(func() bool {
			left, err := node.Processes(m.ctx)
			return err == nil && len(left) <= slurmd
		}) {
			left, err := node.Processes(m.ctx)
			t.Errorf("%s: processes are left: %v, %v", node.Name(), left, err)
		}
	}
	if left := records(); len(left) > 0 {
		t.Errorf("records of machines are left: %v", left)
	}
}
