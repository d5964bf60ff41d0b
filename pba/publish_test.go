package pba

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func published(t *testing.T, dir string) (*esub.Reader, esub.Generation, os.FileInfo) {
	t.Helper()
	snapshot, err := os.ReadFile(filepath.Join(dir, esub.SnapshotName))
	if err != nil {
		t.Fatal(err)
	}
	r, err := esub.Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, esub.GenerationName))
	if err != nil {
		t.Fatal(err)
	}
	g, err := esub.OpenGeneration(content)
	if err != nil {
		t.Fatal(err)
	}
	if g.Snapshot != r.Identity() {
		t.Error("the generation belongs to another snapshot")
	}
	info, err := os.Stat(filepath.Join(dir, esub.SnapshotName))
	if err != nil {
		t.Fatal(err)
	}
	return r, g, info
}

// standingAt returns a standing with these pools below their guarantee.
func standingAt(at time.Time, below ...int64) ledger.Standing {
	s := ledger.Standing{Standing: esub.Standing{At: at, Below: map[int64]bool{}}}
	for _, pool := range below {
		s.Below[pool] = true
	}
	return s
}

func TestPublish(t *testing.T) { // R2, R12, R22
	dir := t.TempDir()
	p := &Publisher{
		Dir:      dir,
		Settings: esub.Settings{Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, 20)},
		Groups: &Directory{Cache: groupCache{}, GroupID: func(group string) (int64, error) {
			if group != "chip" {
				return 0, os.ErrNotExist
			}
			return 77, nil
		}},
	}
	policy := plan.Policy{
		Projects:    []plan.Project{{Name: "B", Group: "none"}, {Name: "A", Group: "chip"}},
		Allocations: []plan.Allocation{{ID: 4, Project: "A", Guarantee: 6}, {ID: 3, Project: "A", User: "bob", Guarantee: 2}, {ID: 9, Project: "gone", Guarantee: 1}},
	}
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	standing := standingAt(at, 4)
	standing.LowerUnpreemptable = true
	put := func() {
		t.Helper()
		if err := p.Publish(context.Background(), policy, standing); err != nil {
			t.Fatal(err)
		}
	}
	put()
	r, g, first := published(t, dir)
	a, position, ok, err := r.Find("A")
	if err != nil || !ok || a.GID != 77 || len(a.Pools) != 2 {
		t.Fatalf("%+v %v %v", a, ok, err)
	}
	for i, pool := range a.Pools {
		if g.Below(position+i) != (pool.ID == 4) {
			t.Errorf("pool %d: below = %v", pool.ID, g.Below(position+i))
		}
	}
	if b, _, _, _ := r.Find("B"); b.GID != esub.Unknown {
		t.Errorf("a group that can't be looked up has the number %d", b.GID)
	}
	if !g.At.Equal(at) || !g.LowerUnpreemptable || g.Observe {
		t.Errorf("%+v", g)
	}

	standing.At = at.Add(time.Minute)
	put()
	_, g, second := published(t, dir)
	if !os.SameFile(first, second) || !g.At.Equal(standing.At) {
		t.Errorf("R2: the same policy: the snapshot was written again, or the heartbeat was not: %v", g.At)
	}
	policy.Allocations[0].Guarantee, standing.Observe = 7, true
	put()
	r, g, third := published(t, dir)
	if os.SameFile(second, third) || !g.Observe || !r.Settings().Observe {
		t.Errorf("R7: observe %v %v; the snapshot changed: %v", g.Observe, r.Settings().Observe, !os.SameFile(second, third))
	}
	if third.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: every user's filter must read it", third.Mode())
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("left behind: %v %v", names, err)
	}
}

