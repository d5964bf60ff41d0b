package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// storeUse adds what a cycle saw to its hours: as it is now, it is taken to have
// been since the last cycle.
func storeUse(ctx context.Context, tx *sql.Tx, c Cycle, last time.Time, p *plan.Plan) error {
	from, to := last, p.Memory.LastCycle
	if c.Mode == Restore || from.IsZero() || !from.Before(to) || to.Sub(from) > c.Longest {
		return nil
	}
	for from.Before(to) {
		hour := hourOf(from, c.Zone)
		end := to
		if next := hour.Add(time.Hour); next.Before(to) {
			end = next
		}
		if err := addUse(ctx, tx, unixtime.Of(hour), end.Sub(from).Milliseconds(), p); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// hourOf returns the start of the hour that an instant lies in, by the clocks of a zone:
// there are zones that are half an hour apart, and days must be made of hours.
func hourOf(t time.Time, zone *time.Location) time.Time {
	if zone == nil {
		zone = time.UTC
	}
	_, offset := t.In(zone).Zone()
	shift := time.Duration(offset) * time.Second
	return t.Add(shift).Truncate(time.Hour).Add(-shift)
}

func addUse(ctx context.Context, tx *sql.Tx, hour, ms int64, p *plan.Plan) error {
	f := &p.Farm
	_, err := tx.ExecContext(ctx, `INSERT INTO farm_hour (hour, seen, slots, down, pba, normal, suspended) VALUES `+placeholders(7)+`
		ON CONFLICT (hour) DO UPDATE SET seen = seen + excluded.seen, slots = slots + excluded.slots, down = down + excluded.down,
		pba = pba + excluded.pba, normal = normal + excluded.normal, suspended = suspended + excluded.suspended`,
		hour, ms, ms*int64(f.Slots), ms*int64(f.Down), ms*int64(f.PBA), ms*int64(f.Normal), ms*int64(f.Suspended))
	if err != nil {
		return err
	}
	put, err := tx.PrepareContext(ctx, `INSERT INTO use_hour (hour, pool, project, user, step, guaranteed, used, waiting) VALUES `+placeholders(8)+`
		ON CONFLICT (hour, pool, project, user, step) DO UPDATE SET guaranteed = guaranteed + excluded.guaranteed,
		used = used + excluded.used, waiting = waiting + excluded.waiting`)
	if err != nil {
		return err
	}
	defer put.Close()
	for i := range p.Pools {
		s := &p.Pools[i]
		if s.Guarantee == 0 && s.Charged == 0 && s.Held == 0 {
			continue
		}
		_, err := put.ExecContext(ctx, hour, s.ID, s.Project, s.User, s.Step, ms*int64(s.Guarantee), ms*int64(s.Charged), ms*int64(s.Held))
		if err != nil {
			return err
		}
	}
	for _, b := range p.Beyond {
		if _, err := put.ExecContext(ctx, hour, 0, b.Project, b.User, b.Step, 0, ms*int64(b.Slots), 0); err != nil {
			return err
		}
	}
	if err := addUserHours(ctx, tx, hour, ms, p.Uses); err != nil {
		return err
	}
	return addShortages(ctx, tx, hour, ms, p.Shortages)
}

// maxUserRows bounds the rows of what users used within an hour. What further users, or their
// further steps, used is added to one row for each pool and project.
const maxUserRows = 10_000

func addUserHours(ctx context.Context, tx *sql.Tx, hour, ms int64, uses []plan.Use) error {
	if len(uses) == 0 {
		return nil
	}
	var rows int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM user_hour WHERE hour = ?`, hour).Scan(&rows); err != nil {
		return err
	}
	add, err := tx.PrepareContext(ctx, `UPDATE user_hour SET used = used + ? WHERE hour = ? AND pool = ? AND project = ? AND user = ? AND step = ?`)
	if err != nil {
		return err
	}
	defer add.Close()
	put, err := tx.PrepareContext(ctx, `INSERT INTO user_hour (used, hour, pool, project, user, step) VALUES `+placeholders(6)+`
		ON CONFLICT (hour, pool, project, user, step) DO UPDATE SET used = used + excluded.used`)
	if err != nil {
		return err
	}
	defer put.Close()
	for _, u := range uses {
		used := ms * int64(u.Slots)
		added, err := add.ExecContext(ctx, used, hour, u.PoolID, u.Project, u.User, u.Step)
		if err != nil {
			return err
		}
		if n, err := added.RowsAffected(); err != nil || n > 0 {
			if err != nil {
				return err
			}
			continue
		}
		if rows++; rows > maxUserRows {
			u.User, u.Step = "", ""
		}
		if _, err := put.ExecContext(ctx, used, hour, u.PoolID, u.Project, u.User, u.Step); err != nil {
			return err
		}
	}
	return nil
}

// FarmHour is what cycles saw of the farm within one hour. The slots are
// averages over the time that was seen.
type FarmHour struct {
	Hour                                time.Time // its start
	Seen                                time.Duration
	Slots, Down, PBA, Normal, Suspended SlotTime
}

// UseHour is what one pool, or one account beyond the pools, used within one hour.
type UseHour struct {
	Hour       time.Time
	PoolID     int64 // 0: beyond the pools
	Pool             // without a project: a user's jobs that count under no project
	Guaranteed SlotTime
	Used       SlotTime
	Waiting    SlotTime
}

// SlotTime is a number of slots multiplied by a time: a slot for a second is
// SlotTime(time.Second).
type SlotTime time.Duration

// Hours is the amount in slot-hours.
func (s SlotTime) Hours() float64 { return time.Duration(s).Hours() }

// slotTime scans a SlotTime in milliseconds.
type slotTime struct{ *SlotTime }

// Scan reads the column's value.
func (c slotTime) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("%v is no time in milliseconds", value)
	}
	*c.SlotTime = SlotTime(n) * SlotTime(time.Millisecond)
	return nil
}

// FarmHours lists the hours from one time up to, and without, another.
func (l *Ledger) FarmHours(ctx context.Context, from, to time.Time) ([]FarmHour, error) {
	all, err := list(ctx, l.db, func(h *FarmHour) []any {
		return []any{when(&h.Hour), slotTime{(*SlotTime)(&h.Seen)}, slotTime{&h.Slots}, slotTime{&h.Down}, slotTime{&h.PBA}, slotTime{&h.Normal}, slotTime{&h.Suspended}}
	}, `SELECT hour, seen, slots, down, pba, normal, suspended FROM farm_hour WHERE hour >= ? AND hour < ? ORDER BY hour`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read what was used", err)
}

// UseHours lists the use of those hours, by hour, project, user, step and host set.
func (l *Ledger) UseHours(ctx context.Context, from, to time.Time) ([]UseHour, error) {
	all, err := list(ctx, l.db, func(u *UseHour) []any {
		return []any{when(&u.Hour), &u.PoolID, &u.Project, &u.User, &u.Step, &u.Hosts, slotTime{&u.Guaranteed}, slotTime{&u.Used}, slotTime{&u.Waiting}}
	}, `SELECT u.hour, u.pool, u.project, u.user, u.step, COALESCE(o.hosts, ''), u.guaranteed, u.used, u.waiting
		FROM use_hour u LEFT JOIN pool o ON o.id = u.pool WHERE u.hour >= ? AND u.hour < ?
		ORDER BY u.hour, u.project, u.user, u.step, o.hosts, u.pool DESC`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read what was used", err)
}

// UserHour is what one user's jobs of one step used within one hour.
type UserHour struct {
	Hour                time.Time
	PoolID              int64  // 0: beyond the pools
	In                  Pool   // the pool; zero beyond the pools
	Project, User, Step string // the jobs'. User "": of all users beyond those that an hour may have
	Used                SlotTime
}

// UserHours lists what users used in the hours from one time up to, and without, another, by
// hour, project, user and step.
func (l *Ledger) UserHours(ctx context.Context, from, to time.Time) ([]UserHour, error) {
	all, err := list(ctx, l.db, func(u *UserHour) []any {
		return []any{when(&u.Hour), &u.PoolID, &u.Project, &u.User, &u.Step, &u.In.Project, &u.In.User, &u.In.Step, &u.In.Hosts, slotTime{&u.Used}}
	}, `SELECT u.hour, u.pool, u.project, u.user, u.step, CASE WHEN u.pool = 0 THEN '' ELSE u.project END, COALESCE(o.user, ''), COALESCE(o.step, ''), COALESCE(o.hosts, ''), u.used
		FROM user_hour u LEFT JOIN pool o ON o.id = u.pool WHERE u.hour >= ? AND u.hour < ?
		ORDER BY u.hour, u.project, u.user, u.step, u.pool DESC`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read what users used", err)
}
