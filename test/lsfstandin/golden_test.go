package lsfstandin

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The users of the transcripts.
var users = map[string]UserConfig{
	"alice": {UID: 61001, GID: 61001, Home: "/home/alice"},
	"bob":   {UID: 61002, GID: 61002, Home: "/home/bob"},
}

// realCluster is the cluster of the transcripts: five hosts, four of them with four slots.
func realCluster(t *testing.T, second time.Duration) *Cluster {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("alice and bob run programs: only root can be both")
	}
	return New(t, Options{RootMaySubmit: true, Second: second, Users: users, Edit: func(c *Config) {
		c.Master, c.Cluster = "lava0", "volclava"
		c.Unkind.ShortHostList = false // that cluster had no LSB_SHORT_HOSTLIST
		c.Hosts = nil
		for _, name := range []string{"lava1", "lava2", "lava3", "lava4"} {
			c.Hosts = append(c.Hosts, HostConfig{Name: name, Slots: 4, Memory: 24105 << 20})
		}
	}})
}

// as runs a command line of a transcript.
func (c *Cluster) as(user string, words ...string) (stdout, stderr string, rc int) {
	c.t.Helper()
	u := users[user]
	return c.RunAs(u.UID, u.GID, words...)
}

// numbers maps the transcripts' job IDs to a cluster's own.
type numbers map[string]string

var jobNumber = regexp.MustCompile(`\b(789|79\d|80[0-3])\b`)

func (n numbers) ours(s string) string {
	return jobNumber.ReplaceAllStringFunc(s, func(id string) string {
		if own, ok := n[id]; ok {
			return own
		}
		return id
	})
}

