package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// remembered is for how long before the last cycle closed reclaims are still
// loaded: longer than the hour that R22 counts by; Make drops what it needs no more.
const remembered = 2 * time.Hour

// Load reads what the previous cycle left. A new ledger gives the zero Memory.
func (l *Ledger) Load(ctx context.Context) (m plan.Memory, err error) {
	err = l.tx(ctx, "read the engine's memory", func(tx *sql.Tx) error {
		m, err = loadMemory(ctx, tx)
		return err
	})
	if err != nil {
		return plan.Memory{}, err
	}
	l.loaded = m
	return m, nil
}

func loadMemory(ctx context.Context, q querier) (m plan.Memory, err error) {
	for key, to := range map[string]func(int64){
		metaLastCycle:   func(n int64) { m.LastCycle = unixtime.Time(n) },
		metaLastAction:  func(n int64) { m.LastAction = unixtime.Time(n) },
		metaPoolsSent:   func(n int64) { m.PoolsSent = unixtime.Time(n) },
		metaEndedSince:  func(n int64) { m.EndedSince = unixtime.Time(n) },
		metaNextReclaim: func(n int64) { m.NextID = n },
		metaClockWall:   func(n int64) { m.Clock.Wall = unixtime.Time(n) },
		metaClockBoot:   func(n int64) { m.Clock.Boot = uint64(n) },
		metaClockUp:     func(n int64) { m.Clock.Up = time.Duration(n) },
		metaClockSetAt:  func(n int64) { m.ClockSet.At = unixtime.Time(n) },
		metaClockSetBy:  func(n int64) { m.ClockSet.By = time.Duration(n) },
	} {
		n, err := getMeta(ctx, q, key)
		if err != nil {
			return m, err
		}
		to(n)
	}
	m.Jobs, err = table(ctx, q, func(id *backends.ID, j *plan.JobMemory) []any {
		return []any{
			&id.Job, &id.Index, &j.Pool, when(&j.Entered), &j.Kept, &j.Clock, when(&j.ClockSeen), &j.Requeues, &j.Expired, when(&j.Backoff),
			&j.Written, when(&j.WrittenAt),
			&j.Lost, &j.GaveWay, &j.Grew, when(&j.GrewAt),
			fromJSON{&j.Reserved},
			when(&j.ReservedUntil),
			fromJSON{&j.History},
		}
	}, `SELECT `+jobColumns+` FROM job_memory`)
	if err != nil {
		return m, err
	}
	if m.RunTimes, err = loadRunTimes(ctx, q); err != nil {
		return m, err
	}
	if m.Throughput, err = loadThroughput(ctx, q); err != nil {
		return m, err
	}
	if m.Dummies, err = loadDummies(ctx, q); err != nil {
		return m, err
	}
	if m.Trials, err = loadTrials(ctx, q); err != nil {
		return m, err
	}
	since := int64(0)
	if !m.LastCycle.IsZero() {
		since = unixtime.Of(m.LastCycle.Add(-remembered))
	}
	m.Reclaims, err = loadReclaims(ctx, q, `WHERE ended = 0 OR ended >= ?`, since)
	return m, err
}

const jobColumns = `job, idx, pool, entered, kept, clock, clock_seen, requeues, expired, backoff,
	written, written_at, lost, gave_way, grew, grew_at, reserved, reserved_until, history`

func loadRunTimes(ctx context.Context, q querier) (map[string][]plan.RunEnd, error) {
	all := map[string][]plan.RunEnd{}
	return all, each(ctx, q, func(rows *sql.Rows) error {
		var (
			pool []byte
			end  plan.RunEnd
		)
		err := rows.Scan(&pool, &end.ID.Job, &end.ID.Index, &end.Ran)
		all[string(pool)] = append(all[string(pool)], end)
		return err
	}, `SELECT pool, job, idx, ran FROM run_time ORDER BY pool, ord`)
}

