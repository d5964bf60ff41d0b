package qualify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/metrics"
)

// example returns a result with round figures.
func example() Result {
	return Result{
		Version: version, Fingerprint: "f00", Measured: time.Unix(1e9, 0).UTC(), Seconds: 6,
		Machine:      Machine{Host: "node7", CPUs: "0-3", Memory: 4 << 30},
		CPU:          CPU{Workers: 4, Cores: 4, One: Speed{Integer: 100, Floating: 400, Hash: 200}, All: Speed{Integer: 300, Floating: 1200, Hash: 600}},
		Memory:       Memory{Bandwidth: 1024, Size: 4 << 30},
		Bus:          Bus{Copy: 5000},
		Storage:      Storage{Write: 100, Read: 1000, Random: 10},
		Interconnect: &Link{Latency: 100, Throughput: 100},
		GPUs:         []GPU{{Memory: 40, Clock: 1.6}, {Memory: 16, Clock: 1}},
	}
}

func TestMeasures(t *testing.T) {
	r := example()
	want := metrics.Measures{
		metrics.Interconnect: 1000, metrics.CPU: 600, metrics.GPU: 12, metrics.Storage: 100, metrics.Memory: 2048, metrics.Bus: 5000,
	}
	if diff := cmp.Diff(want, r.Measures(0)); diff != "" {
		t.Error(diff)
	}
	for cores, want := range map[int]float64{1: 200, 2: 400, 3: 600, 64: 600} { // four threads do what three could
		if got := r.Measures(cores)[metrics.CPU]; got != want {
			t.Errorf("%d cores: %v, want %v", cores, got, want)
		}
	}
	r.Interconnect, r.GPUs = nil, nil
	if m := r.Measures(0); m[metrics.Interconnect] != 0 || m[metrics.GPU] != 0 {
		t.Errorf("a host without has %v", m)
	}
}

func encoded(t *testing.T, r Result) []byte {
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDecode(t *testing.T) {
	want := example()
	got, err := Decode(bytes.NewReader(encoded(t, want)))
	if err != nil || !cmp.Equal(want, got, cmp.AllowUnexported(Machine{})) {
		t.Error(err, cmp.Diff(want, got, cmp.AllowUnexported(Machine{})))
	}
	change := func(f func(*Result)) string {
		r := example()
		f(&r)
		return string(encoded(t, r))
	}
	for name, text := range map[string]string{
		"nothing":         "",
		"another version": change(func(r *Result) { r.Version = 2 }),
		"an error":        change(func(r *Result) { r.Error = "no space left" }),
		"no storage":      change(func(r *Result) { r.Storage = Storage{} }),
		"below zero":      change(func(r *Result) { r.CPU.One.Hash = -1 }),
		"huge":            change(func(r *Result) { r.Bus.Copy = 1e300 }),
		"a huge GPU":      change(func(r *Result) { r.GPUs[0].Clock = 1e300 }),
		"no latency":      change(func(r *Result) { r.Interconnect.Latency = 0 }),
		"no fingerprint":  change(func(r *Result) { r.Fingerprint = "" }),
		"another key":     strings.Replace(string(encoded(t, example())), `"version":1`, `"version":1,"speed":3`, 1),
		"two of them":     string(encoded(t, example())) + "{}",
		"too long":        strings.Repeat(" ", maxResult) + string(encoded(t, example())),
	} {
		if r, err := Decode(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error, %+v", name, r)
		}
	}
	if _, err := Decode(strings.NewReader(change(func(r *Result) { r.Error = "no space left" }))); err == nil || err.Error() != "no space left" {
		t.Errorf("a host's own error is %v", err)
	}
}

// The measures of an accepted result are in range.
func FuzzDecode(f *testing.F) {
	text, err := json.Marshal(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"error":"x"}`))
	f.Add([]byte(`{"host":"a","boot":"b","addresses":["10.0.0.1:80"],"secret":"` + strings.Repeat("AAAA", 11) + `"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := Decode(bytes.NewReader(text)); err == nil {
			for _, cores := range []int{0, 1, 1 << 20} {
				for e, v := range r.Measures(cores) {
					if !(v >= 0) || math.IsInf(v, 0) {
						t.Errorf("%s of %d cores: %v", metrics.Element(e), cores, v)
					}
				}
			}
		}
		if o, err := parseOffer(text); err == nil && (len(o.Addresses) == 0 || len(o.Secret) != nonceSize) {
			t.Errorf("%+v", o)
		}
	})
}

