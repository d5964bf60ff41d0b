package roster

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/state"
)

var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func beat(run, boot string, n uint64) Beat {
	return Beat{Run: run, Boot: boot, Version: "1", Cores: 4, Sequence: n}
}

// farm is a roster of one host, by seconds.
type farm struct {
	t    *testing.T
	r    *Roster
	at   int
	n    uint64
	run  string
	boot string
	log  []string
}

func newFarm(t *testing.T) *farm { return &farm{t: t, r: New(), run: "r1", boot: "b1"} }

// pass lets seconds pass, with or without heartbeats.
func (f *farm) pass(seconds int, beats bool) {
	for range seconds {
		now := start.Add(time.Duration(f.at) * time.Second)
		var events []Event
		if beats && f.at%5 == 0 {
			f.n++
			events = f.r.Heard("h1", beat(f.run, f.boot, f.n), now)
		}
		events = append(events, f.r.Tick(now)...)
		for _, e := range events {
			f.log = append(f.log, fmt.Sprintf("%d %s", f.at, e.To))
		}
		f.at++
	}
}

func (f *farm) want(log ...string) {
	f.t.Helper()
	if !reflect.DeepEqual(f.log, log) {
		f.t.Errorf("%q, want %q", f.log, log)
	}
}

func TestPowerCutIsNoFlapping(t *testing.T) {
	f := newFarm(t)
	f.pass(60, true)
	f.pass(60, false)
	f.boot, f.run, f.n = "b2", "r2", 0
	f.pass(60, true)
	f.pass(60, false)
	f.boot, f.run, f.n = "b3", "r3", 0
	f.pass(60, true)
	f.want("0 here", "71 lost", "120 here", "191 lost", "240 here") // the last heartbeat came at 55
	if h, ok := f.r.Host("h1", start.Add(300*time.Second)); !ok || h.Losses != 0 || h.Reason != "it has booted" {
		t.Errorf("%+v", h)
	}
}

func TestFlappingLinkIsHeldDown(t *testing.T) {
	f := newFarm(t)
	f.pass(30, true)
	for range 6 {
		f.pass(30, false)
		f.pass(30, true)
	}
	f.pass(330, true)
	f.want("0 here", "41 lost", "60 returning", "75 here", "101 lost", "120 flapping", "161 lost", "180 flapping",
		"221 lost", "240 flapping", "281 lost", "300 flapping", "341 lost", "360 flapping", "660 here")
	// Long after it the host is as any.
	f.pass(2400, true)
	f.log = nil
	f.pass(30, false)
	f.pass(30, true)
	f.want("3131 lost", "3150 returning", "3165 here")
}

func TestAgentThatStartsAgain(t *testing.T) {
	f := newFarm(t)
	f.pass(30, true)
	f.run, f.n = "r2", 0
	f.pass(30, true)
	f.want("0 here")
}

func TestTwoAgentsOfOneName(t *testing.T) {
	r := New()
	var log []State
	for i := range 20 {
		name := []string{"a", "b"}[i%2]
		for _, e := range r.Heard("h1", beat(name, name, uint64(i)), start.Add(time.Duration(i)*5*time.Second)) {
			log = append(log, e.To)
		}
	}
	if h, _ := r.Host("h1", start); !reflect.DeepEqual(log, []State{Here, Flapping}) || h.Reason != twoAgents {
		t.Errorf("%q %+v", log, h)
	}
}

func TestWithdrawnHost(t *testing.T) {
	f := newFarm(t)
	f.pass(10, true)
	now := func() time.Time { return start.Add(time.Duration(f.at) * time.Second) }
	if events := f.r.Withdraw("h1", now()); len(events) != 1 || events[0].To != Gone {
		t.Errorf("%v", events)
	}
	f.pass(5, true) // what was under way
	f.pass(60, false)
	f.want("0 here")
	f.pass(5, true)
	f.want("0 here", "75 here")
	f.r.Withdraw("h1", now())
	f.pass(24*3600+1, false)
	f.want("0 here", "75 here", fmt.Sprintf("%d ", f.at-1))
	if len(f.r.Hosts(now())) != 0 || f.r.Withdraw("h1", now()) != nil {
		t.Error("it is still there")
	}
}

