package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/test/cluster"
)

// forgery is what an unprivileged user tries.
type forgery struct {
	name string
	// try submits a job and tries to change it. It says what should have been refused and
	// was not.
	try func(f *forging, mallory *person) (id string, wrong string)
}

// forgeries are all of the facts page, and more.
var forgeries = []forgery{
	{"a tag as the comment", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--comment=allotment:1;queue=main;preempt=suspend;step=x;")
	}},
	{"a tag of another version", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--comment=allotment:2;rank=4;")
	}},
	{"a placeholder's record as the comment", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--comment=allotment:1; engine:1;for="+f.control+";")
	}},
	{"a dummy job's record as the comment", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--comment=allotment:1; engine:1;dummy="+f.control+";rank=6020;")
	}},
	{"a dummy job's name and record within a comment", func(f *forging, m *person) (string, string) {
		return f.batch(m, nil, "--account=chipB", "--job-name=allotment-dummy", "--comment=x engine:1;dummy="+f.control+";rank=6020;"), ""
	}},
	{"the engine's record within a comment", func(f *forging, m *person) (string, string) {
		return f.batch(m, nil, "--account=chipB", "--comment=x engine:1;for="+f.control+";mark=r1;until=1;"), ""
	}},
	{"a tag by the environment", func(f *forging, m *person) (string, string) {
		env := []string{"ALLOTMENT_STEP=x;low=0;engine:1;mark=r1;rank=5020", "ALLOTMENT_PREEMPT=suspend;engine:1;", "SBATCH_COMMENT=allotment:1;"}
		return f.batch(m, env[:2], "--account=chipB"), ""
	}},
	{"a tag in the script", func(f *forging, m *person) (string, string) {
		path := filepath.Join(f.dir, m.name+".sh")
		f.must(os.WriteFile(path, []byte("#!/bin/sh\n#SBATCH --comment=allotment:1;queue=main;\nexec sleep 600\n"), 0o644))
		d := f.as(m, nil, "sbatch", "--parsable", "--output=/dev/null", "--account=chipB", path)
		return f.batch(m, nil, "--account=chipB"), accepted(d)
	}},
	{"a line of scontrol's in the comment", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--comment=x\n   AdminComment=allotment:1;engine:1;rank=5020;")
	}},
	{"a line of scontrol's in the name", func(f *forging, m *person) (string, string) {
		return f.refused(m, "--job-name=x\nJobId="+f.control+" Priority=4294967293")
	}},
	{"a field of scontrol's in the name", func(f *forging, m *person) (string, string) {
		return f.batch(m, nil, "--account=chipB", "--job-name=a AdminComment=allotment:1;engine:1;rank=5020;|x Account=chipA UserId="+f.alice.name), ""
	}},
	{"a comment's change", func(f *forging, m *person) (string, string) {
		id := f.batch(m, []string{"ALLOTMENT_STEP=x"}, "--account=chipB", "--comment=mine")
		return id, f.denied(m, id, "Comment=", "Comment=mine", "Comment=allotment:1;queue=main;", "Comment=x\ny")
	}},
	{"the admin comment", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB")
		return id, f.denied(m, id, "AdminComment=allotment:1;engine:1;rank=5020;", "AdminComment=x")
	}},
	{"another's project", func(f *forging, m *person) (string, string) {
		return f.batch(m, nil, "--account=chipA"), ""
	}},
	{"another's project, once he is known", func(f *forging, m *person) (string, string) {
		f.do("rebalance") // it sees the forger's job
		return f.batch(m, nil, "--account=chipA"), ""
	}},
	{"another's project, in names alike", func(f *forging, m *person) (string, string) {
		return f.batch(m, nil, "--account=chipA:chipA", "--wckey=chipA", "--job-name=chipA"), ""
	}},
	{"another's project afterwards", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB")
		f.as(m, nil, "scontrol", "update", "JobId="+id, "Account=chipA")
		f.as(m, nil, "scontrol", "update", "JobId="+id, "WCKey=chipA")
		return id, ""
	}},
	{"a lowered priority that stays", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipA") // where the filter does not know the user yet
		return id, f.denied(m, id, "Priority=1", "Priority=4294967290", "Priority=5")
	}},
	{"a higher priority", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB", "--priority=4000000000", "--qos=high")
		return id, f.denied(m, id, "Priority=4000000000", "SiteFactor=1000", "Nice=-100")
	}},
	{"a negative nice value", func(f *forging, m *person) (string, string) {
		f.as(m, nil, "sbatch", "--parsable", "--output=/dev/null", "--account=chipB", "--nice=-2000000", "--hold", "--wrap=true")
		return f.batch(m, nil, "--account=chipB"), ""
	}},
	{"nice, and back", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB", "--nice=2000000")
		f.as(m, nil, "scontrol", "update", "JobId="+id, "Nice=0")
		return id, ""
	}},
	{"hold and release", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB", "--hold")
		f.as(m, nil, "scontrol", "release", id)
		f.as(m, nil, "scontrol", "hold", id)
		f.as(m, nil, "scontrol", "uhold", id)
		f.as(m, nil, "scontrol", "release", id)
		return id, ""
	}},
	{"top", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB")
		d := f.as(m, nil, "scontrol", "top", id)
		return id, accepted(d)
	}},
	{"a copied slurm.conf", func(f *forging, m *person) (string, string) {
		conf, err := os.ReadFile(filepath.Join(f.dir, "slurm.conf"))
		f.must(err)
		var own strings.Builder
		for line := range strings.Lines(string(conf)) {
			if !strings.HasPrefix(line, "JobSubmitPlugins") {
				own.WriteString(line)
			}
		}
		path := filepath.Join(f.dir, m.name+".conf")
		f.must(os.WriteFile(path, []byte(own.String()), 0o644))
		argv := []string{"sbatch", "--parsable", "--output=/dev/null", "--comment=allotment:1;"}
		d := f.as(m, []string{"SLURM_CONF=" + path}, append(argv, "--account=chipA", "--wrap=true")...)
		own1 := f.as(m, []string{"SLURM_CONF=" + path}, "sbatch", "--parsable", "--output=/dev/null", "--account=chipA", "--wrap=exec sleep 600")
		if own1.code != 0 {
			f.Fatalf("%+v", own1)
		}
		return own1.out, accepted(d)
	}},
	{"out of the lowest partition", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=nosuch")
		if j := f.readJob(id); j.partition != "low" {
			f.Fatalf("%+v", j)
		}
		return id, f.denied(m, id, "Partition=main")
	}},
	{"the job of another", func(f *forging, m *person) (string, string) {
		id := f.batch(m, nil, "--account=chipB")
		return id, f.denied(m, f.entitled, "Comment=x", "StartTime=now+1hour", "Priority=1", "ReqNodeList=node1", "JobName=x")
	}},
}

