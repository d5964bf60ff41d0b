package slurm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// newAccountedSite is a host of four slots with slurmdbd, which refuses jobs without an
// association and heeds limits. alice is in the account chipa, the default one is other;
// bob is in the account other.
func newAccountedSite(t *testing.T) *testSite {
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
	s.alice, s.bob, s.carol = addPerson(t, "a", s.group), addPerson(t, "b", s.group), addPerson(t, "c")
	cluster.New(t, cluster.Options{Dir: dir, Nodes: 1, CPUs: 4, Slurmdbd: true})
	s.root("sacctmgr", "-iQ", "add", "account", "chipa,other,unused")
	s.root("sacctmgr", "-iQ", "add", "user", s.alice.name, "account=other,chipa", "defaultaccount=other")
	s.root("sacctmgr", "-iQ", "add", "user", s.bob.name, "account=other")
	s.install()
	s.do("project", "add", "chipA", "--group", s.group)
	s.do("alloc", "set", "chipA", "3", "--weeks", "2")
	s.do("rebalance")
	return s
}

// TestAccounting: associations and limits of slurmdbd, with filter, engine, doctor and sacct.
func TestAccounting(t *testing.T) {
	s := newAccountedSite(t)
	with := func(t *testing.T) *testSite { c := *s; c.T = t; return &c }
	t.Run("accounts", func(t *testing.T) { with(t).accountsAreNamed() })
	t.Run("limits", func(t *testing.T) { with(t).limitsSpareVictims() })
	t.Run("records", func(t *testing.T) { with(t).recordsOfAVictim() })
	t.Run("parts", func(t *testing.T) { with(t).partsAreNamed() })
	t.Run("own preemption", func(t *testing.T) { with(t).cyclesObserveBesideSlurms() })
	t.Run("doctor", func(t *testing.T) { with(t).doctorOnAccounts() })
	s.noLuaErrors()
}

// accountsAreNamed: the first line that a user reads of an account that Slurm refuses is
// ours, and no other of ours follows it.
func (s *testSite) accountsAreNamed() {
	const refusal = "Invalid account or account/partition combination specified"
	for _, x := range []struct {
		who     *person
		options []string
		says    string // "": the job is accepted, without a line
	}{
		{&s.alice, []string{"--account=chipZ"}, "--account=chipZ: Slurm's accounting has no account of that name: correct it"},
		{&s.bob, []string{"--account=chipA"}, "--account=chipA: Slurm's accounting does not list you in that account"},
		{&s.alice, []string{"--account=chipA:syn"}, "--account=chipA:syn: Slurm's accounting has no account of that name: submit with --account=chipA, and ALLOTMENT_STEP=syn in the environment"},
		{&s.carol, nil, "Slurm's accounting has no account for you"},
		{&s.alice, []string{"--account=chipA"}, ""}, // Slurm keeps it in lower case
	} {
		d := s.sbatch(x.who, nil, x.options...)
		lines := strings.Split(d.errors, "\n")
		switch {
		case x.says == "" && (d.code != 0 || d.errors != ""):
			s.Errorf("%s %v: %+v", x.who.name, x.options, d)
		case x.says != "" && (d.code == 0 || len(lines) != 2 || !strings.Contains(lines[0], x.says) || !strings.Contains(lines[1], refusal)):
			s.Errorf("%s %v: want %q and Slurm's refusal: %+v", x.who.name, x.options, x.says, d)
		}
	}
	// No account: the default one, other, is no project.
	if d := s.sbatch(&s.alice, nil); d.code != 0 || !strings.Contains(d.errors, "--account=other: no project of that name") {
		s.Errorf("%+v", d)
	}
	s.root("scancel", "--user="+s.alice.name)
}

// limitsSpareVictims: an account's limit leaves room for one of two jobs that wait. One job
// is preempted for the first, and none for the other one, before and after.
func (s *testSite) limitsSpareVictims() {
	s.root("sacctmgr", "-iQ", "modify", "account", "chipa", "set", "GrpTRES=cpu=1")
	for range 4 {
		s.batch(&s.bob, nil)
	}
	s.await("a filled farm", func() bool {
		return len(strings.Fields(s.root("squeue", "--noheader", "--states=RUNNING", "--format=%i"))) == 4
	})
	first := s.batch(&s.alice, nil, "--account=chipA")
	second := s.batch(&s.alice, nil, "--account=chipA")
	s.served(first)
	begun := time.Now()
	s.await("cycles", func() bool { s.do("rebalance"); return time.Since(begun) > 3*time.Second })
	if n, what := s.evicted(); n != 1 {
		s.Errorf("%d slots were preempted, want 1:\n%s", n, what)
	}
	if text := s.do("explain", second); !strings.Contains(text, "AssocGrpCpuLimit") {
		s.Errorf("explain does not name the limit:\n%s", text)
	}
	// A limit that is used up: none at all.
	s.root("sacctmgr", "-iQ", "modify", "account", "chipa", "set", "GrpTRES=cpu=-1")
	s.root("sacctmgr", "-iQ", "modify", "user", s.alice.name, "account=chipa", "set", "MaxJobs=1")
	third := s.batch(&s.alice, nil, "--account=chipA")
	begun = time.Now()
	s.await("cycles", func() bool { s.do("rebalance"); return time.Since(begun) > 3*time.Second })
	if n, what := s.evicted(); n != 1 {
		s.Errorf("%d slots were preempted, want still 1:\n%s", n, what)
	}
	if text := s.do("explain", third); !strings.Contains(text, "AssocMaxJobsLimit") {
		s.Errorf("explain does not name the limit:\n%s", text)
	}
}

