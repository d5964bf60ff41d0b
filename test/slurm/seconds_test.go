package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// R14: a job of a project with a threshold of 0 s is served by an engine whose next cycle is
// ten minutes away, while another project's job waits. Slurm's own times are the judge.
func TestSlotsInSeconds(t *testing.T) {
	s := newFullSite(t, "s/every: 1s/every: 20s/", "s/pending_threshold: 1s/pending_threshold: 10m/", "0,/^  projects: {}/s//  projects: {chipA: {pending_threshold: 0s}}/")
	begun := time.Now()
	s.engine("rebalance", "--every", "10m")
	s.await("the first cycle", func() bool {
		var status struct {
			Last *struct{ Started, Finished time.Time } `json:"last_cycle"`
		}
		s.must(json.Unmarshal([]byte(s.do("status", "--json")), &status))
		return status.Last != nil && status.Last.Started.After(begun) && !status.Last.Finished.IsZero()
	})
	other := s.batch(&s.alice, nil, "--account=chipB")
	for range 3 {
		s.startsSoon(s.batch(&s.alice, nil, "--account=chipA"))
	}
	if state := s.root("squeue", "--noheader", "--jobs="+other, "--format=%t"); state != "PD" {
		t.Errorf("the other project's job, whose threshold is 10m: %s", state)
	}
	if n, what := s.evicted(); n != 3 {
		t.Errorf("%d slots were preempted for 3:\n%s", n, what)
	}
	s.noLuaErrors()
}

// R36: with slots on standby a job starts where one was kept free, without any preemption, and
// another one is kept free after it.
func TestSlotsOnStandby(t *testing.T) {
	s := newFullSite(t, "s/every: 1s/every: 2s/", "s/pending_threshold: 1s/pending_threshold: 10m/", "0,/^  projects: {}/s//  projects: {chipA: {pending_threshold: 0s, standby: 2}}/")
	kept := func(n int) func() bool {
		return func() bool {
			running := s.root("squeue", "--noheader", "--states=RUNNING", "--name=allotment-dummy", "--format=%i")
			var status struct {
				Pools []struct {
					Project string
					Kept    int `json:"kept_slots"`
				}
				Reclaims []struct{}
			}
			s.must(json.Unmarshal([]byte(s.do("status", "--json")), &status))
			return len(strings.Fields(running)) == n && len(status.Reclaims) == 0 &&
				slices.ContainsFunc(status.Pools, func(p struct {
					Project string
					Kept    int `json:"kept_slots"`
				},
				) bool {
					return p.Project == "chipA" && p.Kept == n
				})
		}
	}
	s.engine("rebalance", "--every", "2s")
	s.await("two slots that are kept free", kept(2))
	for i, left := range []int{2, 1, 0} {
		id := s.batch(&s.alice, nil, "--account=chipA")
		s.startsSoon(id)
		if reclaims := s.do("explain", id); strings.Contains(reclaims, "Reclaim") {
			t.Errorf("job %d of chipA, though a slot was kept free for it:\n%s", i+1, reclaims)
		}
		s.await(fmt.Sprintf("%d slots that are kept free", left), kept(left))
	}
	if n, what := s.evicted(); n != 3 {
		t.Errorf("%d slots were preempted for 3:\n%s", n, what)
	}
	s.do("restore")
	s.noLuaErrors()
}

// R32: a job ahead that nothing can be preempted for keeps its host from all others. What is
// free there is not what the next job waits for.
func TestJobAheadThatCantBeServed(t *testing.T) {
	s := newSmallSite(t)
	for range 3 {
		s.batch(&s.alice, nil, "--account=chipB", "--nodelist=node1")
	}
	for range 4 {
		s.root("sbatch", "--parsable", "--output=/dev/null", "--nodelist=node2", "--wrap=exec sleep 600")
	}
	s.full()
	ahead := s.batch(&s.alice, nil, "--account=chipA", "--nodelist=node1", "--ntasks=2")
	s.await("a plan of the queue's for "+ahead, func() bool {
		return strings.Contains(s.root("squeue", "--noheader", "--jobs="+ahead, "-O", "SchedNodes"), "node1")
	})
	next := s.batch(&s.alice, nil, "--account=chipA")
	s.engine("rebalance", "--every", "1s")
	s.startsSoon(next)
	if state := s.root("squeue", "--noheader", "--jobs="+ahead, "--format=%t"); state != "PD" {
		t.Errorf("the job ahead: %s", state)
	}
	if n, what := s.evicted(); n != 1 {
		t.Errorf("%d slots were preempted for 1:\n%s", n, what)
	}
	s.noLuaErrors()
}