func TestHostsAreBounded(t *testing.T) {
	r := New()
	for i := range MaxHosts + 5 {
		r.Heard(fmt.Sprint("h", i), beat("r", "b", 1), start)
	}
	if n := len(r.Hosts(start)); n != MaxHosts || r.LeftOut() != 5 {
		t.Errorf("%d, %d left out", n, r.LeftOut())
	}
	for _, name := range []string{"", strings.Repeat("x", MaxName+1)} {
		if r := New(); r.Heard(name, beat("r", "b", 1), start) != nil || len(r.Hosts(start)) != 0 {
			t.Errorf("%q is a host", name)
		}
	}
}

// What is heard at random: the list says what was heard, as a second and simpler count has it.
func TestListIsWhatWasHeard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		shown := map[string]State{}
		type truth struct {
			heard, since time.Time // the last heartbeat, and since when there was no gap
			boot         int
			booted       bool // since it was lost
			losses       []time.Time
			n            uint64
		}
		hosts := map[string]*truth{}
		now := start
		take := func(events []Event) {
			for _, e := range events {
				if shown[e.Host] != e.From || e.From == e.To || e.Reason == "" || !e.At.Equal(now) {
					t.Fatalf("%+v, and it was %q", e, shown[e.Host])
				}
				h := hosts[e.Host]
				switch {
				case e.To == Lost:
					h.losses, h.booted = append(h.losses, now), false
				case e.To == Here && e.From != Forgotten && !h.booted:
					n := 0
					for _, at := range h.losses {
						if h.losses[len(h.losses)-1].Sub(at) <= recent {
							n++
						}
					}
					least := min(hold<<(min(n, 10)-1), maxHold)
					if got := now.Sub(h.since); got < least {
						t.Fatalf("it is here after %v, lost %d times: want %v", got, n, least)
					}
				}
				shown[e.Host] = e.To
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "seconds") {
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			take(r.Tick(now))
			name := rapid.SampledFrom([]string{"h1", "h2", ""}).Draw(t, "host")
			h := hosts[name]
			if h == nil {
				h = &truth{}
			}
			if name != "" {
				hosts[name] = h
				if rapid.IntRange(0, 9).Draw(t, "boots") == 0 && shown[name] != Here {
					h.boot++
					h.booted = true
					if n := len(h.losses); n > 0 && shown[name] == Lost {
						h.losses = h.losses[:n-1]
					}
				}
				if now.Sub(h.heard) >= silence {
					h.since = now
				}
				h.heard = now
				h.n++
				take(r.Heard(name, beat(fmt.Sprint(h.boot), fmt.Sprint(h.boot), h.n), now))
			}
			take(r.Tick(now))
			for _, h := range r.Hosts(now) {
				quiet := now.Sub(hosts[h.Name].heard)
				if (h.State == Lost) != (quiet >= silence) || h.State != shown[h.Name] || !h.Heard.Equal(hosts[h.Name].heard) {
					t.Fatalf("%+v was heard %v ago, and is shown as %q", h, quiet, shown[h.Name])
				}
			}
		}
	})
}

