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
		return []any{&id.Job, &id.Index, fromJSON{&t.Hosts}, when(&t.Pinned), fromJSON{&t.Refused}}
	}, `SELECT job, idx, hosts, pinned, refused FROM trial`)
}

func storeTrials(ctx context.Context, tx *sql.Tx, was, is map[backends.ID]plan.Trial) error {
	return storeTable(was, is, func(a, b plan.Trial) bool {
		return slices.Equal(a.Hosts, b.Hosts) && a.Pinned.Equal(b.Pinned) && slices.EqualFunc(a.Refused, b.Refused, sameRefusal)
	}, func(id backends.ID, t plan.Trial) error {
		hosts, err := toJSON(t.Hosts)
		if err != nil {
			return err
		}
		refused, err := toJSON(t.Refused)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO trial (job, idx, hosts, pinned, refused) VALUES `+placeholders(5),
			id.Job, id.Index, hosts, unixtime.Of(t.Pinned), refused)
		return err
	}, forgetJob(ctx, tx, "trial"))
}

func sameRefusal(a, b plan.Refusal) bool {
	return slices.Equal(a.Hosts, b.Hosts) && a.Times == b.Times && a.At.Equal(b.At) && a.Until.Equal(b.Until) &&
		a.Why == b.Why && a.Of == b.Of && a.Stands == b.Stands
}