// recordsOfAVictim: sacct shows the run that was lost, and what our record leaves there can
// be cleared, as docs/slurm.md says.
func (s *testSite) recordsOfAVictim() {
	lost := s.root("sacct", "--allusers", "--duplicates", "--allocations", "--noheader", "--parsable2", "--state=REQUEUED", "--starttime=now-1hour", "--endtime=now", "--format=JobIDRaw,CPUTimeRAW")
	id, seconds, _ := strings.Cut(lost, "|")
	if strings.Contains(lost, "\n") || id == "" || seconds == "0" {
		s.Fatalf("sacct shows %q; want the one lost run", lost)
	}
	d := s.as(nil, []string{"ALLOTMENT_HOME=" + s.state, "TZ=UTC"}, filepath.Join(builtPrograms(s.T), "ahist"), "-l", id)
	if d.code != 0 || !regexp.MustCompile(`Run 1 ended after \S+: requeued for job \d+ of chipA by pba \(reclaim \d+\); lost: `).MatchString(d.out) {
		s.Errorf("ahist does not say why the run was lost: %+v", d)
	}
	s.root("scancel", "--user="+s.alice.name)
	s.root("scancel", "--user="+s.bob.name)
	admin := func() string {
		return s.root("sacct", "--jobs="+id, "--allocations", "--noheader", "--parsable2", "--format=AdminComment")
	}
	s.await("the record in accounting", func() bool { return strings.Contains(admin(), "allotment:1;") })
	s.root("sacctmgr", "-iQ", "modify", "job", "where", "jobid="+id, "set", "AdminComment=")
	if text := admin(); text != "" {
		s.Errorf("AdminComment is still %q", text)
	}
}

func (s *testSite) doctorOnAccounts() {
	s.do("project", "add", "nowhere", "--group", s.group)
	s.do("project", "add", "unused", "--group", s.group)
	_, out := s.pba("doctor")
	for _, want := range []string{"project nowhere has no account", "the account of project unused has no users"} {
		if !strings.Contains(out, want) {
			s.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "project chipA") {
		s.Errorf("doctor on a project with an account:\n%s", out)
	}
}

// partsAreNamed: 82+1, as Slurm writes a part of a heterogeneous job, is what users type.
func (s *testSite) partsAreNamed() {
	job, _, _ := strings.Cut(s.batch(&s.alice, nil, "--account=chipA", "--hold", "--ntasks=1", ":", "--ntasks=1"), ";")
	if text := s.do("explain", job+"+1"); !strings.Contains(text, "user "+s.alice.name) && !strings.Contains(text, "of "+s.alice.name) {
		s.Errorf("explain %s+1: %s", job, text)
	}
	if code, text := s.pba("explain", job+"+7"); code == 0 || !strings.Contains(text, "no such job") {
		s.Errorf("explain %s+7: %d: %s", job, code, text)
	}
	env := []string{"ALLOTMENT_HOME=" + s.state}
	programs := builtPrograms(s.T)
	if d := s.as(&s.alice, env, filepath.Join(programs, "ajobs"), job+"+1"); d.code != 0 || !strings.Contains(d.out, "PSUSP") && !strings.Contains(d.out, "PEND") {
		s.Errorf("ajobs %s+1: %+v", job, d)
	}
	// Slurm ends a job that waits as a whole only.
	if d := s.as(&s.alice, env, filepath.Join(programs, "akill"), job+"+1"); d.code == 0 || !strings.Contains(d.errors, "individual component") {
		s.Errorf("akill %s+1: %+v", job, d)
	}
	if d := s.as(&s.alice, env, filepath.Join(programs, "akill"), job); d.code != 0 {
		s.Errorf("akill %s: %+v", job, d)
	}
}

// cyclesObserveBesideSlurms: where Slurm preempts by itself, cycles observe until the config
// says otherwise.
func (s *testSite) cyclesObserveBesideSlurms() {
	const why = "the queuing system itself preempts jobs in main"
	s.conf(`s,^PreemptMode=.*,PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE,`)
	for _, command := range []string{"rebalance", "status"} {
		if out := s.do(command, map[string]string{"rebalance": "-v", "status": "--json"}[command]); !strings.Contains(out, why) || !strings.Contains(out, "observe") {
			s.Errorf("%s: %s", command, out)
		}
	}
	if _, out := s.pba("doctor"); !strings.Contains(out, "partition main: Slurm preempts there by itself") {
		s.Errorf("doctor: %s", out)
	}
	config := filepath.Join(s.state, "config.yaml")
	text, err := os.ReadFile(config)
	s.must(err)
	s.must(os.WriteFile(config, []byte(strings.Replace(string(text), "own_preemption: observe", "own_preemption: act", 1)), 0o644))
	if out := s.do("rebalance", "-v"); strings.Contains(out, "observed") {
		s.Errorf("own_preemption: act: %s", out)
	}
	s.conf("/^PreemptType=/d; s/^PreemptMode=.*/PreemptMode=OFF/")
}
