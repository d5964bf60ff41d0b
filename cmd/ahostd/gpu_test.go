package main

import (
	"context"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/nvml"
)

// ahostd serves what a stand-in for NVML says: also when a GPU is gone. When a call does not
// return, all else is measured as before.
func TestServesGPUs(t *testing.T) {
	library := nvml.Build(t)
	library.Says(t, "fine")
	for _, variable := range library.Env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	dir := home(t, "ahostd: {every: 1s}\n")
	serving(t, dir, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	busy := func(samples map[string]float64, gpu int) (float64, bool) {
		v, ok := samples[`allotment_host_gpu_busy_ratio{host="`+host+`",gpu="`+strconv.Itoa(gpu)+`"}`]
		return v, ok
	}
	for _, x := range []struct {
		word        string
		first, both bool
	}{{"fine", true, true}, {"one", true, false}, {"fine", true, true}, {"hang", false, false}} {
		library.Says(t, x.word)
		if !await.Every(ctx, 100*time.Millisecond, func() bool {
			samples := scrape(t, dir)
			v, first := busy(samples, 0)
			_, second := busy(samples, 1)
			return first == x.first && second == x.both && (!first || v == 0.4)
		}) {
			t.Fatalf("%s: %v", x.word, scrape(t, dir))
		}
	}
	samples := func() float64 { return scrape(t, dir)[`allotment_host_samples_total{host="`+host+`"}`] }
	before := samples()
	if !await.Every(ctx, 100*time.Millisecond, func() bool { return samples() >= before+2 }) {
		t.Error("nothing is measured while NVML does not answer")
	}
}

// What GPUs do is in the heartbeat, without what they do not answer.
func TestGPUsInHeartbeat(t *testing.T) {
	is := func(n uint64) measure.Value { return measure.Value{N: n, Known: true} }
	sample := &measure.Sample{GPUs: []measure.GPU{
		{Index: 1, Busy: is(40), MemoryUsed: is(1), Memory: is(2), Celsius: is(60), Milliwatts: is(249_999)},
		{Index: 3, Why: "GPU is lost"},
	}}
	n := func(n uint64) *uint64 { return &n }
	b := beatOf(measure.Host{}, sample, 0)
	if diff := cmp.Diff([]roster.GPU{{Index: 1, Busy: n(40), Used: n(1), Memory: n(2), Celsius: n(60), Watts: n(249)}, {Index: 3}}, b.GPUs); diff != "" {
		t.Error(diff)
	}
	b.Run = "r"
	if _, err := b.Encode(); err != nil {
		t.Error(err)
	}
	// A host whose NVML does not answer says so also when it has no jobs.
	why := ""
	s := measure.New(measure.Options{Proc: t.TempDir(), GPUs: func(time.Time) measure.GPUReading { return measure.GPUReading{Why: why} }})
	defer s.Close()
	for _, why = range []string{"", "no answer"} {
		sample := s.Sample(time.Unix(100, 0))
		if b := beatOf(measure.Host{}, &sample, 0); b.GPUs != nil || slices.Contains(b.Lacks, string(measure.GPUs)) != (why != "") {
			t.Errorf("%q: %+v", why, b)
		}
	}
}

// The list has columns for GPUs where the host has some, and no number for what is absent.
func TestTopOfGPUs(t *testing.T) {
	is := func(n uint64) measure.Value { return measure.Value{N: n, Known: true} }
	job := func(id int64, use measure.GPUUse) measure.Job {
		return measure.Job{Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: id}, User: measure.NoUser}, GPU: use}
	}
	v := &topView{by: "job", users: map[int]string{}, now: measure.Sample{GPUs: []measure.GPU{{}}, Jobs: []measure.Job{
		job(1, measure.GPUUse{Devices: is(2), Memory: is(3 << 30), SM: is(150)}),
		job(2, measure.GPUUse{Devices: is(1), Memory: is(math.MaxUint64)}),
		job(3, measure.GPUUse{}),
	}}}
	text := strings.Join(v.lines(), "\n")
	for _, row := range []string{`THREADS +GPU +GPUMEM`, `slurm +1 .* 1\.50 +3\.00G`, `slurm +2 .* - +\S+`, `slurm +3 .* - +-`} {
		if !regexp.MustCompile(row).MatchString(text) {
			t.Errorf("%s\nwant %s", text, row)
		}
	}
	v.now.GPUs = nil
	if text := strings.Join(v.lines(), "\n"); strings.Contains(text, "GPU") {
		t.Error(text)
	}
	answer := v.answer()
	if j := answer.Jobs[0]; j.GPUs == nil || *j.GPUs != 2 || *j.GPUBusy != 1.5 || *j.GPUMemory != 3<<30 || answer.Jobs[2].GPUBusy != nil {
		t.Errorf("%+v", j)
	}
}

// A heartbeat says that its report has no room for all jobs.
func TestCutReportIsInHeartbeat(t *testing.T) {
	sample := &measure.Sample{Lacks: []measure.Lack{{Figure: measure.PressureStalls}}}
	for left, want := range [][]string{{string(measure.PressureStalls)}, {string(measure.PressureStalls), roster.LacksReport}} {
		if got := beatOf(measure.Host{}, sample, left).Lacks; !slices.Equal(got, want) {
			t.Errorf("%d jobs are left out: it lacks %q, want %q", left, got, want)
		}
	}
}
