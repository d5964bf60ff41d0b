package slurm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/programs"
)

// testSite is a cluster of one host with our filter, and users of it. Its partitions
// are main, the default, low, night and gpu.
type testSite struct {
	*testing.T
	dir   string // the cluster's
	state string // pba's state directory

	alice, bob, carol person // alice is in group
	group             string
}

const script = "../slurm-cluster.sh"

// newTestSite starts a cluster that asks a script at submission. "": the one that is
// installed.
func newTestSite(t *testing.T, hook string) *testSite {
	t.Helper()
	needed(t)
	sweep(t)
	dir, err := os.MkdirTemp("", ownName("-"))
	if err != nil {
		t.Fatal(err)
	}
	s := &testSite{T: t, dir: dir, state: filepath.Join(dir, "allotment")}
	t.Cleanup(func() { stopCluster(t, dir) })
	s.must(os.Chmod(dir, 0o755))
	s.must(os.Mkdir(s.state, 0o755))
	s.group = addGroup(t, "g")
	s.alice, s.bob, s.carol = addPerson(t, "a", s.group), addPerson(t, "b"), addPerson(t, "c")
	lua := esub.JobSubmit(s.state)
	s.must(os.WriteFile(filepath.Join(s.state, "job_submit.lua"), lua, 0o644))
	if hook != "" {
		lua = []byte(strings.ReplaceAll(hook, "STATE", s.state))
	}
	more := []string{"Licenses=allotment_fixed:64,other:1", "PartitionName=low Nodes=ALL State=UP", "PartitionName=night Nodes=ALL State=UP", "PartitionName=gpu Nodes=ALL State=UP"}
	s.must(os.WriteFile(filepath.Join(dir, "hook.lua"), lua, 0o644))
	cluster.New(t, cluster.Options{Dir: dir, Nodes: 1, CPUs: 64, JobSubmit: filepath.Join(dir, "hook.lua"), Conf: more})
	return s
}

// needed skips a test that is not to run here. Others run beside it: mostly they wait
// for Slurm's clock.
func needed(t *testing.T) {
	t.Helper()
	cluster.Needed(t)
	t.Parallel()
	if _, err := exec.LookPath("useradd"); err != nil {
		t.Fatal("useradd is missing: apt-get install passwd")
	}
}

// programsHere are built once, by the first test that needs them.
var programsHere struct {
	sync.Mutex
	dir string
}

// builtPrograms returns the directory of all programs, which every user can run.
func builtPrograms(t *testing.T) string {
	t.Helper()
	programsHere.Lock()
	defer programsHere.Unlock()
	if programsHere.dir == "" {
		dir, err := os.MkdirTemp("", "allotment-programs-")
		if err == nil {
			err = errors.Join(os.Chmod(dir, 0o755), programs.Make(context.Background(), dir, "pba"))
		}
		if err != nil {
			_ = os.RemoveAll(dir)
			t.Fatal(err)
		}
		programsHere.dir = dir
	}
	return programsHere.dir
}

func removePrograms() { _ = os.RemoveAll(programsHere.dir) }

