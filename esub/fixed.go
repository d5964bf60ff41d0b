package esub

import (
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// limitFixed decides what becomes of a job that can't be preempted once it runs (R22), after
// the tests said v. The engine holds such jobs until their share of the farm has room: this
// begins their holds, as a burst must not start between two cycles. An interactive job of a
// pool that has room passes: its user waits at a terminal. Where they are not held, they are
// lowered once they hold their share.
func (d *Decision) limitFixed(v verdict, req Request, mode backends.Mode, s Settings, g *Generation, now time.Time) verdict {
	kind, remedy := fixedKind(req, mode, s)
	slots := max(req.Slots, 1)
	failed := v.why != "" && v.answer != Pass
	switch {
	case kind == "", v.why != "" && v.answer == Reject:
	case s.HoldFixed <= 0:
		if g.LowerUnpreemptable && !v.next && !failed {
			if v.why != "" {
				d.Messages = append(d.Messages, v.why)
			}
			return verdict{why: kind + " can't be preempted, and such jobs already hold their share of the farm: " + remedy, answer: Low}
		}
	case g.FixedShare > 0 && slots > g.FixedShare && !v.fits:
		return verdict{why: fmt.Sprintf("%s can't be preempted, and such jobs may hold %d slots of the farm: ask for fewer than these %d, or %s", kind, g.FixedShare, slots, remedy), answer: Reject}
	case v.next && req.Interactive:
	default:
		d.Hold = now.Add(s.HoldFixed).Truncate(time.Second)
		if d.Tag.Begin = max(req.Begin, 0); d.Tag.Begin > d.Hold.Unix() {
			d.Hold = time.Unix(d.Tag.Begin, 0)
		}
		d.Tag.Held, d.Tag.Fixed = d.Hold.Unix(), true
		if !v.next {
			share := ""
			if g.FixedShare > 0 { // else no cycle has seen a host yet
				share = fmt.Sprintf("; such jobs may hold %d slots of the farm", g.FixedShare)
			}
			d.Messages = append(d.Messages, fmt.Sprintf("%s can't be preempted: pba starts it when it finds room for it%s; else %s", kind, share, remedy))
		}
	}
	return v
}

// fixedKind says what kind of job it is that can't be preempted once it runs, and what its
// user can do; "" for a job that can be.
func fixedKind(req Request, mode backends.Mode, s Settings) (kind, remedy string) {
	switch {
	case req.Interactive:
		return "an interactive job", "submit it as a batch job"
	case req.Exclusive:
		return "an exclusive job", "submit it without -x"
	case mode == backends.PreemptSuspend && !s.SuspendFrees:
		return "a job with ALLOTMENT_PREEMPT=suspend", "unset it"
	case mode == backends.PreemptRequeue && req.NoRequeue:
		return "a job that is not to be requeued", "submit it without -rn"
	}
	return "", ""
}
