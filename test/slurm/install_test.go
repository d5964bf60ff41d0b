package slurm

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// newBareSite starts a cluster of two hosts of four slots without Allotment, and a home
// for pba. Its partitions are main, the default, and low.
func newBareSite(t *testing.T) *testSite {
	t.Helper()
	needed(t)
	sweep(t)
	dir, err := os.MkdirTemp("", ownName("-"))
	if err != nil {
		t.Fatal(err)
	}
	s := &testSite{T: t, dir: dir, state: filepath.Join(dir, "allotment")}
	t.Cleanup(func() { s.must(os.RemoveAll(dir)) })
	s.group = addGroup(t, "g")
	s.alice, s.bob = addPerson(t, "a", s.group), addPerson(t, "b")
	t.Cleanup(func() { // no user is removed while it has processes
		await.Soon(func() bool { return exec.Command("pgrep", "-U", s.alice.name+","+s.bob.name).Run() != nil })
	})
	cluster.New(t, cluster.Options{Dir: dir, Nodes: 2, CPUs: 4, Conf: []string{"PartitionName=low Nodes=ALL PriorityTier=0"}})
	return s
}

// pba runs pba as root, in the site's home; what it says on both streams comes back.
func (s *testSite) pba(args ...string) (code int, out string) {
	s.Helper()
	d := s.as(nil, []string{"ALLOTMENT_HOME=" + s.state, "TZ=UTC"}, append([]string{filepath.Join(builtPrograms(s.T), "pba")}, args...)...)
	return d.code, d.out + "\n" + d.errors
}

// do is pba for what must succeed.
func (s *testSite) do(args ...string) string {
	s.Helper()
	code, out := s.pba(args...)
	if code != 0 {
		s.Fatalf("pba %q: %d: %s", args, code, out)
	}
	return out
}

// conf changes slurm.conf as an administrator does, by an expression for sed.
func (s *testSite) conf(expression string) {
	s.Helper()
	if out, err := exec.Command("sed", "-i", expression, filepath.Join(s.dir, "slurm.conf")).CombinedOutput(); err != nil {
		s.Fatalf("sed: %v: %s", err, out)
	}
	// slurmctld may end before it answers: a new one takes over (24.11).
	var d done
	s.await("a reconfiguration", func() bool {
		d = s.as(nil, nil, "scontrol", "reconfigure")
		return d.code == 0 || !strings.Contains(d.errors, "Socket timed out")
	})
	if d.code != 0 {
		s.Fatalf("scontrol reconfigure: %d: %s", d.code, d.errors)
	}
}

// install does what pba init and docs/slurm.md say.
func (s *testSite) install() {
	s.Helper()
	s.do("init", "--backend", "slurm")
	s.must(os.Symlink(filepath.Join(s.state, "job_submit.lua"), filepath.Join(s.dir, "job_submit.lua")))
	s.conf("$aJobSubmitPlugins=lua")
	s.conf("$aLicenses=allotment_fixed:1,allotment_fixed_0:1,allotment_fixed_1:1")
	for _, change := range []string{"s/every: 20s/every: 1s/", "s/pending_threshold: 60s/pending_threshold: 1s/", "s/min_runtime: 60s/min_runtime: 1s/", `s/^timezone: ""/timezone: UTC/`} {
		s.configure(change)
	}
}

// configure changes pba's config file, by an expression for sed.
func (s *testSite) configure(expression string) {
	s.Helper()
	if out, err := exec.Command("sed", "-i", expression, filepath.Join(s.state, "config.yaml")).CombinedOutput(); err != nil {
		s.Fatalf("sed: %v: %s", err, out)
	}
}

// await waits for something to become so.
func (s *testSite) await(what string, is func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	if !await.Every(ctx, 50*time.Millisecond, is) {
		_, planned := s.pba("rebalance", "--dry-run")
		_, status := s.pba("status")
		s.Fatalf("%s did not come:\n%s\n%s\n%s", what, s.root("squeue", "--all", "--array", "--format=%i %P %u %t %r %Q %k %R"), planned, status)
	}
}

// batch submits a job as a user and returns its ID.
func (s *testSite) batch(p *person, env []string, options ...string) string {
	s.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=/dev/null"}, options...)
	d := s.as(p, env, append(argv, "--wrap=exec sleep 600")...)
	if d.code != 0 {
		s.Fatalf("sbatch %q: %d: %s", options, d.code, d.errors)
	}
	return d.out
}

// jobFields is what a job has from its owner, or could have from the engine. Its site
// factor is in its priority, which is 1 without: there are no weights here.
type jobFields struct{ Partition, Priority, Nodes, Comment, Admin, Begins string }

// beginsSoon is more than a requeued job rests before Slurm may start it again, and
// less than any hold of the engine's and than Slurm's own delay.
const beginsSoon = 30 * time.Second

var fieldOf = regexp.MustCompile(`(?m)(?:^| )(Partition|Priority|ReqNodeList|EligibleTime)=(\S*)`)

