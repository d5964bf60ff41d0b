package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/fake"
)

// twoAgents is what an allotd answers that hears two hosts, one of them hostile.
const twoAgents = `{"hosts":[
 {"host":"n1","status":"here","since":"2026-11-24T10:00:00Z","reason":"it has booted","heard":"2026-11-24T11:59:58Z","losses":1,"cores":8,"load":1.25,"memory_bytes":68719476736,"available_bytes":51539607552,"jobs":2,"version":"v1","not_measured":["pressure","swap"],"gpus":[{"gpu":0,"busy":0.4},{"gpu":1}],"more_gpus":3,"limits":{"mode":"on","works":[{"resource":"CPU","by":["weight","rate"]},{"resource":"disk"}]}},
 {"host":"n2","status":"lost","since":"2026-11-24T11:00:00Z","reason":"x\u001b[31m","heard":"2026-11-24T11:00:00Z","losses":0,"cores":4,"memory_bytes":1024,"jobs":0,"version":"v\u001b[31m","limits":{"mode":"on","unable":true,"works":[{"resource":"\u001b[31m"}]}}],
 "left_out":3}`

// typed runs a command line as a user whose allotd answers with the text.
func typed(t *testing.T, q *fake.Queue, answers map[string]string, words ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := bobsProcess(q, &stdout, &stderr)
	p.allotd = func(_ context.Context, route string, _ url.Values, answer any) error {
		text, ok := answers[route]
		if !ok {
			return fmt.Errorf("no answer to %s", route)
		}
		return json.Unmarshal([]byte(text), answer)
	}
	code := run(words, p)
	return answer{code, stdout.String(), stderr.String()}
}

func TestAgents(t *testing.T) {
	answers := map[string]string{"/agents": twoAgents}
	q := fake.NewQueue()
	got := typed(t, q, answers, "ahosts", "--agents")
	want := `HOST  STATUS  SINCE                CORES  LOAD  MEMORY  JOBS  VERSION
n1    here    2026-11-24 10:00:00  8      1.25  64.0G   2     v1
n2    lost    2026-11-24 11:00:00  4      -     1.00K   0     v\x1b[31m
`
	if diff := cmp.Diff(answer{0, want, "ahosts: allotd's list is full: 3 more hosts are left out\n"}, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Error(diff)
	}
	for line, want := range map[string]string{
		"--agents -w n1":                             "VERSION  REASON\nn1    here    2026-11-24 10:00:00  8      1.25  64.0G   2     v1       it has booted\n",
		"--agents -o host,FREE n1":                   "HOST  FREE\nn1    48.0G\n",
		"--agents -o reason,lacks":                   "REASON         LACKS\nit has booted  pressure swap\nx\\x1b[31m      -\n",
		"--agents --csv -o host,load,heard":          "host,load,heard\nn1,1.25,2026-11-24 11:59:58\nn2,,2026-11-24 11:00:00\n",
		"--agents --json n1":                         `"available_bytes": 51539607552,`,
		"--agents -o host,losses n1 nowhere":         "n1    1\n",
		"--agents n\x1b":                             "n\\x1b: no agent is heard of this host\n",
		"--agents -o hots":                           `unknown column "hots" (did you mean host?)`,
		"--agents -o \x1b":                           `unknown column "\\x1b" (known: host, status,`,
		"--agents -o host,gpus,gpuuse":               "n1    5     0.40\nn2    -     -\n",
		"--agents --csv -o host,gpus,gpuuse":         "n1,5,0.40\nn2,,\n",
		"--agents -o host,limits":                    "HOST  LIMITS\nn1    on: CPU weight, rate; disk none\nn2    on, without its root helper: \\x1b[31m none\n",
		"--agents --csv -o limits n1":                "limits\n\"on: CPU weight, rate; disk none\"\n",
		"--agents --json":                            `"resource": "disk"`,
		"--agents -o ,":                              "no column named",
		"--agents -l":                                "can't be combined with -l",
		"--agents --json -w":                         "--json has all columns",
		"--agents -o host -w":                        "-o and -w exclude each other",
		"--csv":                                      "option --csv goes with --agents",
		"-o host":                                    "option -o goes with --agents",
		"--agents -o " + strings.Repeat("host,", 20): "more than 16 columns",
	} {
		got := typed(t, q, answers, append([]string{"ahosts"}, strings.Fields(line)...)...)
		if !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%q: %+v, want %q", line, got, want)
		}
	}
	if got := typed(t, q, map[string]string{"/agents": `{"hosts":[]}`}, "ahosts", "--agents"); got.code != 0 || got.stderr != "No host found: allotd hears no ahostd (see docs/hosts.md)\n" {
		t.Errorf("%+v", got)
	}
}

