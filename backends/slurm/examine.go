package slurm

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// HookName is the name under which slurmctld looks for its submission script,
// beside slurm.conf.
const HookName = "job_submit.lua"

// oldest is the first version that was run: 22.05.
const oldest = 2205

// partition is what matters of one line of `scontrol -o show partition`.
type partition struct {
	name      string
	tier      int // PriorityTier: jobs of a higher one go first, whatever their priorities
	share     string
	preempt   string
	nodes     string
	rootJobs  bool // root may submit there
	isDefault bool
	longest   time.Duration // a job's limit there, as MaxTime has it, or DefaultTime if that has none; 0: none at all
}

// parsePartitions reads `scontrol -o show partition`, which only administrators
// have written.
func parsePartitions(text []byte) ([]partition, error) {
	var all []partition
	for line := range strings.Lines(string(text)) {
		p := partition{rootJobs: true}
		known := 0
		var limit, byDefault string
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			known++
			switch key {
			case "PartitionName":
				p.name = value
			case "PriorityTier":
				tier, err := strconv.Atoi(value)
				if err != nil {
					return nil, fmt.Errorf("scontrol show partition: %s", strings.TrimSpace(line))
				}
				p.tier = tier
			case "OverSubscribe":
				p.share = value
			case "PreemptMode":
				p.preempt = value
			case "Nodes":
				p.nodes = value
			case "DisableRootJobs":
				p.rootJobs = value != "YES"
			case "Default":
				p.isDefault = value == "YES"
			case "MaxTime":
				limit = value
			case "DefaultTime":
				byDefault = value
			default:
				known--
			}
		}
		if known == 0 {
			continue
		}
		var err error
		if p.longest, err = parseDuration(limit); err == nil && p.longest == 0 {
			p.longest, err = parseDuration(byDefault)
		}
		if err != nil || known < 9 || p.name == "" {
			return nil, fmt.Errorf("scontrol show partition: %s", strings.TrimSpace(line))
		}
		all = append(all, p)
	}
	return all, nil
}

// examine judges slurm.conf, as slurmctld has read it, and what pending jobs have
// as priorities.
func examine(settings map[string]string, partitions []partition, pending []int64, by backends.Installation) []backends.Finding {
	var f findings
	f.version(settings["SLURM_VERSION"])
	f.user(settings["SlurmUser"], by.UID)
	f.priorities(settings, pending)
	f.preemption(settings, by)
	used := slices.DeleteFunc(slices.Clone(partitions), func(p partition) bool { return !by.Uses(p.name) })
	window := backfillWindow(settings)
	for _, p := range used {
		f.partition(p, settings, by)
		if p.name != by.Low {
			f.beyond(p, window)
		}
	}
	f.tiers(used, by.Low)
	return f
}

type findings []backends.Finding

func (f *findings) add(remedy, format string, args ...any) {
	*f = append(*f, backends.Finding{What: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (f *findings) version(text string) {
	if v, ok := parseVersion(text); ok && v < oldest {
		f.add("try it in observe mode first: docs/slurm.md names the versions that were run", "Slurm %s is older than any that this was run with (22.05)", text)
	}
}

// parseVersion makes 22.05.8 the number 2205.
func parseVersion(text string) (int, bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return 0, false
	}
	year, err := strconv.Atoi(parts[0])
	month, err2 := strconv.Atoi(parts[1])
	if err != nil || err2 != nil {
		return 0, false
	}
	return year*100 + month, true
}

// user checks that the engine's user is root or SlurmUser: only they may requeue and
// rank others' jobs.
func (f *findings) user(slurmUser string, uid int) {
	if _, owner, err := parseUser(slurmUser); uid != 0 && (err != nil || uid != owner) {
		f.add("give ledger and cron line to root (chown), or to "+slurmUser, "user ID %d runs the engine: Slurm lets only root and SlurmUser rank, hold and requeue others' jobs", uid)
	}
}

// parseUser reads slurm(64030).
func parseUser(text string) (name string, uid int, err error) {
	name, rest, _ := strings.Cut(text, "(")
	digits, closed := strings.CutSuffix(rest, ")")
	if uid, err = strconv.Atoi(digits); err != nil || !closed {
		return "", 0, fmt.Errorf("scontrol show config: SlurmUser = %q", text)
	}
	return name, uid, nil
}

// basicPriorities is where priority/basic, which counts down from 2³², gives
// priorities, and priority/multifactor none.
const basicPriorities = 1 << 31

// ranksInForce checks which priority plugin runs. slurmctld chooses it when it starts,
// while scontrol shows what slurm.conf said at the last reconfigure (22.05).
func (f *findings) ranksInForce(pending []int64) {
	for _, priority := range pending {
		if priority > 0 && priority < basicPriorities {
			return
		}
	}
	if slices.ContainsFunc(pending, func(p int64) bool { return p > 0 }) {
		f.add("restart slurmctld: reconfigure is not enough", "PriorityType was changed, and slurmctld still goes by priority/basic: no job can be ranked")
	}
}

// parsePriorities reads `squeue --noheader -O PriorityLong`.
func parsePriorities(text []byte) ([]int64, error) {
	var all []int64
	for field := range strings.FieldsSeq(string(text)) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("squeue -O PriorityLong: %q", field)
		}
		all = append(all, n)
	}
	return all, nil
}

