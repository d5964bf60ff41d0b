package esub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/unit"
)

var someTime = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func somePolicy() Policy {
	return Policy{
		Settings: Settings{Config: DefaultConfig(), CheckpointMax: 2 * time.Minute, NextInLine: 3020, MostRank: 50, DefaultQueue: "normal", Queues: []string{"normal", "low"}, Heavy: Heavy{Hold: time.Minute, Share: 4 << 30, Rules: []dummy.Rule{{Project: "chipA", Queue: "normal", Memory: 5 << 30}}}},
		Projects: []Project{
			{Name: "chipB", Group: "chipb", GID: 501, Steps: []string{"logic", "mask"}},
			{Name: "chipA", Group: "chipa", GID: 500, Mark: true, Pools: []Pool{{ID: 7, Slots: 6, UID: Unknown}, {ID: 2, User: "bob", UID: 1002, Slots: 2}}},
			{Name: "chipC", Group: "x", GID: Unknown, Pools: []Pool{{ID: 9, Step: "mask", Slots: 3}}},
		},
	}
}

// R2: a policy gives the same bytes in whatever order it stands.
func TestEncodeIsDeterministic(t *testing.T) {
	want := Encode(somePolicy())
	for range 20 {
		p := somePolicy()
		rand.Shuffle(len(p.Projects), func(i, j int) { p.Projects[i], p.Projects[j] = p.Projects[j], p.Projects[i] })
		for i := range p.Projects {
			slices.Reverse(p.Projects[i].Pools)
			slices.Reverse(p.Projects[i].Steps)
		}
		slices.Reverse(p.Queues)
		if !bytes.Equal(Encode(p), want) {
			t.Fatal("the order of a policy changes its snapshot")
		}
	}
	changed := somePolicy()
	changed.Projects[1].Pools[0].Slots++
	if open(t, Encode(changed)).Identity() == open(t, want).Identity() {
		t.Error("another number of slots has the same identity")
	}
}

func genPolicy(t *rapid.T) Policy {
	word := rapid.StringN(0, 6, 12)
	id := int64(0)
	pool := rapid.Custom(func(t *rapid.T) Pool {
		id++
		return Pool{ID: id, User: word.Draw(t, "user"), UID: rapid.Int64Range(-1, 1<<32).Draw(t, "uid"), Step: word.Draw(t, "step"), Slots: rapid.IntRange(0, 1<<20).Draw(t, "slots")}
	})
	project := rapid.Custom(func(t *rapid.T) Project {
		return Project{
			Name: word.Draw(t, "name"), Group: word.Draw(t, "group"), GID: rapid.Int64Range(-1, 1<<32).Draw(t, "gid"),
			Steps: rapid.SliceOfN(word, 0, 3).Draw(t, "steps"), Pools: rapid.SliceOfN(pool, 0, 10).Draw(t, "pools"),
		}
	})
	rule := rapid.Custom(func(t *rapid.T) dummy.Rule {
		return dummy.Rule{Project: word.Draw(t, "of"), Step: word.Draw(t, "at"), Queue: word.Draw(t, "in"), Memory: rapid.Int64().Draw(t, "memory")}
	})
	answer := rapid.Custom(func(t *rapid.T) Answer { return Answer(rapid.IntRange(0, 2).Draw(t, "answer")) })
	return Policy{
		Settings: Settings{
			Config: Config{
				OnFailure: answer.Draw(t, "on_failure"), OnUntagged: answer.Draw(t, "on_untagged"), OnNoPool: answer.Draw(t, "on_no_pool"),
				LowQueue: word.Draw(t, "low"), StaleAfter: unit.Duration(rapid.Int64().Draw(t, "stale")),
			},
			Observe: rapid.Bool().Draw(t, "observe"), NextInLine: backends.Priority(rapid.Int64().Draw(t, "next")),
			DefaultQueue: word.Draw(t, "default"), MemoryUnit: rapid.Int64().Draw(t, "unit"), SuspendFrees: rapid.Bool().Draw(t, "frees"), TagNoRequeue: rapid.Bool().Draw(t, "spares"),
			Queues: rapid.SliceOfNDistinct(word, 0, 4, rapid.ID).Draw(t, "queues"),
			Heavy: Heavy{
				Hold: time.Duration(rapid.Int64().Draw(t, "hold")), Share: rapid.Int64().Draw(t, "share"),
				Rules: rapid.SliceOfN(rule, 0, 3).Draw(t, "rules"),
			},
		},
		Projects: rapid.SliceOfNDistinct(project, 0, 12, func(p Project) string { return p.Name }).Draw(t, "projects"),
	}
}