// ahosts -l shows what is measured, where an allotd hears the host.
func TestMeasuredOnHost(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Hosts = []backends.Host{{Name: "n1", Slots: 8}, {Name: "n2", Slots: 8}}
	answers := map[string]string{"/agents": `{"hosts":[{"host":"n1.example.org"}]}`, "/agents/n1.example.org": `{"host":"n1","status":"here","since":"2026-11-24T10:00:00Z","reason":"it has booted","cores":8,"load":0.5,"memory_bytes":1073741824,"jobs":3,"version":"v1",
		"uses":[{"queue":"miniq","job":"12[3]","uid":1000,"cores":1.5,"memory_bytes":3145728,"read_bytes_per_second":1024,"threads":7},{"queue":"miniq","job":"x\u001b"}],"others":1}`}
	got := typed(t, q, answers, "ahosts", "-l")
	want := `
MEASURED ON n1: here since 2026-11-24 10:00:00 (it has booted)
CORES  LOAD  MEMORY  FREE  JOBS  VERSION  LACKS
8      0.50  1.00G   -     3     v1       -
JOBID  CPU   MEM     MAX_MEM  SWAP  IO          NTHREADS
12[3]  1.50  3 M  -        -     1 K/s  7
x\x1b  -     -       -        -     -           -
jobs of others, whose figures are theirs: 1
`
	fields := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if got.code != 0 || !strings.Contains(fields(got.stdout), fields(want)) || strings.Contains(got.stdout, "MEASURED ON n2") {
		t.Errorf("%+v", got)
	}
	if got := typed(t, q, nil, "ahosts", "-l"); got.code != 0 || strings.Contains(got.stdout, "MEASURED") || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}

// Where a host has GPUs, ahosts -l lists them, and what jobs use of them.
func TestMeasuredGPUsOnHost(t *testing.T) {
	q := fake.NewQueue()
	q.Content.Hosts = []backends.Host{{Name: "n1", Slots: 8}}
	answers := map[string]string{"/agents": `{"hosts":[{"host":"n1"}]}`, "/agents/n1": `{"host":"n1","gpus":[{"gpu":0,"busy":0.4,"memory_used_bytes":1073741824,"memory_bytes":17179869184,"celsius":60,"watts":250},{"gpu":2}],"more_gpus":1,
		"uses":[{"queue":"miniq","job":"12","gpus_busy":1.5,"gpu_memory_bytes":3221225472},{"queue":"miniq","job":"13","cores":1}]}`}
	got := typed(t, q, answers, "ahosts", "-l")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	lines := strings.Split(got.stdout, "\n")
	for _, want := range []string{
		"GPU BUSY USED MEMORY TEMP POWER", "0 40% 1.00G 16.0G 60C 250W", "2 - - - - -", "more GPUs, for which a heartbeat has no room: 1",
		"JOBID CPU MEM MAX_MEM SWAP IO NTHREADS GPUUSE GPUMEM", "12 - - - - - - 1.50 3 G", "13 1.00 - - - - - - -",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("no line %q in\n%s", want, got.stdout)
		}
	}
}

