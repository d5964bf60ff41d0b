package slurm

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// fixtures are what a Slurm 22.05.8 printed.
func fixtures(t *testing.T) (settings map[string]string, partitions []partition) {
	t.Helper()
	config, err := os.ReadFile("testdata/show_config.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/show_partition.txt")
	if err != nil {
		t.Fatal(err)
	}
	if partitions, err = parsePartitions(text); err != nil || len(partitions) != 2 {
		t.Fatalf("%+v, %v", partitions, err)
	}
	return parseConfig(config), partitions
}

func TestPartitions(t *testing.T) {
	_, got := fixtures(t)
	want := []partition{
		{name: "main", tier: 1, share: "NO", preempt: "OFF", nodes: "node[1-2]", rootJobs: true, isDefault: true, longest: 24 * time.Hour},
		{name: "low", tier: 1, share: "FORCE:2", preempt: "REQUEUE", nodes: "node1", rootJobs: true},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	whole, err := os.ReadFile("testdata/show_partition.txt")
	if err != nil {
		t.Fatal(err)
	}
	main, _, _ := strings.Cut(string(whole), "\n")
	if p, err := parsePartitions([]byte(strings.Replace(main, "MaxTime=UNLIMITED", "MaxTime=2-01:30:00", 1))); err != nil || p[0].longest != 49*time.Hour+30*time.Minute {
		t.Errorf("with MaxTime: %+v, %v", p, err)
	}
	for _, text := range []string{"PartitionName=x\n", "Nodes=a b c\n", "PartitionName=x PriorityTier=high\n", strings.Replace(main, "1-00:00:00", "a day", 1)} {
		if p, err := parsePartitions([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
	if p, err := parsePartitions([]byte("\n")); err != nil || len(p) != 0 {
		t.Errorf("no partitions: %v, %v", p, err)
	}
}

// TestExamine changes one thing at a time about a cluster with nothing wrong.
func TestExamine(t *testing.T) {
	fixture, _ := fixtures(t)
	backfilled := map[string]string{"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_interval=1, bf_window=2880,default_queue_depth=1"}
	for name, x := range map[string]struct {
		set  map[string]string
		more []partition
		jobs string // their priorities
		by   backends.Installation
		want []string // beginnings
	}{
		"nothing":           {},
		"an old version":    {set: map[string]string{"SLURM_VERSION": "20.11.9"}, want: []string{"Slurm 20.11.9 is older"}},
		"a newer version":   {set: map[string]string{"SLURM_VERSION": "23.02.1"}},
		"an unknown one":    {set: map[string]string{"SLURM_VERSION": "next"}},
		"another user":      {by: backends.Installation{UID: 1000}, want: []string{"user ID 1000 runs the engine"}},
		"SlurmUser":         {by: backends.Installation{UID: 64030}},
		"no SlurmUser":      {set: map[string]string{"SlurmUser": "slurm"}, by: backends.Installation{UID: 64030}, want: []string{"user ID 64030"}},
		"basic":             {set: map[string]string{"PriorityType": "priority/basic"}, want: []string{"PriorityType is priority/basic"}},
		"basic until now":   {jobs: "4294901759          \n0                   \n4294901757\n", want: []string{"PriorityType was changed"}},
		"one job on top":    {jobs: "4294901759\n1\n"},
		"held jobs":         {jobs: "0\n"},
		"heavy weights":     {set: map[string]string{"PriorityWeightAge": "2000000", "PriorityWeightTRES": "CPU=1000000,Mem=2000000"}, want: []string{"the PriorityWeight… sum up to"}},
		"weights that fit":  {set: map[string]string{"PriorityWeightAge": "1000000", "PriorityWeightTRES": "CPU=100000,Mem=200000"}},
		"no weight":         {set: map[string]string{"PriorityWeightAge": "much"}, want: []string{"scontrol show config: PriorityWeightAge"}},
		"flags":             {set: map[string]string{"PriorityFlags": "CALCULATE_RUNNING,NO_NORMAL_TRES,INCR_ONLY"}, want: []string{"PriorityFlags has NO_NORMAL_TRES", "PriorityFlags has INCR_ONLY"}},
		"site factors":      {set: map[string]string{"PrioritySiteFactorPlugin": "site_factor/ours"}, want: []string{"PrioritySiteFactorPlugin is site_factor/ours"}},
		"whole nodes":       {set: map[string]string{"SelectType": "select/linear"}, want: []string{"SelectType is select/linear"}},
		"no requeues":       {set: map[string]string{"JobRequeue": "0"}, want: []string{"JobRequeue is 0"}},
		"no root jobs":      {set: map[string]string{"DisableRootJobs": "Yes"}, more: []partition{{name: "x", tier: 1}}, want: []string{"DisableRootJobs is set"}},
		"none in one":       {more: []partition{{name: "x", tier: 1}}, want: []string{"partition x has DisableRootJobs"}},
		"taking turns":      {set: map[string]string{"PreemptMode": "GANG,SUSPEND"}, want: []string{"PreemptMode is GANG,SUSPEND"}},
		"soon forgotten":    {set: map[string]string{"MinJobAge": "10 sec"}, want: []string{"MinJobAge is 10 s"}},
		"never forgotten":   {set: map[string]string{"MinJobAge": "0 sec"}},
		"rare cycles":       {set: map[string]string{"MinJobAge": "179 sec"}, by: backends.Installation{Cycle: time.Minute}, want: []string{"MinJobAge is 179 s"}},
		"known for three":   {set: map[string]string{"MinJobAge": "180 sec"}, by: backends.Installation{Cycle: time.Minute}},
		"slow to go":        {set: map[string]string{"KillWait": "90 sec"}, by: backends.Installation{FreeTimeout: time.Minute}, want: []string{"KillWait is 90 s"}},
		"shared":            {more: []partition{{name: "x", tier: 1, rootJobs: true, share: "FORCE:4"}}, want: []string{"partition x has OverSubscribe=FORCE:4"}},
		"forced to one":     {more: []partition{{name: "x", tier: 1, rootJobs: true, share: "FORCE:1"}}},
		"exclusive":         {more: []partition{{name: "x", tier: 1, rootJobs: true, share: "EXCLUSIVE"}}, want: []string{"partition x has OverSubscribe=EXCLUSIVE"}},
		"output is emptied": {set: map[string]string{"JobFileAppend": "0"}, want: []string{"JobFileAppend is 0"}},
		"whole sockets":     {set: map[string]string{"SelectTypeParameters": "CR_SOCKET_MEMORY"}, want: []string{"SelectTypeParameters is CR_SOCKET_MEMORY"}},
		"Slurm preempts":    {set: map[string]string{"PreemptType": "preempt/partition_prio"}, more: []partition{{name: "x", tier: 1, rootJobs: true, preempt: "REQUEUE"}}, want: []string{"partition x: Slurm preempts"}},
		"tiers":             {more: []partition{{name: "x", tier: 3, rootJobs: true}}, want: []string{"partitions x (PriorityTier 3) and main (1)"}},
		"not ours":          {more: []partition{{name: "x", tier: 3, rootJobs: true}}, by: backends.Installation{Queues: []string{"main"}}},
		"low is not lower":  {more: []partition{{name: "low", tier: 1, rootJobs: true}}, by: backends.Installation{Low: "low"}, want: []string{"partition low, where lowered jobs go, has PriorityTier 1"}},
		"low is lower":      {more: []partition{{name: "low", tier: 0, rootJobs: true}}, by: backends.Installation{Low: "low"}},
		"a long limit":      {set: backfilled, more: []partition{{name: "x", tier: 1, rootJobs: true, longest: 48 * time.Hour}}, want: []string{"partition x lets jobs run for 2880 min, and Slurm plans no further than bf_window (2880 min)"}},
		"a shorter limit":   {set: backfilled, more: []partition{{name: "x", tier: 1, rootJobs: true, longest: 47 * time.Hour}}},
		"beyond any window": {set: backfilled, more: []partition{{name: "x", tier: 1, rootJobs: true, longest: 31 * 24 * time.Hour}}, want: []string{"partition x lets jobs run for 44640 min"}},
		"no limit":          {set: backfilled, more: []partition{{name: "x", tier: 1, rootJobs: true}}, want: []string{"partition x limits no job's time"}},
		"no limit in low":   {set: backfilled, more: []partition{{name: "low", rootJobs: true}}, by: backends.Installation{Low: "low"}},
		"no window":         {set: map[string]string{"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_interval=1"}, want: []string{"partition main lets jobs run for 1440 min, and Slurm plans no further than bf_window (1440 min)"}},
		"low is the lowest": {more: []partition{{name: "low", tier: 0, rootJobs: true}}, by: backends.Installation{Queues: []string{"main"}, Low: "low"}},
	} {
		settings := maps.Clone(fixture)
		for _, quiet := range []string{"PriorityWeightFairShare", "PriorityWeightTRES"} {
			settings[quiet] = "0"
		}
		settings["SchedulerType"] = "sched/builtin"
		maps.Copy(settings, x.set)
		_, all := fixtures(t)
		pending, err := parsePriorities([]byte(x.jobs))
		if err != nil {
			t.Fatal(err)
		}
		got := examine(settings, append(all[:1:1], x.more...), pending, x.by)
		if len(got) != len(x.want) {
			t.Errorf("%s: %d findings, want %d: %q", name, len(got), len(x.want), got)
			continue
		}
		for i, want := range x.want {
			if !strings.HasPrefix(got[i].What, want) || got[i].Remedy == "" || strings.ContainsAny(got[i].What+got[i].Remedy, "\n%") {
				t.Errorf("%s: %q, want %q", name, got[i], want)
			}
		}
	}
}

func TestHook(t *testing.T) {
	settings, _ := fixtures(t)
	if h, err := hook(settings); err != nil || h.File != "/etc/slurm/job_submit.lua" || h.UID != 64030 || h.User != "slurm" || !h.Enabled {
		t.Errorf("%+v, %v", h, err)
	}
	settings["JobSubmitPlugins"] = "throttle,all_partitions"
	if h, err := hook(settings); err != nil || h.Enabled {
		t.Errorf("without lua: %+v, %v", h, err)
	}
	for key, value := range map[string]string{"SLURM_CONF": "(null)", "SlurmUser": "slurm(x)"} {
		was := settings[key]
		settings[key] = value
		if h, err := hook(settings); err == nil {
			t.Errorf("%s=%s: %+v", key, value, h)
		}
		settings[key] = was
	}
}