// readJobs looks at all jobs as their owners left them, by scontrol show job.
func (s *testSite) readJobs() map[string]jobFields {
	s.Helper()
	all := map[string]jobFields{}
	for id := range strings.FieldsSeq(s.root("squeue", "--noheader", "--all", "--array", "--format=%i")) {
		text := s.as(nil, []string{"SLURM_TIME_FORMAT=%s"}, "scontrol", "show", "job", id).out
		var j jobFields
		field := map[string]string{}
		for _, m := range fieldOf.FindAllStringSubmatch(text, -1) {
			field[m[1]] = m[2]
		}
		j.Partition, j.Priority, j.Nodes = field["Partition"], field["Priority"], field["ReqNodeList"]
		if begin, err := strconv.ParseInt(field["EligibleTime"], 10, 64); err == nil && time.Unix(begin, 0).After(time.Now().Add(beginsSoon)) {
			j.Begins = "later"
		}
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Comment":
				j.Comment = value
			case "AdminComment":
				j.Admin = value
			}
		}
		all[id] = j
	}
	return all
}

// TestInstallAndRemove: what docs/slurm.md says, from a bare cluster and back. Slots
// are preempted in between; afterwards the queue is as its users left it.
func TestInstallAndRemove(t *testing.T) {
	s := newBareSite(t)
	farm := s.batch(&s.bob, nil, "--array=1-8", "--comment=his own", "--account=chipB")
	s.await("a full farm", func() bool {
		return len(strings.Fields(s.root("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i"))) == 8
	})
	wants := map[string]string{
		"plain":   s.batch(&s.bob, nil),
		"held":    s.batch(&s.bob, nil, "--hold"),
		"nice":    s.batch(&s.bob, nil, "--nice=10"),
		"placed":  s.batch(&s.alice, nil, "--nodelist=node2", "--account=chipA"),
		"later":   s.batch(&s.bob, nil, "--begin=now+1hour"),
		"lowered": s.batch(&s.bob, nil, "--partition=low", "--comment=allot ments"),
	}
	before := s.readJobs()

	s.install()
	s.do("project", "add", "chipA", "--group", s.group)
	s.do("project", "add", "chipB", "--group", s.group)
	s.do("alloc", "set", "chipA", "3", "--weeks", "2")
	s.do("rebalance")
	s.await("a filter that is asked", func() bool { _, out := s.pba("doctor"); return !strings.Contains(out, "filter: ") })

	suspended := s.batch(&s.bob, []string{"ALLOTMENT_PREEMPT=suspend"}, "--account=chipB", "--comment=with words")
	if got := s.readJob(suspended); !strings.HasPrefix(got.comment, "allotment:1;preempt=suspend;") || !strings.HasSuffix(got.comment, " with words") {
		t.Errorf("the filter wrote %q", got.comment)
	}
	mine := []string{wants["placed"], s.batch(&s.alice, nil, "--account=chipA", "--comment=hers"), s.batch(&s.alice, nil, "--account=chipA")}
	var running []string
	s.await("three jobs of the pool", func() bool {
		s.do("rebalance")
		running = strings.Fields(s.root("squeue", "--noheader", "--states=RUNNING", "--account=chipA", "--format=%i"))
		return len(running) == 3
	})
	slices.Sort(mine)
	if slices.Sort(running); !slices.Equal(mine, running) {
		t.Errorf("%v run, want %v", running, mine)
	}
	// One more of the pool, caught in the middle.
	s.do("alloc", "set", "chipA", "4", "--weeks", "2")
	last := s.batch(&s.alice, nil, "--account=chipA")
	taken := regexp.MustCompile(`(?m)^requeue +\S+ +` + last + ` `)
	s.await("a reclaim under way", func() bool { return taken.MatchString(s.do("rebalance", "--verbose")) })

	s.conf("/^JobSubmitPlugins=lua/d")
	s.must(os.Remove(filepath.Join(s.dir, "job_submit.lua")))
	s.do("restore", "--forget")

	after := s.readJobs()
	for id, j := range after {
		if text := j.Comment + j.Admin; strings.Contains(text, "allotment") || strings.Contains(text, "engine:") {
			t.Errorf("job %s keeps %q, %q", id, j.Comment, j.Admin)
		}
		if ours := id == last || slices.Contains(mine, id); ours && j.Nodes != "(null)" {
			// The nodes of a running job can't be changed.
			t.Logf("job %s runs on %s, to which it was bound", id, j.Nodes)
			j.Nodes = before[id].Nodes
			after[id] = j
		}
	}
	if got := s.root("squeue", "--noheader", "--name=wrap", "--array", "--format=%i"); len(strings.Fields(got)) != len(after) {
		t.Errorf("there are other jobs than the users': %s", s.root("squeue", "--all"))
	}
	for id, j := range before {
		if j.Priority == "0" && strings.HasPrefix(id, farm) {
			continue
		}
		if diff := cmp.Diff(j, after[id]); diff != "" {
			t.Errorf("job %s (-before +after):\n%s", id, diff)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if j := after[id]; j.Priority != "1" && j.Priority != "0" {
			t.Errorf("job %s has the priority %s", id, j.Priority)
		}
		if j := after[id]; j.Begins != "" && id != wants["later"] {
			t.Errorf("job %s is held", id)
		}
	}
	if factors := s.root("sprio", "--noheader", "--format=%S"); strings.Trim(factors, " 0\n") != "" {
		t.Errorf("site factors are left: %s", factors)
	}
	id := s.batch(&s.alice, []string{"ALLOTMENT_PREEMPT=suspend"}, "--account=chipA")
	if got := s.readJob(id); got.comment != "" || got.admin != "" {
		t.Errorf("the filter is still asked: %+v", got)
	}
}
