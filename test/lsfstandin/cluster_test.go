package lsfstandin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ok runs a program that must succeed.
func (c *Cluster) ok(args ...string) string {
	c.t.Helper()
	stdout, stderr, rc := c.Run(args...)
	if rc != 0 {
		c.t.Fatalf("%q: %d %s%s", args, rc, stdout, stderr)
	}
	return stdout
}

// submit returns the new job's number.
func (c *Cluster) submit(args ...string) string {
	c.t.Helper()
	_, rest, _ := strings.Cut(c.ok(append([]string{"bsub"}, args...)...), "Job <")
	id, _, _ := strings.Cut(rest, ">")
	return id
}

// findJob returns a job or an element, 12 or 12[3].
func (c *Cluster) findJob(id string) Job {
	c.t.Helper()
	l, err := c.Snapshot()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, j := range l.Jobs {
		name := strconv.FormatInt(j.ID, 10)
		if j.Index != 0 {
			name = fmt.Sprintf("%d[%d]", j.ID, j.Index)
		}
		if name == id {
			return j
		}
	}
	c.t.Fatalf("job %s is not listed", id)
	return Job{}
}

func (c *Cluster) await(id string, what string, is func(Job) bool) Job {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		j := c.findJob(id)
		if is(j) {
			return j
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("job %s is not %s: %+v\n%s", id, what, j, c.Log())
		}
	}
}

func (c *Cluster) awaitStat(id string, stat Stat) Job {
	c.t.Helper()
	return c.await(id, string(stat), func(j Job) bool { return j.Stat == stat && !j.Gone })
}

// awaitAsleep waits until a job's shell has become its sleep: dash may miss a SIGINT
// while it starts that, and must not be stopped meanwhile.
func (c *Cluster) awaitAsleep(id string) (group int) {
	c.t.Helper()
	return c.await(id, "asleep", func(j Job) bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", j.PGID))
		return string(name) == "sleep\n"
	}).PGID
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was never made", path)
		}
	}
}

func (c *Cluster) hostNow(name string) Host {
	c.t.Helper()
	l, err := c.Snapshot()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, h := range l.Hosts {
		if h.Name == name {
			return h
		}
	}
	c.t.Fatalf("host %s is not listed", name)
	return Host{}
}

func (c *Cluster) refused(want string, args ...string) {
	c.t.Helper()
	if stdout, stderr, rc := c.Run(args...); rc != 255 || !strings.Contains(stderr, want) {
		c.t.Errorf("%q: %d %q %q, want 255 and %q", args, rc, stdout, stderr, want)
	}
}

func small(t *testing.T, hosts, slots int) *Cluster {
	t.Helper()
	return New(t, Options{RootMaySubmit: true, Hosts: hosts, Slots: slots, Second: 30 * time.Millisecond})
}

func TestBstopFreesNothing(t *testing.T) {
	c := small(t, 1, 1)
	runs, waits := c.submit("exec sleep 300"), c.submit("sleep", "300")
	group := c.awaitAsleep(runs)
	c.ok("bstop", runs)
	if j := c.findJob(runs); j.Stat != USUSP {
		t.Errorf("the stopped job is %s", j.Stat)
	}
	if h := c.hostNow("h1"); h.Status() != "closed_Full" || h.USUSP != 1 || h.Run != 0 {
		t.Errorf("its host: %+v", h)
	}
	j := c.findJob(waits)
	if j.Stat != PEND || len(j.Reasons) != 1 || j.Reasons[0] != (Reason{"Job slot limit reached", 2}) {
		t.Errorf("the other job is %s: %v", j.Stat, j.Reasons)
	}
	if !stopped(t, group, true) {
		t.Error("its process runs on")
	}
	c.ok("bresume", runs)
	if stopped(t, group, false) {
		t.Error("its process is stopped after bresume")
	}
}

// stopped reports whether a process is stopped; it waits up to 5 s for want.
func stopped(t *testing.T, pid int, want bool) bool {
	t.Helper()
	is := !want
	for deadline := time.Now().Add(5 * time.Second); is != want && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		is = strings.HasPrefix(rest, "T")
	}
	return is
}

