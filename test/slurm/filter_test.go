package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/esubtest"
)

// R1, R3, R4, R5, R7, R12, R22, R29: the table of cases through a real Slurm: sbatch,
// salloc and scontrol of real users.
func TestFilterCases(t *testing.T) {
	s := newTestSite(t, "")
	cases, err := esubtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Request.Interactive && !c.Want.Hold.IsZero() {
			continue // salloc would wait with it
		}
		t.Run(c.Rule+" "+c.Name, func(t *testing.T) {
			s := *s
			s.T = t
			s.translate(&c)
			if c.Request.Modify {
				s.changeCase(&c)
				return
			}
			s.publish(c.Policy, c.Lua(), c.Standing)
			got := s.submitCase(&c)
			if got.Messages == nil {
				got.Messages = c.Slurm.Messages[:0]
			}
			want := c.Slurm
			want.Error = ""
			if want.Reject {
				want = esubtest.Want{Reject: true, Messages: want.Messages}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	s.noLuaErrors()
}

// person returns the user that submits a case.
func (s *testSite) person(uid int64) *person {
	switch uid {
	case 1001:
		return &s.alice
	case 1002:
		return &s.bob
	}
	return &s.carol
}

// translate makes a case one of this site: its users, its default partition, now.
func (s *testSite) translate(c *esubtest.Case) {
	const theirs, ours = "normal", "main"
	p := s.person(c.Request.UID)
	for i := range c.Policy.Projects {
		pools := slices.Clone(c.Policy.Projects[i].Pools)
		for k := range pools {
			if pools[k].User == "" {
				continue
			}
			owner := map[string]*person{"bob": &s.bob, "carol": &s.carol}[pools[k].User]
			pools[k].User = owner.name
			if pools[k].UID != esub.Unknown {
				pools[k].User, pools[k].UID = "a name that does not count", int64(owner.uid)
			}
		}
		c.Policy.Projects[i].Pools = pools
	}
	c.Request.User, c.Request.UID = p.name, int64(p.uid)
	for i, queue := range c.Policy.Queues {
		if queue == theirs {
			c.Policy.Queues[i] = ours
		}
	}
	c.Policy.DefaultQueue = "" // Slurm says which it is
	if d := c.Slurm.Description; d != nil {
		*d = strings.ReplaceAll(*d, "queue="+theirs+";", "queue="+ours+";")
	}
	translateDeadline(c)
	if c.Standing.At.IsZero() {
		return
	}
	// The clock goes on: nothing is to be just in time.
	const margin = 20 * time.Second
	was, age := c.Standing.At, c.Now.Sub(c.Standing.At)
	if (age > 0) == (c.Want.Error != "") {
		age += margin
	} else {
		age -= margin
	}
	c.Standing.At = time.Now().Add(-age)
	for i := range c.Slurm.Messages {
		c.Slurm.Messages[i] = strings.ReplaceAll(c.Slurm.Messages[i], was.UTC().Format(time.RFC3339), c.Standing.At.UTC().Format(time.RFC3339))
	}
}

var deadlineTag = regexp.MustCompile(`deadline=(\d+);`)

// translateDeadline makes a case's deadline one that is as far ahead now.
func translateDeadline(c *esubtest.Case) {
	const far, farther = "2027-11-26T12:00:01Z", "9999-12-31T23:59:59Z"
	if d := c.Slurm.Description; d != nil && c.Request.Deadline != "" {
		if m := deadlineTag.FindStringSubmatch(*d); m != nil {
			seconds, _ := strconv.ParseInt(m[1], 10, 64)
			at := time.Now().Add(min(time.Unix(seconds, 0).Sub(c.Now), 365*24*time.Hour))
			c.Request.Deadline = backends.DeadlineText(at)
			*d = strings.Replace(*d, m[0], fmt.Sprintf("deadline=%d;", at.Unix()), 1)
		}
	}
	c.Request.Deadline = strings.ReplaceAll(c.Request.Deadline, far, farther)
	for i := range c.Slurm.Messages {
		c.Slurm.Messages[i] = strings.ReplaceAll(c.Slurm.Messages[i], far, farther)
	}
}

// submitCase submits a case's job and says what became of it.
func (s *testSite) submitCase(c *esubtest.Case) esubtest.Want {
	s.Helper()
	r := c.Request
	program := "sbatch"
	argv := []string{"sbatch", "--parsable", "--output=/dev/null"}
	if c.Rule != "R29" || r.Delayed { // a hold shows in the begin time
		argv = append(argv, "--begin=now+1hour")
	}
	if r.Interactive {
		program, argv = "salloc", []string{"salloc", "--no-shell"}
	}
	option := func(name, value string) {
		if value != "" {
			argv = append(argv, name+"="+value)
		}
	}
	option("--account", r.Project)
	option("--partition", r.Queue)
	option("--comment", r.Description)
	if r.Slots > 0 {
		option("--ntasks", strconv.Itoa(r.Slots))
	}
	if r.Memory > 0 {
		argv = append(argv, fmt.Sprintf("--mem=%dM", r.Memory>>20))
	}
	if r.Exclusive {
		argv = append(argv, "--exclusive")
	}
	if r.NoRequeue {
		argv = append(argv, "--no-requeue")
	}
	if !r.Interactive {
		argv = append(argv, "--wrap=exec sleep 600")
	}
	var env []string
	if r.Preempt != "" {
		env = append(env, "ALLOTMENT_PREEMPT="+r.Preempt)
	}
	if r.Checkpoint != "" {
		env = append(env, "ALLOTMENT_CHECKPOINT="+r.Checkpoint)
	}
	if r.Minimum != "" {
		env = append(env, "ALLOTMENT_MIN="+r.Minimum)
	}
	if r.Deadline != "" {
		env = append(env, "ALLOTMENT_DEADLINE="+r.Deadline)
	}
	marked := s.watchMark()
	d := s.as(&person{r.User, int(r.UID), s.carol.gid}, env, argv...)
	got := esubtest.Want{Mark: marked()}
	id := d.out
	for line := range strings.Lines(d.errors) {
		line = strings.TrimSpace(line)
		text, ok := strings.CutPrefix(line, program+": ")
		refusal, refused := strings.CutPrefix(text, "error: ")
		switch granted, is := strings.CutPrefix(text, "Granted job allocation "); {
		case is:
			id = granted
		case waiting.MatchString(text):
		case refused && strings.HasSuffix(text, "Access/permission denied"):
			got.Reject = true
		case refused:
			got.Messages = append(got.Messages, refusal)
		case ok:
			got.Messages = append(got.Messages, text)
		default:
			s.Errorf("%s says %q", program, line)
		}
	}
	if got.Reject != (d.code != 0) {
		s.Errorf("%s ends with %d: %s", program, d.code, d.errors)
	}
	if got.Reject {
		return got
	}
	defer s.root("scancel", id)
	j := s.readJob(id)
	if held := heldUntil.FindStringSubmatch(j.comment); held != nil {
		seconds, _ := strconv.ParseInt(held[1], 10, 64)
		until := time.Unix(seconds, 0)
		if left := time.Until(until) - 10*time.Minute; left > time.Second || left < -time.Minute || j.begin != until.Format("2006-01-02T15:04:05") {
			s.Errorf("held until %v, begins %s", until, j.begin)
		}
		got.Hold = c.Want.Hold
		for _, text := range []*string{&j.comment, &j.admin} {
			*text = strings.Replace(*text, "held="+held[1], fmt.Sprintf("held=%d", c.Want.Hold.Unix()), 1)
		}
	}
	got.Licences = j.licences
	asked := r.Queue
	if asked == "" {
		asked = "main"
	}
	if j.partition != asked {
		got.Queue = j.partition
	}
	if j.comment != r.Description {
		got.Description = &j.comment
		tag, _, _ := strings.Cut(j.comment, " ")
		if j.admin != tag {
			s.Errorf("admin comment %q, comment %q", j.admin, j.comment)
		}
	} else if j.admin != "" {
		s.Errorf("admin comment %q", j.admin)
	}
	if j.priority != untouched {
		got.Priority, _ = strconv.ParseInt(j.priority, 10, 64)
	}
	return got
}

// watchMark watches the file that the filter opens as its mark, and returns whether it did
// since.
func (s *testSite) watchMark() func() bool {
	s.Helper()
	path := filepath.Join(s.state, esub.MarkName)
	s.must(os.WriteFile(path, nil, 0o644))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	s.must(err)
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
	s.must(err)
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		s.must(unix.Close(fd))
		return err == nil && n > 0
	}
}

var heldUntil = regexp.MustCompile(`^allotment:1;(?:[^ ]*;)?held=([0-9]+);`)

// waiting is what salloc says while the job before is still ending, and of its nodes (24.11).
var waiting = regexp.MustCompile(`^(Pending job allocation [0-9]+|job [0-9]+( queued and waiting for resources| has been allocated resources)?|Nodes \S+ are ready for job)$`)

// changeCase makes a case's change of a pending job, as its owner.
func (s *testSite) changeCase(c *esubtest.Case) {
	s.Helper()
	p := s.person(1001)
	s.publish(esub.Policy{Settings: c.Policy.Settings}, c.Lua(), esub.Standing{At: time.Now()})
	id, _ := s.submit(p, nil, "--account=chipA", "--comment=as it was")
	defer s.root("scancel", id)
	s.publish(c.Policy, c.Lua(), c.Standing)
	argv := []string{"scontrol", "update", "JobId=" + id}
	switch {
	case c.Request.HasProject:
		argv = append(argv, "Account="+c.Request.Project)
	case c.Request.Description != "":
		argv = append(argv, "Comment="+c.Request.Description)
	default:
		argv = append(argv, "TimeLimit=5")
	}
	d := s.as(p, nil, argv...)
	for range 10 { // without accounting, 24.11 refuses some by mistake
		if !strings.Contains(d.errors, "Resource temporarily unavailable") && !strings.Contains(d.errors, "Interrupted system call") {
			break
		}
		d = s.as(p, nil, argv...)
	}
	if got := d.code != 0; got != c.Slurm.Reject {
		s.Errorf("%v: %d: %s, want a refusal: %v", argv, d.code, d.errors, c.Slurm.Reject)
	}
	want := "as it was"
	if c.Request.Description != "" && !c.Slurm.Reject {
		want = c.Request.Description
	}
	if j := s.readJob(id); j.comment != want || j.admin != "" {
		s.Errorf("%+v", j)
	}
}

// R3: whatever is wrong with its files, a real sbatch goes through as it is, with one
// line of warning, and sbatch answers nothing else.
func TestFilterFailsOpen(t *testing.T) {
	s := newTestSite(t, "")
	p, slurm, standing := s.policy()
	p.OnFailure = esub.Reject
	s.publish(p, slurm, standing)
	whole, err := os.ReadFile(filepath.Join(s.state, esub.LuaPolicyName))
	s.must(err)
	d := s.sbatch(&s.alice, nil, "--account=nosuch")
	if want := "sbatch: error: --account=nosuch: no project of that name: correct it\nsbatch: error: Batch job submission failed: Access/permission denied"; d.code != 1 || d.out != "" || d.errors != want {
		t.Errorf("refused: %d %q %q", d.code, d.out, d.errors)
	}

	for name, files := range map[string]map[string]string{
		"truncated":    {esub.LuaPolicyName: string(whole[:len(whole)-20]), esub.LuaGenerationName: strings.Repeat("x", 20)},
		"garbage":      {esub.LuaGenerationName: "\x1bLuaQ\x00\x01\x04"},
		"a program":    {esub.LuaGenerationName: `return os.exit(1)`},
		"foreign":      {esub.LuaGenerationName: `return {["format"]=1,["policy"]="0",["size"]=1}`},
		"not readable": nil,
		"missing":      nil,
		"stale":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.T = t
			switch name {
			case "stale":
				old := standing
				old.At = time.Now().Add(-time.Hour)
				s.publish(p, slurm, old)
			default:
				s.publish(p, slurm, standing)
			}
			for file, content := range files {
				s.write(file, []byte(content))
			}
			switch path := filepath.Join(s.state, esub.LuaGenerationName); name {
			case "not readable":
				s.must(os.Chmod(path, 0o600))
			case "missing":
				s.must(os.Remove(path))
			}
			id, messages := s.submit(&s.alice, nil, "--account=nosuch", "--comment=text")
			if !strings.HasPrefix(messages, "sbatch: allotment: ") || !strings.HasSuffix(messages, ": the job goes through as it is") || strings.Contains(messages, "\n") {
				t.Errorf("told %q", messages)
			}
			if j := s.readJob(id); j.comment != "text" || j.admin != "" || j.partition != "main" || j.priority != untouched {
				t.Errorf("%+v", j)
			}
		})
	}
	s.publish(p, slurm, standing)
	if d := s.sbatch(&s.alice, nil, "--account=nosuch"); d.code != 1 {
		t.Errorf("a new policy is not read: %+v", d)
	}
	s.noLuaErrors()
}

