package pba

import (
	"fmt"
	"math"

	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// CheckTerms says what is wrong with terms in themselves (R26).
func CheckTerms(t ledger.Terms) error {
	switch {
	case t.Slots < 1 || t.Slots > math.MaxInt32:
		return fmt.Errorf("%d slots: want one or more", t.Slots)
	case t.SLA != plan.Velocity && t.SLA != plan.Throughput:
		return fmt.Errorf("%q is no SLA (known: %s, %s)", t.SLA, plan.Velocity, plan.Throughput)
	case t.SLA == plan.Velocity && t.Jobs != 0:
		return fmt.Errorf("a number of jobs goes with %s only", plan.Throughput)
	case t.SLA == plan.Throughput && (t.Jobs < 1 || t.Jobs > math.MaxInt32):
		return fmt.Errorf("%s needs a number of jobs, one or more", plan.Throughput)
	}
	return nil
}
