package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// overdueHold is a margin: no hold of the engine ends later than hold_limit and this,
// even if the limit was lowered since.
const overdueHold = 24 * time.Hour

// Stuck lists the jobs that the engine's hold keeps for longer than any hold may last:
// the queue did not release them, and they would not run in the end (R21).
func Stuck(farm *backends.Snapshot, holdLimit time.Duration, now time.Time) []backends.ID {
	var stuck []backends.ID
	latest := now.Add(holdLimit + overdueHold)
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.HeldUntil.After(latest) && j.HeldUntil.After(j.BeginTime) && !j.State.Ended() {
			stuck = append(stuck, j.ID)
		}
	}
	return stuck
}

// warnOfStuck warns of the jobs that the queue did not release.
func (c *cycle) warnOfStuck() {
	if len(c.stuck) > 0 {
		c.warn("the queue did not release %s: they would not start by themselves; each cycle tries again", Some(c.stuck))
	}
}

// Some names the first 8 jobs, and says how many more there are.
func Some(ids []backends.ID) string {
	const most = 8
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, id.String())
	}
	text := strings.Join(names, ", ")
	switch {
	case len(ids) == 1:
		return "job " + text
	case len(ids) > most:
		text += fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return "jobs " + text
}