func loadReclaims(ctx context.Context, q querier, where string, args ...any) ([]plan.Reclaim, error) {
	all, err := list(ctx, q, func(r *plan.Reclaim) []any {
		return []any{
			&r.ID, &r.Beneficiary.Job, &r.Beneficiary.Index, &r.Pool, &r.Project, &r.User, &r.Need,
			fromJSON{&r.Hosts},
			&r.Phase, &r.Why, when(&r.Planned), when(&r.Acted), when(&r.Freed), when(&r.Ended),
		}
	}, `SELECT id, job, idx, pool, project, user, need, hosts, phase, why, planned, acted, freed, ended
		FROM reclaim `+where+` ORDER BY id`, args...)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Victims, err = list(ctx, q, func(v *plan.Victim) []any {
			return []any{&v.ID.Job, &v.ID.Index, &v.Project, &v.User, when(&v.Started), &v.Slots, suspends{&v.Mode}, &v.RanFor, &v.Fate, &v.Released, &v.Save, &v.Saved}
		}, `SELECT job, idx, project, user, started, slots, mode, ran_for, fate, released, save, saved
			FROM victim WHERE reclaim = ? ORDER BY ord`, all[i].ID)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// storeMemory writes what differs between two memories.
func storeMemory(ctx context.Context, tx *sql.Tx, was, is plan.Memory) error {
	if err := storeJobs(ctx, tx, was.Jobs, is.Jobs); err != nil {
		return err
	}
	if err := storeRunTimes(ctx, tx, was.RunTimes, is.RunTimes); err != nil {
		return err
	}
	if err := storeThroughput(ctx, tx, was.Throughput, is.Throughput); err != nil {
		return err
	}
	if err := storeDummies(ctx, tx, was.Dummies, is.Dummies); err != nil {
		return err
	}
	if err := storeTrials(ctx, tx, was.Trials, is.Trials); err != nil {
		return err
	}
	if err := moveReclaims(ctx, tx, was, is); err != nil {
		return err
	}
	if err := storeReclaims(ctx, tx, was.Reclaims, is.Reclaims, is.Jobs); err != nil {
		return err
	}
	before := metaOf(was)
	for key, n := range metaOf(is) {
		if n == before[key] && key != metaLastAction { // which Outcome raises
			continue
		}
		if err := setMeta(ctx, tx, key, n); err != nil {
			return err
		}
	}
	return nil
}

// metaOf is what the meta table keeps of a memory.
func metaOf(m plan.Memory) map[string]int64 {
	return map[string]int64{
		metaLastCycle:   unixtime.Of(m.LastCycle),
		metaLastAction:  unixtime.Of(m.LastAction),
		metaPoolsSent:   unixtime.Of(m.PoolsSent),
		metaEndedSince:  unixtime.Of(m.EndedSince),
		metaNextReclaim: m.NextID,
		metaClockWall:   unixtime.Of(m.Clock.Wall),
		metaClockBoot:   int64(m.Clock.Boot),
		metaClockUp:     int64(m.Clock.Up),
		metaClockSetAt:  unixtime.Of(m.ClockSet.At),
		metaClockSetBy:  int64(m.ClockSet.By),
	}
}

// moveReclaims dates the closed reclaims anew that are ahead of a clock that was put
// back: Load would return them again and again, however long ago they are.
func moveReclaims(ctx context.Context, tx *sql.Tx, was, is plan.Memory) error {
	by := int64(is.ClockSet.By)
	if is.ClockSet == was.ClockSet || by >= 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, `UPDATE reclaim SET planned = planned + ?1, ended = ended + ?1,
		acted = CASE acted WHEN 0 THEN 0 ELSE acted + ?1 END, freed = CASE freed WHEN 0 THEN 0 ELSE freed + ?1 END
		WHERE ended > ?2`, by, unixtime.Of(is.ClockSet.At))
	return err
}

func storeJobs(ctx context.Context, tx *sql.Tx, was, is map[backends.ID]plan.JobMemory) error {
	row, err := tx.PrepareContext(ctx, `INSERT OR REPLACE INTO job_memory (`+jobColumns+`) VALUES `+placeholders(19)) //nolint:sqlclosecheck // it is closed below; the check does not look into the closure that uses it
	if err != nil {
		return err
	}
	defer row.Close()
	return storeTable(was, is, sameJob, func(id backends.ID, j plan.JobMemory) error {
		reserved, err := toJSON(j.Reserved)
		if err != nil {
			return err
		}
		history, err := toJSON(j.History)
		if err != nil {
			return err
		}
		_, err = row.ExecContext(ctx, id.Job, id.Index, j.Pool, unixtime.Of(j.Entered), j.Kept, j.Clock, unixtime.Of(j.ClockSeen),
			j.Requeues, j.Expired, unixtime.Of(j.Backoff), j.Written, unixtime.Of(j.WrittenAt), j.Lost, j.GaveWay, j.Grew, unixtime.Of(j.GrewAt), reserved, unixtime.Of(j.ReservedUntil), history)
		return err
	}, forgetJob(ctx, tx, "job_memory"))
}

