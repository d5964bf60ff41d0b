package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/calendar"
)

// Errors that callers branch on.
var (
	ErrUnknownRequest  = errors.New("there is no such request")
	ErrRequestAnswered = errors.New("the request is not open")
	ErrTooManyRequests = errors.New("too many requests")
)

// RequestState is what became of a request.
type RequestState string

// The states of requests. A request expires when its last week is over.
const (
	RequestOpen      RequestState = "open"
	RequestGranted   RequestState = "granted"
	RequestDeclined  RequestState = "declined"
	RequestWithdrawn RequestState = "withdrawn"
	RequestExpired   RequestState = "expired"
)

// Request asks that a pool has so many slots in some weeks.
type Request struct {
	ID int64 `json:"id"`
	Pool
	Slots    int           `json:"slots"`
	From     calendar.Week `json:"from"`
	To       calendar.Week `json:"to"`
	Why      string        `json:"why"`
	UID      int           `json:"uid"` // of the user who asks
	By       string        `json:"by"`  // the user's name
	Asked    time.Time     `json:"asked"`
	State    RequestState  `json:"state"`
	Answer   string        `json:"answer,omitempty"`      // why it is declined
	Answerer string        `json:"answered_by,omitempty"` // the identity that the system gave
	Answered time.Time     `json:"answered,omitzero"`
}

func (r Request) String() string {
	return fmt.Sprintf("%d slots %s to %s: %s", r.Slots, r.From, r.To, r.Why)
}

// RequestLimits bound what users may ask for.
type RequestLimits struct {
	OpenOfUser    int // open requests of one user
	OpenOfProject int // open requests for one project
	OfUserInDay   int // requests of one user in 24 h, answered ones too
}

// Requests lists requests by their numbers: the open ones, or all that are kept. One
// whose weeks are over is listed as expired.
func (l *Ledger) Requests(ctx context.Context, thisWeek calendar.Week, all bool) ([]Request, error) {
	where, args := `r.state = 'open' AND (r.last_year, r.last_week) >= (?, ?)`, []any{thisWeek.Year, thisWeek.Week}
	if all {
		where, args = `1`, nil
	}
	found, err := requests(ctx, l.db, thisWeek, where, args...)
	return found, l.explain("list the requests", err)
}

func requests(ctx context.Context, q querier, thisWeek calendar.Week, where string, args ...any) ([]Request, error) {
	all, err := list(ctx, q, func(r *Request) []any {
		return []any{
			&r.ID, &r.Project, &r.User, &r.Step, &r.Hosts, &r.Slots, &r.From.Year, &r.From.Week, &r.To.Year, &r.To.Week,
			&r.Why, &r.UID, &r.By, when(&r.Asked), &r.State, &r.Answer, &r.Answerer, when(&r.Answered),
		}
	}, `SELECT r.id, p.name, r.user, r.step, r.hosts, r.slots, r.first_year, r.first_week, r.last_year, r.last_week,
			r.why, r.uid, r.who, r.asked, r.state, r.answer, r.answerer, r.answered
		FROM request r JOIN project p ON p.id = r.project WHERE `+where+` ORDER BY r.id`, args...)
	for i := range all {
		if r := &all[i]; r.State == RequestOpen && r.To.Compare(thisWeek) < 0 {
			r.State = RequestExpired
		}
	}
	return all, err
}

// Request returns one request; ErrUnknownRequest if there is none of that number.
func (l *Ledger) Request(ctx context.Context, id int64, thisWeek calendar.Week) (Request, error) {
	r, err := request(ctx, l.db, id, thisWeek)
	if errors.Is(err, ErrUnknownRequest) {
		return r, err
	}
	return r, l.explain("read the request", err)
}

func request(ctx context.Context, q querier, id int64, thisWeek calendar.Week) (Request, error) {
	found, err := requests(ctx, q, thisWeek, `r.id = ?`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %d", ErrUnknownRequest, id)
	}
	if err != nil {
		return Request{}, err
	}
	return found[0], nil
}

// AddRequest records an open request, and returns its number. ErrTooManyRequests is
// wrapped where it would exceed a limit. Open requests whose weeks are over are closed.
func (l *Ledger) AddRequest(ctx context.Context, by Editor, r Request, limits RequestLimits, thisWeek calendar.Week) (id int64, err error) {
	err = l.edit(ctx, "record the request", func(tx *sql.Tx) error {
		project, _, err := projectID(ctx, tx, r.Project)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE request SET state = 'expired', answered = ? WHERE state = 'open' AND (last_year, last_week) < (?, ?)`,
			unixtime.Of(by.At), thisWeek.Year, thisWeek.Week)
		if err != nil {
			return err
		}
		if err := limits.check(ctx, tx, by, r, project); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO request (project, user, step, hosts, slots, first_year, first_week, last_year, last_week, why, uid, who, asked, state, answer, answerer, answered)
			VALUES `+placeholders(17), project, r.User, r.Step, r.Hosts, r.Slots, r.From.Year, r.From.Week, r.To.Year, r.To.Week, r.Why, r.UID, r.By, unixtime.Of(by.At), RequestOpen, "", "", 0)
		if err != nil {
			return err
		}
		if id, err = res.LastInsertId(); err != nil {
			return err
		}
		return audit(ctx, tx, by, project, "alloc request", requestSubject(id, r), "", r.String())
	})
	return id, err
}