// ajobs -o prints measured figures, and - for an absent one.
func TestUseColumns(t *testing.T) {
	q := fake.NewQueue()
	var stdout, stderr bytes.Buffer
	p := bobsProcess(q, &stdout, &stderr)
	asked := 0
	p.uses = func(_ context.Context, jobs []backends.Job) (map[backends.ID]*bsub.Use, error) {
		asked++
		cores, memory := 1.25, 3.0*(1<<20)
		u := &bsub.Use{}
		u.Cores.AddFloat(&cores)
		u.Cores.AddFloat(&cores)
		u.Memory.AddFloat(&memory)
		u.GPUs.AddFloat(&cores)
		u.GPUMem.AddFloat(&memory)
		return map[backends.ID]*bsub.Use{jobs[0].ID: u}, nil
	}
	if code := run([]string{"ajobs", "-u", "all", "-o", "jobid,cpu,mem,io net swap nthreads gpuuse gpumem", "--sort", "-cpu"}, p); code != 0 {
		t.Fatal(stderr.String())
	}
	lines := strings.Split(stdout.String(), "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "JOBID CPU MEM IO NET SWAP NTHREADS GPUUSE GPUMEM" {
		t.Error(got)
	}
	if got := strings.Fields(lines[1]); strings.Join(got[1:], " ") != "2.50 3 M - - - - 1.25 3 M" {
		t.Errorf("%q", got)
	}
	for _, line := range lines[2 : len(lines)-1] {
		if got := strings.Fields(line); got[1] != "-" {
			t.Errorf("%q", line)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	// Without an allotd it says so once, where nothing else has the column.
	if got := bob(t, q, "ajobs", "-u", "all", "-o", "jobid cpu"); got.code != 0 || got.stderr != "ajobs: what jobs use can't be read: no allotd runs\n" {
		t.Errorf("%+v", got)
	}
	for _, words := range [][]string{{"-o", "jobid swap"}, {"-W"}} {
		if got := bob(t, q, append([]string{"ajobs", "-u", "all"}, words...)...); got.code != 0 || strings.Contains(got.stderr, "allotd") {
			t.Errorf("%+v", got)
		}
	}
}

// What a process of another user says of a job counts for nothing.
func TestSumUses(t *testing.T) {
	id := func(n int) *int { return &n }
	cores := func(x float64) *float64 { return &x }
	all := []used{
		{Queue: "slurm", Job: "1", UID: id(1000), Cores: cores(1)},
		{Queue: "slurm", Job: "1", UID: id(1000), Cores: cores(2)},
		{Queue: "slurm", Job: "1", UID: id(1001), Cores: cores(64)},
		{Queue: "lsf", Job: "1", UID: id(1000), Cores: cores(64)},
		{Queue: "slurm", Job: "1", Cores: cores(0.5)},
		{Queue: "slurm", Job: "2", UID: id(1000), Cores: cores(64)},
		{Queue: "slurm", Job: "3", UID: id(-1), Cores: cores(64)},
		{Queue: "slurm", Job: "x", Cores: cores(64)},
		{Queue: "slurm", Job: "4[7]", OnHost: "5", UID: id(1000), Cores: cores(8)}, // as allotd says it
		{Queue: "slurm", Job: "4", UID: id(1000), Cores: cores(2)},                 // before a cycle has seen it
	}
	jobs := map[backends.ID]*backends.Job{
		{Job: 1}: {ID: backends.ID{Job: 1}, User: "bob"}, {Job: 3}: {ID: backends.ID{Job: 3}, User: "nobody-here"},
		{Job: 5}: {ID: backends.ID{Job: 4, Index: 7}, User: "bob", HostNumber: 5}, {Job: 4}: {ID: backends.ID{Job: 4, Index: 8}, User: "bob", HostNumber: 4},
	}
	got := sumUses(all, "slurm", jobs, func(name string) (int, bool) { return 1000, name == "bob" })
	if u := got[backends.ID{Job: 1}]; u == nil || u.Cores != (bsub.Figure{N: 3.5, Known: true}) || u.Memory.Known {
		t.Errorf("%+v", got)
	}
	for index, want := range map[int]float64{7: 8, 8: 2} {
		if u := got[backends.ID{Job: 4, Index: index}]; u == nil || u.Cores.N != want {
			t.Errorf("element %d: %+v", index, got)
		}
	}
	if got[backends.ID{Job: 2}] != nil {
		t.Errorf("%+v", got)
	}
}

// How far a job is comes from its hosts' reports where the queue does not keep it: the last word counts.
func TestReportedProgress(t *testing.T) {
	q := fake.NewQueue()
	at := fake.Now().Add(-time.Hour)
	q.Content.Jobs = []backends.Job{
		{ID: backends.ID{Job: 1}, User: "bob", State: backends.Running, Slots: 1, Submitted: at},
		{ID: backends.ID{Job: 2}, User: "bob", State: backends.Running, Slots: 1, Submitted: at, Progress: "9 the queue's"},
		{ID: backends.ID{Job: 3}, User: "bob", State: backends.Running, Slots: 1, Submitted: at},
	}
	uid := func(n int) *int { return &n }
	all := []used{
		{Queue: "slurm", Job: "1", UID: uid(1000), Progress: "40 old", SaidAt: at},
		{Queue: "slurm", Job: "1", UID: uid(1000), Progress: "50 new \x1b[31m", SaidAt: at.Add(time.Minute)},
		{Queue: "slurm", Job: "1", UID: uid(1000)},
		{Queue: "slurm", Job: "1", UID: uid(1001), Progress: "100 a lie", SaidAt: at.Add(time.Hour)},
		{Queue: "slurm", Job: "2", UID: uid(1000), Progress: "100 other", SaidAt: at},
	}
	var failure error
	asked := 0
	types := func(words ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p := bobsProcess(q, &stdout, &stderr)
		p.uses = func(ctx context.Context, jobs []backends.Job) (map[backends.ID]*bsub.Use, error) {
			asked++
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("it waits for allotd without a bound")
			}
			byID := map[backends.ID]*backends.Job{}
			for i := range jobs {
				byID[jobs[i].ID] = &jobs[i]
			}
			return sumUses(all, "slurm", byID, func(string) (int, bool) { return 1000, true }), failure
		}
		if code := run(append([]string{"ajobs"}, words...), p); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, %s", words, code, stderr.String())
		}
		return stdout.String()
	}
	format := []string{"-noheader", "-o", "jobid progress delimiter='|'", "--sort", "-progress"}
	if got, want := types(format...), "1|50% new \\x1b[31m\n2|9% the queue's\n3|-\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var read []jobJSON
	if err := json.Unmarshal([]byte(types("--json")), &read); err != nil || len(read) != 3 || read[0].Progress != "50 new \x1b[31m" || read[1].Progress != "9 the queue's" || read[2].Progress != "" {
		t.Errorf("%+v, %v", read, err)
	}
	failure = errors.New("no allotd runs")
	if got, want := types(format...), "2|9% the queue's\n1|-\n3|-\n"; got != want {
		t.Errorf("without allotd: got %q, want %q", got, want)
	}
	q.Extra.Set = func(context.Context, backends.ID, string, string) error { return nil }
	asked = 0
	types(format...)
	types("--json")
	if asked != 0 {
		t.Error("allotd is asked where the queue keeps the progress")
	}
}

func TestAgentOfHost(t *testing.T) {
	heard := []agent{{Host: "n1"}, {Host: "n2.a.org"}, {Host: "n3.a.org"}, {Host: "n3.b.org"}}
	for host, want := range map[string]string{"n1": "n1", "n1.a.org": "n1", "n2": "n2.a.org", "n2.a.org": "n2.a.org", "n2.b.org": "", "n3": "", "n3.b.org": "n3.b.org", "n4": ""} {
		if got, _ := agentOf(heard, host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