// refused submits a job that must be refused, by each of Slurm's commands, and then one
// that is accepted.
func (f *forging) refused(m *person, options ...string) (id, wrong string) {
	f.Helper()
	for _, argv := range [][]string{{"sbatch", "--output=/dev/null", "--wrap=exec sleep 600"}, {"salloc", "--immediate=1", "true"}, {"srun", "--immediate=1", "true"}} {
		last := len(argv) - 1
		argv = append(append(append(argv[:last:last], "--account=chipB"), options...), argv[last])
		if d := f.as(m, nil, argv...); d.code == 0 || !strings.Contains(d.errors, "Access/permission denied") {
			wrong = fmt.Sprintf("%q: %d %s", argv, d.code, d.errors)
		}
	}
	return f.batch(m, nil, "--account=chipB"), wrong
}

// accepted is what is wrong with a command that was to fail.
func accepted(d done) string {
	if d.code == 0 {
		return fmt.Sprintf("it was accepted: %s %s", d.out, d.errors)
	}
	return ""
}

// denied tries changes of a job that must all be refused and leave it as it is.
func (s *testSite) denied(m *person, id string, changes ...string) (wrong string) {
	s.Helper()
	before := s.stableFields(id)
	for _, change := range changes {
		if d := s.as(m, nil, "scontrol", "update", "JobId="+id, change); d.code == 0 {
			return change + " was accepted"
		}
		if after := s.stableFields(id); after != before {
			return fmt.Sprintf("%s was refused, and done: %s, was %s", change, after, before)
		}
	}
	return ""
}

// stableFields is the part of a job that does not change by itself.
func (s *testSite) stableFields(id string) string {
	s.Helper()
	j := s.readJob(id)
	return fmt.Sprintf("%q", []string{
		j.partition, j.comment, j.admin, j.nodes, j.priority,
		s.root("squeue", "--noheader", "--jobs="+id, "-O", "Name:|,Account:|,WCKey:|,Nice:|,EligibleTime:|,QOS:|"),
	})
}

// forging is a cluster of eight slots with pba, all of them taken. chipA is guaranteed
// six, and has none.
type forging struct {
	*testSite
	forgers  []person // one for each forgery, not yet known to the filter; all may use chipB, which has no slots
	fillers  []string // jobs that hold a slot each and can't be preempted
	control  string   // an honest job of the forger
	entitled string   // alice's job for chipA
}

func newForging(t *testing.T) *forging {
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
	f := &forging{testSite: s}
	others := addGroup(t, "h")
	for i := range forgeries {
		f.forgers = append(f.forgers, addPerson(t, "m"+string(rune('a'+i)), others))
	}
	cluster.New(t, cluster.Options{Dir: dir, Nodes: 2, CPUs: 4, Conf: []string{"PartitionName=low Nodes=ALL PriorityTier=0"}})
	s.install()
	s.do("project", "add", "chipA", "--group", s.group)
	s.do("project", "add", "chipB", "--group", others)
	s.do("alloc", "set", "chipA", "6", "--weeks", "2")
	s.do("rebalance")
	return f
}

