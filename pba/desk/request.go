package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// requestLimits bound what users may ask for.
var requestLimits = ledger.RequestLimits{OpenOfUser: 10, OpenOfProject: 100, OfUserInDay: 50}

// maxWhy is the longest reason of a request or an answer, in characters.
const maxWhy = 300

// States of requests that callers branch on.
const (
	RequestOpen     = ledger.RequestOpen
	RequestGranted  = ledger.RequestGranted
	RequestDeclined = ledger.RequestDeclined
)

// Asked is a request for slots as it is recorded.
type Asked = ledger.Request

// Request is a request for slots, with what granting it would do.
type Request struct {
	ledger.Request
	MayAnswer bool          `json:"may_answer"`      // the caller may grant or decline it
	Managers  []string      `json:"managers"`        // of its project
	Weeks     []RequestWeek `json:"weeks,omitempty"` // of an open one, those that are not over
}

// RequestWeek is what granting a request would do in one week, in slots.
type RequestWeek struct {
	Week    calendar.Week `json:"week"`
	Has     int           `json:"has"`        // that the pool has
	Would   int           `json:"would_have"` // that it would have
	Free    *int          `json:"free"`       // that may be allocated on its hosts beside what is; null: the queue is away
	Exceeds int           `json:"exceeds"`    // by which the week's sum would exceed max_allocated: it can't be granted
}

// Ask records a request that a pool has so many slots in some weeks in a row.
func (d *Desk) Ask(ctx context.Context, pool Pool, slots int, when When, why string) (*Request, error) {
	why, err := checkWhy(why)
	if err == nil {
		err = checkTerms(Terms{Slots: slots, SLA: plan.Velocity})
	}
	if err == nil && pool.Step != "" {
		err = checkName("step", pool.Step)
	}
	if err != nil {
		return nil, invalidf("%w", err)
	}
	all, err := d.plannable(when)
	if err == nil {
		err = inARow("a request", all)
	}
	if err != nil {
		return nil, err
	}
	if err := d.checkAsk(ctx, pool); err != nil {
		return nil, err
	}
	r := ledger.Request{
		Pool: pool, Slots: slots, From: all[0], To: all[len(all)-1],
		Why: why, UID: d.Caller.UID, By: cmp.Or(d.Caller.User, fmt.Sprintf("uid %d", d.Caller.UID)), State: RequestOpen,
	}
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), d.horizon())
	if err != nil {
		return nil, err
	}
	if len(grantChanges(r, planned, d.thisWeek())) == 0 {
		return nil, fmt.Errorf("%s has %s or more in these weeks: there is nothing to ask for", pool, printable.Count(slots, "slot"))
	}
	err = d.locked(ctx, func() (err error) {
		r.ID, err = d.ledger.AddRequest(ctx, d.editor(), r, requestLimits, d.thisWeek())
		return err
	})
	if err != nil {
		return nil, err
	}
	asked, err := d.assess(ctx, []ledger.Request{r})
	if err != nil {
		return nil, fmt.Errorf("request %d is recorded; what granting it would do is not known: %w", r.ID, err)
	}
	return &asked[0], nil
}

// checkAsk returns an error if the caller may not ask for slots of a pool, or none could
// have them.
func (d *Desk) checkAsk(ctx context.Context, pool Pool) error {
	project, err := d.project(ctx, pool.Project)
	if err == nil {
		err = d.mayAsk(project)
	}
	if err == nil {
		err = d.MayWrite()
	}
	if err != nil {
		return err
	}
	flows, err := d.ledger.Flows(ctx)
	p := &planner{Desk: d, users: map[string]error{}}
	return cmp.Or(err, p.checkStep(pool.Step, project, flows), p.checkHostSet(pool.Hosts), p.checkKnown(pool.User))
}

// checkWhy returns a reason without space around it.
func checkWhy(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch n := utf8.RuneCountInString(text); {
	case text == "":
		return "", errors.New("--why TEXT is missing: say why")
	case n > maxWhy:
		return "", fmt.Errorf("--why: %d characters: want at most %d", n, maxWhy)
	case strings.ContainsFunc(text, printable.Hidden):
		return "", errors.New("--why: control characters and invisible ones can't be in it: want one line of text")
	}
	return text, nil
}

// grantChanges returns the changes that grant a request: in each of its weeks that is
// not over the pool has as many slots. A week in which it has as many stays as it is, and
// the pool's SLA does, too.
func grantChanges(r ledger.Request, planned []ledger.Allocation, thisWeek calendar.Week) []ledger.Change {
	has := map[calendar.Week]Terms{}
	for _, a := range planned {
		if a.Pool == r.Pool {
			has[a.Week] = a.Terms
		}
	}
	var changes []ledger.Change
	for _, w := range requestWeeks(r, thisWeek) {
		terms := has[w]
		if terms.Slots >= r.Slots {
			continue
		}
		if terms.Slots == 0 {
			terms = Terms{SLA: plan.Velocity}
		}
		terms.Slots = r.Slots
		changes = append(changes, ledger.Change{Pool: r.Pool, Week: w, Terms: terms})
	}
	return changes
}

