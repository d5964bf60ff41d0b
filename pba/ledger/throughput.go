package ledger

import (
	"context"
	"database/sql"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func loadThroughput(ctx context.Context, q querier) (map[int64]plan.ThroughputMemory, error) {
	all := map[int64]plan.ThroughputMemory{}
	err := each(ctx, q, func(rows *sql.Rows) error {
		var (
			pool, week, fell int64
			m                plan.ThroughputMemory
		)
		err := rows.Scan(&pool, &week, &m.Finished, &m.SlotSeconds, &m.Guarantee, &fell)
		m.Week, m.Fell = unixtime.Time(week), unixtime.Time(fell)
		all[pool] = m
		return err
	}, `SELECT pool, week, finished, slot_seconds, guarantee, fell FROM throughput`)
	return all, err
}

func storeThroughput(ctx context.Context, tx *sql.Tx, was, is map[int64]plan.ThroughputMemory) error {
	for pool, m := range is {
		if old, ok := was[pool]; ok && sameThroughput(old, m) {
			continue
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO throughput (pool, week, finished, slot_seconds, guarantee, fell) VALUES `+places(6),
			pool, unixtime.Of(m.Week), m.Finished, m.SlotSeconds, m.Guarantee, unixtime.Of(m.Fell))
		if err != nil {
			return err
		}
	}
	for pool := range was {
		if _, ok := is[pool]; ok {
			continue
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM throughput WHERE pool = ?`, pool); err != nil {
			return err
		}
	}
	return nil
}

func sameThroughput(a, b plan.ThroughputMemory) bool {
	return a.Week.Equal(b.Week) && a.Finished == b.Finished && a.SlotSeconds == b.SlotSeconds && a.Guarantee == b.Guarantee && a.Fell.Equal(b.Fell)
}