// startsSoon awaits the start of a job, which takes far less than the site's threshold.
func (s *testSite) startsSoon(id string) {
	s.Helper()
	s.await("the start of "+id, func() bool {
		return s.root("squeue", "--noheader", "--states=RUNNING", "--jobs="+id, "--format=%i") != ""
	})
	waited := s.jobTime(id, "StartTime").Sub(s.jobTime(id, "SubmitTime"))
	s.Logf("job %s of chipA waited %v", id, waited)
	if waited > time.Minute {
		s.Errorf("job %s of chipA waited %v", id, waited)
	}
}

// newFullSite is a site of 8 slots with changes of its config, where normal jobs of root's run
// in all of them, beyond min_runtime.
func newFullSite(t *testing.T, changes ...string) *testSite {
	t.Helper()
	s := newSmallSite(t, changes...)
	for range 8 {
		s.root("sbatch", "--parsable", "--output=/dev/null", "--wrap=exec sleep 600")
	}
	s.full()
	return s
}

// full waits until jobs run in all slots, beyond min_runtime.
func (s *testSite) full() {
	s.Helper()
	s.await("a full farm", func() bool { return s.root("squeue", "--noheader", "--states=PENDING", "--format=%i") == "" })
	s.await("victims", func() bool {
		return s.root("squeue", "--noheader", "--states=RUNNING", "--format=%M") != "" && time.Since(s.lastStart()) > 2*time.Second
	})
}

// newSmallSite is a site of 8 slots with changes of its config. Two projects of alice's have
// three each.
func newSmallSite(t *testing.T, changes ...string) *testSite {
	t.Helper()
	needed(t)
	sweep(t)
	dir, err := os.MkdirTemp("", ownName("-"))
	if err != nil {
		t.Fatal(err)
	}
	s := &testSite{T: t, dir: dir, state: filepath.Join(dir, "allotment"), group: addGroup(t, "g")}
	t.Cleanup(func() { s.must(os.RemoveAll(dir)) })
	s.must(os.Chmod(dir, 0o755))
	s.alice = addPerson(t, "a", s.group)
	cluster.New(t, cluster.Options{Dir: dir, Nodes: 2, CPUs: 4})
	s.install()
	config := filepath.Join(s.state, "config.yaml")
	for _, change := range changes {
		if out, err := exec.Command("sed", "-i", change, config).CombinedOutput(); err != nil {
			t.Fatalf("sed: %v: %s", err, out)
		}
	}
	for _, project := range []string{"chipA", "chipB"} {
		s.do("project", "add", project, "--group", s.group)
		s.do("alloc", "set", project, "3", "--weeks", "2")
	}
	return s
}

// engine runs pba until the test ends.
func (s *testSite) engine(args ...string) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(builtPrograms(s.T), "pba"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "TZ=UTC", "ALLOTMENT_HOME=" + s.state, "SLURM_CONF=" + filepath.Join(s.dir, "slurm.conf")}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	s.must(cmd.Start())
	s.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended
	})
}

// lastStart returns when the job that began last did.
func (s *testSite) lastStart() time.Time {
	s.Helper()
	return s.times("--states=RUNNING", "--sort=-S", "--format=%S")
}

// jobTime returns one of a job's times, by squeue's word.
func (s *testSite) jobTime(id, field string) time.Time {
	s.Helper()
	return s.times("--jobs="+id, "-O", field)
}

func (s *testSite) times(args ...string) time.Time {
	s.Helper()
	var first string
	_, err := fmt.Sscan(s.root(append([]string{"squeue", "--noheader"}, args...)...), &first)
	s.must(err)
	at, err := time.ParseInLocation("2006-01-02T15:04:05", first, time.Local)
	s.must(err)
	return at
}
