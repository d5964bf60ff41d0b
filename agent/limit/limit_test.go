package limit

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/supervise"
)

// site is where the groups of a test are made.
type site struct {
	name string
	dirs map[string]string // by controller: a directory in which groups may be made
	real bool              // the kernel's; else directories of files, which take what is written
}

// sites returns those that this machine has: the kernel's for root, and files.
func sites(t *testing.T) (all []site) {
	t.Helper()
	if os.Getuid() == 0 {
		v1 := map[string]string{}
		for _, c := range []string{"cpu", "blkio", "freezer"} {
			if _, err := os.Stat("/sys/fs/cgroup/" + c + "/cgroup.procs"); err == nil {
				v1[c] = "/sys/fs/cgroup/" + c
			}
		}
		if len(v1) > 0 {
			all = append(all, site{"version 1", v1, true})
		}
		const control = "/sys/fs/cgroup/cgroup.subtree_control"
		if _, err := os.Stat(control); err == nil {
			for _, c := range []string{"+cpu", "+io"} {
				if err := os.WriteFile(control, []byte(c), 0); err != nil {
					t.Log(c, err)
				}
			}
			all = append(all, site{"version 2", map[string]string{"": "/sys/fs/cgroup"}, true})
		}
	}
	all = slices.DeleteFunc(all, func(s site) bool {
		for _, dir := range s.dirs {
			probe := filepath.Join(dir, fmt.Sprintf("allotment-probe-%d", os.Getpid()))
			if err := errors.Join(os.Mkdir(probe, 0o755), unix.Rmdir(probe)); err != nil { // in a container, say
				t.Logf("skip: no control group of %s can be made: %v", s.name, err)
				return true
			}
		}
		return false
	})
	if !slices.ContainsFunc(all, func(s site) bool { return s.real }) {
		t.Log("not root, or no control groups: only files that stand for them")
	}
	dir := t.TempDir()
	if err := unix.Lsetxattr(dir, attribute, nil, 0); err != nil {
		t.Logf("skip: no directory that stands for a control group: it takes extended attributes: %v", err)
	} else {
		all = append(all, site{"files", map[string]string{"": dir}, false})
	}
	if len(all) == 0 {
		t.Skip("skip: nothing here can be limited")
	}
	return all
}