// A host that brun filled beyond its slots takes no job until it is below them again.
func TestBrunFillsAHostBeyondItsSlots(t *testing.T) {
	c := small(t, 2, 2)
	var running []string
	for range 4 {
		running = append(running, c.submit("-R", "rusage[mem=2000]", "sleep", "300"))
	}
	first := c.submit("-sp", "90", "-R", "rusage[mem=2000]", "sleep", "300")
	forced := c.submit("-H", "-sp", "1", "-m", "h2", "-w", "done(1)", "-R", "rusage[mem=2000]", "sleep", "300")
	c.refused("Failed to run the job: Job has already started", "brun", "-m", "h1", running[0])
	c.refused("Failed to run the job: No matching job found", "brun", "-m", "h1", "77")
	c.refused("Failed to run the job: Bad host name", "brun", "-m", "h9", forced)
	c.ok("brun", "-m", "h1", forced)
	if j := c.findJob(forced); j.Stat != RUN || !slices.Equal(j.ExecHosts, []string{"h1"}) {
		t.Fatalf("the forced job: %+v", j)
	}
	if h := c.hostNow("h1"); h.NJobs != 3 || h.Max != 2 {
		t.Errorf("its host: %+v", h)
	}
	if j := c.findJob(first); j.Stat != PEND {
		t.Errorf("another job started: %s on %v", j.Stat, j.ExecHosts)
	}
	on1 := slices.DeleteFunc(running, func(id string) bool { return c.findJob(id).ExecHosts[0] != "h1" })
	c.ok("bkill", on1[0])
	c.awaitStat(on1[0], EXIT)
	if j := c.findJob(first); j.Stat != PEND {
		t.Error("a host with two of two slots taken took a job")
	}
	c.ok("bkill", on1[1])
	c.awaitStat(on1[1], EXIT)
	c.awaitStat(first, RUN)
	// The effect of brun lasts for one run.
	c.ok("brequeue", forced)
	j := c.awaitStat(forced, PEND)
	if j.Reasons[0].Text == "" || j.Requeued != 1 {
		t.Errorf("requeued: %+v", j)
	}
	c.await(forced, "pending for its own hosts", func(j Job) bool {
		return slices.Contains(j.Reasons, Reason{"Not specified in job submission", 2})
	})
}

func TestBrunOverSeveralHosts(t *testing.T) {
	c := small(t, 2, 2)
	for range 4 {
		c.submit("sleep", "300")
	}
	wide, other := c.submit("-n", "3", "sleep", "300"), c.submit("-sp", "99", "sleep", "300")
	c.ok("brun", "-m", "h1#2 h2", wide)
	if j := c.findJob(wide); j.Stat != RUN || !slices.Equal(j.ExecHosts, []string{"h1", "h1", "h2"}) {
		t.Errorf("%+v", j)
	}
	if j := c.findJob(other); j.Stat != PEND {
		t.Error("another job started beside it")
	}
	if a, b := c.hostNow("h1"), c.hostNow("h2"); a.NJobs != 4 || b.NJobs != 3 {
		t.Errorf("hosts: %+v %+v", a, b)
	}
}

func TestKilledDaemonComesBack(t *testing.T) {
	c := small(t, 1, 4)
	gate := filepath.Join(t.TempDir(), "gate")
	ends := c.submit("sh", "-c", "while [ ! -e "+gate+" ]; do sleep 0.02; done; exit 7")
	runs, waits, requeued := c.submit("sleep", "300"), c.submit("-n", "4", "-J", "kept", "sleep", "300"), c.submit("-sp", "99", "sleep", "300")
	c.awaitStat(requeued, RUN)
	c.ok("bstop", runs)
	c.ok("brequeue", "-H", requeued)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	c.refused("Connection refused by server", "bkill", runs)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if j := c.awaitStat(ends, EXIT); j.ExitCode != 7 {
		t.Errorf("exit code %d, want 7", j.ExitCode)
	}
	c.awaitStat(requeued, PSUSP)
	if j := c.findJob(runs); j.Stat != USUSP {
		t.Errorf("the stopped job is %s", j.Stat)
	}
	if j := c.findJob(waits); j.Stat != PEND || j.Name != "kept" {
		t.Errorf("the pending job: %+v", j)
	}
	c.ok("bkill", runs)
	c.awaitStat(runs, EXIT)
	c.awaitStat(waits, RUN)
}