func requestSubject(id int64, r Request) string { return fmt.Sprintf("request %d %s", id, r.Pool) }

func (limits RequestLimits) check(ctx context.Context, tx *sql.Tx, by Editor, r Request, project int64) error {
	for _, bound := range []struct {
		limit int
		what  string
		where string
		args  []any
	}{
		{limits.OpenOfUser, "you have %d open requests, as many as a user may have: withdraw one (`pba alloc withdraw ID`), or wait for an answer", `state = 'open' AND uid = ?`, []any{r.UID}},
		{limits.OpenOfProject, "the project has %d open requests, as many as it may have: its managers must answer some first", `state = 'open' AND project = ?`, []any{project}},
		{limits.OfUserInDay, "you made %d requests in the last 24 hours, as many as a user may make: try again later", `uid = ? AND asked > ?`, []any{r.UID, unixtime.Of(by.At.Add(-24 * time.Hour))}},
	} {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM request WHERE `+bound.where, bound.args...).Scan(&n); err != nil {
			return err
		}
		if n >= bound.limit {
			return fmt.Errorf("%w: "+bound.what, ErrTooManyRequests, n)
		}
	}
	return nil
}

// CloseRequest records that a request is declined or withdrawn, and why.
// ErrRequestAnswered is wrapped if it is not open.
func (l *Ledger) CloseRequest(ctx context.Context, by Editor, id int64, state RequestState, answer string, thisWeek calendar.Week) error {
	return l.edit(ctx, "close the request", func(tx *sql.Tx) error {
		return closeRequest(ctx, tx, Edit{Editor: by, ThisWeek: thisWeek}, id, state, answer, 0)
	})
}

// GrantRequest makes the changes and records that they grant a request: all of it, or
// nothing. ErrRequestAnswered is wrapped if the request is not open.
func (l *Ledger) GrantRequest(ctx context.Context, e Edit, id int64, changes []Change) error {
	return l.edit(ctx, "grant the request", func(tx *sql.Tx) error {
		var logged int64
		for _, c := range changes {
			var err error
			if logged, err = change(ctx, tx, e, c, logged); err != nil {
				return err
			}
		}
		return closeRequest(ctx, tx, e, id, RequestGranted, "", logged)
	})
}

// GrantedBy returns the request that a change of the log granted, or that its undoing opened
// again, if there is one.
func (l *Ledger) GrantedBy(ctx context.Context, change int64, thisWeek calendar.Week) ([]Request, error) {
	found, err := grantedBy(ctx, l.db, change, thisWeek)
	return found, l.explain("read the request", err)
}

func grantedBy(ctx context.Context, q querier, change int64, thisWeek calendar.Week) ([]Request, error) {
	return requests(ctx, q, thisWeek, `r.change = ? AND r.state IN ('open', 'granted')`, change)
}

// undoGrant opens the request that the undone change granted, or grants the one that it had
// opened, as a part of the change logged.
func undoGrant(ctx context.Context, tx *sql.Tx, e Edit, logged int64) error {
	found, err := grantedBy(ctx, tx, e.Undoes, e.ThisWeek)
	if err != nil || len(found) == 0 {
		return err
	}
	r := found[0]
	if r.State != RequestGranted {
		return closeRequest(ctx, tx, e, r.ID, RequestGranted, "", logged)
	}
	_, err = tx.ExecContext(ctx, `UPDATE request SET state = ?, answerer = '', answered = 0, change = ? WHERE id = ?`, RequestOpen, logged, r.ID)
	if err != nil {
		return err
	}
	return recordAnswer(ctx, tx, e, entry{change: logged, what: "alloc undo", subject: requestSubject(r.ID, r), before: string(r.State), after: r.String()}, r.ID)
}

// closeRequest closes a request, and adds that to a change in the log, to a new one for 0.
func closeRequest(ctx context.Context, tx *sql.Tx, e Edit, id int64, state RequestState, answer string, logged int64) error {
	r, err := request(ctx, tx, id, e.ThisWeek)
	if err != nil {
		return err
	}
	if r.State != RequestOpen {
		return fmt.Errorf("%w: request %d is %s", ErrRequestAnswered, id, r.State)
	}
	_, err = tx.ExecContext(ctx, `UPDATE request SET state = ?, answer = ?, answerer = ?, answered = ?, change = ? WHERE id = ?`,
		state, answer, e.Who, unixtime.Of(e.At), logged, id)
	if err != nil {
		return err
	}
	what := map[RequestState]string{RequestGranted: "alloc grant", RequestDeclined: "alloc decline", RequestWithdrawn: "alloc withdraw"}[state]
	return recordAnswer(ctx, tx, e, entry{change: logged, what: what, subject: requestSubject(id, r), before: r.String(), after: answer}, id)
}

// recordAnswer adds a row about a request to the log.
func recordAnswer(ctx context.Context, tx *sql.Tx, e Edit, row entry, id int64) error {
	if err := tx.QueryRowContext(ctx, `SELECT project FROM request WHERE id = ?`, id).Scan(&row.project); err != nil {
		return err
	}
	row.command, row.comment, row.undoes = e.Command, e.Comment, e.Undoes
	_, err := record(ctx, tx, e.Editor, row)
	return err
}
