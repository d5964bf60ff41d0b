package slurm

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// nonce is the one with which the captured answers were asked for.
const nonce = "xNONCE"

// captured is the answer of a Slurm 22.05.8 of two nodes with four slots each.
func captured(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// numbered is an answer of squeue that was captured before squeue was asked for the jobs' own
// numbers: each job is given that of its array.
func numbered(t testing.TB, file string) []byte {
	t.Helper()
	return regexp.MustCompile(`(?m)^(\d+`+nonce+`)`).ReplaceAll(captured(t, file), []byte("$1$1"))
}

func farm() *cluster {
	return &cluster{
		at: time.Unix(1795307972, 0), scale: Scale{Unit: 2}, from: FromAccount, trusted: map[string]bool{"root": true},
		slots: map[string]int{"node1": 4, "node2": 4}, low: map[string]bool{"low": true}, memory: true,
	}
}

// parseJobs reads what squeue printed in pieces of a size.
func parseJobs(out []byte, size int) (jobs []*listedJob, err error) {
	l := jobLines(nonce, farm(), &jobs)
	for piece := range slices.Chunk(out, size) {
		if err := l.feed(piece); err != nil {
			return nil, err
		}
	}
	return jobs, l.end()
}

func TestJobs(t *testing.T) {
	jobs, err := parseJobs(numbered(t, "squeue.txt"), 100)
	if err != nil {
		t.Fatal(err)
	}
	type short struct {
		state backends.State
		wait  backends.Wait
		slots int
		hosts string
	}
	got := map[string]short{}
	for _, j := range jobs {
		got[j.ID.String()] = short{j.State, j.Wait, j.Slots, strings.Join(j.nodes, " ")}
	}
	want := map[string]short{
		"1":    {backends.Suspended, 0, 3, "node1"},
		"2":    {backends.Running, 0, 3, "node1 node2"},
		"3[0]": {backends.Pending, backends.WaitResources, 8, ""},
		"3[1]": {backends.Pending, backends.WaitResources, 8, ""},
		"3[2]": {backends.Pending, backends.WaitResources, 8, ""},
		"4":    {backends.Held, 0, 1, ""},
		"5":    {backends.Pending, backends.WaitTime, 1, ""},
		"6":    {backends.Pending, backends.WaitDependency, 1, ""},
		"7":    {backends.Exited, 0, 1, "node2"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(short{})); d != "" {
		t.Error(d)
	}
	of := func(id int64) *listedJob {
		return jobs[slices.IndexFunc(jobs, func(j *listedJob) bool { return j.ID.Job == id })]
	}
	if j := of(1); j.Project != "chipa" || j.Step != "synth" || j.Tag != "allotment:1;preempt=suspend;" || j.Memory != 192<<20 || !j.OneHost {
		t.Errorf("%+v", j)
	}
	if j := of(3); j.OneHost || !slices.Equal(j.Planned, []string{"node1", "node2"}) {
		t.Errorf("a job of 8 slots on one of two hosts with 4: %+v", j)
	}
	if j := of(4); j.Name != "a|b\n999|x\x1b" || j.Requeues != 0 {
		t.Errorf("%+v", j)
	}
	if j := of(5); !slices.Equal(j.Asked, []string{"node2"}) || j.BeginTime.Unix() != 1795311568 {
		t.Errorf("%+v", j)
	}
	if j := of(7); j.ExitCode != 3 || j.Ended.Unix() != 1795307970 {
		t.Errorf("%+v", j)
	}
}

// Each element of an array that has started has a number of its own, by which its hosts know it.
func TestElementsOnTheirHosts(t *testing.T) {
	for _, file := range []string{"squeue_elements.txt", "squeue_elements_24.11.txt"} {
		jobs, err := parseJobs(captured(t, file), 100)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got := map[string]string{}
		for _, j := range jobs {
			got[j.ID.String()] = j.OnHosts().String()
		}
		want := map[string]string{"1[0]": "3", "1[1]": "4", "1[2]": "1[2]", "1[3]": "1[3]", "2": "2"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", file, d)
		}
	}
}

func TestMalformedJobLines(t *testing.T) {
	line := func(change func([]string)) []byte {
		f := strings.Split("8 8 N/A R None alice main 1 0 2 1 1 cpu=2,mem=128M 64M 100 90 90 N/A 1:00 0:05 node1 _ _ (null) (null) OK 0 1 1 0 N/A normal (null) 1 1 0 N/A N/A 1 N/A N/A N/A N/A N/A 0 0 N/A (null) *:*:* 0 (null) (null) (null) (null) name", " ")
		f[fReqNodes], f[fSchedNodes] = "", "(null)"
		change(f)
		return []byte(strings.Join(f, nonce) + nonce + "\n")
	}
	if jobs, err := parseJobs(line(func([]string) {}), 1000); err != nil || len(jobs) != 1 || jobs[0].State != backends.Running {
		t.Fatalf("%+v, %v", jobs, err)
	}
	for field, value := range map[int]string{
		fNumber: "x", fState: "XX", fArrayTask: "5-1", fCPUs: "many", fTRES: "mem=1X", fStart: "yesterday", fTimeLimit: "1x", fNodeList: "node[1", fNice: "", fExit: "3:0:0",
	} {
		out := line(func(f []string) { f[field] = value })
		if _, err := parseJobs(out, 1000); err == nil || !strings.Contains(err.Error(), "in the line") {
			t.Errorf("%s %q: %v; want an error that shows the line", squeueFields[field], value, err)
		}
	}
	var unknown *backends.UnknownStateError
	if _, err := parseJobs(line(func(f []string) { f[fState] = "XX" }), 1000); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	for _, out := range []string{"x", "a" + nonce, string(line(func(f []string) { f[fName] = "a" + nonce + "b" }))} {
		if _, err := parseJobs([]byte(out), 1000); err == nil {
			t.Errorf("%q was read", out)
		}
	}
}

// R14: what is not known to mean "would start if there were slots" is not eligible.
func TestWaits(t *testing.T) {
	for reason, want := range map[string]backends.Wait{
		"Resources": backends.WaitResources, "Priority": backends.WaitResources, "Dependency": backends.WaitDependency,
		"JobArrayTaskLimit": backends.WaitThrottle, "Licenses": backends.WaitOther, "QOSMaxJobsPerUserLimit": backends.WaitOther,
		"ReqNodeNotAvail, UnavailableNodes:node2": backends.WaitOther, "a new one": backends.WaitOther,
	} {
		j := listedJob{factor: least}
		if err := j.parseState("PD", reason, farm()); err != nil || j.Wait != want || j.State != backends.Pending {
			t.Errorf("%s: %v, %v, %v, want %v", reason, j.State, j.Wait, err, want)
		}
	}
}

// A job of priority 0 is held, whatever its reason says but that no node suits it.
func TestHeld(t *testing.T) {
	for _, reason := range []string{"JobHeldUser", "JobHeldAdmin", "job requeued in held state", "launch failed requeued held", "Resources", "None"} {
		var j listedJob
		if err := j.parseState("PD", reason, farm()); err != nil || j.State != backends.Held {
			t.Errorf("%s: %v, %v", reason, j.State, err)
		}
	}
	var j listedJob
	if err := j.parseState("PD", badConstraints, farm()); err != nil || j.State != backends.Pending || j.Wait != backends.WaitOther {
		t.Errorf("no node suits it: %v, waits for %v, %v", j.State, j.Wait, err)
	}
}

func TestNodes(t *testing.T) {
	l, err := parseNodes(captured(t, "sinfo.txt"), nonce)
	want := []backends.Host{{Name: "node1", Slots: 4, Memory: 4 << 30}, {Name: "node2", Slots: 4, Memory: 4 << 30}}
	if err != nil || !cmp.Equal(l.hosts, want) || !slices.Equal(l.queues, []backends.Queue{{Name: "main", Default: true}}) {
		t.Errorf("%+v %v", l, err)
	}
	for state, want := range map[string]backends.HostState{
		"idle": backends.HostUp, "mix": backends.HostUp, "alloc-": backends.HostUp, "idle*": backends.HostDown, "drain": backends.HostClosed,
		"drain*": backends.HostDown, "down": backends.HostDown, "idle~": backends.HostDown, "mix$": backends.HostClosed,
	} {
		if got, err := parseHostState(state); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", state, got, err, want)
		}
	}
	if _, err := parseHostState("odd"); err == nil {
		t.Error("an unknown state was taken")
	}
}

// sinfo prints none and Unknown where no reason was given.
func TestReasonsOfClosedNodes(t *testing.T) {
	var out strings.Builder
	for _, fields := range [][]string{
		{"n1", "drain", "root(0)", "1795608600", "a fan | fails\x1b[31m"},
		{"n1", "drain", "root(0)", "1795608600", "a fan | fails\x1b[31m"},
		{"n2", "idle", "Unknown", "Unknown", "none"},
		{"n3", "down*", "slurm(64030)", "1795608600", "Not responding"},
		{"n4", "down*", "Unknown", "Unknown", "none"},
	} {
		out.WriteString(strings.Join(fields, nonce) + nonce + "\n")
	}
	got, err := parseReasons([]byte(out.String()), nonce)
	want := map[string]string{
		"n1": "drain by root at 2026-11-25 12:10 UTC: a fan | fails\x1b[31m",
		"n3": "down by slurm at 2026-11-25 12:10 UTC: Not responding",
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %q", err, got)
	}
	if _, err := parseReasons([]byte("n1"+nonce+"drain"), nonce); err == nil {
		t.Error("a line that is cut off was taken")
	}
}

// sinfo lists partitions in any order: jobs of the engine's own go into one of the highest tier.
func TestPartitionsOfAHostByTier(t *testing.T) {
	line, _, _ := strings.Cut(string(captured(t, "sinfo.txt")), "\n")
	var lines strings.Builder
	for _, p := range []struct{ name, tier string }{{"low", "0"}, {"other", "1"}, {"main*", "1"}, {"also", "1"}, {"fast", "2"}} {
		lines.WriteString(strings.Replace(line, "main*xNONCE1x", p.name+"xNONCE"+p.tier+"x", 1) + "\n")
	}
	l, err := parseNodes([]byte(lines.String()), nonce)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(l.within["node1"], " "), "fast main also other low"; got != want {
		t.Errorf("partitions %q, want %q", got, want)
	}
}

// The same fields, as 24.11 prints them.
func TestDetailsOf2411(t *testing.T) {
	details, err := parseJSON(captured(t, "squeue_24.11.json"))
	if err != nil || len(details) != 3 {
		t.Fatalf("%+v, %v", details, err)
	}
	spread := details[backends.ID{Job: 1}]
	if want := []backends.Placement{{Host: "node1", Slots: 4}, {Host: "node2", Slots: 1}}; !slices.Equal(spread.hosts, want) || spread.holds || len(spread.cores) != 5 || spread.suspended.IsZero() || !spread.perSlot {
		t.Errorf("a suspended job on two hosts: %+v", spread)
	}
	element := details[backends.ID{Job: 2, Index: 2}]
	if !element.holds || element.limit != 1 || len(element.cores) != 4 || !slices.Equal(element.excluded, []string{"node1"}) {
		t.Errorf("an element that runs: %+v", element)
	}
	if rest := details[backends.ID{Job: 2}]; rest.limit != 1 || rest.holds || rest.hosts != nil {
		t.Errorf("the rest of the array: %+v", rest)
	}
	texts, err := parseTexts(captured(t, "squeue_24.11.json"))
	if err != nil || len(texts) != 3 || texts[0].Comment != "hers" || texts[1].Nice.value != 3 || !texts[2].wholeArray() {
		t.Errorf("%+v, %v", texts, err)
	}
}

func TestStateOf2411(t *testing.T) {
	for text, want := range map[string]state{`"RUNNING"`: "RUNNING", `["RUNNING","COMPLETING"]`: "COMPLETING", `["PENDING"]`: "PENDING", `[]`: ""} {
		var s state
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s: %q, %v; want %q", text, s, err, want)
		}
	}
}