func TestOutageAnswersNoRequest(t *testing.T) {
	c := small(t, 1, 1)
	gate := filepath.Join(t.TempDir(), "gate")
	ends := c.submit("sh", "-c", "while [ ! -e "+gate+" ]; do sleep 0.02; done")
	c.Away(600 * time.Millisecond)
	away := time.Now()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const trying = "batch system daemon not responding ... still trying\n"
	for command, want := range map[string]string{
		"bsub true":    trying + "Connection refused by server. Job not submitted.\n",
		"bmod -sp 3 1": trying + "Connection refused by server. Job not modified.\n",
		"bkill 1":      trying + "Job <1>: Connection refused by server\n",
		"brequeue 1":   trying + "Job <1> : Connection refused by server\n",
		"brun -m h1 1": trying + "Failed to run the job: Connection refused by server\n",
		"btop 1":       trying + "1: Connection refused by server\n",
		"bjobs -w":     trying + "Connection refused by server\n",
		"lsid":         "lsid: LIM is down; try later\n",
	} {
		stdout, stderr, rc := c.Run(strings.Fields(command)...)
		if time.Since(away) > 550*time.Millisecond {
			t.Logf("this machine is too slow: %s came too late", command)
			continue
		}
		if stdout != "" || stderr != want || rc != 255 {
			t.Errorf("%s: %d %q %q, want 255 %q", command, rc, stdout, stderr, want)
		}
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := c.Snapshot(); err == nil {
			break
		}
	}
	if time.Since(away) < 500*time.Millisecond {
		t.Error("they came back too early")
	}
	c.awaitStat(ends, DONE)
}

func TestOrderIsQueueThenPriorityThenTime(t *testing.T) {
	c := small(t, 1, 1)
	runs := c.submit("sleep", "300")
	low := c.submit("-q", "low", "-sp", "100", "true")
	second, third := c.submit("true"), c.submit("true")
	first := c.submit("-q", "high", "-sp", "1", "true")
	fourth := c.submit("-sp", "80", "true")
	c.ok("bmod", "-sp", "49", fourth)
	c.ok("btop", third) // says that it moved it
	c.ok("bkill", runs)
	want := []string{first, second, third, fourth, low}
	for _, id := range want {
		c.awaitStat(id, DONE)
	}
	text, err := os.ReadDir(filepath.Join(c.EnvDir(), runDir))
	if err != nil {
		t.Fatal(err)
	}
	began := map[string]time.Time{}
	for _, f := range text {
		if id, rest, _ := strings.Cut(f.Name(), "."); rest == "0.1.pid" {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			began[id] = info.ModTime()
		}
	}
	if !slices.IsSortedFunc(want, func(a, b string) int { return began[a].Compare(began[b]) }) {
		t.Errorf("want the order %v, they began at %v", want, began)
	}
}

func TestPrioritiesOutOfRangeAreRefused(t *testing.T) {
	c := small(t, 1, 1)
	id := c.submit("-H", "true")
	for _, p := range []string{"0", "101", "-1", "x"} {
		c.refused("Bad user priority. Job not submitted.", "bsub", "-sp", p, "true")
		c.refused("Bad user priority. Job not modified.", "bmod", "-sp", p, id)
	}
	c.ok("bmod", "-sp", "100", id)
	c.ok("bmod", "-spn", id)
	if j := c.findJob(id); j.Priority != 50 || j.UserPriority != 0 {
		t.Errorf("-spn leaves %d, %d", j.Priority, j.UserPriority)
	}
	none := New(t, Options{RootMaySubmit: true, MaxUserPriority: -1})
	none.refused("Job priority control undefined. Job not submitted.", "bsub", "-sp", "3", "true")
}

