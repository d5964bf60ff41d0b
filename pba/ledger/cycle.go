package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Cycle is one run of the engine, as it is recorded before its first act.
type Cycle struct {
	Who      string // the identity that the system gave
	Mode     Mode
	Started  time.Time
	Read     time.Time // when the queue's answer was there; zero: not known
	Planned  time.Time // when the plan was made; zero: not known
	Snapshot time.Time // by the queue's clock
	Ended    []Ended   // jobs that have ended since the last cycle
	Former   []string  // former names of projects that unfinished jobs have
	Note     string

	Zone        *time.Location // whose hours use is added up by; nil: UTC's
	Longest     time.Duration  // a longer time without cycles is not counted as used, nor as seen
	KeepHistory time.Duration  // for how long history is kept; 0: for ever
}

// Mode is what a cycle may do.
type Mode string

// The modes.
const (
	Live    Mode = "live"
	Observe Mode = "observe" // remembers, and acts on nothing (R7)
	Restore Mode = "restore" // puts everything back
)

// Ended is a job that has ended, for explain and reports.
type Ended struct {
	Job    backends.Job
	Waited time.Duration   // from submission to the start of its last run, or to its end
	PBA    bool            // it was charged to a pool, or held room in one
	Memory *plan.JobMemory // what was remembered of it; nil: nothing
}

// Result is what became of an action.
type Result string

// The results. Intended stays where the engine died before it recorded another.
const (
	Intended Result = "intended"
	Would    Result = "would"    // observe mode
	Done     Result = "done"     //
	Failed   Result = "failed"   // the queue refused, or did not answer
	Gone     Result = "gone"     // the job had left the run that was meant before the act
	LeftOut  Result = "left out" // an earlier action of its reclaim failed, or time was up
)

// Outcome is what became of one action of a plan.
type Outcome struct {
	Action int // its index in the plan's Actions
	Result Result
	Error  string
	At     time.Time // by the queue's clock
}

// Acted reports whether the action may have reached the queue.
func (o Outcome) Acted() bool { return o.Result == Done || o.Result == Failed }