// R4: a job of a user that the policy does not know passes, and is not next in line;
// one of a user that it knows not to be in the group does not pass.
func TestFilterGroups(t *testing.T) {
	s := newTestSite(t, "")
	s.publish(s.policy())
	for _, x := range []struct {
		who       *person
		partition string
		priority  string
	}{{&s.alice, "main", strconv.Itoa(nextInLine)}, {&s.bob, "low", untouched}, {&s.carol, "main", untouched}} {
		id, messages := s.submit(x.who, nil, "--account=chipA")
		if j := s.readJob(id); j.partition != x.partition || j.priority != x.priority || (messages != "") != (x.partition == "low") {
			t.Errorf("%s: %+v, told %q", x.who.name, j, messages)
		}
	}
	// A job that root submits for a user is that user's.
	id := s.root("sbatch", "--parsable", "--output=/dev/null", "--begin=now+1hour", "--uid="+s.bob.name, "--account=chipA", "--wrap=true")
	if j := s.readJob(id); j.partition != "low" {
		t.Errorf("root for bob: %+v", j)
	}
	s.noLuaErrors()
}

// Hostile names of projects, in the policy and in what is submitted: each is only
// itself.
func TestFilterHostileProjects(t *testing.T) {
	s := newTestSite(t, "")
	p, slurm, standing := s.policy()
	p.OnFailure = esub.Reject
	names := []string{`"`, `\`, `\"`, `]=1,["format`, "--[[", `"..os.exit().."`, "größe", `\034`, "a b;c=d%e|f", "%s%n%d", "'; drop"}
	for i, name := range names {
		p.Projects = append(p.Projects, esub.Project{Name: name, Group: s.group, GID: 500, Pools: []esub.Pool{{ID: int64(10 + i), UID: esub.Unknown, Slots: 1}}})
	}
	standing.Below = map[int64]bool{10: true}
	s.publish(p, slurm, standing)
	for i, name := range names {
		id, messages := s.submit(&s.alice, nil, "--account="+name)
		want := untouched
		if i == 0 {
			want = strconv.Itoa(nextInLine)
		}
		if j := s.readJob(id); messages != "" || j.priority != want {
			t.Errorf("%q: %+v, told %q", name, j, messages)
		}
		d := s.sbatch(&s.alice, nil, "--account="+name+"\\")
		if d.code != 1 || strings.Count(d.errors, "\n") != 1 || !strings.Contains(d.errors, "no project of that name") {
			t.Errorf("%q: %+v", name+"\\", d)
		}
	}
	s.noLuaErrors()
}

// The step is the user's choice: behind the project, or ALLOTMENT_STEP.
func TestFilterStep(t *testing.T) {
	s := newTestSite(t, "")
	s.publish(s.policy())
	for _, x := range []struct {
		env, account, want string
	}{
		{"ALLOTMENT_STEP=mask", "chipA", "allotment:1;step=mask;"},
		{"ALLOTMENT_STEP=mask", "chipA:logic", "allotment:1;step=logic;"},
		{"ALLOTMENT_PREEMPT=suspend", "chipA:logic", "allotment:1;preempt=suspend;step=logic;"},
		{"X=1", "chipA", ""},
	} {
		id, messages := s.submit(&s.alice, []string{x.env}, "--account="+x.account)
		if j := s.readJob(id); messages != "" || j.comment != x.want || j.admin != x.want {
			t.Errorf("%+v: %+v, told %q", x, j, messages)
		}
	}
	s.noLuaErrors()
}

// A site's own script that calls ours: both have their say.
func TestFilterAsModule(t *testing.T) {
	s := newTestSite(t, `local allotment = dofile("STATE/job_submit.lua")
function slurm_job_submit(job, partitions, uid)
   job.site_factor = 5000 -- as a client of its own making may have sent it
   local code = allotment.submit(job, partitions, uid)
   if code ~= slurm.SUCCESS then return code end
   if job.name == "refused" then
      slurm.log_user("not here")
      return slurm.ERROR
   end
   job.wckey = "site"
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   return allotment.modify(job, record, partitions, uid)
end
return slurm.SUCCESS
`)
	p, slurm, standing := s.policy()
	p.OnFailure = esub.Reject
	standing.Below = nil
	s.publish(p, slurm, standing)
	id, messages := s.submit(&s.alice, []string{"ALLOTMENT_PREEMPT=suspend"}, "--account=chipA", "--comment=mine")
	if j := s.readJob(id); messages != "" || j.comment != "allotment:1;preempt=suspend; mine" || j.priority != untouched {
		t.Errorf("%+v, told %q", j, messages)
	}
	if wckey := s.root("squeue", "--noheader", "--jobs="+id, "-O", "WCKey:|"); wckey != "site|" {
		t.Errorf("the site's part was not done: %q", wckey)
	}
	for _, options := range [][]string{{"--account=nosuch"}, {"--account=chipA", "--job-name=refused"}} {
		if d := s.sbatch(&s.alice, nil, options...); d.code != 1 {
			t.Errorf("%q: %+v", options, d)
		}
	}
	if d := s.as(&s.alice, nil, "scontrol", "update", "JobId="+id, "Comment=x"); d.code == 0 {
		t.Error("a tagged comment was changed")
	}
	s.noLuaErrors()
}
