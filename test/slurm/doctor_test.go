package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// restart ends slurmctld and starts it anew, as its unit does.
func (s *testSite) restart() {
	s.Helper()
	s.stopController()
	cmd := exec.Command("slurmctld")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "SLURM_CONF=" + filepath.Join(s.dir, "slurm.conf")}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("start slurmctld: %v: %s", err, out)
	}
	s.await("slurmctld and its nodes", func() bool {
		states := strings.Fields(s.as(nil, nil, "sinfo", "--noheader", "--Node", "--partition=main", "--format=%t").out)
		return slices.Equal(states, []string{"idle", "idle"})
	})
}

func (s *testSite) stopController() {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "run", "slurmctld.pid"))
	s.must(err)
	first, _, _ := strings.Cut(string(text), "\n") // 24.11 leaves the end of a longer number behind
	pid, err := strconv.Atoi(first)
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGTERM))
	s.await("slurmctld's end", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
}

func zombie(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(text), ") Z ")
}

// TestDoctor breaks an installation in one way after the other: doctor finds each, says
// what to do, and finds it no more when that was done.
func TestDoctor(t *testing.T) {
	s := newBareSite(t)
	s.install()
	s.do("project", "add", "chipA", "--group", s.group)
	s.do("alloc", "set", "chipA", "2", "--weeks", "2")
	config := filepath.Join(s.state, "config.yaml")
	// A cycle that takes longer than its period is a finding: a busy machine must not
	// cause it.
	if out, err := exec.Command("sed", "-i", "s/every: 1s/every: 20s/", config).CombinedOutput(); err != nil {
		t.Fatalf("sed: %v: %s", err, out)
	}
	s.do("rebalance")
	s.healthy()
	edit := func(file, expression string) func() {
		return func() {
			if out, err := exec.Command("sed", "-i", expression, file).CombinedOutput(); err != nil {
				t.Fatalf("sed: %v: %s", err, out)
			}
		}
	}
	conf := func(expression string) func() { return func() { s.conf(expression) } }
	restarted := func(expression string) func() { return func() { s.conf(expression); s.restart() } }
	mode := func(path string, mode os.FileMode) func() { return func() { s.must(os.Chmod(path, mode)) } }
	hook := filepath.Join(s.dir, "job_submit.lua")
	for _, x := range []struct {
		name  string
		wrong func()
		find  string // of what is found
		do    string // of what to do
		right func()
	}{
		{"basic priorities", restarted("s/^PriorityType=.*/PriorityType=priority\\/basic/"), "queue: PriorityType is priority/basic", "set PriorityType=priority/multifactor", restarted("s/^PriorityType=.*/PriorityType=priority\\/multifactor/")},
		{"heavy weights", conf("$aPriorityWeightAge=3000000"), "queue: the PriorityWeight… sum up to 300000", "divide all of them by 2", conf("/^PriorityWeightAge/d")},
		{"a short bf_window", conf("s/bf_window=2880/bf_window=1440/"), "queue: partition main lets jobs run for 1440 min", "bf_window=2880", conf("s/bf_window=1440/bf_window=2880/")},
		{"shared slots", conf("s/^PartitionName=main.*/& OverSubscribe=FORCE:2/"), "queue: partition main has OverSubscribe=FORCE:2", "OverSubscribe=NO", conf("s/ OverSubscribe=FORCE:2//")},
		{"no requeue", conf("$aJobRequeue=0"), "queue: JobRequeue is 0", "JobRequeue=1", conf("/^JobRequeue/d")},
		{"a low partition that is not lower", conf("s/PriorityTier=0/PriorityTier=1/"), "queue: partition low, where lowered jobs go", "PriorityTier=0", conf("s/PriorityTier=1/PriorityTier=0/")},
		{"no licences", conf("s/^Licenses=/#&/"), "queue: slurm.conf has no licences allotment_fixed", "set Licenses=allotment_fixed:1,allotment_fixed_0:1,", conf("s/^#Licenses/Licenses/")},
		{"no filter", conf("/^JobSubmitPlugins/d"), "filter: the queue asks no script", "JobSubmitPlugins=lua", conf("$aJobSubmitPlugins=lua")},
		{"another filter", func() {
			s.must(os.Remove(hook))
			s.must(os.WriteFile(hook, []byte("function slurm_job_submit() return slurm.SUCCESS end\nfunction slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"), 0o644))
			s.conf("/^JobSubmitPlugins/d")
			s.conf("$aJobSubmitPlugins=lua")
		}, "filter: the queue does not ask our filter", "let " + hook + " call", func() {
			s.must(os.Remove(hook))
			s.must(os.Symlink(filepath.Join(s.state, "job_submit.lua"), hook))
			s.conf("/^JobSubmitPlugins/d")
			s.conf("$aJobSubmitPlugins=lua")
		}},
		{"a closed home", mode(s.state, 0o700), "filter: as slurm, who runs the filter", "chmod", mode(s.state, 0o755)},
		{"a policy that others write", mode(filepath.Join(s.state, "policy.lua"), 0o666), "policy.lua can be written by others", "chmod", mode(filepath.Join(s.state, "policy.lua"), 0o644)},
		{"no such partition", edit(config, "s/^queues: .*/queues: [nope]/"), "config: there is no queue \"nope\" (there are ", "correct `queues`", edit(config, "s/^queues: .*/queues: []/")},
		{"no such lowest partition", edit(config, "s/low_queue: low /low_queue: nope /"), "config: there is no queue \"nope\"", "filter.low_queue", edit(config, "s/low_queue: nope /low_queue: low /")},
		{"no such host", edit(config, "s/^hosts: .*/hosts: [node9]/"), "config: the queue has no host \"node9\" (it has node1, node2)", "hosts:", edit(config, "s/^hosts: .*/hosts: []/")},
	} {
		x.wrong()
		if code, out := s.pba("doctor"); code != 1 || !strings.Contains(out, x.find) || !strings.Contains(out, x.do) {
			t.Errorf("%s: %d: %s", x.name, code, out)
		}
		x.right()
		s.do("rebalance")
		s.healthy()
	}

	s.stopController()
	if code, out := s.pba("doctor"); code != 1 || !strings.Contains(out, "queue: ") {
		t.Errorf("without slurmctld: %d: %s", code, out)
	}
}

// healthy: nothing is found.
func (s *testSite) healthy() {
	s.Helper()
	if code, out := s.pba("doctor"); code != 0 {
		s.Errorf("doctor: %d: %s", code, out)
	}
}
