package desk

import (
	"fmt"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// BenchmarkPromises is what allotd does each 5 s for 1,000 hosts of 50 jobs: the promises of all hosts, and their
// messages. B/host is the size of one.
func BenchmarkPromises(b *testing.B) {
	const hosts, jobs = 1000, 50
	farm := &backends.Snapshot{At: time.Unix(1e9, 0)}
	var classes []plan.Class
	for h := range hosts {
		farm.Hosts = append(farm.Hosts, backends.Host{Name: fmt.Sprint("node", h), Slots: 64})
		for range jobs {
			id := int64(len(farm.Jobs) + 1)
			farm.Jobs = append(farm.Jobs, backends.Job{
				ID: backends.ID{Job: 1_000_000 + id}, State: backends.Running, User: "ann", Project: "chipA", Slots: 1, Memory: 4 << 30,
				Hosts: []backends.Placement{{Host: farm.Hosts[h].Name, Slots: 1}},
			})
			classes = append(classes, plan.Class{Within: id%2 == 0})
		}
	}
	limits := &settings.Limits{Mode: settings.LimitsOn, Slot: settings.Promised{CPU: 1, Disk: 50 << 20, Network: 10 << 20}}
	bytes := 0
	for b.Loop() {
		bytes = 0
		for _, p := range promises("slurm", farm, classes, limits, false) {
			message, left, err := p.Encode()
			if err != nil || left > 0 {
				b.Fatal(left, err)
			}
			bytes += len(message)
		}
	}
	b.ReportMetric(float64(bytes)/hosts, "B/host")
}

// BenchmarkDecide is what an agent decides with 50 jobs of which half are short of all that they were promised.
func BenchmarkDecide(b *testing.B) {
	h := &supervise.Host{Name: "h1", Capacity: supervise.Amounts{64_000, 1 << 30, 1 << 30}}
	works := supervise.Works{}
	for _, r := range supervise.Resources() {
		works[r] = []supervise.Rung{supervise.Weight, supervise.Rate, supervise.Duty}
	}
	for i := range 50 {
		j := supervise.Job{Name: fmt.Sprint("slurm ", i), Slots: 1, Works: works, Uses: supervise.Amounts{500, 10 << 20, 10 << 20}}
		for r := range j.Waits {
			j.Waits[r] = 0.5
		}
		if i%2 == 0 {
			j.Minimum = supervise.Amounts{1000, 20 << 20, 20 << 20}
		}
		h.Jobs = append(h.Jobs, j)
	}
	at := time.Unix(1e9, 0)
	for b.Loop() {
		at = at.Add(time.Second)
		h.Limits = supervise.Decide(h, supervise.DefaultPolicy(), at).Limits
	}
}
