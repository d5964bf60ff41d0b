package judge

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const (
	sacctText = `1|other|REQUEUED|1000|1010|n[1-2]|billing=2,cpu=2,mem=128M,node=2
1|other|CANCELLED by 0|1020|1030|n3|billing=2,cpu=2,mem=128M,node=2
2_1|chipa|RUNNING|1012|Unknown|n1|billing=1,cpu=1,gres/gpu=1,mem=64M,node=1
4_2|chipa|CANCELLED by 0|1013|1013|n1|billing=1,cpu=1,mem=64M,node=1
5|chipa|COMPLETED|1014|1014|n1|billing=1,cpu=1,mem=64M,node=1
3|other|PENDING|Unknown|Unknown|None assigned|
`
	logText = `[T1000.100] sched: Allocate JobId=1 NodeList=n[1-2] #CPUs=2 Partition=main
[T1005.000] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=1 usec=1795
[T1010.200] Requeuing JobId=1
[T1012.300] sched/backfill: _start_job: Started JobId=2_1(4) in main on n1
[T1013.500] sched: Allocate JobId=4_2(7) NodeList=n1 #CPUs=1 Partition=main
[T1013.900] job_signal: 9 of running JobId=4_2(7) successful 0x8004
[T1014.500] sched: Allocate JobId=5 NodeList=n1 #CPUs=1 Partition=main
[T1020.400] sched: Allocate JobId=1 NodeList=n3 #CPUs=2 Partition=main
`
)

func stampLog(text string) string {
	for second := int64(990); second < 1100; second++ {
		text = strings.ReplaceAll(text, fmt.Sprintf("[T%d", second), "["+time.Unix(second, 0).Format("2006-01-02T15:04:05"))
	}
	return text
}

func TestReadRecords(t *testing.T) {
	r, err := ReadRecords(sacctText, stampLog(logText))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 5 || !r.Submitted["2"].Equal(time.Unix(1005, 0)) {
		t.Fatalf("%+v", r)
	}
	first, second := r.Runs[0], r.Runs[1]
	if !first.Requeued || first.Slots != 2 || strings.Join(first.Hosts, " ") != "n1 n2" || !first.From.Equal(time.UnixMilli(1000100)) || !first.To.Equal(time.UnixMilli(1010200)) {
		t.Errorf("%+v", first)
	}
	if second.Job != "2_1" || second.GPUs != 1 || !second.To.IsZero() || !second.From.Equal(time.UnixMilli(1012300)) {
		t.Errorf("%+v", second)
	}
	if third, fourth := r.Runs[2], r.Runs[3]; !third.To.Equal(time.UnixMilli(1013900)) || !fourth.To.Equal(fourth.From) {
		t.Errorf("ends before the starts: %+v, %+v", third, fourth)
	}
	for _, wrong := range []string{logText + "[T1025.000] Requeuing JobId=1\n", strings.Replace(logText, "JobId=2_1", "JobId=2_2", 1)} {
		if _, err := ReadRecords(sacctText, stampLog(wrong)); err == nil {
			t.Errorf("records that contradict each other are read: %s", wrong)
		}
	}
	if again, err := ReadRecords(strings.Replace(sacctText, "|1000|1010|", "|None|1010|", 1), stampLog(logText)); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("without a start of sacct's: %v, %+v", err, again)
	}
	if _, err := ReadRecords("1|x|RUNNING|1000\n", ""); err == nil {
		t.Error("a short line is read")
	}
}

func TestHostsOf(t *testing.T) {
	hosts, err := hostsOf("a,n[1-2,4],b")
	if got := strings.Join(hosts, " "); err != nil || got != "a n1 n2 n4 b" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := hostsOf("n[1"); err == nil {
		t.Error("an open bracket is read")
	}
}

