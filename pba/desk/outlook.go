package desk

import (
	"context"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Outlook is a waiting job's place in the queue and when it may start, if no job comes that
// ranks before it.
type Outlook struct {
	Ahead   int      `json:"ahead"`                    // jobs that wait and rank before it
	Waiting int      `json:"waiting"`                  // all jobs that wait
	Soonest float64  `json:"soonest_seconds"`          // if other jobs are as short as they usually are
	Latest  *float64 `json:"latest_seconds,omitempty"` // if they run as long as they may; nil: not known
	Open    int      `json:"open"`                     // jobs before it, running ones too, of which no longest run is known
	Text    string   `json:"text"`                     // the same in words
}

// Bounds of what is read of past runs.
const (
	runsTime  = 30 * 24 * time.Hour
	runsOf    = 200 // of a user
	runsUsers = 200 // the others count as users without past runs
)

// runs returns users' past runs, each read once. An error is left in failed.
func (d *Desk) runs(ctx context.Context, failed *error) func(user string) plan.Runs {
	known := map[string]plan.Runs{}
	return func(user string) plan.Runs {
		r, read := known[user]
		if read || *failed != nil || len(known) >= runsUsers {
			return r
		}
		ended, err := d.ledger.EndedOf(ctx, user, d.Now().Add(-runsTime), runsOf)
		if err != nil {
			*failed = err
			return r
		}
		var took []time.Duration
		for i := range ended {
			if j := &ended[i]; !j.Started.IsZero() && j.Ended.After(j.Started) {
				took = append(took, j.Ended.Sub(j.Started))
			}
		}
		known[user] = plan.NewRuns(took)
		return known[user]
	}
}

func newOutlook(x plan.Outlook) *Outlook {
	o := &Outlook{Ahead: x.Ahead, Waiting: x.Waiting, Soonest: x.Soonest.Seconds(), Open: x.Open}
	if x.Latest >= 0 {
		latest := x.Latest.Seconds()
		o.Latest = &latest
	}
	o.Text = o.String()
	return o
}

// String says it in two sentences.
func (o *Outlook) String() string {
	place := "It is first in the queue"
	if o.Ahead > 0 {
		place = printable.Count(o.Ahead, "job") + " before it in the queue"
	}
	place += fmt.Sprintf(", %d in all. ", o.Waiting)
	soonest := time.Duration(o.Soonest * float64(time.Second))
	open := ""
	if o.Open > 0 {
		open = fmt.Sprintf(": %s before it, or running, without a run limit (asub -W) and with too few past runs", printable.Count(o.Open, "job"))
	}
	if o.Latest == nil && soonest == 0 {
		return place + "Its start can't be foreseen" + open + "."
	}
	if o.Latest == nil {
		return place + fmt.Sprintf("It starts in %s at the soonest; no latest time is known%s.", about(soonest), open)
	}
	latest := time.Duration(*o.Latest * float64(time.Second))
	from, to := about(soonest), about(latest)
	switch {
	case latest < time.Minute:
		return place + "It fits: the queue can start it at once."
	case soonest < time.Minute:
		return place + fmt.Sprintf("It starts within %s, if no job comes before it.", to)
	case from == to:
		return place + fmt.Sprintf("It starts in about %s, if no job comes before it.", to)
	}
	return place + fmt.Sprintf("It starts in %s to %s, if no job comes before it.", from, to)
}

// about returns a duration as people say it: to two digits, in one unit.
func about(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", max(1, int(d.Round(time.Minute).Minutes())))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
	}
	return fmt.Sprintf("%d days", int((d+12*time.Hour).Hours()/24))
}