// fill ends all jobs, and takes all slots with others.
func (f *forging) fill() {
	f.Helper()
	f.root("scancel", "--full", "--quiet", "--state=RUNNING", "--signal=KILL", "--partition=main")
	f.root("scancel", "--quiet", "--partition=main")
	f.root("scancel", "--quiet", "--partition=low")
	f.await("an empty queue", func() bool { return f.root("squeue", "--noheader", "--all") == "" })
	f.fillers = nil
	for range 8 {
		f.fillers = append(f.fillers, f.root("sbatch", "--parsable", "--output=/dev/null", "--no-requeue", "--comment=allotment:1; filler", "--wrap=exec sleep 600"))
	}
	f.await("a full farm", func() bool {
		return strings.Count(f.root("squeue", "--noheader", "--states=RUNNING", "--format=%t"), "R") == 8
	})
}

func (f *forging) running(id string) bool {
	return f.root("squeue", "--noheader", "--all", "--jobs="+id, "--format=%T") == "RUNNING"
}

// TestForgery: an unprivileged user tries every forgery that we know of. None makes the
// forged job go before an honest one that the user submitted before, or before one that
// has a right to the slot.
func TestForgery(t *testing.T) {
	f := newForging(t)
	for i, x := range forgeries {
		t.Run(x.name, func(t *testing.T) {
			s := *f.testSite
			s.T = t
			mallory := &f.forgers[i]
			f := &forging{testSite: &s}
			f.fill()
			f.control = f.batch(mallory, nil, "--account=chipB")
			f.entitled = f.batch(&f.alice, nil, "--account=chipA")
			forged, wrong := x.try(f, mallory)
			if wrong != "" {
				t.Error(wrong)
			}
			f.do("rebalance")
			f.do("rebalance")
			f.judge(forged)
			f.start(forged)
		})
	}
	f.noLuaErrors()
}

// judge compares places in the queue.
func (f *forging) judge(forged string) {
	f.Helper()
	priorityOf := func(id string) int64 {
		j := f.readJob(id)
		priority, err := strconv.ParseInt(j.priority, 10, 64)
		if err != nil {
			f.Fatalf("job %s: %+v", id, j)
		}
		return priority
	}
	honest, entitled, forgedPriority := priorityOf(f.control), priorityOf(f.entitled), priorityOf(forged)
	if forgedPriority > honest || forgedPriority >= entitled {
		f.Errorf("priority %d; an honest job has %d, one with a right to slots %d", forgedPriority, honest, entitled)
	}
}

// start frees two slots, one after the other: the first is for the job that has a right
// to it, the second for the next job.
func (f *forging) start(forged string) {
	f.Helper()
	for i, id := range []string{f.entitled, f.control} {
		f.root("scancel", "--full", "--signal=KILL", f.fillers[i])
		f.await("job "+id, func() bool {
			if f.running(forged) {
				f.Fatalf("the forger's job runs before job %s", id)
			}
			return f.running(id)
		})
	}
	if f.running(forged) {
		f.Errorf("the forger's job runs:\n%s", f.root("squeue", "--all"))
	}
}

// A job that the engine has requeued, or pinned: its owner moves neither its begin time
// nor its nodes, and holding or releasing it starts it no sooner.
func TestForgeryOfEngineHold(t *testing.T) {
	s := newTestSite(t, "")
	s.publish(s.policy())
	for _, record := range []string{"allotment:1;engine:1;mark=r1;until=4000000000;", "allotment:1;step=x;engine:1;pin=node1;excluded=1;", "allotment:1; engine:1;delayed=1;"} {
		id, _ := s.submit(&s.alice, nil, "--account=chipA")
		s.root("scontrol", "update", "JobId="+id, "AdminComment="+record, "StartTime=now+1hour", "ExcNodeList=node1")
		if wrong := s.denied(&s.alice, id, "StartTime=now", "StartTime=now+2hours", "EligibleTime=now", "ReqNodeList=node1", "ExcNodeList=", "ExcNodeList=node1", "AdminComment=", "AdminComment=x"); wrong != "" {
			t.Errorf("%s: %s", record, wrong)
		}
		before := s.stableFields(id)
		for _, argv := range [][]string{{"hold", id}, {"release", id}, {"uhold", id}, {"release", id}, {"requeue", id}, {"resume", id}} {
			s.as(&s.alice, nil, append([]string{"scontrol"}, argv...)...)
		}
		if after := s.stableFields(id); after != before {
			t.Errorf("%s: %s, was %s", record, after, before)
		}
		s.root("scontrol", "update", "JobId="+id, "AdminComment=allotment:1;", "ExcNodeList=")
		if d := s.as(&s.alice, nil, "scontrol", "update", "JobId="+id, "StartTime=now+2hours"); d.code != 0 {
			t.Errorf("%s: without a record: %+v", record, d)
		}
	}
	// Elements of an array are jobs, each with a record of its own.
	id, _ := s.submit(&s.alice, nil, "--account=chipA", "--array=1-3")
	s.root("scontrol", "update", "JobId="+id+"_2", "AdminComment=allotment:1;engine:1;mark=r1;")
	for target, refused := range map[string]bool{id + "_1": false, id + "_2": true, id: true} {
		if d := s.as(&s.alice, nil, "scontrol", "update", "JobId="+target, "StartTime=now+3hours"); (d.code != 0) != refused {
			t.Errorf("element %s: %+v", target, d)
		}
	}
	s.noLuaErrors()
}