// requestWeeks returns the weeks of a request that are not over.
func requestWeeks(r ledger.Request, thisWeek calendar.Week) []calendar.Week {
	from := r.From
	if from.Compare(thisWeek) < 0 {
		from = thisWeek
	}
	var all []calendar.Week
	for w := from; w.Compare(r.To) <= 0; w = calendar.AddWeeks(w, 1) {
		all = append(all, w)
	}
	return all
}

// assessWeeks returns what granting a request would do. limit is the number of slots that
// may be allocated on its hosts in a week; nil: not known.
func assessWeeks(r ledger.Request, planned []ledger.Allocation, thisWeek calendar.Week, limit *int) []RequestWeek {
	would := map[calendar.Week]int{}
	for _, c := range grantChanges(r, planned, thisWeek) {
		would[c.Week] = c.Slots
	}
	has, sums := map[calendar.Week]int{}, map[calendar.Week]int{}
	for _, a := range planned {
		if a.Hosts == r.Hosts {
			sums[a.Week] += a.Slots
		}
		if a.Pool == r.Pool {
			has[a.Week] = a.Slots
		}
	}
	var all []RequestWeek
	for _, w := range requestWeeks(r, thisWeek) {
		one := RequestWeek{Week: w, Has: has[w], Would: max(has[w], would[w])}
		if limit != nil {
			free := max(0, *limit-sums[w])
			one.Free, one.Exceeds = &free, excess(sums[w], sums[w]+one.Would-one.Has, *limit)
		}
		all = append(all, one)
	}
	return all
}

// Requests lists requests by their numbers: open ones, or all that are kept; those for a
// project, or for all.
func (d *Desk) Requests(ctx context.Context, project string, all bool) ([]Request, error) {
	found, err := d.ledger.Requests(ctx, d.thisWeek(), all)
	if err != nil {
		return nil, err
	}
	if project != "" {
		found = slices.DeleteFunc(found, func(r ledger.Request) bool { return r.Project != project })
		if err := d.requireProject(ctx, project, len(found) > 0); err != nil {
			return nil, err
		}
	}
	for i := range found {
		if !found[i].Answered.IsZero() {
			found[i].Answered = found[i].Answered.In(d.zone())
		}
	}
	return d.assess(ctx, found)
}

// assess adds to requests what granting them would do, and what the caller may.
func (d *Desk) assess(ctx context.Context, found []ledger.Request) ([]Request, error) {
	shown := []Request{}
	if len(found) == 0 {
		return shown, nil
	}
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), forever)
	if err != nil {
		return nil, err
	}
	farm, err := d.farm(ctx)
	if err != nil && !errors.Is(err, backends.ErrUnreachable) {
		return nil, fmt.Errorf("look up the farm's size: %w", err)
	}
	for _, r := range found {
		one := Request{Request: r, Managers: []string{}}
		if project, err := named(projects, r.Project); err == nil {
			one.Managers = project.Managers
			one.MayAnswer = r.State == RequestOpen && d.mayPlan(project) == nil
		}
		if r.State == RequestOpen {
			var limit *int
			if farm != nil {
				n := d.allocatable(farm[r.Hosts].slots)
				limit = &n
			}
			one.Weeks = assessWeeks(r, planned, d.thisWeek(), limit)
		}
		shown = append(shown, one)
	}
	return shown, nil
}

// requestsToAnswer returns the number of open requests that the caller may answer.
func (d *Desk) requestsToAnswer(ctx context.Context) (int, error) {
	open, err := d.ledger.Requests(ctx, d.thisWeek(), false)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	projects, err := d.ledger.Projects(ctx)
	n := 0
	for _, r := range open {
		if project, err := named(projects, r.Project); err == nil && d.mayPlan(project) == nil {
			n++
		}
	}
	return n, err
}

// Granting returns in words what granting a request would do; of one that is not open, its
// answer.
func (r *Request) Granting() string {
	if r.State != RequestOpen {
		text := string(r.State)
		if r.Answerer != "" {
			text += " by " + r.Answerer + " " + r.Answered.Format("2006-01-02 15:04")
		}
		if r.Answer != "" {
			text += ": " + r.Answer
		}
		return text
	}
	var over []string
	more, left := 0, math.MaxInt
	for _, w := range r.Weeks {
		if w.Free == nil {
			return "not known: the queue is away"
		}
		if w.Exceeds > 0 {
			over = append(over, fmt.Sprintf("%s by %d", w.Week, w.Exceeds))
		}
		more = max(more, w.Would-w.Has)
		left = min(left, *w.Free-(w.Would-w.Has))
	}
	switch {
	case len(over) > 3:
		return "exceeds " + strings.Join(over[:3], ", ") + fmt.Sprintf(" and %s", printable.Count(len(over)-3, "more week"))
	case len(over) > 0:
		return "exceeds " + strings.Join(over, ", ")
	case more == 0:
		return "changes nothing: it has as many slots"
	}
	return fmt.Sprintf("fits: %d more, %d stay free", more, max(0, left))
}