// make makes a job's group, as the queue does: not with every value as the kernel sets it.
func (s *site) make(t *testing.T, name string) *Group {
	t.Helper()
	g := &Group{Name: name, Dirs: map[string]string{}}
	for c, dir := range s.dirs {
		g.Dirs[c] = filepath.Join(dir, fmt.Sprintf("allotment-test-%d-%s", os.Getpid(), name))
		if err := os.Mkdir(g.Dirs[c], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !s.real {
		for file, value := range map[string]string{cpuWeight: "100", cpuMax: "max 100000", ioWeight: "default 100", ioMax: "", freezing: "0"} {
			if err := os.WriteFile(filepath.Join(g.Dirs[""], file), []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { s.remove(t, g) })
	return g
}

func (s *site) remove(t *testing.T, g *Group) {
	t.Helper()
	for _, dir := range g.Dirs {
		err := unix.Rmdir(dir)
		if !s.real {
			err = os.RemoveAll(dir)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// all returns the settings that work for a group.
func (s *site) all(g *Group) (all []Setting) {
	for _, r := range append(supervise.Resources(), supervise.Memory) {
		for _, rung := range []supervise.Rung{supervise.Weight, supervise.Rate, supervise.Duty, supervise.Freeze} {
			setting := Setting{g, r, rung, 50}
			turns, err := setting.turns(disks)
			if err != nil || rung == supervise.Duty && !s.real { // to write a file is two steps, and another goroutine's
				continue
			}
			if _, err := g.read(turns[0].knob); err == nil {
				all = append(all, setting)
			}
		}
	}
	return all
}

// most is a large value of a limit.
func most(r supervise.Rung) int64 {
	switch r {
	case supervise.Weight:
		return 99
	case supervise.Duty:
		return 999
	default:
		return 200_000
	}
}

// queueSets are values that a queue may set of itself.
var queueSets = map[knob][]string{
	{File: cpuWeight}: {"100", "1", "35", "10000"}, {File: cpuMax}: {"max 100000", "200000 100000", "50000 50000"},
	{File: cpuShares}: {"1024", "2", "512"}, {File: cpuQuota}: {"-1", "200000", "50000"},
	{ioWeight, "default"}: {"100", "10"}, {File: freezing}: {"0", "1"}, {File: freezer}: {"THAWED", "FROZEN"},
}

// values returns all values of the groups that anything here changes.
func values(t *testing.T, groups []*Group) map[string]string {
	t.Helper()
	all := map[string]string{}
	disks, err := disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for file, kind := range kinds {
			lines := []string{""}
			switch {
			case file == ioWeight:
				lines = []string{"default"}
			case kind.none != "":
				lines = disks
			}
			for _, line := range lines {
				value, err := g.read(knob{file, line})
				if err == nil {
					all[strings.Join([]string{g.Name, file, line}, " ")] = value
				} else if !errors.Is(err, os.ErrNotExist) && g.Dirs[kind.controller] != "" {
					t.Errorf("%s: %v", g.Name, err)
				}
			}
		}
	}
	return all
}

func diff(t *testing.T, is, want map[string]string) {
	t.Helper()
	for k := range maps.Keys(want) {
		if is[k] != want[k] {
			t.Errorf("%s is %q, want %q", k, is[k], want[k])
		}
	}
	if len(want) == 0 || len(is) != len(want) {
		t.Errorf("%d values, want %d", len(is), len(want))
	}
}

// killed is what a keeper panics with that is killed between two steps.
type killed struct{}

// try runs what may be killed, and reports whether it was.
func try(do func()) (was bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, was = r.(killed); !was {
				panic(r)
			}
		}
	}()
	do()
	return false
}

// R47: each limit works by the kernel's own record, and what was before is put back exactly.
func TestEachLimit(t *testing.T) {
	for _, s := range sites(t) {
		t.Run(s.name, func(t *testing.T) {
			g := s.make(t, "j1")
			before := values(t, []*Group{g})
			all := s.all(g)
			if len(all) == 0 {
				t.Fatal("no limit works here")
			}
			for _, setting := range all {
				if setting.Rung == supervise.Duty { // TestDuty has it
					continue
				}
				for _, value := range []int64{50, most(setting.Rung), 1} {
					k, err := Open([]*Group{g})
					if err != nil {
						t.Fatal(err)
					}
					setting.Value = value
					each, err := k.Set([]Setting{setting})
					if err = errors.Join(err, each[0]); err != nil {
						t.Errorf("%s %s %d: %v", setting.Resource, setting.Rung, value, err)
					}
					if is := values(t, []*Group{g}); maps.Equal(is, before) {
						t.Errorf("%s %s %d changes nothing", setting.Resource, setting.Rung, value)
					}
					if err := k.Close(); err != nil {
						t.Error(err)
					}
					diff(t, values(t, []*Group{g}), before)
				}
			}
			if _, err := unix.Lgetxattr(g.recordDir(), attribute, nil); !errors.Is(err, unix.ENODATA) {
				t.Errorf("the record is still there: %v", err)
			}
		})
	}
}

// R47: a job with a duty is frozen and runs in turn, and runs when the keeper has closed; one that is frozen already
// has none.
func TestDuty(t *testing.T) {
	for _, s := range sites(t) {
		if !s.real { // to write a file is two steps
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			g := s.make(t, "d1")
			k, err := Open(nil)
			if err != nil {
				t.Fatal(err)
			}
			setting := Setting{g, supervise.CPU, supervise.Duty, 500}
			turns, err := setting.turns(disks)
			if err != nil {
				t.Fatal(err)
			}
			n := turns[0].knob
			states := freezes(n)
			set := func() error { each, err := k.Set([]Setting{setting}); return errors.Join(each[0], err) }
			if err := set(); err != nil {
				t.Fatal(err)
			}
			for i := range 6 { // it blocks until both have come in turn, or the test's time is up
				for is := ""; is != states[i%2]; {
					if is, err = g.read(n); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(2 * period); time.Now().Before(end); {
				if is, err := g.read(n); err != nil || is != states[0] {
					t.Fatalf("after its end it is %q, %v", is, err)
				}
			}
			if err := g.write(n, states[1]); err != nil {
				t.Fatal(err)
			}
			if k, err = Open([]*Group{g}); err != nil {
				t.Fatal(err)
			}
			if err := set(); err == nil || !strings.Contains(err.Error(), "frozen") {
				t.Errorf("a frozen one: %v", err)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			if is, err := g.read(n); err != nil || is != states[1] {
				t.Errorf("it was frozen, and is %q, %v", is, err)
			}
		})
	}
}

// R47: whatever happens to keepers, jobs and values, nothing is limited once a lease has ended, a keeper has
// closed or one has begun; and each value is the queue's own.
func TestRandomHistories(t *testing.T) {
	const steps = 20
	for _, s := range sites(t) {
		histories := 500
		if !s.real {
			histories = 100
		}
		t.Run(s.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			counts := map[string]int{}
			for n := range histories {
				s.history(t, random, steps, fmt.Sprint(n), counts)
				if t.Failed() {
					t.Fatalf("history %d", n)
				}
			}
			t.Log(counts)
			for _, event := range []string{"set", "killed", "closed", "lease", "queue", "requeued", "killed in between"} {
				if counts[event] < histories/10 {
					t.Errorf("%q came %d times in %d histories", event, counts[event], histories)
				}
			}
		})
	}
}

func (s *site) history(t *testing.T, random *rand.Rand, steps int, name string, counts map[string]int) {
	t.Helper()
	groups := []*Group{s.make(t, name+"a"), s.make(t, name+"b")}
	defer func() {
		for _, g := range groups {
			s.remove(t, g)
		}
	}()
	of := values(t, groups) // by the queue
	works := append(s.all(groups[0]), s.all(groups[1])...)
	left := 0 // steps to the keeper's death; 0: none
	open := func() (k *Keeper) {
		k, err := Open(groups)
		if err != nil {
			t.Error(err)
		}
		k.step = func() {
			if left--; left == 0 {
				panic(killed{})
			}
		}
		diff(t, values(t, groups), of)
		return k
	}
	drop := func(k *Keeper) { // its process is gone
		k.mu.Lock()
		defer k.mu.Unlock()
		k.duties = nil
		if k.lease != nil {
			k.lease.Stop()
		}
	}
	k := open()
	for range steps {
		event := []string{"set", "set", "set", "killed", "closed", "lease", "queue", "requeued", "killed in between"}[random.IntN(9)]
		counts[event]++
		left = 0
		switch event {
		case "killed":
			drop(k)
			k = open()
		case "closed":
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			diff(t, values(t, groups), of)
			k = open()
		case "lease":
			k.expire()
			diff(t, values(t, groups), of)
		case "queue":
			knobs := slices.SortedFunc(maps.Keys(queueSets), knob.compare)
			n, g := knobs[random.IntN(len(knobs))], groups[random.IntN(2)]
			value := queueSets[n][random.IntN(len(queueSets[n]))]
			key := strings.Join([]string{g.Name, n.File, n.Line}, " ")
			is, err := g.read(n)
			if err != nil || is == value { // what sets the value that is there changes nothing
				continue
			}
			if h := k.held[g.Name]; h != nil {
				if c := h.knobs[n]; slices.Contains(c.Ours[:], value) {
					continue // nor can it be seen who has set it
				}
			}
			if err := g.write(n, value); err != nil {
				t.Error(err)
			}
			of[key] = value
		case "requeued": // the group is made anew, by the same name
			i := random.IntN(2)
			s.remove(t, groups[i])
			groups[i] = s.make(t, groups[i].Name)
			maps.Copy(of, values(t, groups[i:i+1]))
		default:
			var some []Setting
			for _, setting := range works {
				frozen := slices.ContainsFunc([]string{freezing + " 1", freezer + " " + frozen}, func(is string) bool {
					file, value, _ := strings.Cut(is, " ")
					return of[strings.Join([]string{setting.Group.Name, file, ""}, " ")] == value
				})
				if random.IntN(3) == 0 && !(frozen && setting.Rung == supervise.Duty) {
					setting.Group = groups[slices.IndexFunc(groups, func(g *Group) bool { return g.Name == setting.Group.Name })]
					setting.Value = 1 + random.Int64N(most(setting.Rung))
					some = append(some, setting)
				}
			}
			if event == "killed in between" {
				left = 1 + random.IntN(3)
			}
			if try(func() {
				each, err := k.Set(some)
				if err = errors.Join(append(each, err)...); err != nil {
					t.Error(err)
				}
			}) {
				drop(k)
				k = open()
			}
		}
	}
	left = 0
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	diff(t, values(t, groups), of)
}
