package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/objects"
	"github.com/allotment-hpc/allotment/agent/root"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/state"
)

// diskLoad is what a job uses of a host's disks, in a second, and the part of the time in which it waits for them.
type diskLoad struct {
	job    int64
	source measure.Source
	bytes  uint64
	waits  float64
}

// sampleAt is what is measured after some seconds of the same loads.
func sampleAt(second int, loads ...diskLoad) *measure.Sample {
	s := &measure.Sample{At: time.Unix(int64(1000+second), 0)}
	value := func(n uint64) measure.Value { return measure.Value{N: n * uint64(second), Known: true} }
	for _, l := range loads {
		user := 1000
		if l.source == measure.FromProcesses {
			user = 500
		}
		s.Jobs = append(s.Jobs, measure.Job{
			Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: l.job}, User: user}, Source: l.source,
			CPU: value(5e8), Disks: []measure.Disk{{ReadBytes: value(0), WrittenBytes: value(l.bytes)}}, Pressure: measure.Pressure{CPUSome: value(0), IOSome: value(uint64(l.waits * 1e9))},
		})
	}
	return s
}

// limiterOf returns a limiter of a host on which jobs 7 to 9 have control groups.
func limiterOf(t *testing.T, mode settings.LimitsMode, said io.Writer) *limiter {
	t.Helper()
	dir := t.TempDir()
	for file, value := range map[string]string{"cpu.weight": "100", "cpu.max": "max 100000", "io.max": "", "cgroup.freeze": "0"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := newLimiter("h1", settings.Limits{Mode: mode, Disk: 100 << 20}, nil, slog.New(slog.NewTextHandler(said, nil)))
	l.groups = func() (all []*measure.JobGroup) {
		for job := range int64(3) {
			all = append(all, &measure.JobGroup{Queue: measure.Slurm, ID: backends.ID{Job: 7 + job}, Dirs: map[string]string{"": dir}})
		}
		return all
	}
	return l
}

// hears has a limiter hear promises as allotd sends them.
func hears(t *testing.T, l *limiter, p supervise.Promises) {
	t.Helper()
	message, left, err := p.Encode()
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	l.hear(message)
	l.promises.Load().at = time.Unix(1000, 0) // of the samples' clock
}

var (
	promised = supervise.Promise{Queue: "slurm", Job: 7, Slots: 2, Minimum: supervise.Amounts{supervise.Disk: 60 << 20}}
	other    = supervise.Promise{Queue: "slurm", Job: 8, Slots: 1}
)

// R47: limits are asked for in each sample, since they are leases, until none is needed; one that is not in force is
// not tried again, and what was heard too long ago counts no more.
func TestLimitsAreSet(t *testing.T) {
	var said bytes.Buffer
	l := limiterOf(t, settings.LimitsOn, &said)
	if want := "without its root helper"; !strings.Contains(said.String(), want) {
		t.Errorf("no %q in %s", want, said.String())
	}
	var asked [][]root.Limit
	why, broken := "", error(nil)
	l.set = func(all []root.Limit) ([]string, error) {
		asked = append(asked, all)
		return slices.Repeat([]string{why}, len(all)), broken
	}
	var noted []string
	l.note = func(job state.Job, event, detail string, _ time.Time) {
		noted = append(noted, fmt.Sprint(job, " ", event, " ", detail))
	}
	second := 0
	sample := func(loads ...diskLoad) []root.Limit {
		t.Helper()
		was := len(asked)
		second++
		l.sample(sampleAt(second, loads...))
		if len(asked) > was+1 {
			t.Fatalf("asked %d times in a sample", len(asked)-was)
		}
		if len(asked) == was {
			return nil
		}
		return append([]root.Limit{}, asked[was]...)
	}
	loads := []diskLoad{{7, measure.FromGroupV2, 20 << 20, 0.9}, {8, measure.FromGroupV2, 70 << 20, 0.5}}
	hears(t, l, supervise.Promises{Jobs: []supervise.Promise{promised, other}})
	if got := sample(loads...); got != nil {
		t.Errorf("of one sample: %+v", got)
	}
	want := root.Limit{Queue: measure.Slurm, ID: backends.ID{Job: 8}, Resource: supervise.Disk, Rung: supervise.Rate, Value: 40 << 20}
	for range 3 {
		if got := sample(loads...); len(got) != 1 || got[0] != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	if got := sample(loads[1:]...); got == nil || len(got) != 0 {
		t.Errorf("after its end: %+v", got)
	}
	if len(noted) != 2 || !strings.HasPrefix(noted[0], "slurm/8 limited disk, by rate 41943040: slurm 7 was promised disk of 62914560") || noted[1] != "slurm/8 unlimited disk, by rate, since 1970-01-01T00:16:42Z" {
		t.Errorf("noted %q", noted)
	}
	if got := sample(loads[1:]...); got != nil {
		t.Errorf("when nothing is limited: %+v", got)
	}
	why = "it has no io.max"
	sample(loads...)
	for _, want := range []supervise.Rung{supervise.Rate, supervise.Duty} {
		if got := sample(loads...); len(got) != 1 || got[0].Rung != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if got := sample(loads...); got != nil || len(l.limits) != 0 {
		t.Errorf("they are tried again: %+v, %+v", got, l.limits)
	}
	for _, want := range []string{`msg="a limit is not in force" job="slurm 8" resource=disk by=rate why="it has no io.max"`, "nothing on h1 can limit others", "msg=limits", "msg=lifts"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, said.String())
		}
	}
	why = ""
	sample(loads[:1]...) // job 8 has ended, and is known anew when it is back
	sample(loads...)
	if got := sample(loads...); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	broken = errors.New("the helper is gone")
	if sample(loads...); len(l.limits) != 0 {
		t.Errorf("not set, and in force: %+v", l.limits)
	}
	broken = nil
	if got := sample(loads...); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	second += int(promisesLast / time.Second)
	if got := sample(loads...); got == nil || len(got) != 0 {
		t.Errorf("of old promises: %+v", got)
	}
}

// R47: ahostd logs the limits that it would set, the job that each is for, and their end.
func TestWouldLimit(t *testing.T) {
	var said bytes.Buffer
	l := limiterOf(t, settings.LimitsObserve, &said)
	begins := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(said.String(), w) {
				t.Errorf("no %q in\n%s", w, said.String())
			}
		}
		if len(want) == 0 && said.Len() > 0 {
			t.Errorf("it said\n%s", said.String())
		}
		said.Reset()
	}
	tell := func(p supervise.Promises) { hears(t, l, p) }
	v2, known := measure.FromGroupV2, []supervise.Promise{promised, other}
	loads := []diskLoad{{7, v2, 20 << 20, 0.9}, {8, v2, 70 << 20, 0.5}, {9, v2, 10 << 20, 0.5}}
	l.sample(sampleAt(1, loads...))
	l.sample(sampleAt(2, loads...))
	begins() // nothing is known of promises
	tell(supervise.Promises{Jobs: known})
	l.sample(sampleAt(3, loads...))
	begins(`msg="would limit" job="slurm 8" resource=disk by=rate`, `for="slurm 7"`)
	if len(l.limits) != 1 {
		t.Errorf("a job that the queue does not know, too: %+v", l.limits)
	}
	l.sample(sampleAt(4, loads...))
	begins() // it is the same
	tell(supervise.Promises{Jobs: known, Paused: true})
	l.sample(sampleAt(5, loads...))
	begins(`msg="would lift" job="slurm 8" resource=disk by=rate since=1970-01-01T00:16:43Z`)
	tell(supervise.Promises{Jobs: known})
	l.sample(sampleAt(6, loads...))
	begins("would limit")
	l.sample(sampleAt(7, loads[1:]...)) // the promised one has ended
	begins("would lift")
	// Any user can say in an environment to be a job: what is of a control group counts.
	said.Reset()
	liar := diskLoad{8, measure.FromProcesses, 0, 0}
	loads = []diskLoad{loads[0], liar, loads[1], loads[2]}
	l.sample(sampleAt(8, loads...))
	l.sample(sampleAt(9, loads...))
	begins(`msg="would limit" job="slurm 8" resource=disk`)
	loads = []diskLoad{loads[0], {8, measure.FromProcesses, 70 << 20, 0.5}, loads[3]}
	l.sample(sampleAt(10, loads...))
	l.sample(sampleAt(11, loads...))
	begins(`level=WARN msg="a promise is not kept" job="slurm 7"`)
	l.hear([]byte(`{"jobs":[{"job":-1}]}`))
	begins("what jobs were promised is not known")
}