func TestJobRunsAsSubmitted(t *testing.T) {
	c := small(t, 2, 2)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.%J.%I")
	if err := os.WriteFile(in, []byte("read this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := c.submit("-i", in, "-o", out, "-n", "3", "-J", "a[2]", "-q", "high",
		`cat; echo "$LSB_JOBID $LSB_JOBINDEX $LSB_JOBNAME $LSB_QUEUE"; echo $LSB_HOSTS; echo $LSB_MCPU_HOSTS; exit 5`)
	if j := c.awaitStat(id+"[2]", EXIT); j.ExitCode != 5 {
		t.Errorf("exit code %d", j.ExitCode)
	}
	want := "read this\n" + id + " 2 a[2] high\nh1 h1 h2\nh1 2 h2 1\n"
	if got, err := os.ReadFile(filepath.Join(dir, "out."+id+".2")); err != nil || string(got) != want {
		t.Errorf("it wrote %q, %v; want %q", got, err, want)
	}
	gate := filepath.Join(dir, "gate")
	again := c.submit("-o", filepath.Join(dir, "again"), "echo run $LSB_RESTART; while [ ! -e "+gate+" ]; do sleep 0.02; done")
	c.await(again, "started", func(j Job) bool { return j.PGID > 0 })
	c.ok("brequeue", again)
	c.await(again, "started again", func(j Job) bool { return j.PGID > 0 && j.Requeued == 1 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitStat(again, DONE)
	if got, _ := os.ReadFile(filepath.Join(dir, "again")); !strings.Contains(string(got), "run\n") || strings.Contains(string(got), "Y") {
		t.Errorf("two runs wrote %q: brequeue sets no LSB_RESTART", got)
	}
	if stdout, _, rc := c.Run("bsub", "-K", "exit 9"); rc != 9 || !strings.Contains(stdout, "<<Job is finished>>") {
		t.Errorf("bsub -K: %d %q, want 9", rc, stdout)
	}
}

// The shell that LSF runs a job in outlives five signals, which reach the job, and dies of
// the others: then lava takes the job for done.
func TestSignalsReachJobs(t *testing.T) {
	c := small(t, 1, 8)
	for signal, want := range map[string]struct {
		stat Stat
		code int
	}{"USR1": {EXIT, 138}, "TERM": {EXIT, 143}, "QUIT": {DONE, 0}, "ALRM": {DONE, 0}} {
		ready := filepath.Join(t.TempDir(), "ready")
		id := c.submit("sh -c 'touch " + ready + "; exec sleep 300'")
		awaitFile(t, ready)
		c.ok("bkill", "-s", signal, id)
		if j := c.awaitStat(id, want.stat); j.ExitCode != want.code {
			t.Errorf("%s: exit code %d, want %d", signal, j.ExitCode, want.code)
		}
	}
	ready := filepath.Join(t.TempDir(), "ready")
	saves := c.submit("sh -c 'trap \"exit 85\" USR1; touch " + ready + "; while :; do sleep 0.05; done'")
	awaitFile(t, ready)
	c.ok("bkill", "-s", "USR1", saves)
	if j := c.awaitStat(saves, EXIT); j.ExitCode != 85 {
		t.Errorf("exit code %d, want 85", j.ExitCode)
	}
}

func TestKillEscalatesSignals(t *testing.T) {
	c := small(t, 1, 2)
	ready := filepath.Join(t.TempDir(), "ready")
	deaf := c.submit("trap '' INT TERM; touch " + ready + "; while :; do sleep 0.05; done")
	awaitFile(t, ready)
	plain := c.submit("exec sleep 300")
	c.awaitAsleep(plain)
	begun := time.Now()
	c.ok("bkill", deaf, plain)
	if j := c.awaitStat(plain, EXIT); j.ExitCode != 130 || j.Termed != "TERM_OWNER" {
		t.Errorf("a killed job: %d %s, want 130, TERM_OWNER", j.ExitCode, j.Termed)
	}
	if j := c.awaitStat(deaf, EXIT); j.ExitCode != 137 || time.Since(begun) < 20*30*time.Millisecond {
		t.Errorf("one that ignores signals ended with %d after %v, want 137 after 20 seconds of 30 ms", j.ExitCode, time.Since(begun))
	}
	c.refused("Job <"+plain+">: Job has already finished", "bkill", plain)
	pending := c.submit("-H", "true")
	c.ok("bkill", pending)
	if j := c.findJob(pending); j.Stat != EXIT || !j.Started.IsZero() {
		t.Errorf("a pending one: %+v", j)
	}
	stopped := c.submit("sleep", "300")
	c.ok("bstop", stopped)
	c.ok("bkill", stopped)
	c.awaitStat(stopped, EXIT)
}

func TestReasonsArePendingReasons(t *testing.T) {
	c := small(t, 2, 2)
	blocker := c.submit("-n", "2", "-R", "span[hosts=1] rusage[mem=3000]", "sleep", "300")
	narrow := c.submit("sleep", "300")
	now := time.Now().UTC()
	for want, args := range map[string][]string{
		"Job dependency condition not satisfied": {"-w", "done(" + blocker + ")"},
		"The job has a specified start time":     {"-b", fmt.Sprintf("%d:1:1:00:00", now.Year()+1)},
		"Not enough job slot(s)":                 {"-n", "2", "-R", "span[hosts=1]"},
	} {
		id := c.submit(append(args, "true")...)
		j := c.findJob(id)
		if j.Stat != PEND || !slices.ContainsFunc(j.Reasons, func(r Reason) bool { return r.Text == want }) {
			t.Errorf("%v: %s %v, want %q", args, j.Stat, j.Reasons, want)
		}
	}
	big := c.submit("-R", "rusage[mem=3000]", "sleep", "300")
	c.awaitStat(big, RUN)
	bigger := c.submit("-R", "rusage[mem=3000]", "sleep", "300")
	c.ok("bkill", narrow)
	c.awaitStat(narrow, EXIT)
	c.await(bigger, "waiting for memory", func(j Job) bool {
		return slices.Contains(j.Reasons, Reason{"Job's requirements for resource reservation not satisfied", 1})
	})
	array := c.submit("-J", "few[1-3]%1", "sleep", "300")
	c.await(array+"[2]", "waiting for its array", func(j Job) bool {
		return slices.Contains(j.Reasons, Reason{"The job array has reached its running element limit", 0})
	})
	c.SetHost("h1", true, false)
	c.SetHost("h2", false, true)
	j := c.findJob(bigger)
	if !slices.Contains(j.Reasons, Reason{"Closed by LSF administrator", 1}) || !slices.Contains(j.Reasons, Reason{"Load information unavailable", 1}) {
		t.Errorf("with a host closed and one down: %v", j.Reasons)
	}
}

func TestOthersAreDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	c := New(t, Options{RootMaySubmit: true, Users: users, Second: 30 * time.Millisecond})
	stdout, stderr, _ := c.as("alice", "bsub", "sleep", "300")
	id := strings.Trim(strings.Fields(stdout + stderr)[1], "<>")
	if j := c.findJob(id); j.User != "alice" {
		t.Errorf("the job is %s's", j.User)
	}
	for command, want := range map[string]string{
		"bkill " + id:      "Job <" + id + ">: User permission denied\n",
		"bstop " + id:      "Job <" + id + ">: User permission denied\n",
		"bresume " + id:    "Job <" + id + ">: User permission denied\n",
		"brequeue " + id:   "Job <" + id + "> : User permission denied\n",
		"bmod -sp 3 " + id: "User permission denied. Job not modified.\n",
		"brun -m h1 " + id: "Failed to run the job: User permission denied\n",
	} {
		if _, got, rc := c.as("bob", strings.Fields(command)...); got != want || rc != 255 {
			t.Errorf("bob: %s: %d %q, want %q", command, rc, got, want)
		}
	}
	held, _, _ := c.as("alice", "bsub", "-H", "true")
	if _, got, rc := c.as("alice", "brun", "-m", "h1", strings.Trim(strings.Fields(held)[1], "<>")); rc != 255 || got != "Failed to run the job: User permission denied\n" {
		t.Errorf("brun by its owner: %d %q", rc, got)
	}
	group := c.await(id, "started", func(j Job) bool { return j.PGID > 0 }).PGID
	info, err := os.Stat(fmt.Sprintf("/proc/%d", group))
	if err != nil {
		t.Fatal(err)
	}
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != users["alice"].UID {
		t.Errorf("alice's job runs as %d", uid)
	}
	if err := os.Symlink(c.program, filepath.Join(c.Bin(), "lsfstandin")); err != nil {
		t.Fatal(err)
	}
	if _, got, rc := c.as("bob", "lsfstandin", "away", c.EnvDir(), "1s"); rc != 255 || !strings.Contains(got, "User permission denied") {
		t.Errorf("bob sends the daemons away: %d %q", rc, got)
	}
}

// installEsub puts a filter where the site's belongs.
func installEsub(t *testing.T, c *Cluster, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.ServerDir(), name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestEsubMayChangeAndRefuse(t *testing.T) {
	c := small(t, 1, 1)
	installEsub(t, c, "esub", `#!/bin/sh
case "$(grep NAME "$LSB_SUB_PARM_FILE")" in
*low*) printf 'LSB_SUB_QUEUE="low"\nLSB_SUB_JOB_DESCRIPTION = "tag: text"\nWHAT="x"\nLSB_SUB_PROJECT_NAME="a\\"b"\n' >$LSB_SUB_MODIFY_FILE
  echo 'COLOUR="green"' >$LSB_SUB_MODIFY_ENVFILE;;
*one*) echo LSB_SUB2_JOB_PRIORITY=77 >$LSB_SUB_MODIFY_FILE; exit 1;;
*die*) kill -9 $$;;
esac
echo nowhere
`)
	out := filepath.Join(t.TempDir(), "out")
	stdout, stderr, rc := c.Run("bsub", "-J", "low", "-P", "p", "-o", out, "echo $COLOUR")
	if rc != 0 || !strings.Contains(stdout, "to queue <low>") || strings.Contains(stdout, "nowhere") {
		t.Errorf("%d %q", rc, stdout)
	}
	if strings.Count(stderr, "\n") != 2 || !strings.Contains(stderr, "WHAT") || !strings.Contains(stderr, "LSB_SUB_PROJECT_NAME") {
		t.Errorf("its terminal reads %q", stderr)
	}
	j := c.awaitStat("1", DONE)
	if j.Queue != "low" || j.Description != "tag: text" || j.Project != "p" {
		t.Errorf("%+v", j)
	}
	if got, _ := os.ReadFile(out); string(got) != "green\n" {
		t.Errorf("its environment gave %q", got)
	}
	one := c.submit("-J", "one", "true")
	if j := c.findJob(one); j.Priority != 77 {
		t.Errorf("exit 1 accepts and the changes count: priority %d", j.Priority)
	}
	c.refused("Request aborted by esub. Job not submitted.", "bsub", "-J", "die", "true")
	held := c.submit("-H", "true")
	c.ok("bmod", "-J", "low", held)
	if j := c.findJob(held); j.Queue != "low" {
		t.Errorf("bmod asked no esub: %+v", j)
	}
	c.refused("Request aborted by esub. Job not modified.", "bmod", "-J", "die", held)
	installEsub(t, c, "esub", "#!/no/such/interpreter\n")
	installEsub(t, c, "esub.extra", "#!/bin/sh\necho \"LSB_SUB_JOB_DESCRIPTION=\\\"extra $1\\\"\" >$LSB_SUB_MODIFY_FILE\n")
	if j := c.findJob(c.submit("-a", "extra none", "true")); j.Description != "extra -r" {
		t.Errorf("esub.extra wrote %q", j.Description)
	}
	if j := c.findJob(c.submit("-a", "extra(x)", "true")); j.Description != "" {
		t.Errorf("lava passes arguments: %q", j.Description)
	}
	t.Setenv("LSB_ESUB_METHOD", "extra")
	if j := c.findJob(c.submit("true")); j.Description != "extra -r" {
		t.Errorf("LSB_ESUB_METHOD: %q", j.Description)
	}
	t.Setenv("LSF_SERVERDIR", "/nowhere")
	if j := c.findJob(c.submit("true")); j.Description != "" {
		t.Error("a user's own LSF_SERVERDIR does not keep esub off")
	}
}

func TestOptionsAreReadByFlavour(t *testing.T) {
	lava, lsf := small(t, 1, 4), New(t, Options{RootMaySubmit: true, Flavour: LSF10})
	if j := lava.findJob(lava.submit("-app", "x", "true")); j.Command != "x true" {
		t.Errorf("lava took -app x true for %q", j.Command)
	}
	if j := lsf.findJob(lsf.submit("-app", "x", "true")); j.Command != "true" {
		t.Errorf("LSF took -app x true for %q", j.Command)
	}
	lava.refused("bsub: invalid option -- 'g'", "bsub", "-g", "/x", "true")
	lsf.refused("bsub: invalid option -- 'y'", "bsub", "-y", "true")
	if j := lava.findJob(lava.submit("-H", "-M", "4000", "-R", "a", "-R", "rusage[mem=2]", "true")); j.MemLimit != 4000<<10 || j.ResReq != "rusage[mem=2]" || j.Memory != 2<<20 {
		t.Errorf("lava: %+v", j)
	}
	if j := lsf.findJob(lsf.submit("-H", "-M", "4000", "-R", "a", "-R", "rusage[mem=2]", "true")); j.MemLimit != 4000 || j.ResReq != "a rusage[mem=2]" {
		t.Errorf("LSF: %+v", j)
	}
	unit := New(t, Options{RootMaySubmit: true, Flavour: LSF10, LimitUnit: "GB"})
	if j := unit.findJob(unit.submit("-H", "-M", "2", "-R", "rusage[mem=1]", "true")); j.MemLimit != 2<<20 || j.Memory != 1<<30 {
		t.Errorf("LSF_UNIT_FOR_LIMITS=GB: %+v", j)
	}
	if words := commandLine([]string{"sh", "-c", "a b", `x "y`, "$z", "it's", "$a b", `(\`}); words != `sh -c "a b" 'x "y' '$z' it\'s '$a b' \(\\` {
		t.Errorf("a command became %s", words)
	}
}

func TestJobNamesAsSubmitted(t *testing.T) {
	c := small(t, 1, 1)
	c.submit("sleep", "300")
	for name, want := range map[string]string{"a [b] c[2]": "a [b] c[2]", "[2]": "[2]", "plain": "plain", "x%2": "x%2"} {
		id := c.submit("-J", name, "true")
		if strings.HasSuffix(want, "]") {
			id += "[2]"
		}
		if j := c.findJob(id); j.Name != want {
			t.Errorf("-J %q is named %q, want %q", name, j.Name, want)
		}
	}
	if j := c.findJob("1"); j.Name != "" || j.Command != "sleep 300" {
		t.Errorf("without -J: %q, %q", j.Name, j.Command)
	}
}

func TestScriptOnStandardInput(t *testing.T) {
	if got := strings.Join(scriptOptions("#!/bin/sh\n# BSUB -J 'a b' -n 2 # why\necho -n\n#BSUB -P x\n"), "|"); got != "-J|a b|-n|2|-P|x" {
		t.Errorf("options %q", got)
	}
	c := small(t, 1, 1)
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("LSF_ENVDIR", c.EnvDir())
	var stdout, stderr strings.Builder
	script := strings.NewReader("#!/bin/sh\n#BSUB -J scripted\n#BSUB -P fromscript -o " + out + "\necho \"it is 'so'\"\nexit 4\n")
	if rc := Main([]string{"bsub", "-P", "fromline"}, script, &stdout, &stderr); rc != 0 {
		t.Fatalf("%d %s", rc, stderr.String())
	}
	j := c.awaitStat("1", EXIT)
	if got, _ := os.ReadFile(out); string(got) != "it is 'so'\n" || j.ExitCode != 4 || j.Name != "scripted" || j.Project != "fromline" {
		t.Errorf("it wrote %q: %+v", got, j)
	}
	if rc := Main([]string{"bsub"}, strings.NewReader(" \n"), &stdout, &stderr); rc != 255 || !strings.Contains(stderr.String(), "No command is specified. Job not submitted.") {
		t.Errorf("without a command: %d %q", rc, stderr.String())
	}
}