// R2: every policy can be searched as it was written, and every pool has its own
// standing.
func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := genPolicy(rt)
		below := map[int64]bool{}
		for _, p := range policy.Projects {
			for _, pool := range p.Pools {
				below[pool.ID] = rapid.Bool().Draw(rt, "below")
			}
		}
		snapshot := Encode(policy)
		r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
		if err != nil {
			rt.Fatal(err)
		}
		if err := r.Verify(); err != nil {
			rt.Error(err)
		}
		sets := cmp.Options{cmpopts.EquateEmpty(), cmpopts.SortSlices(strings.Compare)}
		if diff := cmp.Diff(policy.Settings, r.Settings(), sets); diff != "" {
			rt.Errorf("settings -want +got:\n%s", diff)
		}
		standing := Standing{At: someTime, Observe: rapid.Bool().Draw(rt, "o"), LowerUnpreemptable: rapid.Bool().Draw(rt, "l"), Below: below}
		data, err := EncodeGeneration(snapshot, standing)
		if err != nil {
			rt.Fatal(err)
		}
		g, err := OpenGeneration(data)
		if err != nil {
			rt.Fatal(err)
		}
		if !g.At.Equal(someTime) || g.Observe != standing.Observe || g.LowerUnpreemptable != standing.LowerUnpreemptable || g.Snapshot != r.Identity() {
			rt.Errorf("%+v gives %+v", standing, g)
		}
		for _, want := range policy.Projects {
			got, first, ok, err := r.Find(want.Name)
			if err != nil || !ok {
				rt.Fatalf("%q: %t %v", want.Name, ok, err)
			}
			slices.Sort(want.Steps)
			want.Steps = slices.Compact(want.Steps)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b Pool) bool { return a.ID < b.ID })); diff != "" {
				rt.Errorf("-want +got:\n%s", diff)
			}
			for i, pool := range got.Pools {
				if g.Below(first+i) != below[pool.ID] {
					rt.Errorf("pool %d below: %t, want %t", pool.ID, g.Below(first+i), below[pool.ID])
				}
			}
		}
		if _, _, ok, err := r.Find("no such project, ever"); ok || err != nil {
			rt.Errorf("an unknown project: %t %v", ok, err)
		}
	})
}

