package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// maxWaitRows bounds the names of resources within an hour. What waited for further ones is added
// to one row.
const maxWaitRows = 20

// addShortages adds what kept jobs waiting for a time to an hour.
func addShortages(ctx context.Context, tx *sql.Tx, hour, ms int64, all []plan.Shortage) error {
	if len(all) == 0 {
		return nil
	}
	known, err := waitNames(ctx, tx, hour)
	if err != nil {
		return err
	}
	put, err := tx.PrepareContext(ctx, `INSERT INTO wait_hour (hour, cause, name, waited, seen, free, lacking, hosts) VALUES `+placeholders(8)+`
		ON CONFLICT (hour, cause, name) DO UPDATE SET waited = waited + excluded.waited, seen = seen + excluded.seen,
		free = free + excluded.free, lacking = lacking + excluded.lacking, hosts = hosts + excluded.hosts`)
	if err != nil {
		return err
	}
	defer put.Close()
	others := false // have their time already
	for _, s := range all {
		name, seen, free := s.Name, ms, ms*int64(s.Free)
		if s.Cause == plan.LackResource && !known[name] {
			if name == plan.OtherNames || len(known) >= maxWaitRows {
				name = plan.OtherNames
				if others { // of several, as one
					seen, free = 0, 0
				}
				others = true
			} else {
				known[name] = true
			}
		}
		const mib = 1 << 20
		if _, err := put.ExecContext(ctx, hour, string(s.Cause), name, ms*int64(s.Slots), seen, free, ms*((s.Lacking+mib-1)/mib), ms*int64(s.Hosts)); err != nil {
			return err
		}
	}
	return nil
}

// waitNames returns the names of resources that an hour has a row of, without OtherNames.
func waitNames(ctx context.Context, tx *sql.Tx, hour int64) (map[string]bool, error) {
	rows, err := tx.QueryContext(ctx, `SELECT name FROM wait_hour WHERE hour = ? AND cause = ? AND name != ?`, hour, string(plan.LackResource), plan.OtherNames)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names[name] = true
	}
	return names, rows.Err()
}

// WaitHour is what kept jobs waiting within one hour, for one cause.
type WaitHour struct {
	Hour    time.Time
	Cause   plan.Cause
	Name    string        // see plan.Shortage
	Waited  SlotTime      // of the jobs
	Seen    time.Duration // in which any of them waited
	Free    SlotTime      // that was free meanwhile
	Lacking int64         // milliseconds times MiB of memory
	Hosts   time.Duration // times hosts that lacked it
}

// WaitHours lists what kept jobs waiting in the hours from one time up to, and without, another,
// by hour, cause and name.
func (l *Ledger) WaitHours(ctx context.Context, from, to time.Time) ([]WaitHour, error) {
	all, err := list(ctx, l.db, func(h *WaitHour) []any {
		return []any{when(&h.Hour), &h.Cause, &h.Name, slotTime{&h.Waited}, slotTime{(*SlotTime)(&h.Seen)}, slotTime{&h.Free}, &h.Lacking, slotTime{(*SlotTime)(&h.Hosts)}}
	}, `SELECT hour, cause, name, waited, seen, free, lacking, hosts FROM wait_hour WHERE hour >= ? AND hour < ? ORDER BY hour, cause, name`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read what kept jobs waiting", err)
}