// R47: a job that has more memory than it asked for is frozen where its host lacks memory, and allotd is asked to
// requeue it. One within its request is not limited. When memory is there, the plea is withdrawn.
func TestMemoryIsSaved(t *testing.T) {
	const mib = 1 << 20
	var said bytes.Buffer
	l := limiterOf(t, settings.LimitsOn, &said)
	var asked []root.Limit
	l.set = func(all []root.Limit) ([]string, error) { asked = all; return make([]string, len(all)), nil }
	var pleas []*supervise.Pleas
	l.plead = func(message []byte) error {
		p, err := supervise.ParsePleas(message)
		pleas = append(pleas, p)
		return err
	}
	second, available := 0, uint64(0)
	l.memory = func() measure.Host {
		return measure.Host{Memory: measure.Value{N: 1000 * mib, Known: true}, Available: measure.Value{N: available * mib, Known: true}}
	}
	hears(t, l, supervise.Promises{Jobs: []supervise.Promise{
		{Queue: "slurm", Job: 7, Slots: 1, Memory: 400 * mib, Requeues: true}, {Queue: "slurm", Job: 8, Slots: 1, Memory: 300 * mib, Requeues: true},
	}})
	sample := func(left uint64) {
		second++
		available = left
		s := sampleAt(second, diskLoad{job: 7, source: measure.FromGroupV2}, diskLoad{job: 8, source: measure.FromGroupV2})
		for i, used := range []uint64{400 * mib, 500 * mib} { // of them 50 are files' cache
			s.Jobs[i].Memory, s.Jobs[i].Cache = measure.Value{N: used, Known: true}, measure.Value{N: 50 * mib, Known: true}
		}
		l.sample(s)
	}
	sample(300)
	sample(200)
	if len(asked) != 0 {
		t.Errorf("with 200 MiB left: %+v", asked)
	}
	want := root.Limit{Queue: measure.Slurm, ID: backends.ID{Job: 8}, Resource: supervise.Memory, Rung: supervise.Freeze}
	for second := range 5 {
		sample(70)
		if len(asked) != 1 || asked[0] != want {
			t.Fatalf("%+v, want %+v", asked, want)
		}
		if second < 4 && len(pleas) > 0 {
			t.Errorf("after %d s: %+v", second, pleas[0])
		}
	}
	if want := (supervise.Plea{Queue: "slurm", Job: 8, Verb: supervise.Requeue, Used: 450 * mib, Frozen: 4 * time.Second}); len(pleas) != 1 || len(pleas[0].Jobs) != 1 || pleas[0].Jobs[0] != want {
		t.Fatalf("%+v, want %+v", pleas, want)
	}
	sample(500)
	if len(asked) != 0 || len(pleas) != 2 || len(pleas[1].Jobs) != 0 {
		t.Errorf("once memory is there: limits %+v, pleas %+v", asked, pleas)
	}
	sample(500)
	if len(pleas) != 2 {
		t.Errorf("it goes on: %+v", pleas)
	}
	if want := `msg="asks allotd for an act" job="slurm 8" verb=requeue`; strings.Count(said.String(), want) != 1 {
		t.Errorf("not once %q in\n%s", want, said.String())
	}
}

