package daemon

import (
	"path/filepath"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// addUse puts into a job's record what the run that is alive has used until now.
// Nothing of that is kept: its keeper writes down what it was in the end.
func (d *daemon) addUse(id backends.ID, record *backends.Record) {
	for i := range record.Runs {
		run := &record.Runs[i]
		if !run.Ended.IsZero() {
			continue
		}
		dir := filepath.Join(d.state, "nodes", run.Host)
		r, err := keeper.ReadRecord(node.RecordPath(dir, node.RunID{ID: id, Run: run.Run}))
		if err != nil || r.End != nil {
			continue
		}
		if use, alive := keeper.Used(r); alive {
			run.User, run.System, run.MaxRSS = use.User, use.System, use.Memory
		}
	}
}
