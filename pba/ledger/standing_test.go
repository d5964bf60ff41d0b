package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/esub"
)

// An edit publishes again what the last cycle published. Cycles that see the hosts
// publish which jobs are heavy; a paused one leaves it.
func TestStandingIsStored(t *testing.T) { // R2, R29
	l := create(t)
	if s, err := l.Standing(t.Context()); err != nil || !s.At.IsZero() || len(s.Below) != 0 || s.Heavy != nil {
		t.Errorf("before the first cycle: %+v, %v", s, err)
	}
	heavy := &esub.Heavy{Hold: time.Minute, Share: 8, Rules: []dummy.Rule{{Queue: "big", Memory: 8}}}
	at := time.Date(2026, 11, 23, 12, 0, 0, 1, time.UTC)
	for _, x := range []struct{ set, want *esub.Heavy }{{nil, nil}, {heavy, heavy}, {nil, heavy}, {&esub.Heavy{}, &esub.Heavy{}}} {
		at = at.Add(time.Second)
		now := esub.Standing{At: at, LowerUnpreemptable: true, Below: map[int64]bool{4: true, 9: true}}
		want := Standing{now, x.want}
		stored, err := l.SetStanding(t.Context(), Standing{now, x.set})
		if diff := cmp.Diff(want, stored); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
		read, err := l.Standing(t.Context())
		if diff := cmp.Diff(want, read); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
	}
}
