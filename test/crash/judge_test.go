package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3" // state objects must open in the C library

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/state"
)

// written is what a run itself wrote.
type written struct {
	started, ended time.Time
	status         int
}

// judge compares what was acknowledged, what the queue shows, what the state
// objects hold and what the jobs wrote.
type judge struct {
	f        *farm
	book     *book
	keepers  map[string]bool // runs whose keeper was killed
	problems []string
	runs     int
	lost     int // runs whose end is unknown
}

func (g *judge) wrong(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

// all judges every job. The daemon must have stopped, so that the state objects are whole.
func (g *judge) all(known []backends.Job) {
	now := make(map[backends.ID]*backends.Job, len(known))
	names := make(map[string]int)
	for i := range known {
		j := &known[i]
		if now[j.ID] != nil {
			g.wrong("job %v is there twice", j.ID)
		}
		now[j.ID] = j
		if g.book.jobs[j.ID] == nil {
			if names[j.Name]++; !g.book.maybe[j.Name] || names[j.Name] > 1 {
				g.wrong("job %v (%s) is there, but was not submitted, or not so often", j.ID, j.Name)
			}
		}
	}
	ids := make([]backends.ID, 0, len(g.book.jobs))
	for id := range g.book.jobs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, backends.ID.Compare)
	ends := make(map[backends.ID]time.Time)
	for _, id := range ids {
		if now[id] == nil {
			g.wrong("job %v was acknowledged and is lost", id)
			continue
		}
		ends[id] = g.one(g.book.jobs[id], now[id])
	}
	for _, id := range ids {
		j := g.book.jobs[id]
		if began, ended := now[id], ends[j.parent]; j.parent.Job > 0 && began != nil && !began.Started.IsZero() && began.Started.Before(ended) {
			g.wrong("job %v began at %v, before job %v, which it waits for, had ended at %v", id, began.Started, j.parent, ended)
		}
	}
	g.objects()
}

// one judges a job and returns when its last run ended, by what the job wrote.
func (g *judge) one(j *job, now *backends.Job) time.Time {
	runs, err := read(j)
	if err != nil {
		g.wrong("job %v: %v", j.id, err)
	}
	g.runs += len(runs)
	o, err := open(filepath.Join(miniq.StateDir(g.f.paths()), "jobs"), j.id)
	switch {
	case errors.Is(err, fs.ErrNotExist) && j.unstarted && j.id.Index > 0:
		return time.Time{} // nothing happened to this element
	case err != nil:
		g.wrong("job %v: %v", j.id, err)
		return time.Time{}
	}
	if !now.State.Ended() {
		g.wrong("job %v never ended: %v", j.id, now.State)
		return time.Time{}
	}
	if n := o.events["done"] + o.events["exited"]; n != 1 || o.events[now.State.String()] != 1 {
		g.wrong("job %v is %v, and its state object has its end %d times: %v", j.id, now.State, n, o.history)
	}
	if j.unstarted && len(runs)+len(o.runs) > 0 {
		g.wrong("job %v ran, though it was killed while it was held: %v", j.id, runs)
	}
	if began := now.Started; !j.spec.BeginTime.IsZero() && !began.IsZero() && began.Before(j.spec.BeginTime) {
		g.wrong("job %v began at %v, %v before its time", j.id, began, j.spec.BeginTime.Sub(began))
	}
	for run := range runs {
		if run > len(o.runs) {
			g.wrong("job %v: run %d is in no state object", j.id, run)
		}
	}
	for _, n := range o.notes {
		if n < j.noted || n > j.noting {
			g.wrong("job %v has noted %v, acknowledged were %d of %d", j.id, o.notes, j.noted, j.noting)
		}
	}
	if j.noted > 0 && len(o.notes) != 2 {
		g.wrong("job %v has noted %v, acknowledged were %d", j.id, o.notes, j.noted)
	}
	var last time.Time
	for i, r := range o.runs {
		run := i + 1
		if r.run != run || r.ended == "" || o.starts[run] != 1 || o.ends[run] != 1 {
			g.wrong("job %v: run %d of its state object is %+v, begun %d times, ended %d times: %v", j.id, run, r, o.starts[run], o.ends[run], o.history)
		}
		g.run(j, run, r, runs[run], run == len(o.runs), now)
		if w := runs[run]; w != nil {
			last = w.ended
		}
	}
	return last
}