func sameJob(a, b plan.JobMemory) bool {
	return a.Pool == b.Pool && a.Entered.Equal(b.Entered) && a.Kept == b.Kept &&
		a.Clock == b.Clock && a.ClockSeen.Equal(b.ClockSeen) &&
		a.Requeues == b.Requeues && a.Lost == b.Lost && a.GaveWay == b.GaveWay && a.Grew == b.Grew && a.GrewAt.Equal(b.GrewAt) && a.Expired == b.Expired && a.Backoff.Equal(b.Backoff) &&
		a.Written == b.Written && a.WrittenAt.Equal(b.WrittenAt) &&
		slices.Equal(a.Reserved, b.Reserved) && a.ReservedUntil.Equal(b.ReservedUntil) &&
		slices.EqualFunc(a.History, b.History, func(p, q plan.Point) bool {
			return p.At.Equal(q.At) && p.Priority == q.Priority && p.Why == q.Why
		})
}

func storeRunTimes(ctx context.Context, tx *sql.Tx, was, is map[string][]plan.RunEnd) error {
	drop := func(pool string) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM run_time WHERE pool = ?`, []byte(pool))
		return err
	}
	return storeTable(was, is, slices.Equal, func(pool string, ends []plan.RunEnd) error {
		if err := drop(pool); err != nil {
			return err
		}
		for i, end := range ends {
			_, err := tx.ExecContext(ctx, `INSERT INTO run_time (pool, ord, job, idx, ran) VALUES (?, ?, ?, ?, ?)`,
				[]byte(pool), i, end.ID.Job, end.ID.Index, end.Ran)
			if err != nil {
				return err
			}
		}
		return nil
	}, drop)
}

// storeReclaims never deletes: a reclaim that Make has forgotten stays for explain.
func storeReclaims(ctx context.Context, tx *sql.Tx, was, is []plan.Reclaim, jobs map[backends.ID]plan.JobMemory) error {
	old := make(map[int64]*plan.Reclaim, len(was))
	for i := range was {
		old[was[i].ID] = &was[i]
	}
	for i := range is {
		r := &is[i]
		if o := old[r.ID]; o != nil && sameReclaim(o, r) {
			continue
		}
		if err := storeReclaim(ctx, tx, r, jobs[r.Beneficiary]); err != nil {
			return err
		}
	}
	return nil
}

func sameReclaim(a, b *plan.Reclaim) bool {
	return a.Beneficiary == b.Beneficiary && a.Pool == b.Pool && a.Project == b.Project && a.User == b.User && a.Need == b.Need &&
		slices.Equal(a.Hosts, b.Hosts) && a.Phase == b.Phase && a.Why == b.Why &&
		a.Planned.Equal(b.Planned) && a.Acted.Equal(b.Acted) && a.Freed.Equal(b.Freed) && a.Ended.Equal(b.Ended) &&
		slices.EqualFunc(a.Victims, b.Victims, func(v, w plan.Victim) bool {
			started := v.Started.Equal(w.Started)
			v.Started, w.Started = time.Time{}, time.Time{}
			return started && v == w
		})
}

// storeReclaim stores a reclaim, and what is known of its beneficiary when it is planned.
func storeReclaim(ctx context.Context, tx *sql.Tx, r *plan.Reclaim, beneficiary plan.JobMemory) error {
	hosts, err := json.Marshal(r.Hosts)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO reclaim (id, job, idx, pool, project, user, need, hosts, phase, why, planned, acted, freed, ended, entered, clock)
		VALUES `+placeholders(16)+` ON CONFLICT (id) DO UPDATE SET
		job = excluded.job, idx = excluded.idx, pool = excluded.pool, project = excluded.project, user = excluded.user, need = excluded.need,
		hosts = excluded.hosts, phase = excluded.phase, why = excluded.why,
		planned = excluded.planned, acted = excluded.acted, freed = excluded.freed, ended = excluded.ended`,
		r.ID, r.Beneficiary.Job, r.Beneficiary.Index, r.Pool, r.Project, r.User, r.Need, string(hosts), string(r.Phase), r.Why,
		unixtime.Of(r.Planned), unixtime.Of(r.Acted), unixtime.Of(r.Freed), unixtime.Of(r.Ended), unixtime.Of(beneficiary.Entered), int64(beneficiary.Clock))
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM victim WHERE reclaim = ?`, r.ID); err != nil {
		return err
	}
	for i, v := range r.Victims {
		_, err := tx.ExecContext(ctx, `INSERT INTO victim (reclaim, ord, job, idx, project, user, started, slots, mode, ran_for, fate, released, save, saved)
			VALUES `+placeholders(14), r.ID, i, v.ID.Job, v.ID.Index, v.Project, v.User, unixtime.Of(v.Started), v.Slots,
			v.Mode.String(), int64(v.RanFor), string(v.Fate), v.Released, int64(v.Save), string(v.Saved))
		if err != nil {
			return err
		}
	}
	return nil
}
