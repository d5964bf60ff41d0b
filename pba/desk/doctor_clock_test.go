package desk

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestDoctorOnTheClock(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	const years = 87600 * time.Hour
	for name, x := range map[string]struct {
		set     plan.ClockSet
		noticed bool // by this very look
		queue   time.Duration
		started time.Duration // of a running job, after that
		want    []string
	}{
		"never set":                {},
		"set two days ago":         {set: plan.ClockSet{At: noon.Add(-48 * time.Hour), By: time.Hour}},
		"set an hour ago":          {set: plan.ClockSet{At: noon.Add(-time.Hour), By: -2 * time.Hour}, want: []string{"was set back by 2h0m0s, from 2026-11-23 13:00:00 to 2026-11-23 11:00:00"}},
		"set since the last cycle": {set: plan.ClockSet{At: noon, By: -years}, noticed: true, want: []string{"was set back by 3650 days, from 2036-11-20 12:00:00 to 2026-11-23 12:00:00"}},
		"the queue's is ahead":     {queue: 2 * time.Hour, want: []string{"the queue's clock shows 2026-11-23 14:00:00, this host's 2026-11-23 12:00:00"}},
		"a slow queue":             {queue: -2 * time.Minute},
		"a job of a clock ahead":   {started: years, want: []string{"1 running job started while the clock was ahead: job 7 at 2036-11-20 12:00:00, and it is 2026-11-23 12:00:00"}},
	} {
		d := quietDesk()
		d.sys.Now = func() time.Time { return noon }
		r := pba.Result{State: plan.State{Memory: plan.Memory{ClockSet: x.set}, Farm: &backends.Snapshot{
			At:   noon.Add(x.queue),
			Jobs: []backends.Job{{ID: backends.ID{Job: 7}, State: backends.Running, Started: noon.Add(x.queue + x.started)}},
		}}}
		if x.noticed {
			r.ClockSet = "yes"
		}
		var got findings
		d.checkClock(&r, &got)
		expect(t, name, got, x.want...)
	}
}