// answerable returns an open request that the caller may grant or decline.
func (d *Desk) answerable(ctx context.Context, id int64) (ledger.Request, error) {
	r, err := d.openRequest(ctx, id)
	if err != nil {
		return r, err
	}
	project, err := d.project(ctx, r.Project)
	if err == nil {
		err = d.mayPlan(project)
	}
	return r, err
}

func (d *Desk) openRequest(ctx context.Context, id int64) (ledger.Request, error) {
	r, err := d.ledger.Request(ctx, id, d.thisWeek())
	switch {
	case errors.Is(err, ledger.ErrUnknownRequest):
		return r, fmt.Errorf("%w: see `pba alloc requests`", err)
	case err != nil:
		return r, err
	case r.State == ledger.RequestExpired:
		return r, fmt.Errorf("request %d is expired: its last week, %s, is over", id, r.To)
	case r.State != RequestOpen:
		return r, fmt.Errorf("request %d is %s by %s, at %s", id, r.State, r.Answerer, r.Answered.In(d.zone()).Format("2006-01-02 15:04"))
	}
	return r, nil
}

// Grant changes the plan as a request asks, in all of its weeks that are not over, or in
// none. It returns the request and the changes.
func (d *Desk) Grant(ctx context.Context, id int64, comment string) (ledger.Request, []ledger.Change, error) {
	n, err := newNote("alloc grant", comment)
	if err != nil {
		return ledger.Request{}, nil, err
	}
	r, err := d.answerable(ctx, id)
	if err == nil {
		err = d.MayWrite()
	}
	if err != nil {
		return r, nil, err
	}
	changes, planned, err := d.grantNow(ctx, r)
	if err != nil {
		return r, nil, err
	}
	p, err := d.planner(ctx, changes)
	if err != nil {
		return r, nil, err
	}
	if err := p.refuseExcess(r, planned); err != nil {
		return r, nil, err
	}
	meant := func() error {
		again, _, err := d.grantNow(ctx, r)
		if err == nil && !slices.Equal(again, changes) {
			err = errors.New("another edit changed the plan meanwhile: nothing is granted; run it again")
		}
		return err
	}
	err = p.applyBy(ctx, n, changes, meant, func(how ledger.Edit) error { return d.ledger.GrantRequest(ctx, how, id, changes) })
	if err != nil {
		return r, nil, fmt.Errorf("grant request %d: %w", id, err)
	}
	return r, changes, nil
}

func (d *Desk) grantNow(ctx context.Context, r ledger.Request) ([]ledger.Change, []ledger.Allocation, error) {
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), forever)
	return grantChanges(r, planned, d.thisWeek()), planned, err
}

// refuseExcess returns an error that names each week in which a request exceeds what is free.
func (p *planner) refuseExcess(r ledger.Request, planned []ledger.Allocation) error {
	if p.farm == nil { // nothing is to change
		return nil
	}
	has := p.farm[r.Hosts].slots
	limit := p.allocatable(has)
	var over []string
	for _, w := range assessWeeks(r, planned, p.thisWeek(), &limit) {
		if w.Exceeds > 0 {
			over = append(over, fmt.Sprintf("by %s in %s, where %d are free", printable.Count(w.Exceeds, "slot"), w.Week, *w.Free))
		}
	}
	if len(over) == 0 {
		return nil
	}
	return fmt.Errorf("grant request %d: %d slots for %s exceed what may be allocated (max_allocated is %v of %s, that is %d) %s: nothing is granted",
		r.ID, r.Slots, r.Pool, p.PBA.MaxAllocated, p.describeSize(r.Hosts, has), limit, strings.Join(over, "; "))
}

// Decline records that a request is not granted, and why.
func (d *Desk) Decline(ctx context.Context, id int64, why string) (ledger.Request, error) {
	why, err := checkWhy(why)
	if err != nil {
		return ledger.Request{}, invalidf("%w", err)
	}
	r, err := d.answerable(ctx, id)
	if err != nil {
		return r, err
	}
	return r, d.closeRequest(ctx, id, RequestDeclined, why)
}

// Withdraw closes a request of the caller's.
func (d *Desk) Withdraw(ctx context.Context, id int64) (ledger.Request, error) {
	r, err := d.openRequest(ctx, id)
	if err != nil {
		return r, err
	}
	if r.UID != d.Caller.UID {
		return r, deniedf("withdraw request %d: you are %s: only %s may, who asked; a manager can decline it", id, d.Caller, r.By)
	}
	return r, d.closeRequest(ctx, id, ledger.RequestWithdrawn, "")
}

func (d *Desk) closeRequest(ctx context.Context, id int64, state ledger.RequestState, answer string) error {
	if err := d.MayWrite(); err != nil {
		return err
	}
	return d.locked(ctx, func() error { return d.ledger.CloseRequest(ctx, d.editor(), id, state, answer, d.thisWeek()) })
}
