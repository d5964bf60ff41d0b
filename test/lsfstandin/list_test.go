package lsfstandin

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// answer is what one command of a real LSF-compatible cluster printed.
type answer struct {
	user, command  string // command: its words, parted by " | "
	rc             int
	stdout, stderr string
}

// transcript reads the answers in a file of the LSF client's fixtures.
func transcript(t *testing.T, file string) []answer {
	t.Helper()
	text, err := os.ReadFile("../../backends/lsf/testdata/transcripts/" + file)
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`^user=(\w+) rc=(\d+) argv=(.*)$`)
	var all []answer
	for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
		first, body, _ := strings.Cut(part, "\n-- stdout\n")
		stdout, stderr, ok := strings.Cut(body, "-- stderr")
		words := head.FindStringSubmatch(first)
		if words == nil || !ok {
			t.Fatalf("%s: %q", file, part)
		}
		rc, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, answer{words[1], words[3], rc, stdout, strings.Trim(stderr, "\n")})
	}
	return all
}

const (
	GB = 1 << 30
	MB = 1 << 20
)

func at(clock string) time.Time {
	t, err := time.Parse("15:04:05", clock)
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 11, 20, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// lavaCluster is the cluster of the transcripts, as it was when list.txt and
// hosts.txt were written.
func lavaCluster() *Listing {
	l := &Listing{
		Cluster: ClusterInfo{
			Flavour: Lava, Name: "volclava", Master: "lava0", Version: "volclava project 2.2, Nov 20 2026",
			Params: Params{MaxUserPriority: 100, DefaultQueue: "normal", DefaultProject: "default", CleanPeriod: time.Hour, MaxArraySize: 20000},
			Queues: []QueueConfig{{Name: "high", Priority: 60}, {Name: "normal", Priority: 30}, {Name: "low", Priority: 10}},
		},
		Now: at("22:54:40"),
	}
	for i, slots := range []int{0, 4, 4, 4, 4} {
		l.Hosts = append(l.Hosts, Host{Name: "lava" + strconv.Itoa(i), Max: slots, NJobs: slots, Run: slots, NCPUs: 2, MaxMem: 24105 * MB})
	}
	job := func(id int64, name, user, project string, submitted, started string, hosts ...string) *Job {
		j := Job{
			ID: id, Name: name, User: user, Project: project, Queue: "normal", Stat: PEND, Command: "sleep 300", FromHost: "lava0",
			CWD: "$HOME", Home: "/home/" + user, RunCWD: "/home/" + user, Priority: 50, Slots: max(len(hosts), 1),
			Submitted: at(submitted), ExecHosts: hosts,
		}
		if started != "" {
			j.Stat, j.Started, j.PGID = RUN, at(started), int(id)
		}
		l.Jobs = append(l.Jobs, j)
		return &l.Jobs[len(l.Jobs)-1]
	}
	element := func(index int, host string) {
		job(791, "arr["+strconv.Itoa(index)+"]", "bob", "chipB", "22:54:18", "22:54:20", host).Index = index
	}
	quoted := job(789, `name with "quotes" > and , <b>`, "alice", "chipA:synthesis", "22:54:18", "22:54:20", "lava4", "lava4")
	quoted.Description, quoted.Output = "allotment:1:suspend", "/tmp/o.%J"
	job(798, "fill1", "bob", "chipB", "22:54:19", "22:54:21", "lava4")
	job(802, "fill5", "bob", "chipB", "22:54:19", "22:54:23", "lava4")
	plain := job(790, "plain", "alice", "chipA", "22:54:18", "22:54:20", "lava1")
	plain.Priority, plain.UserPriority, plain.ResReq, plain.Asked = 60, 60, "rusage[mem=100]", []string{"lava1", "lava2"}
	plain.RunLimit, plain.MemLimit = 30*time.Minute, 4096000
	element(1, "lava1")
	element(2, "lava1")
	element(3, "lava1")
	job(793, "span4", "bob", "default", "22:54:18", "22:54:20", "lava3", "lava3", "lava3", "lava3").ResReq = "span[hosts=1]"
	element(4, "lava2")
	job(799, "fill2", "bob", "chipB", "22:54:19", "22:54:21", "lava2")
	job(800, "fill3", "bob", "chipB", "22:54:19", "22:54:21", "lava2")
	job(801, "fill4", "bob", "chipB", "22:54:19", "22:54:21", "lava2")
	full := []Reason{{"Job slot limit reached", 5}}
	held := job(792, "held", "bob", "default", "22:54:18", "")
	held.Stat, held.Held, held.Command, held.Reasons = PSUSP, true, "sleep 10", full
	job(803, "fill6", "bob", "chipB", "22:54:19", "").Reasons = full
	return l
}

// find returns a job of the snapshot, for a test to change.
func (l *Listing) find(t *testing.T, id int64) *Job {
	t.Helper()
	i := slices.IndexFunc(l.Jobs, func(j Job) bool { return j.ID == id })
	if i < 0 {
		t.Fatalf("no job %d", id)
	}
	return &l.Jobs[i]
}

// golden compares every answer of a transcript to a listing program, but for those of
// absent, with what the stand-in prints of the snapshot that the function returns for its
// place in the file. Swap is masked.
func golden(t *testing.T, file string, absent []string, snapshot func(position int, command string) *Listing) int {
	t.Helper()
	// The snapshot has no swap.
	swap := regexp.MustCompile(`SWAP: \d+ Mbytes`)
	programs := []string{"bjobs", "bhosts", "bqueues", "lshosts", "lsid", "bparams"}
	compared := 0
	for position, a := range transcript(t, file) {
		words := strings.Split(a.command, " | ")
		if !slices.Contains(programs, words[0]) || slices.Contains(absent, a.command) {
			continue
		}
		compared++
		stdout, stderr, rc := List(words[0], words[1:], snapshot(position, a.command), a.user)
		got := answer{a.user, a.command, rc, swap.ReplaceAllString(string(stdout), "SWAP"), strings.TrimSuffix(string(stderr), "\n")}
		a.stdout = swap.ReplaceAllString(a.stdout, "SWAP")
		if diff := cmp.Diff(a, got, cmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s (-cluster +ours):\n%s", a.command, diff)
		}
	}
	return compared
}

func TestLavaListsMatchTranscript(t *testing.T) {
	cluster := func(int, string) *Listing { return lavaCluster() }
	for file, f := range map[string]struct {
		absent []string
		want   int
	}{
		"list.txt":   {[]string{"bjobs | -u | all | -W"}, 11},
		"hosts.txt":  {[]string{"bhosts | -l | lava1"}, 8},
		"submit.txt": {nil, 0},
	} {
		if n := golden(t, file, f.absent, cluster); n < f.want {
			t.Errorf("%s: only %d answers compared", file, n)
		}
	}
}

func TestLavaRequeueMatchesTranscript(t *testing.T) {
	states := []Stat{RUN, RUN, RUN, EXIT, EXIT, EXIT, EXIT, PEND, RUN, RUN, RUN, RUN}
	golden(t, "requeue.txt", nil, func(position int, _ string) *Listing {
		l := lavaCluster()
		if j := l.find(t, 799); position < len(states) {
			j.Stat, j.Gone = states[position], states[position] == EXIT
		}
		return l
	})
}

func TestLavaListsAfterActsMatchTranscript(t *testing.T) {
	n := golden(t, "actions.txt", nil, func(position int, command string) *Listing {
		l := lavaCluster()
		switch {
		case command == "bhosts | -w" && position < 5:
			l.Hosts[4].Run, l.Hosts[4].USUSP = 3, 1
		case command == "bhosts | -w":
			l.Hosts[1].Run, l.Hosts[1].NJobs = 5, 5
		case command == "bjobs | 798" && position < 3:
			l.find(t, 798).Stat = USUSP
		case command == "bjobs | -UF | 800":
			j := l.find(t, 800)
			j.Stat, j.ExecHosts, j.Started, j.MemUsed = PSUSP, nil, time.Time{}, 6*MB
			j.Reasons = []Reason{{"The job was suspended by the user while pending", 1}}
		case command == "bjobs | -UF | 803":
			j := l.find(t, 803)
			j.Stat, j.ExecHosts, j.Started, j.PGID = RUN, []string{"lava1"}, at("22:55:11"), 803
			j.Priority, j.UserPriority, j.Asked, j.Description = 90, 90, []string{"lava4"}, "allotment:2:requeue"
		case command == "bjobs | -UF | 791":
			l.Now = at("22:55:06")
			for i, pids := range [][]int{{9780, 9800, 9804}, {9781, 9808, 9815}, {9786, 9809, 9817}, {9782, 9788, 9802}} {
				j := &l.Jobs[slices.IndexFunc(l.Jobs, func(j Job) bool { return j.Index == i+1 })]
				j.PGID, j.PIDs, j.MemUsed = pids[0], pids, 6*MB
				if i == 1 {
					j.MemUsed = 5 * MB
				}
			}
		}
		return l
	})
	if n < 9 {
		t.Errorf("only %d answers compared", n)
	}
}