// R48: a job that would end after its deadline, by what it says of its progress and not by its clock, has others limited.
func TestDeadlineIsKept(t *testing.T) {
	var said bytes.Buffer
	l := limiterOf(t, settings.LimitsObserve, &said)
	percent, silent := 0, false
	l.said = func(s *measure.Sample) map[measure.Key]objects.Said {
		if silent {
			return nil
		}
		return map[measure.Key]objects.Said{s.Jobs[0].Key: {Progress: state.Progress{Percent: percent}, At: time.Unix(1, 0)}}
	}
	hurries := supervise.Promise{Queue: "slurm", Job: 7, Slots: 2, Deadline: 1000 + 700, Most: supervise.Amounts{supervise.Disk: 60 << 20}}
	hears(t, l, supervise.Promises{Jobs: []supervise.Promise{hurries, other}})
	loads := []diskLoad{{7, measure.FromGroupV2, 30 << 20, 0.9}, {8, measure.FromGroupV2, 70 << 20, 0.5}}
	for second := 1; second <= 60; second++ { // 100 % in 1,000 s
		silent = second > 50
		percent = second / 10
		l.sample(sampleAt(second, loads...))
		if limited := len(l.limits) > 0; limited != (second >= 20 && second <= 50) {
			t.Fatalf("after %d s: %+v", second, l.limits)
		}
	}
	if want := "would limit\" job=\"slurm 8\" resource=disk by=rate value="; !strings.Contains(said.String(), want) {
		t.Errorf("no %q in\n%s", want, said.String())
	}
	if want := "slurm 7 would end 3 min after its deadline"; !strings.Contains(said.String(), want) {
		t.Errorf("no %q in\n%s", want, said.String())
	}
}

// A job waits for the network that sends less than it was promised, or may have because of its deadline.
func TestSaturated(t *testing.T) {
	uses := supervise.Amounts{supervise.Network: 30}
	h := &supervise.Host{Capacity: supervise.Amounts{supervise.Network: 100}, Jobs: []supervise.Job{
		{Name: "hurries", Uses: uses, Most: supervise.Amounts{supervise.Network: 31}},
		{Name: "promised", Uses: uses, Minimum: supervise.Amounts{supervise.Network: 31}},
		{Name: "other", Uses: uses, Most: supervise.Amounts{supervise.Network: 30}},
	}}
	saturate(h)
	for i, want := range []float64{1, 1, 0} {
		if got := h.Jobs[i].Waits[supervise.Network]; got != want {
			t.Errorf("%s: %v, want %v", h.Jobs[i].Name, got, want)
		}
	}
}