func TestHosts(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "(null)": "", "n1": "n1", "n[1-3]": "n1 n2 n3", "n[08-10,12]x,m": "n08x n09x n10x n12x m", "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2",
	} {
		if got, err := parseHosts(s); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", s, got, err, want)
		}
	}
	for _, s := range []string{"n[", "n]", "n[2-1]", "n[a]", ",", "n[[1]]", "n[1-99999999]"} {
		if got, err := parseHosts(s); err == nil {
			t.Errorf("%q was read as %q", s, got)
		}
	}
}

func TestDetails(t *testing.T) {
	text := string(captured(t, "show_job.txt"))
	d, ok := parseDetail(text)
	if !ok || d.suspended.IsZero() {
		t.Errorf("%+v, %v", d, ok)
	}
	with := strings.Replace(text, "\n   Comment=", "\n   AdminComment=allotment:1;engine:1;mark=r3; \n   Comment=", 1)
	if d, ok := parseDetail(with); !ok || d.comment != "allotment:1;engine:1;mark=r3;" {
		t.Errorf("%+v, %v", d, ok)
	}
	forged := strings.Replace(with, "JobName=wrap", "JobName=a AdminComment=allotment:1;engine:1;mark=r9;", 1)
	if d, ok := parseDetail(forged); ok {
		t.Errorf("a forged name was believed: %+v", d)
	}
	details, err := parseJSON(captured(t, "squeue.json"))
	want := []backends.Placement{{Host: "node1", Slots: 1}, {Host: "node2", Slots: 2}}
	if got := details[backends.ID{Job: 2}]; err != nil || !got.holds || len(got.hosts) != 2 || got.hosts[0].Slots+got.hosts[1].Slots != 3 || len(got.cores) != 3 {
		t.Errorf("%+v, %v, want about %v", got, err, want)
	}
	if got := details[backends.ID{Job: 1}]; got.holds || len(got.cores) != 3 || got.suspended.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestAnswers(t *testing.T) {
	stderr := "Invalid job id specified for job 99\ninvalid keyword: x0\ninvalid keyword: x1\nAccess/permission denied for job 3\ninvalid keyword: x2\nslurm_update error: Unexpected message received\n"
	errs := parseAnswers(stderr, "x", 5)
	for i, want := range []error{backends.ErrUnknownJob, nil, backends.ErrDenied, backends.ErrUnreachable, backends.ErrUnreachable} {
		if !errors.Is(errs[i], want) {
			t.Errorf("%d: %v, want %v", i, errs[i], want)
		}
	}
}

func TestRecord(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	r := record{mark: "r 3;=", run: 2, stop: true, until: at(5), begin: at(6), submitted: at(7), resumed: at(8), rest: at(9), save: at(10), failed: 1, saved: 3, pin: []string{"n1", "n2"}, out: []string{"m"}, excluded: 7, delayed: true, ranked: true, priority: 3020}
	for _, around := range [][2]string{{"", ""}, {"allotment:1;step=x;", ""}, {"allotment:1;", " the site's own"}} {
		text := r.comment(around[0], around[1])
		if !strings.HasPrefix(text, backends.TagPrefix) {
			t.Errorf("%q is not known to the submit filter", text)
		}
		before, got, after := splitComment(text)
		if !cmp.Equal(got, r, cmp.AllowUnexported(record{})) || after != around[1] || around[0] != "" && before != around[0] {
			t.Errorf("%q was read as %q %+v %q", text, before, got, after)
		}
		if _, _, err := backends.ParseTag(around[0]); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"", "hers", "allotment:1;step=xengine:1%3B;", "a text with engine:1;mark=r1;"} {
		if _, got, _ := splitComment(text); !got.empty() {
			t.Errorf("%q: %+v, want no record", text, got)
		}
	}
	if got := (record{}).comment("allotment:1;", ""); got != "" {
		t.Errorf("an empty record leaves %q", got)
	}
}

// A requeue that was announced and not made leaves no mark.
func TestAnnouncedRequeue(t *testing.T) {
	at := time.Unix(1795307972, 0)
	d := detail{comment: record{mark: "r3", run: 1, until: at.Add(time.Hour), delayed: true}.comment("", "")}
	before := listedJob{Job: backends.Job{State: backends.Running}}
	if before.addDetail(d, at); before.Mark != "" || before.record.delayed {
		t.Errorf("%+v", before)
	}
	after := listedJob{Job: backends.Job{State: backends.Pending, Requeues: 1}, eligible: at.Add(time.Minute)}
	if after.addDetail(d, at); after.Mark != "r3" || !after.HeldUntil.Equal(at.Add(time.Hour)) {
		t.Errorf("%+v", after)
	}
}

// A suspension that was announced and not made leaves no mark.
func TestAnnouncedSuspension(t *testing.T) {
	at := time.Unix(1795307972, 0)
	d := detail{comment: record{mark: "r3", stop: true, until: at.Add(time.Hour), ranked: true, priority: 1030}.comment("", "")}
	for _, state := range []backends.State{backends.Running, backends.Pending} {
		before := listedJob{Job: backends.Job{State: state}, eligible: at.Add(time.Minute)}
		if before.addDetail(d, at); before.Mark != "" || !before.HeldUntil.IsZero() || !before.record.empty() {
			t.Errorf("%+v", before)
		}
	}
	after := listedJob{Job: backends.Job{State: backends.Suspended}}
	if after.addDetail(d, at); after.Mark != "r3" || !after.HeldUntil.Equal(at.Add(time.Hour)) || after.Priority != 1030 {
		t.Errorf("%+v", after)
	}
}

// R8: nothing in a snapshot is older than its time, whichever clock is ahead.
func TestClockIsNotAheadOfSnapshot(t *testing.T) {
	reported := time.Unix(1795307972, 0)
	const took = 300 * time.Millisecond
	for asked, want := range map[time.Duration]time.Duration{ // after the queue's answer
		-time.Hour: -took, time.Hour: time.Second - 1, // another machine's
		-100 * time.Millisecond: -100 * time.Millisecond, 400 * time.Millisecond: 400 * time.Millisecond, // this one's
	} {
		if got := clockAt(reported.Add(asked), took, reported).Sub(reported); got != want {
			t.Errorf("asked %v after what was told: %v after it, want %v", asked, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0:05": 5 * time.Second, "1:00": time.Minute, "2:03:04": 2*time.Hour + 3*time.Minute + 4*time.Second,
		"1-02:03:04": 26*time.Hour + 3*time.Minute + 4*time.Second, "1-03:04": 24*time.Hour + 3*time.Minute + 4*time.Second, "UNLIMITED": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"5", "1-", "1-5", "-1:00", "1:2:3:4", "x:00", "1:x"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestStatusOfEachVersion(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "256": 256, "15": 15, "0:0": 0, "1:0": 256, "0:15": 15} {
		if got, err := parseStatus(text); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":", "1:", ":1", "1:2:3", "256:0", "-1:0", "x"} {
		if got, err := parseStatus(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