func TestBeatIsBounded(t *testing.T) {
	load := 1.5
	b := Beat{Run: "r", Sequence: 7, Boot: "b", Version: "v1", Cores: 4, Memory: 1 << 30, Load: &load, Jobs: 3, Lacks: []string{"pressure"}, Limits: &supervise.Means{Mode: "on", Works: []supervise.MeansOf{{Resource: "CPU", By: []string{"weight"}}, {Resource: "disk"}}}}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseBeat(data); err != nil || !reflect.DeepEqual(got, b) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseBeat([]byte(`{"run":"r","boot":"b","version":"v","newer":{"x":[1]}}`)); err != nil {
		t.Error(err)
	}
	nan, much := math.NaN(), uint64(math.MaxUint64)
	for want, change := range map[string]func(*Beat){
		"run: \"\"":                func(b *Beat) { b.Run = "" },
		"boot: \"\\x1b[31m\"":      func(b *Beat) { b.Boot = "\x1b[31m" },
		"version: \"xxx":           func(b *Beat) { b.Version = strings.Repeat("x", 65) },
		"cores: -1":                func(b *Beat) { b.Cores = -1 },
		"jobs: 2001":               func(b *Beat) { b.Jobs = MaxJobs + 1 },
		"load: NaN":                func(b *Beat) { b.Load = &nan },
		"memory: that is more":     func(b *Beat) { b.Available = &much },
		"lacks: 17":                func(b *Beat) { b.Lacks = make([]string, 17) },
		"lacks: \"\": want 1 to":   func(b *Beat) { b.Lacks = []string{""} },
		"gpus: 65 and 0 more":      func(b *Beat) { b.GPUs = make([]GPU, 65) },
		"gpus: 0 and 65 more":      func(b *Beat) { b.MoreGPUs = 65 },
		"gpus: number 0 after 0":   func(b *Beat) { b.GPUs = make([]GPU, 2) },
		"number 64 after -1":       func(b *Beat) { b.GPUs = []GPU{{Index: 64}} },
		"number -1 after -1":       func(b *Beat) { b.GPUs = []GPU{{Index: -1}} },
		"busy: 18446744073709":     func(b *Beat) { b.GPUs = []GPU{{Busy: &much}} },
		"number 0: used: 1844":     func(b *Beat) { b.GPUs = []GPU{{Used: &much}} },
		"number 0: c: 1844":        func(b *Beat) { b.GPUs = []GPU{{Celsius: &much}} },
		"limits: \"\": want 1 to":  func(b *Beat) { b.Limits = &supervise.Means{} },
		"limits: \"o\\x1b\": want": func(b *Beat) { b.Limits = &supervise.Means{Mode: "o\x1b"} },
		"number 3: w: 1844":        func(b *Beat) { b.GPUs = []GPU{{Index: 3, Watts: &much}} },
	} {
		c := b
		change(&c)
		if _, err := c.Encode(); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := ParseBeat([]byte(strings.Repeat(" ", MaxBeat+1))); err == nil || !strings.Contains(err.Error(), "2049 bytes are more than 2048") {
		t.Error(err)
	}
}

// hostGPUs are GPUs with figures of the most digits.
func hostGPUs(n int) (all []GPU) {
	busy, bytes, celsius, watts := uint64(100), uint64(192<<30), uint64(100), uint64(1200)
	for i := range n {
		all = append(all, GPU{i, &busy, &bytes, &bytes, &celsius, &watts})
	}
	return all
}

// A heartbeat has room for 16 GPUs beside what else a host says; the others are counted. An
// allotd that does not know GPUs reads the heartbeat, too: it is not longer than any.
func TestBeatOfGPUs(t *testing.T) {
	load, available := 123.45, uint64(1<<42)
	b := Beat{Run: strings.Repeat("r", 26), Sequence: 1 << 40, Boot: "3f1f9b0a-8c7e-4a55-9b0e-000000000000", Version: "v1.2.3-4-g0123456-dirty", Cores: 1024, Memory: 1 << 42, Available: &available, Load: &load, Jobs: MaxJobs}
	for _, f := range measure.Figures() {
		b.Lacks = append(b.Lacks, string(f))
	}
	b.Limits = &supervise.Means{Mode: "observe", Unable: true, Works: supervise.Common(nil)} // all that there are
	for _, n := range []int{1, 16, measure.MaxGPUs} {
		b.GPUs = hostGPUs(n)
		data, err := b.Encode()
		if err != nil || len(b.GPUs) != n || b.MoreGPUs != 0 {
			t.Fatal(err, len(b.GPUs))
		}
		got, err := ParseBeat(data)
		if err != nil || len(got.GPUs) < min(n, 16) || len(got.GPUs)+got.MoreGPUs != n || !reflect.DeepEqual(got.GPUs, b.GPUs[:len(got.GPUs)]) {
			t.Errorf("%d: %v, %d and %d more, %d bytes", n, err, len(got.GPUs), got.MoreGPUs, len(data))
		}
		if busy, known := got.GPUsBusy(); !known || busy != float64(len(got.GPUs)) {
			t.Errorf("%v are busy", busy)
		}
	}
	if b, err := ParseBeat([]byte(`{"run":"r","boot":"b","version":"v","gpus":[]}`)); err != nil || b.GPUs != nil {
		t.Errorf("%+v, %v", b, err)
	}
	b.GPUs = []GPU{{Index: 7}}
	if _, known := b.GPUsBusy(); known {
		t.Error("a GPU without an answer is busy")
	}
}

// drawJob draws a job as a report has it: its disks in sum.
func drawJob(t *rapid.T) measure.Job {
	value := func(name string) measure.Value {
		if rapid.Bool().Draw(t, name+" is known") {
			return measure.Value{N: rapid.Uint64().Draw(t, name), Known: true}
		}
		return measure.Value{}
	}
	var j measure.Job
	j.Queue = rapid.SampledFrom([]measure.Queue{measure.Slurm, measure.LSF, measure.Miniq}).Draw(t, "queue")
	j.ID = backends.ID{Job: rapid.Int64Range(1, math.MaxInt64).Draw(t, "job"), Index: rapid.IntRange(-1, math.MaxInt32).Draw(t, "index")}
	j.User = rapid.IntRange(-1, math.MaxUint32-1).Draw(t, "user")
	j.Source = rapid.SampledFrom(sources()).Draw(t, "source")
	var d measure.Disk
	var net traffic
	for i, v := range figures(&j, &d, &net) {
		*v = value(fmt.Sprint("figure ", i))
	}
	if rapid.Bool().Draw(t, "network is known") {
		for i := range net {
			net[i].Known = true
		}
	}
	j.Network = net.network()
	if d != (measure.Disk{}) {
		j.Disks = []measure.Disk{d}
	}
	return j
}

// A report is read as it was written; what is absent is absent.
func TestReportIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Report{Elapsed: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "ms")) * time.Millisecond, Jobs: []measure.Job{}}
		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			j := drawJob(t)
			r.Jobs = append(r.Jobs, j)
			if rapid.Bool().Draw(t, "it says something") {
				if r.Said == nil {
					r.Said = map[measure.Key]Said{}
				}
				p := state.Progress{Percent: rapid.IntRange(0, 100).Draw(t, "percent"), Text: rapid.String().Draw(t, "text")}
				r.Said[j.Key] = Said{p.String(), time.Duration(rapid.Int64Range(0, math.MaxInt32).Draw(t, "ago")) * time.Second}
			}
		}
		data := encode(r)
		got, err := ParseReport(data)
		for key, s := range r.Said {
			p, err := state.ParseProgress(s.Progress)
			if err != nil {
				t.Fatal(err)
			}
			r.Said[key] = Said{cleaned(p), s.Ago}
			if text := r.Said[key].Progress; len(text) > state.MaxBrief || printable.Text(text) != text {
				t.Fatalf("%q", text)
			}
		}
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%v\n%+v\n%+v", err, got, r)
		}
		if n := rapid.IntRange(0, len(data)-1).Draw(t, "cut"); n < len(data) {
			if _, err := ParseReport(data[:n]); err == nil {
				t.Fatalf("%d of %d bytes are read", n, len(data))
			}
		}
	})
}