// R12: a queue that runs the filter as a program has its own scale of priorities,
// and would refuse jobs of a filter that does not know it.
func TestPublishQueueFacts(t *testing.T) {
	dir := t.TempDir()
	facts := backends.FilterFacts{NextInLine: 70, MostRank: 50, DefaultQueue: "normal", MemoryUnit: 1 << 20, TagNoRequeue: true}
	var failure error
	p := &Publisher{
		Dir: dir, Groups: &Directory{Cache: groupCache{}},
		Settings: esub.Settings{Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, 20)},
		Queue:    backends.ForFilter{FilterFacts: func(context.Context) (backends.FilterFacts, error) { return facts, failure }},
	}
	publish := func() error { return p.Publish(t.Context(), plan.Policy{}, standingAt(time.Now())) }
	settings := func() esub.Settings {
		t.Helper()
		r, _, _ := published(t, dir)
		return r.Settings()
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	if s := settings(); s.NextInLine != 70 || s.MostRank != 50 || s.DefaultQueue != "normal" || s.MemoryUnit != 1<<20 || !s.TagNoRequeue {
		t.Errorf("%+v", s)
	}
	facts.NextInLine = 0 // MAX_USER_PRIORITY was taken away
	if err := publish(); err != nil || settings().NextInLine != 0 {
		t.Errorf("%v, %+v", err, settings())
	}
	failure = backends.ErrUnreachable
	if err := publish(); !errors.Is(err, backends.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// R29: no job is held for dummy jobs where the engine would place none.
func TestHeavyOf(t *testing.T) {
	policy := plan.Policy{
		HoldLimit: time.Minute, Hosts: []string{"n1", "n2", "n3", "n4"},
		Dummies: dummy.Policy{Mode: dummy.Reserve, Rules: []dummy.Rule{{Queue: "big", Memory: 8}}},
	}
	hosts := []backends.Host{
		{Name: "n1", Slots: 4, Memory: 64},
		{Name: "n2", Slots: 4, Memory: 32, State: backends.HostDown},
		{Name: "n3", Slots: 4},
		{Name: "n4", Memory: 4},
		{Name: "other", Slots: 4, Memory: 4},
	}
	able := backends.ForEngine{
		Place:     func(context.Context, []backends.Dummy) []backends.Submitted { return nil },
		Pin:       func(context.Context, []backends.Pin) backends.Errors { return nil },
		HoldUntil: func(context.Context, []backends.HoldUntil) backends.Errors { return nil },
	}
	want := esub.Heavy{Hold: time.Minute, Share: 8, Rules: policy.Dummies.Rules}
	if diff := cmp.Diff(want, HeavyOf(policy, able, hosts)); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(*plan.Policy, *backends.ForEngine){
		"off":                   func(p *plan.Policy, _ *backends.ForEngine) { p.Dummies.Mode = dummy.Off },
		"surround":              func(p *plan.Policy, _ *backends.ForEngine) { p.Dummies.Mode = dummy.Surround },
		"it manages memory":     func(_ *plan.Policy, a *backends.ForEngine) { a.ManagesMemory = true },
		"it places none":        func(_ *plan.Policy, a *backends.ForEngine) { a.Place = nil },
		"it can't pin":          func(_ *plan.Policy, a *backends.ForEngine) { a.Pin = nil },
		"it has no begin times": func(_ *plan.Policy, a *backends.ForEngine) { a.HoldUntil = nil },
	} {
		p, a := policy, able
		change(&p, &a)
		if got := HeavyOf(p, a, hosts); !cmp.Equal(got, esub.Heavy{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Which jobs are heavy is published by cycles, which see the hosts.
func TestPublishHeavyRules(t *testing.T) { // R29
	dir := t.TempDir()
	p := &Publisher{Dir: dir, Groups: &Directory{Cache: groupCache{}}, Settings: esub.Settings{Config: esub.DefaultConfig()}}
	for _, want := range []esub.Heavy{{}, {Hold: time.Minute, Share: 8, Rules: []dummy.Rule{{Queue: "big", Memory: 8}}}} {
		standing := standingAt(time.Now())
		standing.Heavy = &want
		if err := p.Publish(t.Context(), plan.Policy{}, standing); err != nil {
			t.Fatal(err)
		}
		r, _, _ := published(t, dir)
		if diff := cmp.Diff(want, r.Settings().Heavy); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPublishFormerNames: the filter takes a former name for the project's present one.
func TestPublishFormerNames(t *testing.T) {
	dir := t.TempDir()
	p := &Publisher{Dir: dir, Groups: &Directory{Cache: groupCache{}}, Settings: esub.Settings{Config: esub.DefaultConfig()}}
	policy := plan.Policy{
		Projects:    []plan.Project{{Name: "B"}, {Name: "A", Steps: []string{"s"}, Former: []string{"old", "older"}}},
		Allocations: []plan.Allocation{{ID: 4, Project: "A", Guarantee: 6}, {ID: 5, Project: "B", Guarantee: 2}},
	}
	standing := standingAt(time.Now(), 4)
	standing.Heavy = &esub.Heavy{Hold: time.Minute, Share: 8, Rules: []dummy.Rule{{Project: "A", Memory: 8}, {Project: "B", Memory: 9}, {Memory: 10}}}
	if err := p.Publish(t.Context(), policy, standing); err != nil {
		t.Fatal(err)
	}
	r, g, _ := published(t, dir)
	want, _, _, err := r.Find("A")
	if err != nil || len(want.Pools) != 1 {
		t.Fatal(want, err)
	}
	for _, name := range []string{"old", "older"} {
		got, first, ok, err := r.Find(name)
		if got.Name = "A"; !ok || err != nil || cmp.Diff(want, got) != "" || !g.Below(first) {
			t.Errorf("%s: %v, %v, below: %v\n%s", name, ok, err, g.Below(first), cmp.Diff(want, got))
		}
	}
	rules := []dummy.Rule{{Project: "A", Memory: 8}, {Project: "old", Memory: 8}, {Project: "older", Memory: 8}, {Project: "B", Memory: 9}, {Memory: 10}}
	if d := cmp.Diff(rules, r.Settings().Heavy.Rules); d != "" {
		t.Error(d)
	}
}

// R2, R4: what a script within the queue reads, with the groups of those users
// who are known, and the numbers of users that have pools.
func TestPublishForAScript(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	cache := groupCache{
		"alice": {Names: []string{"chip", "users"}, LookedUp: now},
		"bob":   {Names: []string{"users"}, LookedUp: now.Add(-fresh)},
		"carol": {Names: []string{"users"}, LookedUp: now.Add(-2 * fresh)}, // may have joined since
		"ghost": {Names: []string{"chip"}, LookedUp: now},
	}
	numbers := map[string]int64{"alice": 1001, "bob": 1002, "carol": 1003, "dave": 1004}
	p := &Publisher{
		Dir:      dir,
		Settings: esub.Settings{Config: esub.DefaultConfig()},
		Groups: &Directory{
			Cache:   cache,
			GroupID: func(string) (int64, error) { return 77, nil },
			UserID: func(user string) (int64, error) {
				if id, ok := numbers[user]; ok {
					return id, nil
				}
				return 0, os.ErrNotExist
			},
		},
		Queue:       backends.ForFilter{HookRank: func(context.Context, backends.Priority) (int64, error) { return 768, nil }},
		ProjectFrom: "wckey",
	}
	policy := plan.Policy{
		Projects:    []plan.Project{{Name: "A", Group: "chip"}},
		Allocations: []plan.Allocation{{ID: 4, Project: "A", Guarantee: 6}, {ID: 3, Project: "A", User: "dave", Guarantee: 2}, {ID: 5, Project: "A", User: "eve", Guarantee: 1}},
	}
	standing := standingAt(now, 4)
	put := func() (policyFile, generationFile string, info os.FileInfo) {
		t.Helper()
		if err := p.Publish(context.Background(), policy, standing); err != nil {
			t.Fatal(err)
		}
		content := map[string]string{}
		for _, name := range []string{esub.LuaPolicyName, esub.LuaGenerationName} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			content[name] = string(text)
		}
		info, err := os.Stat(filepath.Join(dir, esub.LuaPolicyName))
		if err != nil {
			t.Fatal(err)
		}
		return content[esub.LuaPolicyName], content[esub.LuaGenerationName], info
	}
	text, generation, first := put()
	for _, want := range []string{
		`["project_from"]="wckey"`, `["next_in_line"]=768,`, `["known"]=" 1001 1002 "`, `["chip"]=" 1001 "`,
		`["A"]={"chip",{},{{4,"",-1,"",6},{3,"dave",1004,"",2},{5,"eve",-1,"",1},}}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing:\n%s", want, text)
		}
	}
	if !strings.Contains(generation, `["below"]=" 4 "`) {
		t.Errorf("generation:\n%s", generation)
	}
	if first.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: Slurm's own user must read it", first.Mode())
	}
	standing.At = now.Add(time.Minute)
	if _, later, second := put(); !os.SameFile(first, second) || later == generation {
		t.Error("R2: the same policy: it was written again, or the heartbeat was not")
	}

	p.Queue.HookRank = func(context.Context, backends.Priority) (int64, error) {
		return 0, fmt.Errorf("basic: %w", backends.ErrUnable)
	}
	if text, _, _ := put(); !strings.Contains(text, `["next_in_line"]=0,`) {
		t.Errorf("a queue without such a place:\n%s", text)
	}
	p.Queue.HookRank = func(context.Context, backends.Priority) (int64, error) { return 0, backends.ErrUnreachable }
	if err := p.Publish(context.Background(), policy, standing); !errors.Is(err, backends.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}
