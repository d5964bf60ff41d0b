package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
)

// The project with the guarantee, and the one of the background.
const (
	ours   = "chipa"
	others = "chipb"
)

// policy is a way to give a project its slots: a row of the tables.
type policy struct {
	Name, Title string
	what        string     // what it is, for the page
	conf        []string   // lines of slurm.conf, besides common
	setUp       [][]string // commands of Slurm's
	options     []string   // of sbatch, for the project's jobs
	engine      *engine    // nil: plain Slurm
}

// engine describes Allotment's.
type engine struct {
	more string // keys of the section pba of its config file, besides the scaled times
}

// policies returns the rows in their order.
func policies() []policy {
	return []policy{
		{
			Name: "fair-share", Title: "fair share",
			what: "`priority/multifactor`, with shares of 4 and 12 for the project and the others. So it is in all rows: the project is first in line.",
		},
		{
			Name: "reservation", Title: "reservation",
			what: "One node is reserved for the project's account, for good (`Flags=FLEX`: its jobs may use other nodes, too).",
			setUp: [][]string{{
				"scontrol", "create", "reservation", "ReservationName=guarantee", "StartTime=now", "Duration=UNLIMITED",
				"Nodes=node1", "Accounts=" + ours, "Flags=FLEX",
			}},
			options: []string{"--reservation=guarantee"},
		},
		{
			Name: "preempt", Title: "preempt/qos",
			what: "A QOS of 4 CPUs (`GrpTRES`) that preempts the normal one: `PreemptMode=REQUEUE`, `preempt_youngest_first`, `preempt_reorder_count=10`, `PreemptExemptTime` of a minute.",
			conf: []string{
				"PreemptType=preempt/qos", "PreemptMode=REQUEUE", "PreemptExemptTime=" + slurmTime(minute),
				scheduler + ",preempt_youngest_first,preempt_reorder_count=10",
			},
			setUp: [][]string{
				{"sacctmgr", "-i", "-Q", "add", "qos", "guaranteed", "Preempt=normal", "Priority=1", fmt.Sprintf("GrpTRES=cpu=%d", guarantee)},
				{"sacctmgr", "-i", "-Q", "modify", "user", "root", "where", "account=" + ours, "set", "qos+=guaranteed"},
			},
			options: []string{"--qos=guaranteed"},
		},
		{
			Name: "allotment-60", Title: "Allotment, threshold 60 s", engine: &engine{},
			what: "The defaults of `pba init`, with fair share as above.",
		},
		{
			Name: "allotment-0", Title: "Allotment, threshold 0 s", engine: &engine{more: ", projects: {" + ours + ": {pending_threshold: 0s}}"},
			what: "The same with `projects: {chipa: {pending_threshold: 0s}}`, while its budget lasts: twice the project's slots in an hour. That hour is not scaled, nor are the one and three seconds after which a cycle follows a submission.",
		},
	}
}

// scheduler is the line of test/slurm-cluster.sh, which a longer one replaces.
const scheduler = "SchedulerParameters=bf_interval=1,bf_resolution=10,bf_window=2880,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=10000"

// common returns the lines of slurm.conf for all policies: fair share, and the project's QOS
// first where it has one. PriorityCalcPeriod can't be below a minute.
func common() []string {
	return []string{
		"PriorityWeightFairshare=100000", "PriorityWeightQOS=1000000", "PriorityWeightAge=1000",
		"PriorityDecayHalfLife=7-0", "PriorityCalcPeriod=1",
	}
}

// accounts returns the commands that make the projects' accounts, with shares by the guarantee.
func accounts() [][]string {
	account := func(name string, share int) []string {
		return []string{"sacctmgr", "-i", "-Q", "add", "account", name, fmt.Sprintf("Fairshare=%d", share)}
	}
	return [][]string{
		account(ours, guarantee), account(others, slots-guarantee),
		{"sacctmgr", "-i", "-Q", "add", "user", "root", "account=" + ours + "," + others},
	}
}

// The engine's times, scaled; those that bound how long Slurm itself may take are not.
const (
	cycle     = 20 * minute / 60
	threshold = minute
)

// config returns the engine's config file.
func (e *engine) config() string {
	return fmt.Sprintf(`timezone: UTC
filter: {low_queue: ""}
pba: {every: %v, pending_threshold: %v, min_runtime: %v, start_bucket: %v%s}
`, cycle, threshold, minute, 5*minute, e.more)
}

// start makes a farm with this policy. The caller must close it.
func (p *policy) start(ctx context.Context, programs string) (*farm.Farm, error) {
	o := farm.Options{Programs: programs, Slurm: &farm.Slurm{
		Nodes: nodes, Slots: perNode, Slurmdbd: true, RequeueDelay: 2 * minute,
		Conf: append(common(), p.conf...),
	}}
	if p.engine != nil {
		o.Config = p.engine.config()
	}
	f, err := farm.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return f, p.prepare(ctx, f)
}

func (p *policy) prepare(ctx context.Context, f *farm.Farm) error {
	for _, argv := range append(accounts(), p.setUp...) {
		if _, err := f.RunSlurm(ctx, argv...); err != nil {
			return err
		}
	}
	if p.engine == nil {
		return nil
	}
	group, err := farm.OwnGroup()
	if err != nil {
		return err
	}
	if _, err := f.Run(ctx, "pba", "init"); err != nil {
		return err
	}
	if _, err := f.InstallHook(); err != nil {
		return err
	}
	lines := [][]string{
		{"project", "add", ours, "--group", group},
		{"project", "add", others, "--group", group},
		{"alloc", "set", ours, fmt.Sprint(guarantee), "--weeks", "2"}, // should Monday come meanwhile
	}
	for _, line := range lines {
		if _, err := f.Run(ctx, "pba", line...); err != nil {
			return err
		}
	}
	return nil
}

// slurmTime returns a duration as slurm.conf has it.
func slurmTime(d time.Duration) string {
	return fmt.Sprintf("00:%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// submission returns the command line that submits a job.
func (p *policy) submission(j job) []string {
	argv := []string{"sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--ntasks=1", "--job-name=" + j.name()}
	account := others
	if j.guaranteed {
		account = ours
		argv = append(argv, p.options...)
	}
	return append(argv, "--account="+account, "--wrap", "exec sleep "+strings.TrimSuffix(fmt.Sprintf("%.1f", j.length.Seconds()), ".0"))
}