func TestBlockSize(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct{ cache, free, want uint64 }{
		{32 * MiB, 64 << 30, 128 * MiB},
		{100 * MiB, 64 << 30, 200 * MiB},
		{300 * MiB, 64 << 30, 512 * MiB},
		{32 * MiB, 256 * MiB, 32 * MiB},
		{32 * MiB, 100, 1 * MiB},
		{0, 8*5*MiB + 9, 5 * MiB},
	} {
		if got := blockSize(c.cache, c.free); got != c.want {
			t.Errorf("caches of %d, %d free: %d, want %d", c.cache, c.free, got, c.want)
		}
	}
}

func TestCopyAll(t *testing.T) {
	b, err := newBlock(2 * minBlock)
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	soon := time.Now().Add(time.Minute)
	pairs := []pair{b.part(0, 2).touch(context.Background(), soon), b.part(1, 2).touch(context.Background(), soon)}
	if len(pairs[0].from) != minBlock/2 || len(pairs[1].to) != minBlock/2 {
		t.Fatalf("halves of %d and %d bytes", len(pairs[0].from), len(pairs[1].to))
	}
	if n := copyAll(context.Background(), time.Now(), pairs); n != stride {
		t.Errorf("%d bytes when the time is up, want one stride", n)
	}
	if n := copyAll(context.Background(), time.Now().Add(20*time.Millisecond), pairs); n < minBlock {
		t.Errorf("only %d bytes in 20 ms", n)
	}
}

// This host is measured: each figure is there and plausible, nothing stays behind, and
// the cache has the result.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("skip: it takes 6 s")
	}
	dir, cache := t.TempDir(), Cache(filepath.Join(t.TempDir(), "cache"))
	server, err := Serve(context.Background(), LinkFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := Run(context.Background(), dir, 3, cache, true); err != nil {
		t.Fatal(err)
	}
	r, err := ReadResult(ResultFile(dir, 3))
	if err != nil {
		t.Fatal(err)
	}
	for e, v := range r.Measures(0) {
		if v <= 0 && metrics.Element(e) != metrics.GPU {
			t.Errorf("%s: %v", metrics.Element(e), v)
		}
	}
	if r.CPU.Cores > float64(r.CPU.Workers)+0.1 || r.CPU.One.Floating < 1 || r.Interconnect == nil || !strings.HasPrefix(r.Interconnect.Address, "127.0.0.1:") {
		t.Errorf("%+v", r)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 { // the link's file and the result
		t.Errorf("%v, %v", left, err)
	}
	if err := Run(context.Background(), dir, 4, cache, false); err != nil {
		t.Fatal(err)
	}
	again, err := ReadResult(ResultFile(dir, 4))
	if err != nil || !cmp.Equal(r, again, cmp.AllowUnexported(Machine{})) {
		t.Error(err, cmp.Diff(r, again, cmp.AllowUnexported(Machine{})))
	}
}

func TestRunWritesItsError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(LinkFile(dir), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(context.Background(), dir, 1, "", false)
	_, left := ReadResult(ResultFile(dir, 1))
	if err == nil || left == nil || !strings.Contains(left.Error(), err.Error()) {
		t.Errorf("it failed with %v and wrote %v", err, left)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), dir, 2, "", false); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("in a world-writable directory: %v", err)
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	_, err := Measure(ctx, Options{Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
}

func TestCache(t *testing.T) {
	c := CacheOf(home.Paths{State: t.TempDir()})
	r := example()
	if _, ok := c.Load(r.Fingerprint); ok {
		t.Error("an empty cache has it")
	}
	if err := c.Store(r); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.Load(r.Fingerprint); !ok || !cmp.Equal(r, got, cmp.AllowUnexported(Machine{})) {
		t.Error(ok, cmp.Diff(r, got, cmp.AllowUnexported(Machine{})))
	}
	other := c.path("bad")
	if err := os.Rename(c.path(r.Fingerprint), other); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Load("bad"); ok {
		t.Error("a measurement of another fingerprint is returned")
	}
	if err := os.Rename(other, c.path(r.Fingerprint)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.path(r.Fingerprint), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Load(r.Fingerprint); ok {
		t.Error("a world-writable file is trusted")
	}
	if err := os.Chmod(string(c), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := c.Store(r); err == nil {
		t.Error("a world-writable directory is used")
	}
	t.Setenv("XDG_CACHE_HOME", "/x")
	if got := CacheOf(home.Paths{State: "/proc/none"}); got != "/x/allotment" {
		t.Errorf("the cache of a user on a farm of others is %q", got)
	}
}