func TestReportOfDisks(t *testing.T) {
	known := func(n uint64) measure.Value { return measure.Value{N: n, Known: true} }
	one := measure.Disk{Device: "a", ReadBytes: known(1), WrittenBytes: known(2), Reads: known(3)}
	for i, x := range []struct{ disks, want []measure.Disk }{
		{nil, nil},
		{[]measure.Disk{}, []measure.Disk{{ReadBytes: known(0), WrittenBytes: known(0), Reads: known(0), Writes: known(0)}}},
		{[]measure.Disk{one, one}, []measure.Disk{{ReadBytes: known(2), WrittenBytes: known(4), Reads: known(6)}}},
		{[]measure.Disk{{}, one}, nil},
	} {
		r := Report{Jobs: []measure.Job{{Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1}}, Source: measure.FromGroupV2, Disks: x.disks}}}
		if got, err := ParseReport(encode(r)); err != nil || !reflect.DeepEqual(got.Jobs[0].Disks, x.want) {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
}

// A job's GPUs are in reports in sum; one without GPUs has none, not 0.
func TestReportOfGPUs(t *testing.T) {
	known := func(n uint64) measure.Value { return measure.Value{N: n, Known: true} }
	for _, use := range []measure.GPUUse{{}, {Devices: known(0), Memory: known(0), SM: known(0)}, {Devices: known(1), Memory: known(2), SM: known(3)}, {Devices: known(1), SM: known(3)}} {
		r := Report{Jobs: []measure.Job{{Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1}}, Source: measure.FromGroupV2, GPU: use, GPUs: []measure.JobGPU{{Index: 1}}}}}
		if got, err := ParseReport(encode(r)); err != nil || got.Jobs[0].GPU != use || got.Jobs[0].GPUs != nil {
			t.Errorf("%+v, %v, want %+v", got, err, use)
		}
	}
}

