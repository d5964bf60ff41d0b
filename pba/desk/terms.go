package desk

import (
	"fmt"
	"math"

	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Terms are what a pool is promised in a week.
type Terms = ledger.Terms

// DefaultSLA is what is promised where nothing else is said.
const DefaultSLA = string(plan.Velocity)

// NewTerms are so many slots, for all time or for a number of jobs a week.
func NewTerms(slots int, sla string, jobs int) (Terms, error) {
	t := Terms{Slots: slots, SLA: plan.SLA(sla), Jobs: jobs}
	return t, checkTerms(t)
}

// InWords says what terms promise.
func InWords(t Terms) string {
	text := count(t.Slots, "slot")
	if t.SLA == plan.Throughput {
		text += " for " + count(t.Jobs, "job") + " a week"
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checkTerms says what is wrong with terms in themselves (R26).
func checkTerms(t Terms) error {
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