// R3: a snapshot or generation cut off anywhere, or with a byte changed, is an
// error or still gives the true answer; never a wrong one, never a crash.
func TestDamageNeverMisleads(t *testing.T) {
	policy := somePolicy()
	snapshot := Encode(policy)
	data, err := EncodeGeneration(snapshot, Standing{At: someTime, Below: map[int64]bool{7: true}})
	if err != nil {
		t.Fatal(err)
	}
	req := Request{Project: "chipA", Groups: []int64{500}, User: "alice", Slots: 6} // just as many as there are
	whole, err := Decide(req, open(t, snapshot), mustGeneration(t, data), someTime)
	if err != nil || whole.Priority != 3020 {
		t.Fatalf("%+v, %v", whole, err)
	}
	check := func(what string, snapshot, generation []byte, mayPass bool) {
		t.Helper()
		r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
		if err != nil {
			return
		}
		g, err := OpenGeneration(generation)
		if err != nil {
			return
		}
		got, err := Decide(req, r, g, someTime)
		if err != nil {
			return
		}
		if !mayPass || !cmp.Equal(got, whole) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for n := range len(snapshot) {
		check("snapshot of "+strconv.Itoa(n)+" bytes", snapshot[:n], data, false)
		broken := bytes.Clone(snapshot)
		for bit := range 8 {
			broken[n] = snapshot[n] ^ 1<<bit
			check("snapshot with byte "+strconv.Itoa(n)+" changed", broken, data, true)
		}
		if r, err := Open(bytes.NewReader(broken), int64(len(broken))); err == nil && n >= 40 && r.Verify() == nil {
			t.Errorf("Verify does not see that byte %d is changed", n)
		}
	}
	check("snapshot with a byte more", append(bytes.Clone(snapshot), 0), data, false)
	for n := range len(data) {
		check("generation of "+strconv.Itoa(n)+" bytes", snapshot, data[:n], false)
		broken := bytes.Clone(data)
		broken[n] ^= 1 << (n % 8)
		check("generation with byte "+strconv.Itoa(n)+" changed", snapshot, broken, false)
	}
}

// R3: a record in another's place is found out.
func TestRecordIsBoundToItsIndex(t *testing.T) {
	snapshot := Encode(somePolicy())
	index := snapshot[open(t, snapshot).head:]
	first := bytes.Clone(index[:indexSize])
	copy(index, index[indexSize:2*indexSize])
	copy(index[indexSize:], first)
	if _, _, ok, err := open(t, snapshot).Find("chipA"); ok || !errors.Is(err, ErrCorrupt) {
		t.Errorf("found %t, %v", ok, err)
	}
}

// R2: a lookup reads a few records, never the whole.
func TestFindReadsLittle(t *testing.T) {
	var p Policy
	for i := range 5000 {
		p.Projects = append(p.Projects, Project{Name: "project" + strconv.Itoa(i), Group: "g", Pools: []Pool{{ID: int64(i), Slots: 1}}})
	}
	snapshot := Encode(p)
	src := &counting{r: bytes.NewReader(snapshot)}
	r, err := Open(src, int64(len(snapshot)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := r.Find("project4711"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if src.calls > 32 || src.bytes > len(snapshot)/50 {
		t.Errorf("%d reads, %d of %d bytes", src.calls, src.bytes, len(snapshot))
	}
}

type counting struct {
	r            *bytes.Reader
	calls, bytes int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.calls++
	c.bytes += len(p)
	return c.r.ReadAt(p, off)
}

// R3: a format of another version is named as such.
func TestOtherVersion(t *testing.T) {
	snapshot := Encode(somePolicy())
	data, _ := EncodeGeneration(snapshot, Standing{})
	snapshot[8], data[8] = snapshotVersion+1, generationVersion+1
	_, errSnapshot := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	_, errGeneration := OpenGeneration(data)
	for _, err := range []error{errSnapshot, errGeneration} {
		if err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "of one version") {
			t.Error(err)
		}
	}
}

func mustGeneration(t *testing.T, data []byte) Generation {
	t.Helper()
	g, err := OpenGeneration(data)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A snapshot from before jobs were held, or ranks clipped, is read: no job is held or
// clipped.
func TestOldSnapshotsAreRead(t *testing.T) {
	const checkpoint, hold, rank = 8, 16, 24
	for what, cut := range map[string]int{"before checkpoints": checkpoint, "before other jobs were held": hold, "before ranks were clipped": rank, "before heavy jobs": rank + len(appendHeavy(nil, Heavy{}))} {
		want := somePolicy().Settings
		want.Heavy, want.MostRank, want.HoldFixed, want.CheckpointMax = Heavy{}, 0, 0, 0
		old := Encode(Policy{Settings: want})
		old = old[:len(old)-cut]
		put32(old[12:], uint32(len(old)))
		put64(old[16:], uint64(len(old)))
		put64(old[24:], sum(old[40:]))
		put64(old[32:], headerSum(old))
		r, err := Open(bytes.NewReader(old), int64(len(old)))
		if err != nil {
			t.Fatal(what, err)
		}
		if diff := cmp.Diff(want, r.Settings(), cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Error(what, diff)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(Encode(somePolicy()), "chipA")
	f.Add(Encode(Policy{}), "")
	f.Add([]byte(snapshotMagic), "x")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if len(data) >= headerSize { // else no change would get past the header's sum
			put64(data[16:], uint64(len(data)))
			put64(data[32:], headerSum(data[:min(max(int(binary.LittleEndian.Uint32(data[12:])), headerSize), len(data))]))
		}
		r, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		_, _, _, _ = r.Find(name)
		_ = r.Verify()
		_, _ = EncodeGeneration(data, Standing{})
		_, _ = Decide(Request{Project: name, Memory: 1 << 62}, r, Generation{Snapshot: r.Identity(), At: someTime}, someTime)
	})
}

func FuzzGeneration(f *testing.F) {
	snapshot := Encode(somePolicy())
	data, _ := EncodeGeneration(snapshot, Standing{At: someTime, Below: map[int64]bool{7: true}})
	f.Add(data)
	f.Add([]byte(generationMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := OpenGeneration(data)
		if err != nil {
			return
		}
		for i := -1; i <= g.pools && i < 1000; i++ {
			g.Below(i)
		}
	})
}