// full is a report of jobs with all figures, as a busy host's.
func full(jobs int) Report {
	r := Report{Elapsed: 100 * 24 * time.Hour}
	for i := range jobs {
		j := measure.Job{Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: int64(12_345_678 + i), Index: 300}, User: 100_000}, Source: measure.FromGroupV2}
		var d measure.Disk
		var net traffic
		for _, v := range figures(&j, &d, &net) {
			*v = measure.Value{N: 1 << 40, Known: true}
		}
		j.GPU.Devices.N, j.GPU.SM.N = 8, 800
		j.Network = net.network()
		j.Disks = []measure.Disk{d}
		r.Jobs = append(r.Jobs, j)
	}
	return r
}

// 1,000 hosts of 50 jobs each send less than 2 MB/s at 5 s: a job has 200 bytes at most. What a
// host may send at most fits into a message.
func TestReportIsSmall(t *testing.T) {
	if n := len(encode(full(50))); n > 50*200 {
		t.Errorf("50 jobs: %d bytes", n)
	}
	r := full(MaxJobs + 1)
	text, left := r.Encode()
	if got, err := ParseReport(text); err != nil || len(got.Jobs) < 3*MaxJobs/4 || left != MaxJobs+1-len(got.Jobs) {
		t.Errorf("%d jobs and %d that are left out, %v", len(got.Jobs), left, err)
	}
	for i := range r.Jobs {
		var d measure.Disk
		for _, v := range figures(&r.Jobs[i], &d, new(traffic)) {
			v.N = math.MaxUint64
		}
	}
	data := encode(r)
	if got, err := ParseReport(data); len(data) > MaxReport || err != nil || len(got.Jobs) < MaxJobs/3 {
		t.Errorf("%d bytes, %d jobs, %v", len(data), len(got.Jobs), err)
	}
}

// What jobs say has the room that their figures leave: the texts are left out first, then
// percentages, and never a job.
func TestReportOfProgress(t *testing.T) {
	hostile := "40 \x1b[31m\xff\u202e" + strings.Repeat("long\x00 ", 1000)
	says := func(jobs int) Report {
		r := full(jobs)
		r.Said = map[measure.Key]Said{}
		for i := range r.Jobs {
			r.Said[r.Jobs[i].Key] = Said{hostile, time.Minute}
		}
		return r
	}
	count := func(jobs int) (got, texts, percents int) {
		t.Helper()
		r := says(jobs)
		data, left := r.Encode()
		read, err := ParseReport(data)
		if err != nil || len(data) > MaxReport || left != jobs-len(read.Jobs) {
			t.Fatalf("%d jobs: %d bytes, %d left, %v", jobs, len(data), left, err)
		}
		for _, s := range read.Said {
			switch {
			case s.Ago != time.Minute:
				t.Errorf("%+v", s)
			case s.Progress == "40":
				percents++
			case len(s.Progress) <= state.MaxBrief && strings.HasPrefix(s.Progress, `40 \x1b[31m\xff\u202elong\x00 long`):
				texts++
			default:
				t.Errorf("%q", s.Progress)
			}
		}
		return len(read.Jobs), texts, percents
	}
	if got, texts, percents := count(500); got != 500 || texts != 500 || percents != 0 {
		t.Errorf("%d jobs: %d texts, %d percentages", got, texts, percents)
	}
	got, texts, percents := count(1200)
	if got != 1200 || texts+percents != 1200 || texts < 100 || percents < 100 {
		t.Errorf("%d jobs: %d texts, %d percentages", got, texts, percents)
	}
	most, _ := encodeAll(full(MaxJobs + 1))
	if got, texts, percents := count(MaxJobs + 1); got != most || texts != 0 || percents > 20 {
		t.Errorf("%d jobs of %d: %d texts, %d percentages", got, most, texts, percents)
	}
	key := measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 99}}
	r := full(2)
	r.Said = map[measure.Key]Said{key: {"40", 0}, r.Jobs[1].Key: {"none", 0}}
	if data := encode(r); data[0] != reportVersion {
		t.Errorf("nothing is said: version %d", data[0])
	}
}

func encodeAll(r Report) (jobs, left int) {
	_, left = r.Encode()
	return len(r.Jobs) - left, left
}