// run judges one run of a job: r is from the state object, w what the run wrote (nil:
// nothing), and for the last one now what the queue shows.
func (g *judge) run(j *job, run int, r result, w *written, last bool, now *backends.Job) {
	keeperKilled := g.keepers[fmt.Sprintf("%d.%d.%d", j.id.Job, j.id.Index, run)]
	unknown := strings.HasPrefix(r.why, "exit unknown")
	unstarted := strings.HasPrefix(r.why, "not started")
	if unknown {
		g.lost++
	}
	switch {
	case unknown && !keeperKilled:
		g.wrong("job %v: run %d ended as %q, though its keeper was not killed", j.id, run, r.why)
	case unknown, j.kill, j.requeue:
	case unstarted:
		if w != nil {
			g.wrong("job %v: run %d is recorded as not started, and wrote %+v", j.id, run, w)
		}
	case w == nil:
		g.wrong("job %v: run %d never wrote that it began: %+v", j.id, run, r)
	case w.ended.IsZero():
		g.wrong("job %v: run %d never came to its end: %+v", j.id, run, r)
	case r.code != w.status:
		g.wrong("job %v: run %d ended with %d, and is recorded with %d", j.id, run, w.status, r.code)
	}
	again := unknown && j.spec.Rerunnable || unstarted || j.requeue
	if !last {
		if !again {
			g.wrong("job %v was run again after run %d: %+v", j.id, run, r)
		}
		return
	}
	if now.State == backends.Done && (w == nil || w.ended.IsZero() || w.status != 0) {
		g.wrong("job %v is done, and its last run wrote %+v", j.id, w)
	}
	if !j.kill && !unknown && !unstarted && w != nil && now.ExitCode != w.status {
		g.wrong("job %v ended with %d, the queue says %d (%s)", j.id, w.status, now.ExitCode, now.Reason)
	}
	if unknown && j.spec.Rerunnable && !j.kill {
		g.wrong("job %v was not run again, though its submitter wants that", j.id)
	}
}

// read reads a job's own file.
func read(j *job) (map[int]*written, error) {
	data, err := os.ReadFile(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	runs := make(map[int]*written)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 6 || !strings.HasSuffix(line, "\n") {
			return runs, fmt.Errorf("%s: a line that is not one: %q", j.file, line)
		}
		run, err := strconv.Atoi(fields[1])
		status, err2 := strconv.Atoi(fields[4])
		nanoseconds, err3 := strconv.ParseInt(fields[5], 10, 64)
		if err := errors.Join(err, err2, err3); err != nil {
			return runs, err
		}
		w, at := runs[run], time.Unix(0, nanoseconds)
		switch {
		case fields[3] != j.id.String():
			return runs, fmt.Errorf("its submission was accepted twice, job %s runs for it, too", fields[3])
		case fields[0] == "start" && w == nil:
			runs[run] = &written{started: at, status: status}
		case fields[0] == "end" && w != nil && w.ended.IsZero() && w.status == status:
			w.ended = at
		default:
			return runs, fmt.Errorf("run %d is executed twice: %q", run, data)
		}
	}
	return runs, nil
}

// result is a run in a state object.
type result struct {
	run, code  int
	ended, why string
}

// object is the content of a state object.
type object struct {
	runs         []result
	events       map[string]int
	starts, ends map[int]int // by run
	history      []string
	notes        []int // values of noteKey: of the file, then of the setting
}

// open reads a state object as any program can that has SQLite and the schema.
func open(dir string, id backends.ID) (*object, error) {
	path := state.Path(dir, id)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro&immutable=1")
	if err != nil {
		return nil, err
	}
	o := &object{events: map[string]int{}, starts: map[int]int{}, ends: map[int]int{}}
	return o, errors.Join(o.read(db), db.Close())
}

func (o *object) read(db *sql.DB) error {
	ctx := context.Background()
	var check string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
		return fmt.Errorf("its state object is damaged: %s: %w", check, err)
	}
	rows, err := db.QueryContext(ctx, "SELECT run, coalesce(ended, ''), coalesce(exit_code, -2), coalesce(why, '') FROM results ORDER BY run")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r result
		if err := rows.Scan(&r.run, &r.ended, &r.code, &r.why); err != nil {
			return err
		}
		o.runs = append(o.runs, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return errors.Join(o.readNotes(ctx, db), o.readHistory(ctx, db))
}

func (o *object) readNotes(ctx context.Context, db *sql.DB) error {
	var own int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'settings'").Scan(&own); err != nil || own == 0 {
		return err
	}
	rows, err := db.QueryContext(ctx, "SELECT CAST(data AS TEXT) FROM files WHERE name = ?1 UNION ALL SELECT value FROM settings WHERE key = ?1", noteKey)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		o.notes = append(o.notes, n)
	}
	return rows.Err()
}

func (o *object) readHistory(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT run, event, detail FROM history ORDER BY seq, n")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var run int
		var event, detail string
		if err := rows.Scan(&run, &event, &detail); err != nil {
			return err
		}
		o.events[event]++
		switch event {
		case "start":
			o.starts[run]++
		case "run ended", "lost", "not started":
			o.ends[run]++
		}
		o.history = append(o.history, strings.TrimSpace(fmt.Sprintf("%s %d %s", event, run, detail)))
	}
	return rows.Err()
}

// objects requires that the directory of the state objects has no other files.
func (g *judge) objects() {
	dir := filepath.Join(miniq.StateDir(g.f.paths()), "jobs")
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Ext(path) != ".db" && !strings.HasSuffix(path, ".db.new") {
			g.wrong("among the state objects is %s", path)
		}
		return err
	})
	if err != nil {
		g.wrong("%v", err)
	}
}
