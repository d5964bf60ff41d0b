package ledger

import (
	"context"
	"database/sql"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func loadThroughput(ctx context.Context, q querier) (map[int64]plan.ThroughputMemory, error) {
	return table(ctx, q, func(pool *int64, m *plan.ThroughputMemory) []any {
		return []any{pool, when(&m.Week), &m.Finished, &m.SlotSeconds, &m.Guarantee, when(&m.Fell)}
	}, `SELECT pool, week, finished, slot_seconds, guarantee, fell FROM throughput`)
}

func storeThroughput(ctx context.Context, tx *sql.Tx, was, is map[int64]plan.ThroughputMemory) error {
	return storeTable(was, is, func(a, b plan.ThroughputMemory) bool {
		return a.Week.Equal(b.Week) && a.Finished == b.Finished && a.SlotSeconds == b.SlotSeconds && a.Guarantee == b.Guarantee && a.Fell.Equal(b.Fell)
	}, func(pool int64, m plan.ThroughputMemory) error {
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO throughput (pool, week, finished, slot_seconds, guarantee, fell) VALUES `+placeholders(6),
			pool, unixtime.Of(m.Week), m.Finished, m.SlotSeconds, m.Guarantee, unixtime.Of(m.Fell))
		return err
	}, func(pool int64) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM throughput WHERE pool = ?`, pool)
		return err
	})
}
