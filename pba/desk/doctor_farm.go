package desk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/filter"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// checkFilter reads what the submit filter reads.
func (d *Desk) checkFilter(_ context.Context, all *findings) error {
	rebalance := "the next `pba rebalance` writes it"
	snapshot, err := readTrusted(filepath.Join(d.Paths.State, esub.SnapshotName), d.Paths.OfTheSystem())
	if errors.Is(err, fs.ErrNotExist) {
		all.add("filter", rebalance, "there is no policy snapshot in %s yet: the filter lets every job through", d.Paths.State)
		return nil
	}
	generation, genErr := readTrusted(filepath.Join(d.Paths.State, esub.GenerationName), d.Paths.OfTheSystem())
	if err = errors.Join(err, genErr); err != nil {
		all.add("filter", "give the file back to the user who runs pba (chown, chmod 644), or remove it: "+rebalance, "%v", err)
		return nil
	}
	reader, err := esub.Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err == nil {
		err = reader.Verify()
	}
	var g esub.Generation
	if err == nil {
		g, err = esub.OpenGeneration(generation)
	}
	switch {
	case err != nil:
		all.add("filter", "remove the file: "+rebalance, "the policy snapshot in %s: %v", d.Paths.State, err)
	case g.Snapshot != reader.Identity():
		all.add("filter", rebalance, "the policy snapshot and its generation file don't belong together")
	case d.Now().Sub(g.At) > time.Duration(d.Filter.StaleAfter):
		all.add("filter", d.runCycles(),
			"the policy snapshot is %v old (filter.stale_after: %v): the filter lets every job through", d.Now().Sub(g.At).Round(time.Second), d.Filter.StaleAfter)
	}
	return nil
}

// readTrusted reads a file that each user's filter must be able to read.
func readTrusted(name string, system bool) ([]byte, error) {
	service := func(owner uint32) bool { return filter.ServiceUser(filepath.Dir(name), owner) }
	f, err := trusted.OpenBy(name, service)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return nil, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); system && ok && stat.Uid != 0 && !service(stat.Uid) {
		return nil, fmt.Errorf("%s belongs to user ID %d and not to root: other users' filters don't trust it", name, stat.Uid)
	}
	if system && info.Mode().Perm()&0o004 == 0 {
		return nil, fmt.Errorf("not all users can read %s (mode %#o)", name, info.Mode().Perm())
	}
	return content, nil
}

// checkPlanUsers checks that the groups and users in the plan exist on the system.
func (d *Desk) checkPlanUsers(ctx context.Context, all *findings) error {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	for _, p := range projects {
		if err := d.sys.Group(p.Group); err != nil {
			all.add("projects", fmt.Sprintf("make the group, or name another: pba project set %s --group GROUP", p.Name),
				"project %s: the system knows no group %q: none of its jobs is entitled", p.Name, p.Group)
		}
		for _, user := range p.Managers {
			if err := d.sys.User(user); err != nil {
				all.add("projects", fmt.Sprintf("name its manager: pba project set %s --manager USER", p.Name),
					"project %s: the system knows no user %q, its manager", p.Name, user)
			}
		}
	}
	if err := d.checkPlannedSets(ctx, all); err != nil {
		return err
	}
	return d.checkWeeks(ctx, all)
}

// checkWeeks finds projects that lose their slots next week.
func (d *Desk) checkWeeks(ctx context.Context, all *findings) error {
	this := d.thisWeek()
	next := calendar.AddWeeks(this, 1)
	planned, err := d.ledger.Allocations(ctx, this, next)
	if err != nil {
		return err
	}
	slots := map[string]map[calendar.Week]int{}
	for _, a := range planned {
		if slots[a.Project] == nil {
			slots[a.Project] = map[calendar.Week]int{}
		}
		slots[a.Project][a.Week] += a.Slots
	}
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		if slots[name][next] == 0 {
			all.add("plan", fmt.Sprintf("if it goes on: pba alloc set %s %d --week %s", name, slots[name][this], next),
				"project %s has %d slots this week and none in the next (%s)", name, slots[name][this], next)
		}
	}
	return nil
}