func stopCluster(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("bash", script, "down", dir).CombinedOutput(); err != nil {
		t.Errorf("end the cluster: %v: %s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func (s *testSite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// done is what came of a command.
type done struct {
	code        int
	out, errors string
}

// as runs one of Slurm's commands as a user. nil: as root.
func (s *testSite) as(p *person, env []string, argv ...string) done {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), argv[0], argv[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/", "SLURM_CONF=" + filepath.Join(s.dir, "slurm.conf")}, env...)
	cmd.Dir = "/"
	if p != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	if cmd.ProcessState == nil {
		s.Fatalf("%v: %v", argv, err)
	}
	return done{cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String()), strings.TrimSpace(text.String())}
}

// root runs one of Slurm's commands as root; it must succeed.
func (s *testSite) root(argv ...string) string {
	s.Helper()
	d := s.as(nil, nil, argv...)
	if d.code != 0 {
		s.Fatalf("%v: %d: %s", argv, d.code, d.errors)
	}
	return d.out
}

// submit submits a job that begins in an hour, as a user; it must be accepted. It
// returns the job's ID and sbatch's messages.
func (s *testSite) submit(p *person, env []string, options ...string) (id, messages string) {
	s.Helper()
	d := s.sbatch(p, env, options...)
	if d.code != 0 {
		s.Fatalf("sbatch %q: %d: %s", options, d.code, d.errors)
	}
	return d.out, d.errors
}

func (s *testSite) sbatch(p *person, env []string, options ...string) done {
	s.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=/dev/null", "--begin=now+1hour"}, options...)
	return s.as(p, env, append(argv, "--wrap=exec sleep 600")...)
}

// job is what Slurm says of a job.
type job struct {
	partition, comment, admin, begin, nodes string
	licences                                string
	priority                                string // its site factor; untouched where there is none
}

// untouched is the priority of a job without a site factor, where nothing else
// counts.
const untouched = "1"

// readJob looks at a job, by fields in which these tests put no text of a user's that
// could pass for another field.
func (s *testSite) readJob(id string) job {
	s.Helper()
	const mark = "<~>"
	var fields []string
	for _, name := range []string{"Partition", "StartTime", "ReqNodes", "PriorityLong", "Licenses", "Comment"} {
		fields = append(fields, name+":"+mark)
	}
	out := strings.Split(s.root("squeue", "--noheader", "--jobs="+id, "-O", strings.Join(fields, ",")), mark)
	if len(out) != len(fields)+1 {
		s.Fatalf("squeue: %q", out)
	}
	for i := range out {
		if out[i] = strings.TrimSpace(out[i]); out[i] == "(null)" {
			out[i] = ""
		}
	}
	j := job{partition: out[0], begin: out[1], nodes: out[2], priority: out[3], licences: out[4], comment: out[5]}
	for line := range strings.Lines(s.root("scontrol", "show", "job", id)) {
		if text, ok := strings.CutPrefix(line, "   AdminComment="); ok {
			j.admin = strings.TrimSpace(text)
		}
	}
	return j
}

// publish publishes a policy as pba does.
func (s *testSite) publish(p esub.Policy, slurm esub.Slurm, standing esub.Standing) {
	s.Helper()
	policy := esub.EncodeLua(p, slurm)
	generation, err := esub.EncodeLuaGeneration(policy, standing)
	s.must(err)
	s.write(esub.LuaPolicyName, policy)
	s.write(esub.LuaGenerationName, generation)
}

// write replaces a file in the state directory.
func (s *testSite) write(name string, content []byte) {
	s.Helper()
	path := filepath.Join(s.state, name)
	s.must(os.WriteFile(path+".new", content, 0o644))
	s.must(os.Rename(path+".new", path))
}

// policy is one for most tests: chipA, whose pool is below its guarantee and of
// which alice is known to be a member, bob not.
func (s *testSite) policy() (esub.Policy, esub.Slurm, esub.Standing) {
	p := esub.Policy{
		Settings: esub.Settings{Config: esub.DefaultConfig(), SuspendFrees: true},
		Projects: []esub.Project{{Name: "chipA", Group: s.group, GID: 500, Pools: []esub.Pool{{ID: 1, UID: esub.Unknown, Slots: 6}}}},
	}
	slurm := esub.Slurm{
		ProjectFrom: "account", SiteFactor: nextInLine,
		Known: []int64{int64(s.alice.uid), int64(s.bob.uid)}, Members: map[string][]int64{s.group: {int64(s.alice.uid)}},
	}
	return p, slurm, esub.Standing{At: time.Now(), Below: map[int64]bool{1: true}}
}

const nextInLine = 768

// noLuaErrors: a run-time error in a script lets the job through, and stands only
// in slurmctld's log.
func (s *testSite) noLuaErrors() {
	s.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "log", "slurmctld.log"))
	s.must(err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "JobSubmitPlugins changed to lua") { // as it was
			continue
		}
		if strings.Contains(line, "lua") || strings.Contains(line, "job_submit") {
			s.Errorf("slurmctld's log: %s", line)
		}
	}
}
