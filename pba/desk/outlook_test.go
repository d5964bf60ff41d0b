package desk

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestOutlookIsSaid(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		x    plan.Outlook
		want string
	}{
		{plan.Outlook{Waiting: 1}, "It is first in the queue, 1 in all. It fits: the queue can start it at once."},
		{plan.Outlook{Ahead: 1, Waiting: 9, Soonest: 10 * minute, Latest: 40 * minute}, "1 job before it in the queue, 9 in all. It starts in 10 min to 40 min, if no job comes before it."},
		{plan.Outlook{Ahead: 2, Waiting: 9, Latest: 3 * time.Hour}, "2 jobs before it in the queue, 9 in all. It starts within 3 h, if no job comes before it."},
		{plan.Outlook{Waiting: 9, Soonest: 119 * minute, Latest: 119*minute + 5*time.Second}, "It is first in the queue, 9 in all. It starts in about 119 min, if no job comes before it."},
		{plan.Outlook{Waiting: 9, Soonest: 3 * time.Hour, Latest: -1, Open: 2}, "It is first in the queue, 9 in all. It starts in 3 h at the soonest; no latest time is known: 2 jobs before it, or running, without a run limit (asub -W) and with too few past runs."},
		{plan.Outlook{Waiting: 9, Latest: -1, Open: 1}, "It is first in the queue, 9 in all. Its start can't be foreseen: 1 job before it, or running, without a run limit (asub -W) and with too few past runs."},
		{plan.Outlook{Waiting: 1, Latest: -1}, "It is first in the queue, 1 in all. Its start can't be foreseen."},
		{plan.Outlook{Ahead: 3000, Waiting: 3001, Soonest: 50 * time.Hour, Latest: 80 * time.Hour}, "3000 jobs before it in the queue, 3001 in all. It starts in 2 days to 3 days, if no job comes before it."},
	} {
		if got := newOutlook(c.x).String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.x, got, c.want)
		}
	}
}