// checkQueue asks the queue, and the planner what it makes of it.
func (d *Desk) checkQueue(ctx context.Context, all *findings) error {
	r, err := d.preview(ctx)
	if errors.Is(err, backends.ErrUnreachable) {
		all.add("queue", "see why it is away (the bundled one: `miniqd status`; it is started by `miniqd`, or asub's first use)", "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	d.checkClock(&r, all)
	d.checkAbilities(r.State.Abilities, all)
	d.checkHosts(r.State.Farm, all)
	if err := d.checkQueues(ctx, d.queue.Abilities().Queues, all); err != nil {
		return err
	}
	if err := d.checkUsers(ctx, r.State.Farm, all); err != nil {
		return err
	}
	if err := d.checkDummies(ctx, &r, all); err != nil {
		return err
	}
	if stuck := plan.Stuck(r.State.Farm, time.Duration(d.PBA.HoldLimit), r.State.Farm.At); len(stuck) > 0 {
		all.add("queue", "let a cycle run, which releases them (`pba rebalance -v`; `pba restore` if no more cycles are to run); for a job that stays held it shows the queue's own error",
			"pba held %s, and the queue did not release them when the hold ended", plan.Some(stuck))
	}
	f := r.Plan.Farm
	if err := d.checkFixed(ctx, f.Slots+f.Down, all); err != nil {
		return err
	}
	if f.LowerThem {
		all.add("farm", "see whose they are (`ajobs -u all -r`); raise pba.unpreemptable.max_share if that is meant",
			"jobs that can't be preempted hold %d of %d slots, more than pba.unpreemptable.max_share (%v)",
			f.Unpreemptable, f.Slots, d.PBA.Unpreemptable.MaxShare)
	}
	for _, s := range r.Plan.Sets {
		if s.Short() {
			all.add("farm", "`pba explain JOB` of a waiting job says why no job can be preempted for it",
				"%sjobs wait for %d guaranteed slots, and %d can be preempted now", s.Where(), s.Unmet, s.TakeBack)
		}
	}
	for i := range r.Plan.Pools {
		if p := &r.Plan.Pools[i]; p.Undone > 0 {
			of := Pool{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
			all.add("plan", "guarantee more slots this week, or promise fewer jobs (`pba alloc set`)",
				"%s of the %d of %s can't be done this week any more, at the mean time of those that ended", printable.Count(p.Undone, "job"), p.Jobs, of)
		}
	}
	for _, u := range r.Plan.Unserved {
		all.add("farm", "`pba explain JOB` says what of a job; let their users leave it out where they can",
			"no job is preempted for %s of pools, as a part of the request is not understood: %s", printable.Count(u.Jobs, "waiting job"), u.Reason)
	}
	return d.checkAllocated(ctx, d.sizes(r.State.Farm), all)
}

// checkFixed checks that the queue counts the slots of jobs that can't be preempted, if it
// can: then further ones wait (R22).
func (d *Desk) checkFixed(ctx context.Context, slots int, all *findings) error {
	examine, share := d.queue.Abilities().ExamineFixed, d.PBA.Unpreemptable
	if examine == nil || share.OnExcess == settings.Pass || slots == 0 {
		return nil
	}
	found, err := examine(ctx, max(1, int(float64(share.MaxShare)*float64(slots))))
	for _, f := range found {
		all.add("queue", f.Remedy, "%s", f.What)
	}
	return err
}

// checkAbilities compares how the queue ages jobs with what R10 and R11 count on.
func (d *Desk) checkAbilities(a backends.ForEngine, all *findings) {
	if a.Ages > 0 && a.Ages != time.Duration(d.PBA.Every) {
		all.add("priorities", "leave miniq.ageing.interval out of "+d.Paths.Config+": it then follows pba.every",
			"the queue ages waiting jobs each %v and a cycle comes each %v: priorities grow at another pace than is shown", a.Ages, d.PBA.Every)
	}
	// What a normal job may reach: its default, its age, a bonus for each reclaim.
	if top := backends.DefaultValue + a.AgeCap + requeueBonus*d.PBA.MaxRequeues; a.Ages > 0 && top >= pbaValue {
		all.add("priorities", fmt.Sprintf("set miniq.ageing.cap to %d or less", pbaValue-1-backends.DefaultValue-requeueBonus*d.PBA.MaxRequeues),
			"a normal job may age to %d, and jobs of pools begin at %d: the numbers that people see would mislead", top, pbaValue)
	}
}

// What R10 counts with.
const (
	requeueBonus = 10
	pbaValue     = 120
)

// checkHosts finds names in the config that the queue does not know.
func (d *Desk) checkHosts(farm *backends.Snapshot, all *findings) {
	var known []string
	for _, h := range farm.Hosts {
		known = append(known, h.Name)
	}
	for _, name := range d.Hosts {
		if !slices.Contains(known, name) {
			all.add("config", "correct `hosts:` in "+d.Paths.Config, "the queue has no host %q (it has %s)", name, few(known))
		}
	}
	d.checkHostSets(known, all)
}

// few names some of many.
func few(names []string) string {
	const most = 8
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (d *Desk) checkQueues(ctx context.Context, list func(context.Context) ([]backends.Queue, error), all *findings) error {
	if list == nil {
		return nil
	}
	queues, err := list(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, q := range queues {
		known = append(known, q.Name)
	}
	named := map[string]string{}
	for _, name := range d.Queues {
		named[name] = "queues"
	}
	for _, name := range d.PBA.NeverVictims.Queues {
		named[name] = "pba.never_victims.queues"
	}
	if d.Filter.LowQueue != "" {
		named[d.Filter.LowQueue] = "filter.low_queue"
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !slices.Contains(known, name) {
			all.add("config", "correct `"+named[name]+"` in "+d.Paths.Config, "there is no queue %q (there are %s)", name, few(known))
		}
	}
	return nil
}

// checkUsers finds users of projects whose groups were never looked up with success,
// as when the directory service is away.
func (d *Desk) checkUsers(ctx context.Context, farm *backends.Snapshot, all *findings) error {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	known, err := d.ledger.Groups(ctx)
	if err != nil {
		return err
	}
	missing := map[string]map[string]bool{}
	for _, p := range projects {
		missing[p.Name] = map[string]bool{}
	}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if _, ok := known[j.User]; !ok && missing[j.Project] != nil && d.sys.User(j.User) != nil {
			missing[j.Project][j.User] = true
		}
	}
	for _, p := range projects {
		if users := slices.Sorted(maps.Keys(missing[p.Name])); len(users) > 0 {
			all.add("projects", "see `getent passwd USER` on this host: the directory service is away, or does not know these users",
				"project %s: the groups of %s could never be looked up, so their jobs count as normal ones", p.Name, few(users))
		}
	}
	return nil
}

// checkAllocated: a farm may have shrunk since its weeks were planned.
func (d *Desk) checkAllocated(ctx context.Context, farm map[string]size, all *findings) error {
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), calendar.Week{Year: math.MaxInt32, Week: 53})
	if err != nil {
		return err
	}
	sums := map[share]int{}
	for _, a := range planned {
		if d.checkHostSet(a.Hosts) == nil { // else it was found already
			sums[share{a.Week, a.Hosts}] += a.Slots
		}
	}
	order := func(a, b share) int { return cmp.Or(a.Week.Compare(b.Week), cmp.Compare(a.hosts, b.hosts)) }
	for _, s := range slices.SortedFunc(maps.Keys(sums), order) {
		has := farm[s.hosts]
		limit := d.allocatable(has.slots)
		if sums[s] <= limit {
			continue
		}
		remedy := "lower some of them (`pba alloc list`), or raise pba.max_allocated"
		if has.down > 0 {
			remedy = fmt.Sprintf("%d slots are on hosts that are down or closed: bring them back; else %s", has.down, remedy)
		}
		all.add("plan", remedy, "%d slots are allocated in %s, and max_allocated (%v) of %s is %d", sums[s], s.Week, d.PBA.MaxAllocated, d.describeSize(s.hosts, has.slots), limit)
	}
	return nil
}