// Intend records a cycle before its first act, in one transaction: what it
// remembers, its reclaims, and each action as an intent. It returns the cycle's
// ID. After an error nothing is recorded and nothing may be done.
func (l *Ledger) Intend(ctx context.Context, c Cycle, p plan.Plan) (int64, error) {
	var id int64
	err := l.tx(ctx, "record what the cycle intends", func(tx *sql.Tx) error {
		if err := storeMemory(ctx, tx, l.loaded, p.Memory); err != nil {
			return err
		}
		if err := storeUse(ctx, tx, c, l.loaded.LastCycle, &p); err != nil {
			return err
		}
		if err := storeEnded(ctx, tx, c.Ended); err != nil {
			return err
		}
		if err := forgetNames(ctx, tx, c); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO cycle (who, mode, started, was_read, planned, snapshot, finished, actions, skipped, note)
			VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`,
			c.Who, string(c.Mode), unixtime.Of(c.Started), unixtime.Of(c.Read), unixtime.Of(c.Planned), unixtime.Of(c.Snapshot), len(p.Actions), len(p.Skipped), c.Note)
		if err != nil {
			return err
		}
		if id, err = res.LastInsertId(); err != nil {
			return err
		}
		if err := storeIntents(ctx, tx, id, c.Mode, p.Actions); err != nil || c.KeepHistory <= 0 || id%forgetEvery != 0 || inDoubt(p.Memory.ClockSet, c.Snapshot) {
			return err
		}
		return forget(ctx, tx, c.Snapshot.Add(-c.KeepHistory))
	})
	if err != nil {
		return 0, err
	}
	l.loaded = p.Memory
	return id, nil
}

func storeIntents(ctx context.Context, tx *sql.Tx, cycle int64, mode Mode, actions []plan.Action) error {
	put, err := tx.PrepareContext(ctx, `INSERT INTO action
		(cycle, ord, verb, job, idx, for_job, for_idx, reclaim, priority, hosts, queue, until, reason, outcome, error, at, dummies)
		VALUES `+placeholders(17))
	if err != nil {
		return err
	}
	defer put.Close()
	result := Intended
	if mode == Observe {
		result = Would
	}
	recorded, err := replaceWould(ctx, tx, mode, actions)
	if err != nil {
		return err
	}
	for i, a := range actions {
		if recorded[wouldDo{a.Verb, a.Job, a.For}] {
			continue
		}
		hosts, err := toJSON(a.Hosts)
		if err != nil {
			return err
		}
		_, err = put.ExecContext(ctx, cycle, i, string(a.Verb), a.Job.Job, a.Job.Index, a.For.Job, a.For.Index, a.Reclaim,
			int64(a.Priority), hosts, a.Queue, unixtime.Of(a.Until), a.Reason, string(result), "", 0, dummyCount(&a))
		if err != nil {
			return err
		}
	}
	return nil
}

// wouldDo identifies an action that observe mode records.
type wouldDo struct {
	verb        plan.Verb
	job         backends.ID
	beneficiary backends.ID // its beneficiary
}

// replaceWould returns the actions that observe mode has recorded already, and replaces
// them by those of this cycle.
func replaceWould(ctx context.Context, tx *sql.Tx, mode Mode, actions []plan.Action) (map[wouldDo]bool, error) {
	recorded := map[wouldDo]bool{}
	err := each(ctx, tx, func(rows *sql.Rows) error {
		var w wouldDo
		err := rows.Scan(&w.verb, &w.job.Job, &w.job.Index, &w.beneficiary.Job, &w.beneficiary.Index)
		recorded[w] = true
		return err
	}, `SELECT verb, job, idx, for_job, for_idx FROM would`)
	if err != nil {
		return nil, err
	}
	now := map[wouldDo]bool{}
	if mode == Observe {
		for _, a := range actions {
			now[wouldDo{a.Verb, a.Job, a.For}] = true
		}
	}
	change := func(statement string, from, without map[wouldDo]bool) error {
		for w := range from {
			if without[w] {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement, string(w.verb), w.job.Job, w.job.Index, w.beneficiary.Job, w.beneficiary.Index); err != nil {
				return err
			}
		}
		return nil
	}
	if err := change(`DELETE FROM would WHERE verb = ? AND job = ? AND idx = ? AND for_job = ? AND for_idx = ?`, recorded, now); err != nil {
		return nil, err
	}
	if err := change(`INSERT INTO would (verb, job, idx, for_job, for_idx) VALUES (?, ?, ?, ?, ?)`, now, recorded); err != nil {
		return nil, err
	}
	if mode != Observe {
		return nil, nil
	}
	return recorded, nil
}

func storeEnded(ctx context.Context, tx *sql.Tx, ended []Ended) error {
	for _, e := range ended {
		memory, pool, class := "", int64(0), "normal"
		if e.PBA {
			class = "pba"
		}
		if e.Memory != nil {
			pool = e.Memory.Pool
			text, err := json.Marshal(e.Memory)
			if err != nil {
				return err
			}
			memory = string(text)
		}
		j := &e.Job
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO ended_job
			(job, idx, submitted, user, project, step, slots, started, ended, exit_code, requeues, waited, class, pool, memory)
			VALUES `+placeholders(15), j.ID.Job, j.ID.Index, unixtime.Of(j.Submitted), j.User, j.Project, j.Step, j.Slots,
			unixtime.Of(j.Started), unixtime.Of(j.Ended), j.ExitCode, j.Requeues, int64(e.Waited), class, pool, memory)
		if err != nil {
			return err
		}
	}
	return nil
}

// Outcome records what became of actions, and with them when the last act was.
func (l *Ledger) Outcome(ctx context.Context, cycle int64, outcomes []Outcome) error {
	return l.tx(ctx, "record what was done", func(tx *sql.Tx) error {
		for _, o := range outcomes {
			_, err := tx.ExecContext(ctx, `UPDATE action SET outcome = ?, error = ?, at = ? WHERE cycle = ? AND ord = ?`,
				string(o.Result), o.Error, unixtime.Of(o.At), cycle, o.Action)
			if err != nil {
				return err
			}
			if !o.Acted() {
				continue
			}
			if err := raiseMeta(ctx, tx, metaLastAction, unixtime.Of(o.At)); err != nil {
				return err
			}
		}
		return nil
	})
}

// keptCycles is for how long cycles that did nothing are kept.
const keptCycles = 24 * time.Hour

// Finish closes a cycle's record. Old cycles that did nothing are forgotten.
func (l *Ledger) Finish(ctx context.Context, cycle int64, at time.Time, note string) error {
	return l.tx(ctx, "record the cycle's end", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE cycle SET finished = ?, note = CASE WHEN ? = '' THEN note ELSE ? END WHERE id = ?`,
			unixtime.Of(at), note, note, cycle)
		if err != nil || cycle%100 != 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM cycle WHERE actions = 0 AND id < ? AND started < ?`, cycle, unixtime.Of(at.Add(-keptCycles)))
		return err
	})
}
