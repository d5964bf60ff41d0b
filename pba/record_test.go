package pba

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Dummy jobs are in no report of jobs, and in no trace of the ledger's.
func TestEndedDummyJobsAreNoHistory(t *testing.T) {
	var r Result
	r.State.Farm = &backends.Snapshot{Ended: []backends.Job{
		{ID: backends.ID{Job: 1}},
		{ID: backends.ID{Job: 2}, DummyFor: backends.ID{Job: 1}},
	}}
	c := (&Engine{}).ledgerCycle(&r, ledger.Live, time.Time{})
	if len(c.Ended) != 1 || c.Ended[0].Job.ID.Job != 1 {
		t.Errorf("recorded as ended: %+v", c.Ended)
	}
}
