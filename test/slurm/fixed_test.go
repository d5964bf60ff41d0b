package slurm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/test/await"
)

// R22: bursts of jobs that can't be preempted, on an idle farm: the share of it, half of
// which one user may hold, runs, while a member of a pool is served.
func TestFixedJobsWait(t *testing.T) {
	s := newTestSite(t, "")
	users := 2
	for s.bob.uid%users == s.carol.uid%users {
		users++
	}
	fixed := backends.FixedShare{Slots: 6, Users: users, OfUser: 4, HostSlots: 64}
	line := "Licenses=allotment_fixed:6"
	for i := range users {
		line += fmt.Sprintf(",allotment_fixed_%d:%d", i, fixed.OfUser)
	}
	out, err := exec.Command("sed", "-i", "s/^Licenses=.*/"+line+"/", filepath.Join(s.dir, "slurm.conf")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.root("scontrol", "reconfigure")
	p, slurm, standing := s.policy()
	p.OnFailure = esub.Pass
	slurm.Fixed = fixed
	s.publish(p, slurm, standing)

	start := func(who *person, options ...string) string {
		id, _ := s.submit(who, nil, append([]string{"--begin=now", "--account=chipA"}, options...)...)
		return id
	}
	states := func(id string) (running, waiting int) {
		for line := range strings.Lines(s.root("squeue", "--noheader", "--array", "--jobs="+id, "--format=%t %r")) {
			switch strings.TrimSpace(line) {
			case "R None":
				running++
			case "PD Licenses":
				waiting++
			}
		}
		return running, waiting
	}
	stands := func(what, id string, running, waiting int) {
		t.Helper()
		if !await.Soon(func() bool { r, w := states(id); return r == running && w == waiting }) {
			t.Fatalf("%s: %s", what, s.root("squeue", "--array", "--format=%i %u %t %r %W"))
		}
	}
	bobs := start(&s.bob, "--no-requeue", "--array=1-40")
	stands("bob's burst", bobs, 4, 36)
	carols := start(&s.carol, "--no-requeue", "--array=1-40")
	stands("carol's burst", carols, 2, 38)
	stands("a member's job", start(&s.alice, "--no-requeue", "--ntasks=2"), 1, 0)
	stands("an ordinary job", start(&s.bob, "--ntasks=50"), 1, 0)
	stands("bob's burst at last", bobs, 4, 36)
	if d := s.as(&s.carol, nil, "srun", "--account=chipA", "--immediate=1", "true"); d.code == 0 {
		t.Errorf("srun beyond the share: %+v", d)
	}

	ordinary := start(&s.bob)
	running := slices.Compact(strings.Fields(s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--jobs="+bobs, "--format=%A")))
	for _, change := range [][]string{
		{bobs, "Licenses="},
		{bobs, "NumCPUs=2"},
		{running[0], "Licenses="},
		{running[0], "Licenses=other"},
		{ordinary, "Requeue=0"},
		{ordinary, "Licenses=allotment_fixed"},
	} {
		if d := s.as(&s.bob, nil, "scontrol", "update", "JobId="+change[0], change[1]); d.code == 0 {
			t.Errorf("%v: %+v", change, d)
		}
	}
	stands("after the changes", bobs, 4, 36)
	s.noLuaErrors()
}
