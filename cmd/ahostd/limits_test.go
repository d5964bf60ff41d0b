package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/settings"
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
			CPU: value(5e8), Disks: []measure.Disk{{WrittenBytes: value(l.bytes)}}, Pressure: measure.Pressure{CPUSome: value(0), IOSome: value(uint64(l.waits * 1e9))},
		})
	}
	return s
}

// R47: ahostd logs the limits that it would set, the job that each is for, and their end.
func TestWouldLimit(t *testing.T) {
	var said bytes.Buffer
	l := newLimiter("h1", settings.Limits{Mode: settings.LimitsObserve, Disk: 100 << 20}, slog.New(slog.NewTextHandler(&said, nil)))
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
	tell := func(p supervise.Promises) {
		t.Helper()
		message, left, err := p.Encode()
		if err != nil || left != 0 {
			t.Fatal(left, err)
		}
		l.hear(message)
	}
	promised := supervise.Promise{Queue: "slurm", Job: 7, Slots: 2, Minimum: supervise.Amounts{supervise.Disk: 60 << 20}}
	known := []supervise.Promise{promised, {Queue: "slurm", Job: 8, Slots: 1}}
	v2 := measure.FromGroupV2
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
