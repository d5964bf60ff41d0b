package pba

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Publisher writes what the submit filter reads (R2): the policy snapshot, when
// its content changed, and the generation file, each time. For a queue that runs the
// filter as a script of its own it writes them in Lua, too.
type Publisher struct {
	Dir         string // the state directory; the user that runs the script must be able to read in it
	Settings    esub.Settings
	Groups      *Directory
	Queue       backends.ForFilter
	ProjectFrom string // what of a job names its project, for a script
}

// Publish writes the plan in force and the standing of its pools.
func (p *Publisher) Publish(ctx context.Context, policy plan.Policy, s ledger.Standing) error {
	if err := p.publish(ctx, policy, s); err != nil {
		return fmt.Errorf("write the filter's snapshot: %w", err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, policy plan.Policy, s ledger.Standing) error {
	filter, err := p.filterPolicy(ctx, policy, s)
	if err != nil {
		return err
	}
	if err := p.makeMark(&filter); err != nil {
		return err
	}
	snapshot := esub.Encode(filter)
	generation, err := esub.EncodeGeneration(snapshot, s.Standing)
	if err != nil {
		return err
	}
	if err := p.replaceFiles(file{esub.SnapshotName, snapshot}, file{esub.GenerationName, generation}); err != nil || p.Queue.HookRank == nil {
		return err
	}
	script, err := p.script(ctx, &filter)
	if err != nil {
		return err
	}
	snapshot = esub.EncodeLua(filter, script)
	if generation, err = esub.EncodeLuaGeneration(snapshot, s.Standing); err != nil {
		return err
	}
	return p.replaceFiles(file{esub.LuaPolicyName, snapshot}, file{esub.LuaGenerationName, generation})
}

// makeMark makes the file by which the filter leaves its marks, once some project needs it.
func (p *Publisher) makeMark(filter *esub.Policy) error {
	if !slices.ContainsFunc(filter.Projects, func(p esub.Project) bool { return p.Mark }) {
		return nil
	}
	path := filepath.Join(p.Dir, esub.MarkName)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.Put(path, 0o644, nil)
}

// script looks up what the filter can't ask for within the queue: the members of
// groups (R4), and the numbers of users that have pools.
func (p *Publisher) script(ctx context.Context, filter *esub.Policy) (esub.Slurm, error) {
	s := esub.Slurm{ProjectFrom: p.ProjectFrom, Members: map[string][]int64{}}
	var err error
	if s.SiteFactor, err = p.Queue.HookRank(ctx, p.Settings.NextInLine); err != nil && !errors.Is(err, backends.ErrUnable) {
		return s, err
	}
	if p.Queue.Fixed != nil {
		if s.Fixed, err = p.Queue.Fixed(ctx); err != nil {
			return s, err
		}
	}
	if p.Queue.Accounts != nil {
		if s.Accounts, err = p.Queue.Accounts(ctx); err != nil {
			return s, err
		}
	}
	known, err := p.Groups.Known(ctx)
	if err != nil {
		return s, err
	}
	users := slices.Collect(maps.Keys(known))
	for _, project := range filter.Projects {
		for _, pool := range project.Pools {
			if pool.User != "" {
				users = append(users, pool.User)
			}
		}
	}
	uids, err := p.Groups.UserIDs(ctx, users)
	if err != nil {
		return s, err
	}
	for user, groups := range known {
		uid, ok := uids[user]
		if !ok {
			continue
		}
		s.Known = append(s.Known, uid)
		for _, group := range groups {
			s.Members[group] = append(s.Members[group], uid)
		}
	}
	for i := range filter.Projects {
		for k := range filter.Projects[i].Pools {
			pool := &filter.Projects[i].Pools[k]
			if uid, ok := uids[pool.User]; ok {
				pool.UID = uid
			}
		}
	}
	return s, nil
}

func (p *Publisher) filterPolicy(ctx context.Context, policy plan.Policy, s ledger.Standing) (esub.Policy, error) {
	groups := make([]string, 0, len(policy.Projects))
	for _, project := range policy.Projects {
		groups = append(groups, project.Group)
	}
	gids, err := p.Groups.IDs(ctx, groups)
	if err != nil {
		return esub.Policy{}, err
	}
	settings := p.Settings
	settings.Observe = settings.Observe || s.Observe
	if s.Heavy != nil {
		settings.Heavy = *s.Heavy
	}
	if p.Queue.FilterFacts != nil {
		facts, err := p.Queue.FilterFacts(ctx)
		if err != nil {
			return esub.Policy{}, err
		}
		settings.NextInLine, settings.MostRank = backends.Priority(facts.NextInLine), facts.MostRank
		settings.DefaultQueue, settings.MemoryUnit, settings.TagNoRequeue = facts.DefaultQueue, facts.MemoryUnit, facts.TagNoRequeue
	}
	filter := FilterPolicy(policy, settings, gids)
	for i := range filter.Projects {
		filter.Projects[i].Mark = p.Queue.Marks && policy.Marks(filter.Projects[i].Name)
	}
	addFormer(&filter, policy.Projects)
	return filter, nil
}

// HeavyOf returns which jobs the submit filter holds until the engine has dummy jobs
// for them (R29): none where the engine would not hold them itself.
func HeavyOf(policy plan.Policy, able backends.ForEngine, hosts []backends.Host) esub.Heavy {
	if policy.Dummies.Mode != dummy.Reserve || able.Place == nil || able.ManagesMemory || able.Pin == nil || able.HoldUntil == nil {
		return esub.Heavy{}
	}
	h := esub.Heavy{Hold: policy.HoldLimit, Rules: policy.Dummies.Rules}
	for _, host := range hosts { // one that is down comes back
		if host.Slots <= 0 || host.Memory <= 0 || len(policy.Hosts) > 0 && !slices.Contains(policy.Hosts, host.Name) {
			continue
		}
		if share := host.Memory / int64(host.Slots); h.Share == 0 || share < h.Share {
			h.Share = share
		}
	}
	return h
}

// FilterPolicy returns the plan in force as the submit filter's policy. Groups without
// a number in gids are not tested there.
func FilterPolicy(policy plan.Policy, settings esub.Settings, gids map[string]int64) esub.Policy {
	settings.CheckpointMax = policy.MaxSave()
	snapshot := esub.Policy{Settings: settings}
	index := map[string]int{}
	for i, project := range policy.Projects {
		gid, ok := gids[project.Group]
		if !ok {
			gid = esub.Unknown
		}
		snapshot.Projects = append(snapshot.Projects, esub.Project{Name: project.Name, Group: project.Group, GID: gid, Steps: project.Steps})
		index[project.Name] = i
	}
	for _, a := range policy.Allocations {
		i, ok := index[a.Project]
		if !ok || a.Guarantee == 0 { // withdrawn in mid-week
			continue
		}
		pools := &snapshot.Projects[i].Pools
		*pools = append(*pools, esub.Pool{ID: a.ID, User: a.User, UID: esub.Unknown, Step: a.Step, Slots: a.Guarantee})
	}
	return snapshot
}

// addFormer has the filter take a project's former names for its present one, as cycles do: the
// scripts of its users go on as they are.
func addFormer(filter *esub.Policy, projects []plan.Project) {
	former := map[string][]string{}
	for i, p := range projects { // those of the filter, in the same order
		former[p.Name] = p.Former
		for _, name := range p.Former {
			same := filter.Projects[i]
			same.Name = name
			filter.Projects = append(filter.Projects, same)
		}
	}
	var rules []dummy.Rule
	for _, rule := range filter.Settings.Heavy.Rules { // the first that fits counts
		rules = append(rules, rule)
		for _, name := range former[rule.Project] {
			rule.Project = name
			rules = append(rules, rule)
		}
	}
	filter.Settings.Heavy.Rules = rules
}

// file is one to be written into the state directory.
type file struct {
	name    string
	content []byte
}

// replaceFiles replaces both files, the snapshot first: a filter that sees one without the
// other reads again.
func (p *Publisher) replaceFiles(snapshot, generation file) error {
	const forAll = 0o644
	snapshotFile, generationFile := filepath.Join(p.Dir, snapshot.name), filepath.Join(p.Dir, generation.name)
	old, err := trusted.Read(snapshotFile)
	changed := err != nil || !bytes.Equal(old, snapshot.content)
	newGeneration, err := disk.Prepare(generationFile, forAll, generation.content)
	if err != nil {
		return err
	}
	defer os.Remove(newGeneration)
	if changed {
		newSnapshot, err := disk.Prepare(snapshotFile, forAll, snapshot.content)
		if err != nil {
			return err
		}
		defer os.Remove(newSnapshot)
		if err := os.Rename(newSnapshot, snapshotFile); err != nil {
			return err
		}
	}
	if err := os.Rename(newGeneration, generationFile); err != nil || !changed {
		return err
	}
	return disk.OS().SyncDir(p.Dir)
}
