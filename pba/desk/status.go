package desk

import (
	"context"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Status is the state of the farm and its pools, as a cycle would see it now.
type Status struct {
	At        time.Time           `json:"at"`
	Week      calendar.Week       `json:"week"`
	Mode      configfile.Mode     `json:"mode"`
	Paused    bool                `json:"paused"`
	LastCycle *ledger.CycleRecord `json:"last_cycle"` // null: there was none
	Threshold float64             `json:"pending_threshold_seconds"`
	Pools     []PoolStatus        `json:"pools"`
	Farm      FarmStatus          `json:"farm"`
	Reclaims  []Reclaim           `json:"reclaims"`           // open ones
	Heavy     []HeavyStatus       `json:"heavy"`              // jobs that have or wait for dummy jobs
	Unserved  []Unserved          `json:"unserved"`           // waiting jobs of pools that are not understood, by reason
	Requests  int                 `json:"requests_to_answer"` // open requests for slots that the caller may grant or decline
	Advice    []report.Advice     `json:"advice"`             // from use, plans and throughputs; waits are in pba report week
	Warnings  []string            `json:"warnings"`
}

// PoolStatus is the state of a pool, in slots.
type PoolStatus struct {
	Project   string   `json:"project"`
	Step      string   `json:"step,omitempty"`
	User      string   `json:"user,omitempty"`
	Hosts     string   `json:"hosts,omitempty"` // the host set that it is limited to; "": the hosts in none
	Planned   int      `json:"planned"`         // slots of the allocation
	Guarantee int      `json:"guarantee"`       // now: a throughput SLA may need fewer
	SLA       plan.SLA `json:"sla"`
	Jobs      int      `json:"jobs,omitempty"`     // to be done in the week
	Finished  int      `json:"finished,omitempty"` // of them
	Undone    int      `json:"undone,omitempty"`   // of them, those that can't be done any more in the week
	Charged   int      `json:"charged"`
	Held      int      `json:"held"`
	Waiting   int      `json:"waiting"`
	Below     bool     `json:"below"`

	Threshold *float64 `json:"pending_threshold_seconds,omitempty"` // its project's own; null: the site's holds
	Standby   int      `json:"standby_slots,omitempty"`             // to be kept free for its next jobs
	Kept      int      `json:"kept_slots,omitempty"`                // of them, those that are free
	Early     int      `json:"early_slots,omitempty"`               // that may be preempted for it within this hour before the site's threshold, where its own is shorter
}

// FarmStatus is the farm in figures, in slots.
type FarmStatus struct {
	Slots         int  `json:"slots"`
	Down          int  `json:"down"`
	Running       int  `json:"running"`
	PBA           int  `json:"pba"`
	Normal        int  `json:"normal"`
	Suspended     int  `json:"suspended"`
	Kept          int  `json:"kept"` // of running: kept free for pools' next jobs
	Guaranteed    int  `json:"guaranteed"`
	TakeBack      int  `json:"take_back"`
	Unmet         int  `json:"unmet"`
	Unpreemptable int  `json:"unpreemptable"`
	LowerThem     bool `json:"lower_unpreemptable"`
	Dummies       int  `json:"dummies"`         // slots of running dummy jobs
	DummiesWait   int  `json:"waiting_dummies"` // slots
}

// HeavyStatus is the state of a job that has dummy jobs or waits for some.
type HeavyStatus struct {
	Job     string `json:"job"`
	Project string `json:"project,omitempty"`
	User    string `json:"user"`
	Host    string `json:"host,omitempty"`
	Slots   int    `json:"slots"`   // in all, its own and those of its dummy jobs
	Dummies int    `json:"dummies"` // that run
	Gathers bool   `json:"gathers"`
}

// Unserved is how many waiting jobs of pools are not served, as a part of their requests is
// not understood.
type Unserved struct {
	Reason string `json:"reason"`
	Jobs   int    `json:"jobs"`
}

// Reclaim is one preemption, for a beneficiary.
type Reclaim struct {
	ID          int64      `json:"id"`
	Beneficiary string     `json:"beneficiary"`
	Project     string     `json:"project"`
	User        string     `json:"user"`
	Slots       int        `json:"slots"`
	Phase       plan.Phase `json:"phase"`
	Why         string     `json:"why,omitempty"`
	Planned     time.Time  `json:"planned"`
	Acted       time.Time  `json:"acted,omitzero"` // zero: not yet
	Victims     []Victim   `json:"victims"`
}

// Victim is a job that loses its slots to a reclaim.
type Victim struct {
	Job     string          `json:"job"`
	Project string          `json:"project,omitempty"`
	User    string          `json:"user"`
	Slots   int             `json:"slots"`
	Started time.Time       `json:"run_started,omitzero"` // the run that it loses
	Mode    string          `json:"mode"`
	Fate    plan.Fate       `json:"fate,omitempty"`
	Save    float64         `json:"save_seconds,omitempty"` // that it had to save itself; 0: it was not asked
	Saved   plan.SaveResult `json:"saved,omitempty"`
}

// Status previews a cycle.
func (d *Desk) Status(ctx context.Context) (*Status, error) {
	r, err := d.preview(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := d.statusOf(ctx, &r)
	if err != nil {
		return nil, err
	}
	shown.Requests, err = d.requestsToAnswer(ctx)
	return shown, err
}

// statusOf is the status but for the requests, which are the caller's to answer.
func (d *Desk) statusOf(ctx context.Context, r *pba.Result) (*Status, error) {
	shown, err := d.status(ctx, r)
	if err != nil {
		return nil, err
	}
	e, err := d.evidence(ctx)
	e.Pools = r.Plan.Pools
	shown.Advice = report.Advise(e, "")
	return shown, err
}

func (d *Desk) status(ctx context.Context, r *pba.Result) (*Status, error) {
	f, mode := r.Plan.Farm, d.Mode
	if r.Rules.Observe {
		mode = configfile.Observe
	}
	shown := &Status{
		At: r.State.Farm.At, Week: d.thisWeek(), Mode: mode, Paused: r.Rules.Paused, Threshold: r.Rules.Policy.PendingThreshold.Seconds(),
		Pools: []PoolStatus{}, Reclaims: []Reclaim{}, Heavy: showHeavy(r.Plan.Heavy, r.State.Farm), Advice: []report.Advice{}, Warnings: append([]string{}, r.Plan.Warnings...),
		Farm: FarmStatus{
			Slots: f.Slots, Down: f.Down, Running: f.Running, PBA: f.PBA, Normal: f.Normal, Suspended: f.Suspended, Kept: f.Kept,
			Guaranteed: f.Guaranteed, TakeBack: f.TakeBack, Unmet: f.Unmet, Unpreemptable: f.Unpreemptable, LowerThem: f.LowerThem,
		},
	}
	shown.Unserved = []Unserved{}
	for _, u := range r.Plan.Unserved {
		shown.Unserved = append(shown.Unserved, Unserved(u))
	}
	shown.Farm.Dummies, shown.Farm.DummiesWait = dummySlots(r.State.Farm)
	last, ok, err := d.ledger.LastCycle(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		shown.LastCycle = &last
	}
	planned := map[int64]int{}
	for _, a := range r.Rules.Policy.Allocations {
		planned[a.ID] = a.Guarantee
	}
	for _, p := range r.Plan.Pools {
		shown.Pools = append(shown.Pools, PoolStatus{
			Project: p.Project, Step: p.Step, User: p.User, Hosts: p.Hosts,
			Planned: planned[p.ID], Guarantee: p.Guarantee,
			SLA: p.SLA, Jobs: p.Jobs, Finished: r.Plan.Memory.Throughput[p.ID].Finished, Undone: p.Undone,
			Charged: p.Charged, Held: p.Held, Waiting: p.Waiting, Below: p.Below, Standby: p.Standby, Kept: p.Kept,
		})
		if own, ok := r.Rules.Policy.Thresholds[p.Project]; ok {
			seconds, shown := own.Seconds(), &shown.Pools[len(shown.Pools)-1]
			if shown.Threshold = &seconds; own < r.Rules.Policy.PendingThreshold {
				shown.Early = p.Early
			}
		}
	}
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(shown.Pools, func(a, b PoolStatus) int { return order.compare(a.pool(), b.pool()) })
	reclaims := r.State.Memory.Reclaims // as the last cycle left them
	if d.view != nil {
		reclaims = r.Plan.Memory.Reclaims // as it leaves them
	}
	for i := range reclaims {
		if rc := &reclaims[i]; rc.Phase.Open() {
			shown.Reclaims = append(shown.Reclaims, showReclaim(rc))
		}
	}
	return shown, nil
}

func (p *PoolStatus) pool() Pool {
	return Pool{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
}

// dummySlots are the slots of dummy jobs, without standby jobs.
func dummySlots(farm *backends.Snapshot) (running, waiting int) {
	for i := range farm.Jobs {
		switch j := &farm.Jobs[i]; {
		case !j.IsDummy() || j.IsStandby():
		case j.State == backends.Running:
			running += j.Slots
		default:
			waiting += j.Slots
		}
	}
	return running, waiting
}

func showHeavy(all []plan.HeavyStatus, farm *backends.Snapshot) []HeavyStatus {
	shown := make([]HeavyStatus, len(all))
	at := map[backends.ID]*HeavyStatus{}
	for i, h := range all {
		shown[i] = HeavyStatus{Job: h.Job.String(), Host: h.Host, Slots: h.Need, Dummies: h.Dummies, Gathers: h.Gathers}
		at[h.Job] = &shown[i]
	}
	for i := range farm.Jobs {
		if h := at[farm.Jobs[i].ID]; h != nil {
			h.Project, h.User = farm.Jobs[i].Project, farm.Jobs[i].User
		}
	}
	return shown
}

func showReclaim(r *plan.Reclaim) Reclaim {
	shown := Reclaim{
		ID: r.ID, Beneficiary: r.Beneficiary.String(), Project: r.Project, User: r.User,
		Slots: r.Need, Phase: r.Phase, Why: r.Why, Planned: r.Planned, Acted: r.Acted, Victims: []Victim{},
	}
	for _, v := range r.Victims {
		shown.Victims = append(shown.Victims, Victim{
			Job: v.ID.String(), Project: v.Project, User: v.User, Slots: v.Slots, Started: v.Started, Mode: v.Mode.String(), Fate: v.Fate, Save: v.Save.Seconds(), Saved: v.Saved,
		})
	}
	return shown
}

// What became of victims: the queue ended one and did not put it back; one was asked to save
// itself, and had done all its work; it did save itself, or did not.
const (
	Lost       = plan.Lost
	Finished   = plan.Finished
	Saved      = plan.Saved
	SaveFailed = plan.SaveFailed
)