func (f *findings) priorities(settings map[string]string, pending []int64) {
	kind := settings["PriorityType"]
	if !strings.HasSuffix(kind, "/multifactor") {
		f.add("set PriorityType=priority/multifactor in slurm.conf and restart slurmctld: while every PriorityWeight… is 0 jobs keep their order",
			"PriorityType is %s: no job can be ranked, so that nothing is guaranteed", kind)
		return
	}
	f.ranksInForce(pending)
	sum, err := weights(settings)
	if err != nil {
		f.add("correct it in slurm.conf", "%v", err)
	} else if sum > maxWeights {
		f.add(fmt.Sprintf("divide all of them by %d in slurm.conf: only their proportions count", sum/maxWeights+1),
			"the PriorityWeight… sum up to %d: above %d there is no room for ranks beyond them", sum, maxWeights)
	}
	for flag := range strings.SplitSeq(settings["PriorityFlags"], ",") {
		switch flag = strings.TrimSpace(flag); {
		case strings.HasPrefix(flag, "NO_NORMAL_"):
			f.add("take it out of slurm.conf, or set the weight that it concerns to 0", "PriorityFlags has %s: what that factor adds has no bound, and may lift a job above those of pools", flag)
		case flag == "INCR_ONLY":
			f.add("take it out of slurm.conf", "PriorityFlags has INCR_ONLY: a job that left its pool would keep its rank")
		}
	}
	if plugin := settings["PrioritySiteFactorPlugin"]; isSet(plugin) && plugin != "site_factor/none" {
		f.add("take it out of slurm.conf: a job has only one site factor", "PrioritySiteFactorPlugin is %s: it overwrites jobs' ranks", plugin)
	}
}

func isSet(value string) bool { return value != "" && value != "(null)" }

func (f *findings) preemption(settings map[string]string, by backends.Installation) {
	if kind := settings["SelectType"]; strings.HasSuffix(kind, "/linear") {
		f.add("set SelectType=select/cons_tres in slurm.conf and restart all daemons", "SelectType is %s: each job has whole nodes, and single slots can't be preempted", kind)
	}
	if settings["JobRequeue"] == "0" {
		f.add("set JobRequeue=1 in slurm.conf; a job that must not be requeued says --no-requeue", "JobRequeue is 0: only jobs with --requeue, or with ALLOTMENT_PREEMPT=suspend, can be preempted")
	}
	if settings["JobFileAppend"] == "0" {
		f.add("set JobFileAppend=1 in slurm.conf; until then users say --open-mode=append", "JobFileAppend is 0: when a requeued job starts again, its output file is emptied")
	}
	if kind := settings["SelectTypeParameters"]; strings.Contains(kind, "CR_SOCKET") {
		f.add("set CR_Core or CR_CPU, with _Memory if it is there, in slurm.conf and restart all daemons", "SelectTypeParameters is %s: jobs have whole sockets, and no job is preempted for slots of them", kind)
	}
	if settings["DisableRootJobs"] == "Yes" && by.UID == 0 {
		f.add("take it out of slurm.conf, or let SlurmUser run the engine", "DisableRootJobs is set: no placeholder can keep a slot for a suspended job, and no dummy job memory for a heavy one")
	}
	if strings.Contains(settings["PreemptMode"], "GANG") {
		f.add("take GANG out of PreemptMode in slurm.conf", "PreemptMode is %s: jobs take turns in the same slots", settings["PreemptMode"])
	}
	least := minJobAge(by.Cycle)
	if age, ok := seconds(settings["MinJobAge"]); ok && age > 0 && age < least {
		f.add(fmt.Sprintf("set MinJobAge=%d in slurm.conf (at least %d)", max(300, least), least),
			"MinJobAge is %d s: a job that ends between two cycles is forgotten before it was counted, and one that has saved itself before it is requeued", age)
	}
	if wait, ok := seconds(settings["KillWait"]); ok && by.FreeTimeout > 0 && wait >= int64(by.FreeTimeout.Seconds()) {
		f.add("raise pba.free_timeout beyond it, or lower KillWait in slurm.conf", "KillWait is %d s: a job may take so long to go, and pba.free_timeout is %v", wait, by.FreeTimeout)
	}
}

// minJobAge returns for how many seconds, at least, slurmctld must know jobs that have ended:
// three cycles, and no less than a minute.
func minJobAge(cycle time.Duration) int64 {
	return max(60, int64((3*cycle+time.Second-1)/time.Second))
}