// Each way in which an eviction is useless is found, and none in good records.
func TestEvictions(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	run := func(job string, from, to int64, slots, gpus int, hosts ...string) Run {
		r := Run{Job: job, From: at(from), To: at(to), Slots: slots, GPUs: gpus, Hosts: hosts}
		if r.Requeued = strings.HasPrefix(job, "v"); to == 0 {
			r.To = time.Time{}
		}
		return r
	}
	late := func(r Run, by time.Duration) Run {
		r.From = r.From.Add(by)
		return r
	}
	farm := map[string]Amounts{"n1": {Slots: 2}, "n2": {Slots: 2, GPUs: 1}}
	full := []Run{run("v1", 0, 10, 1, 0, "n1"), run("x1", 0, 100, 1, 0, "n1")}
	for name, c := range map[string]struct {
		runs    []Run
		useless string
	}{
		"used":                   {append([]Run{run("p", 12, 0, 1, 0, "n1")}, full...), ""},
		"never used":             {full, "v1"},
		"used elsewhere":         {append([]Run{run("p", 12, 0, 1, 0, "n2")}, full...), "v1"},
		"used too late":          {append([]Run{run("p", 50, 0, 1, 0, "n1")}, full...), "v1"},
		"used before":            {append([]Run{run("p", 9, 0, 1, 0, "n1")}, full...), "v1"},
		"two for one slot":       {[]Run{run("v1", 0, 10, 1, 0, "n1"), run("v2", 0, 10, 1, 0, "n1"), run("p", 12, 0, 1, 0, "n1")}, "v2"},
		"two for two slots":      {[]Run{run("v1", 0, 10, 1, 0, "n1"), run("v2", 0, 10, 1, 0, "n1"), run("p", 12, 0, 2, 0, "n1")}, ""},
		"one of several matches": {[]Run{run("v1", 0, 10, 1, 0, "n1"), run("v2", 0, 11, 2, 0, "n1", "n2"), run("p", 12, 0, 1, 0, "n1"), run("q", 13, 0, 1, 0, "n2")}, "v2"},
		"on both of two hosts":   {[]Run{run("x2", 0, 0, 1, 0, "n2"), run("v2", 0, 11, 2, 0, "n1", "n2"), run("x1", 0, 0, 1, 0, "n1"), run("q", 13, 0, 1, 0, "n2")}, ""},
		"a slot was free":        {[]Run{run("v1", 0, 10, 1, 0, "n1"), run("p", 12, 0, 1, 0, "n1")}, "v1"},
		"a slot became free":     {append([]Run{run("x1", 0, 8, 1, 0, "n1"), run("p", 12, 0, 1, 0, "n1")}, full[0]), ""},
		"logged a moment late": {[]Run{
			run("v1", 0, 10, 1, 0, "n1"), run("v2", 0, 10, 1, 0, "n1"), late(run("p", 10, 12, 2, 0, "n1"), -100*time.Millisecond),
			run("v3", 13, 20, 1, 0, "n1"), run("v4", 13, 20, 1, 0, "n1"), run("q", 20, 0, 2, 0, "n1"),
		}, ""},
		"unknown slots were free":    {[]Run{run("u", 0, 100, 3, 0, "n1", "n2"), run("v1", 1, 10, 1, 0, "n1"), run("p", 12, 0, 1, 0, "n1")}, ""},
		"used by a run that spreads": {[]Run{run("v1", 0, 10, 1, 0, "n1"), run("u", 11, 0, 3, 0, "n1", "n2"), run("p", 12, 0, 1, 0, "n1")}, ""},
		"a GPU, slots are free":      {[]Run{run("v1", 0, 10, 1, 1, "n2"), run("p", 12, 0, 1, 1, "n2")}, ""},
		"a slot, the GPU was free":   {[]Run{run("v1", 0, 10, 1, 0, "n2"), run("p", 12, 0, 1, 1, "n2")}, "v1"},
	} {
		r := Records{Runs: c.runs}
		e := r.Evictions(func(r *Run) bool { return r.Job == "p" || r.Job == "q" }, func(r *Run) bool { return r.Job != "u" }, 30*time.Second, 5*time.Second, farm)
		var useless []string
		for _, u := range e.Useless {
			useless = append(useless, u.Job)
		}
		if got := strings.Join(useless, " "); got != c.useless {
			t.Errorf("%s: useless %q, want %q", name, got, c.useless)
		}
	}
}