var (
	longDate  = regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d`)
	shortDate = regexp.MustCompile(`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d`)
	usage     = regexp.MustCompile(`DATE: Resource usage collected\..*\n|\n MEMORY USAGE:\n.*\n`)
	tableID   = regexp.MustCompile(`(?m)^(\d+) +`)
	workDir   = regexp.MustCompile(`(CWD|Execution CWD|Execution Home) <[^>]*>`)
)

// masked removes from an output what differs between clusters: dates, what jobs use,
// directories, since users of tests have no homes, and the width of job IDs.
func masked(s string) string {
	s = longDate.ReplaceAllString(s, "DATE")
	s = shortDate.ReplaceAllString(s, "DATE")
	s = usage.ReplaceAllString(s, "")
	s = tableID.ReplaceAllString(s, "$1 ")
	return workDir.ReplaceAllString(s, "$1 <DIR>")
}

// submitAll submits a transcript's jobs by users' command lines, in order.
func submitAll(t *testing.T, c *Cluster, lines []answer) numbers {
	t.Helper()
	ids := numbers{}
	for _, a := range lines {
		words := strings.Split(a.command, " | ")
		for i := range words {
			words[i] = ids.ours(words[i])
		}
		stdout, stderr, rc := c.as(a.user, words...)
		if id := jobNumber.FindString(a.stdout); id != "" {
			ids[id] = strings.TrimSuffix(strings.TrimPrefix(strings.Fields(stdout + " <none>")[1], "<"), ">")
		}
		got := []string{stdout, strings.Trim(stderr, "\n"), strconv.Itoa(rc)}
		want := []string{ids.ours(a.stdout), a.stderr, strconv.Itoa(a.rc)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s (-real +stand-in)\n%s", a.user, a.command, diff)
		}
	}
	return ids
}

func TestSubmissionsMatchTranscript(t *testing.T) {
	c := realCluster(t, 0)
	all := transcript(t, "submit.txt")
	if len(all) < 10 {
		t.Fatalf("the transcript has %d submissions", len(all))
	}
	ids := submitAll(t, c, all)
	if len(ids) != 8 {
		t.Errorf("%d jobs were submitted, want 8: %v", len(ids), ids)
	}
}

// fillers returns the jobs of the event log that submit.txt lacks.
func fillers() []answer {
	var all []answer
	for i := range 6 {
		n := strconv.Itoa(798 + i)
		all = append(all, answer{
			user: "bob", command: "bsub | -J | fill" + strconv.Itoa(i+1) + " | -P | chipB | sleep | 300",
			stdout: "Job <" + n + "> is submitted to default queue <normal>.\n",
		})
	}
	return all
}

// placements are where the jobs of list.txt ran.
var placements = [][2]string{
	{"789", "lava4#2"},
	{"798", "lava4"},
	{"802", "lava4"},
	{"790", "lava1"},
	{"791[1]", "lava1"},
	{"791[2]", "lava1"},
	{"791[3]", "lava1"},
	{"793", "lava3#4"},
	{"791[4]", "lava2"},
	{"799", "lava2"},
	{"800", "lava2"},
	{"801", "lava2"},
}

// crowd returns the real cluster as it was when acts were tried on it.
func crowd(t *testing.T, second time.Duration) (*Cluster, numbers) {
	t.Helper()
	c := realCluster(t, second)
	hosts := []string{"lava1", "lava2", "lava3", "lava4"}
	for _, h := range hosts {
		c.SetHost(h, true, false)
	}
	lines := slices.DeleteFunc(transcript(t, "submit.txt"), func(a answer) bool {
		return !strings.Contains(a.stdout, "submitted") || strings.Contains(a.command, "exit 3") || strings.Contains(a.command, "quick") || strings.Contains(a.command, "dep")
	})
	ids := submitAll(t, c, append(lines, fillers()...))
	for _, h := range hosts {
		c.SetHost(h, true, false)
	}
	for _, p := range placements {
		if _, stderr, rc := c.Run("brun", "-m", p[1], ids.ours(p[0])); rc != 0 {
			t.Fatalf("brun %s: %s", p[0], stderr)
		}
	}
	for _, h := range hosts {
		c.SetHost(h, false, false)
	}
	return c, ids
}

// untried are the commands that can't be tried here, each with its reason.
var untried = map[string]string{
	"bhist | -l | 799":             "there is no bhist among the programs",
	"bsub | -app | x | true":       "root may not submit there; tests run as root",
	"bjobs | -noheader | -u | all": "a listing",
}

func TestActsMatchTranscript(t *testing.T) {
	c, ids := crowd(t, 20*time.Millisecond)
	all := transcript(t, "actions.txt")
	tried := 0
	for _, a := range all {
		if untried[a.command] != "" {
			continue
		}
		tried++
		words := strings.Split(ids.ours(a.command), " | ")
		lists := words[0] == "bjobs" || words[0] == "bhosts"
		want := []string{masked(ids.ours(a.stdout)), ids.ours(a.stderr), strconv.Itoa(a.rc)}
		var got []string
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			stdout, stderr, rc := c.as(a.user, words...)
			got = []string{masked(stdout), strings.Trim(stderr, "\n"), strconv.Itoa(rc)}
			if !lists || cmp.Equal(want, got) || time.Now().After(deadline) {
				break // an act is done once; a listing shows it in a moment
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s (-real +stand-in)\n%s", a.user, a.command, diff)
		}
	}
	if tried < 27 {
		t.Errorf("%d commands were tried", tried)
	}
}

// bjobs shows of a requeued job, one answer after the other, what it showed on the real
// cluster.
func TestRequeueShowsRecordedStates(t *testing.T) {
	c, ids := crowd(t, time.Second) // EXIT is shown for three of these: a busy machine must see it
	distinct := func(outputs []string) []string { return slices.Compact(outputs) }
	var was []string
	for _, a := range transcript(t, "requeue.txt") {
		if strings.HasPrefix(a.command, "bjobs") {
			was = append(was, masked(ids.ours(a.stdout)))
		}
	}
	was = distinct(was)
	if len(was) != 4 {
		t.Fatalf("the transcript shows %d states, want 4: RUN, EXIT, PEND, RUN", len(was))
	}
	c.as("root", "bmod", "-m", "lava4", ids["803"]) // or it takes the slot
	var seen []string
	list := func() (stdout string) {
		stdout, _, _ = c.as("root", "bjobs", "-w", ids["799"])
		seen = distinct(append(seen, masked(stdout)))
		return stdout
	}
	list()
	c.SetHost("lava2", true, false) // it is pending until that was seen
	if _, stderr, rc := c.as("root", "brequeue", ids["799"]); rc != 0 {
		t.Fatal(stderr)
	}
	missing := false
	for deadline := time.Now().Add(patience); len(seen) < 4 && time.Now().Before(deadline); {
		switch stdout := list(); {
		case strings.Contains(stdout, "EXIT") && !missing:
			all, _, _ := c.as("root", "bjobs", "-u", "all", "-w")
			missing = !strings.Contains(all, "fill2")
		case strings.Contains(stdout, "PEND"):
			c.SetHost("lava2", false, false)
		}
	}
	if diff := cmp.Diff(was, seen); diff != "" {
		t.Errorf("(-real +stand-in)\n%s", diff)
	}
	if !missing {
		t.Error("bjobs -u all never left the job out")
	}
}

func TestEsubCallsMatchTranscript(t *testing.T) {
	c := realCluster(t, 0)
	written := filepath.Join(t.TempDir(), "said")
	for _, dir := range []string{filepath.Dir(written), filepath.Dir(filepath.Dir(written))} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	esub := "#!/bin/sh\n{ echo '== esub call'; env | grep '^LSB_' | LC_ALL=C sort; echo '-- parameter file'; cat \"$LSB_SUB_PARM_FILE\"; } >>" + written +
		"\nif grep -q nosuch \"$LSB_SUB_PARM_FILE\"; then echo this goes to stderr >&2; echo and this nowhere; exit $LSB_SUB_ABORT_VALUE; fi\n"
	if err := os.WriteFile(filepath.Join(c.ServerDir(), "esub"), []byte(esub), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(written, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(written, 0o666); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../backends/lsf/testdata/transcripts/esub.txt")
	if err != nil {
		t.Fatal(err)
	}
	calls, _, _ := strings.Cut(string(text), "== user=")
	mask := func(s string) string {
		s = regexp.MustCompile(`/tmp/\.lsbsub(\w+)\.[\d.]+`).ReplaceAllString(s, "/tmp/.lsbsub$1.N")
		s = regexp.MustCompile(`LSB_SUB_BEGIN_TIME=\d+`).ReplaceAllString(s, "LSB_SUB_BEGIN_TIME=N")
		return regexp.MustCompile(`LSB_UNIXGROUP=\S+\n`).ReplaceAllString(s, "") // users here are not in their groups
	}
	c.as("alice", "bsub", "sleep", "1")
	if err := os.Truncate(written, 0); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{
			"alice", "-J", "name with \"quotes\" $HOME \\ `x`", "-q", "normal", "-i", "/dev/null", "-o", "/tmp/o.%J", "-e", "/tmp/e.%J", "-x", "-N", "-B", "-r",
			"-w", "done(1)", "-R", "select[mem>1] rusage[mem=100] span[hosts=1]", "-L", "/bin/bash", "-u", "me@x", "-P", "chipA:synthesis", "-H", "-sp", "40",
			"-Jd", "a description", "-m", "lava1 lava2", "-M", "4000", "-W", "30", "-n", "2,4", "-b", "23:59", "-a", "foo bar", "sleep", "1",
		},
		{"bob", "-J", "arr[1-4]%2", "-H", "sleep", "1"},
		{"bob", "-P", "chipB", "-H", "-n", "3", "sleep", "1"},
	} {
		if stdout, stderr, rc := c.as(line[0], append([]string{"bsub"}, line[1:]...)...); rc != 0 {
			t.Errorf("%v: %d %s %s", line, rc, stdout, stderr)
		}
	}
	got, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mask(calls), mask(string(got))); diff != "" {
		t.Errorf("(-real +stand-in)\n%s", diff)
	}
	stdout, stderr, rc := c.as("alice", "bsub", "-P", "nosuch", "sleep", "1")
	_, refused, _ := strings.Cut(string(text), "argv=bsub | -P | nosuch | sleep | 1\n")
	if got := "-- stdout\n" + stdout + "-- stderr\n" + stderr; got != refused || rc != 255 {
		t.Errorf("a refusal: %q, %d; want %q, 255", got, rc, refused)
	}
}