// seconds reads 30 and 30 sec.
func seconds(value string) (int64, bool) {
	digits, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

func (f *findings) partition(p partition, settings map[string]string, by backends.Installation) {
	switch kind, times, _ := strings.Cut(p.share, ":"); {
	case kind == "FORCE" && times != "1":
		f.add("set OverSubscribe=NO for it in slurm.conf, or leave it out of `queues:`", "partition %s has OverSubscribe=%s: a slot is given to several jobs at once", p.name, p.share)
	case kind == "EXCLUSIVE":
		f.add("set OverSubscribe=NO for it in slurm.conf, or leave it out of `queues:`", "partition %s has OverSubscribe=EXCLUSIVE: its jobs have whole nodes, and none is preempted", p.name)
	}
	if preempts(settings) && p.preempt != "OFF" {
		f.add("set PreemptType=preempt/none in slurm.conf, or PreemptMode=OFF for it; cycles observe only until then, unless pba.own_preemption is act",
			"partition %s: Slurm preempts there by itself (%s, %s), jobs of pools too", p.name, settings["PreemptType"], p.preempt)
	}
	if !p.rootJobs && by.UID == 0 && settings["DisableRootJobs"] != "Yes" {
		f.add("set DisableRootJobs=NO for it in slurm.conf, or let SlurmUser run the engine", "partition %s has DisableRootJobs=YES: no placeholder can keep a slot for a suspended job, and no dummy job memory for a heavy one", p.name)
	}
}

// backfillWindow is how far sched/backfill plans ahead; 0: there is none that lets
// jobs pass those that wait. Its default is a day (slurm.conf, SchedulerParameters).
func backfillWindow(settings map[string]string) time.Duration {
	if !strings.HasSuffix(settings["SchedulerType"], "/backfill") {
		return 0
	}
	for parameter := range strings.SplitSeq(settings["SchedulerParameters"], ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(parameter), "bf_window="); ok {
			if minutes, err := strconv.Atoi(text); err == nil {
				return time.Duration(minutes) * time.Minute
			}
		}
	}
	return 24 * time.Hour
}

// longestWindow is as far as bf_window goes (slurm.conf, SchedulerParameters).
const longestWindow = 30 * 24 * time.Hour

// beyond checks that no job may end beyond bf_window: Slurm plans no start for such a
// job, and jobs that rank below it, placeholders too, may pass it again and again
// (22.05).
func (f *findings) beyond(p partition, window time.Duration) {
	switch {
	case window == 0:
	case p.longest == 0:
		f.add("set MaxTime or DefaultTime for it in slurm.conf, and bf_window beyond that",
			"partition %s limits no job's time, and Slurm plans no further than bf_window (%d min): a job that may run for longer, one of a pool too, is passed by others while it waits", p.name, int(window.Minutes()))
	case p.longest >= window:
		remedy := fmt.Sprintf("set bf_window=%d in SchedulerParameters in slurm.conf, then `scontrol reconfigure`", int(min(2*p.longest, longestWindow).Minutes()))
		if p.longest >= longestWindow {
			remedy = "set a shorter MaxTime for it in slurm.conf: bf_window goes no further than 30 days"
		}
		f.add(remedy,
			"partition %s lets jobs run for %d min, and Slurm plans no further than bf_window (%d min): a job of such a limit, one of a pool too, is passed by others while it waits", p.name, int(p.longest.Minutes()), int(window.Minutes()))
	}
}

// tiers checks the partitions' tiers: they count before any job's priority.
func (f *findings) tiers(used []partition, low string) {
	byTier := func(a, b partition) int { return cmp.Compare(a.tier, b.tier) }
	others := slices.DeleteFunc(slices.Clone(used), func(p partition) bool { return p.name == low })
	if len(others) == 0 {
		return
	}
	least, most := slices.MinFunc(others, byTier), slices.MaxFunc(others, byTier)
	if most.tier > least.tier {
		f.add("give them the same PriorityTier in slurm.conf, or leave one of them out of `queues:`",
			"partitions %s (PriorityTier %d) and %s (%d): jobs of the first go before all of the second, those of pools too", most.name, most.tier, least.name, least.tier)
	}
	for _, p := range used {
		if p.name == low && p.tier >= least.tier {
			f.add(fmt.Sprintf("set PriorityTier=%d for it in slurm.conf, and more for the others", max(0, least.tier-1)),
				"partition %s, where lowered jobs go, has PriorityTier %d, and %s has %d: it is no lower", p.name, p.tier, least.name, least.tier)
		}
	}
}

// hook returns where slurmctld reads its submission script, and as which user.
func hook(settings map[string]string) (*backends.Hook, error) {
	user, uid, err := parseUser(settings["SlurmUser"])
	if err != nil {
		return nil, err
	}
	conf := settings["SLURM_CONF"]
	if !filepath.IsAbs(conf) {
		return nil, fmt.Errorf("scontrol show config: SLURM_CONF = %q", conf)
	}
	return &backends.Hook{
		File: filepath.Join(filepath.Dir(conf), HookName), User: user, UID: uid,
		Enabled: slices.Contains(strings.Split(settings["JobSubmitPlugins"], ","), "lua"),
		Remedy:  "set JobSubmitPlugins=lua in slurm.conf, then `scontrol reconfigure`",
	}, nil
}
