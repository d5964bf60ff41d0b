package roster

import (
	"math"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
)

func known(n uint64) measure.Value { return measure.Value{N: n, Known: true} }

func jobOf(id int64, user int, cpu time.Duration, memory uint64) measure.Job {
	return measure.Job{Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: id}, User: user}, Source: measure.FromGroupV2, CPU: known(uint64(cpu)), Memory: known(memory)}
}

func all(*Use) bool { return true }

func TestRates(t *testing.T) {
	u := NewUses()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	report := func(s int, jobs ...measure.Job) {
		// The network is late by turns: rates are by the agent's own clock.
		u.Heard("h1", Report{Elapsed: time.Duration(s) * time.Second, Jobs: jobs}, at(s).Add(time.Duration(s%2)*900*time.Millisecond))
	}
	report(5, jobOf(1, 1000, 0, 1<<20))
	if got := u.Now(all); len(got) != 1 || got[0].Cores.Known || got[0].Host != "h1" {
		t.Errorf("%+v", got)
	}
	j := jobOf(1, 1000, 7500*time.Millisecond, 2<<20)
	j.Disks = []measure.Disk{{ReadBytes: known(5)}}
	j.Network.Known = true
	j.GPU = measure.GPUUse{Devices: known(1), Memory: known(5 << 30), SM: known(150)}
	report(10, j, jobOf(2, 1000, time.Second, 1))
	got := u.Of("h1", all)
	if len(got) != 2 || got[0].GPU != j.GPU || got[0].Cores != (Rate{1.5, true}) || got[0].Read.Known || got[1].Cores.Known {
		t.Errorf("%+v", got)
	}
	j.Disks = []measure.Disk{{ReadBytes: known(105)}}
	j.Network = measure.Network{Known: true, Sent: [measure.NetworkClasses]uint64{1 << 40, 500, 0, 0}}
	j.CPU = known(1) // another run
	report(15, j)
	got = u.Of("h1", all)
	if len(got) != 1 || got[0].Cores.Known || got[0].Read != (Rate{20, true}) || got[0].Written.Known || got[0].Net != (Rate{100, true}) {
		t.Errorf("%+v", got)
	}
	report(3, j) // the agent began anew
	if got = u.Of("h1", all); len(got) != 1 || got[0].Read.Known {
		t.Errorf("%+v", got)
	}
	if got = u.Now(func(x *Use) bool { return x.User != 1000 }); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	u.Forget("h1")
	if u.jobs != 0 || u.series != 0 || len(u.hosts) != 0 {
		t.Errorf("%+v", u)
	}
}

// What a job says is beside what it uses, as long as reports have both.
func TestProgressOfUses(t *testing.T) {
	u := NewUses()
	one, other := jobOf(1, 1000, 0, 1), jobOf(1, 1001, 0, 1)
	u.Heard("h1", Report{Elapsed: time.Second, Jobs: []measure.Job{one}, Said: map[measure.Key]Said{one.Key: {"40 x", time.Minute}, other.Key: {"50", 0}}}, start)
	if got := u.Now(all); len(got) != 1 || got[0].Progress != "40 x" || !got[0].SaidAt.Equal(start.Add(-time.Minute)) {
		t.Errorf("%+v", got)
	}
	u.Heard("h1", Report{Elapsed: 2 * time.Second, Jobs: []measure.Job{other}, Said: map[measure.Key]Said{one.Key: {"60", 0}}}, start.Add(time.Second))
	if got := u.Now(all); len(got) != 1 || got[0].User != 1001 || got[0].Progress != "" {
		t.Errorf("%+v", got)
	}
}

func TestHistoryIsTheLastHour(t *testing.T) {
	u := NewUses()
	key := jobOf(1, 1000, 0, 0).Key
	for s := 0; s <= 2*3600; s += 5 {
		j := jobOf(1, 1000, time.Duration(s)*2*time.Second, uint64(s))
		if s >= 3600 && s < 3700 {
			j.CPU, j.Memory = measure.Value{}, measure.Value{}
		}
		u.Heard("h1", Report{Elapsed: time.Duration(s) * time.Second, Jobs: []measure.Job{j}}, start.Add(time.Duration(s)*time.Second))
	}
	p := u.History("h1", key)
	if len(p) != points || !p[points-1].At.Equal(start.Add(2*time.Hour)) || p[points-1].Cores != 2 || p[points-1].Memory != 7200 {
		t.Fatalf("%d points, %+v", len(p), p[len(p)-1])
	}
	if !math.IsNaN(p[1].Cores) || !math.IsNaN(p[1].Memory) || p[5].Cores != 2 {
		t.Errorf("%+v", p[:6])
	}
	// It ends, and is kept for an hour.
	u.Heard("h1", Report{Elapsed: 8000 * time.Second}, start.Add(8000*time.Second))
	if len(u.History("h1", key)) != points || len(u.Now(all)) != 0 {
		t.Error("it is lost at its end")
	}
	u.Heard("h1", Report{Elapsed: 12000 * time.Second}, start.Add(12000*time.Second))
	if u.History("h1", key) != nil || u.series != 0 || u.jobs != 0 {
		t.Error("it is kept for ever")
	}
	if u.History("h2", key) != nil {
		t.Error("of no host")
	}
}

// A host that reports other jobs each time fills no memory.
func TestUsesAreBounded(t *testing.T) {
	u := NewUses()
	for s := range 50 {
		r := Report{Elapsed: time.Duration(s) * time.Second}
		for i := range MaxJobs {
			r.Jobs = append(r.Jobs, jobOf(int64(s*MaxJobs+i+1), 1000, 0, 0))
		}
		u.Heard("h1", r, start.Add(time.Duration(s)*time.Second))
	}
	if u.jobs > 2*MaxJobs || u.series > 2*MaxJobs || u.jobs != len(u.hosts["h1"].jobs) || len(u.Now(all)) != MaxJobs {
		t.Errorf("%d jobs, %d series", u.jobs, u.series)
	}
}