// What no agent of ours sends is refused.
func TestReportOfHostileProgress(t *testing.T) {
	with := func(said ...byte) []byte {
		data := encode(full(2))
		data[0] = saidVersion
		return append(data, said...)
	}
	for what, c := range map[string]struct {
		data []byte
		want string // "": it is read
	}{
		"good":           {with(1, 1, 5, 4, '4', '0', ' ', 'x'), ""},
		"none":           {with(0), ""},
		"no number":      {with(), "cut off"},
		"more than jobs": {with(3), "too large"},
		"of no job":      {with(1, 2, 5, 1, '4'), "of none"},
		"twice":          {with(2, 1, 0, 1, '4', 1, 0, 1, '5'), "of none"},
		"cut off":        {with(1, 1, 5, 4, '4'), "cut off"},
		"a control":      {with(1, 1, 5, 3, '4', ' ', 27), "is no progress"},
		"no UTF-8":       {with(1, 1, 5, 3, '4', ' ', 255), "is no progress"},
		"101":            {with(1, 1, 5, 3, '1', '0', '1'), "is no progress"},
		"+4":             {with(1, 1, 5, 2, '+', '4'), "is no progress"},
		"too long":       {with(append([]byte{1, 1, 5, 129, '4', ' '}, strings.Repeat("x", 127)...)...), "too long"},
		"more behind":    {with(1, 1, 5, 1, '4', 0), "1 bytes are left"},
	} {
		r, err := ParseReport(c.data)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v, want %q", what, r.Said, err, c.want)
		}
	}
}

// A figure of a newer agent is skipped.
func TestReportOfNewerAgent(t *testing.T) {
	data := []byte{reportVersion, 1, 2}
	for range 2 {
		data = append(data, 5)
		data = append(data, "slurm"...)
		data = append(data, 7, 0, 1, 0, 0x81, 0x80, 0x80, 0x80, 0x01 /* figures 0 and 28 */, 9, 0xff, 1)
	}
	r, err := ParseReport(data)
	if err != nil || len(r.Jobs) != 2 || r.Jobs[1].CPU.N != 9 || r.Jobs[1].Memory.Known {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzReport(f *testing.F) {
	f.Add(encode(full(2)))
	f.Add([]byte{1, 0, 0xff, 0xff, 3})
	f.Add([]byte{2})
	said := full(2)
	said.Said = map[measure.Key]Said{said.Jobs[1].Key: {"40 step 3 of 7", time.Second}}
	f.Add(encode(said))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReport(data)
		if err != nil {
			if len(err.Error()) > 200 {
				t.Error(err)
			}
			return
		}
		if len(r.Jobs) > MaxJobs {
			t.Errorf("%d jobs", len(r.Jobs))
		}
		again, err := ParseReport(encode(r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%v\n%+v\n%+v", err, again, r)
		}
		u := NewUses()
		u.Heard("h1", r, start)
		u.Heard("h1", r, start.Add(5*time.Second))
	})
}

func FuzzBeat(f *testing.F) {
	f.Add([]byte(`{"run":"r","sequence":1,"boot":"b","version":"v","cores":4,"memory_bytes":1,"load":0.5,"jobs":1,"lacks":["net"]}`))
	f.Add([]byte(`{"run":"\u001b","load":1e999}`))
	f.Add([]byte(`{"run":"r","boot":"b","version":"v","limits":{"mode":"on","unable":true,"works":[{"resource":"CPU","by":["weight","duty"]},{"resource":"disk"}]}}`))
	f.Add([]byte(`{"run":"r","boot":"b","version":"<&>","gpus":[{"n":0,"busy":5,"used":1,"of":2,"c":60,"w":250},{"n":63}],"more_gpus":64}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ParseBeat(data)
		if err != nil {
			return
		}
		text, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if len(text) <= MaxBeat {
			again, err := ParseBeat(text)
			if n := again.MoreGPUs - b.MoreGPUs; n > 0 { // there was no room
				b.GPUs, b.MoreGPUs = append([]GPU(nil), b.GPUs[:len(b.GPUs)-n]...), again.MoreGPUs
			}
			if err != nil || !reflect.DeepEqual(again, b) {
				t.Errorf("%v\n%+v\n%+v", err, again, b)
			}
		}
	})
}

func encode(r Report) []byte { text, _ := r.Encode(); return text }
