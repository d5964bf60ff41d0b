package desk

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Cycle is what a cycle decided, and what came of it.
type Cycle struct {
	At       time.Time `json:"at"`
	Mode     string    `json:"mode"`
	Note     string    `json:"note,omitempty"`
	Actions  []Action  `json:"actions"`
	Skipped  []Skipped `json:"skipped"`
	Warnings []string  `json:"warnings"`

	Looks    bool          `json:"-"` // another cycle soon is of use, see plan.Plan
	ClockSet string        `json:"-"` // the warning that a clock was set; "": none was
	Took     time.Duration `json:"-"`
	Blind    bool          `json:"-"` // it failed before it saw the queue
}

// Action is one thing that a cycle did to one job, or would do.
type Action struct {
	Verb    string `json:"verb"`
	Job     string `json:"job"`
	For     string `json:"for,omitempty"`
	Host    string `json:"host,omitempty"`
	Reason  string `json:"reason"`
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Skipped is what a cycle left out, and why.
type Skipped struct {
	Job    string `json:"job"`
	Reason string `json:"reason"`
}

// Failed reports whether the queue refused the action, or did not answer.
func (a Action) Failed() bool { return ledger.Result(a.Outcome) == ledger.Failed }

// The modes of a cycle that does nothing.
const (
	DryRun  = "dry-run"
	Observe = string(ledger.Observe)
)

func cycleOf(r *pba.Result, dryRun bool) *Cycle {
	c := &Cycle{
		At: r.Plan.At, Mode: modeOf(r, dryRun), Note: r.Note, Actions: []Action{}, Skipped: []Skipped{},
		Warnings: append([]string{}, r.Plan.Warnings...), Looks: r.Plan.Looks, ClockSet: r.ClockSet, Blind: r.State.Farm == nil && r.Note == "",
	}
	outcomes := map[int]ledger.Outcome{}
	for _, o := range r.Outcomes {
		outcomes[o.Action] = o
	}
	for i := range r.Plan.Actions {
		a := &r.Plan.Actions[i]
		o := outcomes[i]
		c.Actions = append(c.Actions, Action{
			Verb: string(a.Verb), Job: jobOf(a), For: beneficiary(a), Host: hostOf(a, r.State.Farm),
			Reason: a.Reason, Outcome: string(o.Result), Error: o.Error,
		})
	}
	for _, s := range r.Plan.Skipped {
		c.Skipped = append(c.Skipped, Skipped{Job: s.Job.String(), Reason: s.Reason})
	}
	return c
}

func modeOf(r *pba.Result, dryRun bool) string {
	switch {
	case dryRun:
		return DryRun
	case r.Rules.Observe:
		return Observe
	}
	return string(ledger.Live)
}

func beneficiary(a *plan.Action) string { return nameOf(a.For) }

// jobOf names the job that an action is about; "": it is about standby jobs, which are for none.
func jobOf(a *plan.Action) string { return nameOf(a.Job) }

func nameOf(id backends.ID) string {
	if id == (backends.ID{}) {
		return ""
	}
	return id.String()
}

// hostOf names the hosts that an action is about, else those that its job is on.
func hostOf(a *plan.Action, farm *backends.Snapshot) string {
	if len(a.Hosts) > 0 {
		return strings.Join(a.Hosts, " ")
	}
	for i := range farm.Jobs {
		if farm.Jobs[i].ID != a.Job {
			continue
		}
		var names []string
		for _, p := range farm.Jobs[i].Hosts {
			names = append(names, p.Host)
		}
		return strings.Join(names, " ")
	}
	return ""
}

// Preview returns what a cycle would do now.
func (d *Desk) Preview(ctx context.Context) (*Cycle, error) {
	r, err := d.preview(ctx)
	if err != nil {
		return nil, err
	}
	return cycleOf(&r, true), nil
}

// ErrRunning is returned where another process runs cycles.
var ErrRunning = errors.New("another pba rebalance is running")

// Rebalance runs a cycle, or one each every for as long as runFor says; runFor alone
// takes pba.every. Each opens a desk of its own, since the config may have changed. After
// each, report is called with what it did, nil where the desk did not open, and its error.
// It returns the error; a temporary one does not end repeated cycles.
func (d *Desk) Rebalance(ctx context.Context, every, runFor time.Duration, report func(*Cycle, error) error) error {
	start, repeated := d.Now(), every > 0 || runFor > 0
	if err := d.mayDo("rebalance"); err != nil {
		return err
	}
	if every == 0 {
		every = time.Duration(d.PBA.Every)
	}
	schedule := pba.Schedule{For: runFor}
	if repeated {
		schedule.Every = every
	}
	if schedule.For > 0 && schedule.Every > schedule.For {
		return invalidf("--for %v is shorter than a cycle (pba.every: %v)", schedule.For, schedule.Every)
	}
	unlock, err := pba.Lock(ctx, d.Paths.State, pba.RunLock, every)
	if errors.Is(err, pba.ErrBusy) {
		return ErrRunning
	}
	if err != nil { // if pba init was never run, the ledger's error says so
		l, openErr := ledger.Open(d.LedgerPath())
		if openErr != nil {
			return openErr
		}
		return errors.Join(err, l.Close())
	}
	defer unlock()
	var deaf error // why no mark is heard
	if repeated && runFor == 0 {
		marks, err := pba.ListenForMarks(d.Paths.State)
		if deaf = err; err == nil {
			defer func() { _ = marks.Close() }()
			schedule.Marks = marks.Heard
		}
	}
	err = schedule.Run(ctx, start, func(ctx context.Context) (pba.Then, error) {
		c, err := cycle(ctx, d.sys, repeated)
		if c != nil && deaf != nil {
			c.Warnings = append(c.Warnings, deaf.Error())
		}
		looks := c != nil && c.Looks
		switch err = report(c, err); {
		case err != nil && !(repeated && Temporary(err)):
			return pba.Stop, err
		case looks:
			return pba.GoOnSoon, err
		}
		return pba.GoOn, err
	})
	if repeated && errors.Is(ctx.Err(), context.Canceled) {
		return nil // it was asked to end, and ended between two actions
	}
	return err
}

// cycle is one rebalance, while no edit goes on. What the queue refuses is the error of
// one that is not repeated.
func cycle(ctx context.Context, sys System, repeated bool) (c *Cycle, err error) {
	d, err := Open(ctx, sys, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	err = d.locked(ctx, func() error {
		start := d.Now()
		r, err := d.engine(false).Cycle(ctx, d.Now)
		c = cycleOf(&r, false)
		c.Took = d.Now().Sub(start)
		if failed := d.writeView(&r); failed != nil {
			c.Warnings = append(c.Warnings, failed.Error())
		}
		if _, failed := d.ledger.RenamePast(ctx); failed != nil { // of a rename that was broken off
			c.Warnings = append(c.Warnings, failed.Error())
		}
		if err == nil && !repeated {
			err = r.Failed()
		}
		return err
	})
	return c, err
}
