package ledger

import (
	"context"
	"database/sql"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func loadTrials(ctx context.Context, q querier) (map[backends.ID]plan.Trial, error) {
	return table(ctx, q, func(id *backends.ID, t *plan.Trial) []any {
		return []any{&id.Job, &id.Index, fromJSON{&t.Hosts}, when(&t.Pinned), &t.Refusals, when(&t.Until), &t.Why}
	}, `SELECT job, idx, hosts, pinned, refusals, until, why FROM trial`)
}

func storeTrials(ctx context.Context, tx *sql.Tx, was, is map[backends.ID]plan.Trial) error {
	return storeTable(was, is, func(a, b plan.Trial) bool {
		return slices.Equal(a.Hosts, b.Hosts) && a.Pinned.Equal(b.Pinned) && a.Refusals == b.Refusals && a.Until.Equal(b.Until) && a.Why == b.Why
	}, func(id backends.ID, t plan.Trial) error {
		hosts, err := toJSON(t.Hosts)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO trial (job, idx, hosts, pinned, refusals, until, why) VALUES `+placeholders(7),
			id.Job, id.Index, hosts, unixtime.Of(t.Pinned), t.Refusals, unixtime.Of(t.Until), t.Why)
		return err
	}, forgetJob(ctx, tx, "trial"))
}
