package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// maxPart is the largest part of a list that the API answers at once.
const maxPart = 1000

// asItIs is the If-Match of an edit that is made to the plan as it is, as pba's are.
const asItIs = "*"

// values are those of a query that are not empty, by name and value in turn.
func values(pairs ...string) url.Values {
	all := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all.Set(pairs[i], pairs[i+1])
		}
	}
	return all
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// get asks for one value.
func get[T any](ctx context.Context, c *Client, route string, query url.Values) (*T, error) {
	answer := new(T)
	if _, err := c.ask(ctx, question{method: http.MethodGet, route: route, query: query}, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// post changes something.
func post[T any](ctx context.Context, c *Client, route, expects string, body any) (*T, string, error) {
	answer := new(T)
	etag, err := c.ask(ctx, question{method: http.MethodPost, route: route, expects: expects, body: body}, answer)
	if err != nil {
		return nil, "", err
	}
	return answer, etag, nil
}

// Projects is desk.Desk's.
func (c *Client) Projects(ctx context.Context) ([]desk.Project, error) {
	var all []desk.Project
	for after := ""; ; after = all[len(all)-1].Name {
		part, err := get[[]desk.Project](ctx, c, "/projects", values("after", after, "limit", number(maxPart)))
		if err != nil {
			return nil, err
		}
		if all = append(all, *part...); len(*part) < maxPart {
			return append([]desk.Project{}, all...), nil
		}
	}
}

// Members returns an error: a server lists no users.
func (c *Client) Members(context.Context) ([]desk.ProjectMembers, error) {
	return nil, &failure{errors.New("project list --members: a server lists no users: run it on the farm"), desk.ErrInvalid}
}

// Allocations is desk.Desk's.
func (c *Client) Allocations(ctx context.Context, project string, when desk.When) ([]desk.Allocation, error) {
	all, err := get[[]desk.Allocation](ctx, c, "/allocations", values("project", project, "week", when.Week, "weeks", when.Weeks))
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// Grid is desk.Desk's.
func (c *Client) Grid(ctx context.Context, q desk.GridQuery, when desk.When) (*desk.Grid, error) {
	query := values("week", when.Week, "weeks", when.Weeks)
	query["project"] = q.Projects
	var by string
	for _, key := range []struct {
		name string
		is   bool
	}{{"step", q.ByStep}, {"user", q.ByUser}, {"hosts", q.ByHosts}, {"terms", q.ByTerms}} {
		if key.is {
			by += "," + key.name
		}
	}
	if by != "" {
		query.Set("by", by[1:])
	}
	if q.Hosts != nil {
		query.Set("hosts", *q.Hosts)
		if *q.Hosts == "" {
			query.Set("hosts", "-")
		}
	}
	g, err := get[desk.Grid](ctx, c, "/plan", query)
	if err == nil && len(g.HostSets) > 0 && g.HostSets[0].Capacity == nil {
		g.Away = errors.New("the server does not know the farm's size")
	}
	return g, err
}

// SetAllocation is desk.Desk's.
func (c *Client) SetAllocation(ctx context.Context, pool desk.Pool, terms desk.Terms, when desk.When, comment string) ([]calendar.Week, error) {
	if pool.Project == "" || pool.Project == "." || pool.Project == ".." { // they name other addresses
		return nil, fmt.Errorf("%w %q", ledger.ErrUnknownProject, pool.Project)
	}
	body := map[string]any{"slots": terms.Slots}
	for name, value := range values("user", pool.User, "step", pool.Step, "hosts", pool.Hosts, "sla", string(terms.SLA), "week", when.Week, "weeks", when.Weeks, "comment", comment) {
		body[name] = value[0]
	}
	if terms.Jobs != 0 {
		body["jobs"] = terms.Jobs
	}
	var weeks []calendar.Week
	_, err := c.ask(ctx, question{method: http.MethodPut, route: "/plan/" + url.PathEscape(pool.Project), expects: asItIs, body: body}, &weeks)
	return weeks, err
}

// changed is what a change of the plan is, or would be.
type changed struct {
	Change      int64            `json:"change"`
	Allocations []desk.Line      `json:"allocations"`
	Undoes      int64            `json:"undoes"`
	Request     *desk.Asked      `json:"request"`
	Over        []calendar.Range `json:"over"`
}

// Copy is desk.Desk's.
func (c *Client) Copy(ctx context.Context, week, weeks string, projects []string, comment string) (*desk.Proposal, error) {
	body := map[string]any{"week": week, "weeks": weeks, "projects": append([]string{}, projects...), "comment": comment, "dry_run": true}
	would, etag, err := post[changed](ctx, c, "/plan/copy", asItIs, body)
	if err != nil {
		return nil, err
	}
	return would.proposal(func(ctx context.Context) (int64, error) {
		body["dry_run"] = false
		done, _, err := post[changed](ctx, c, "/plan/copy", etag, body)
		if errors.Is(err, desk.ErrChanged) {
			return 0, errors.New("copy: another edit changed the plan meanwhile: nothing is applied; run it again")
		}
		if err != nil {
			return 0, err
		}
		return done.Change, nil
	}), nil
}

// Undo is desk.Desk's.
func (c *Client) Undo(ctx context.Context, change int64, comment string) (*desk.Proposal, error) {
	body := map[string]any{"change": change, "comment": comment, "dry_run": true}
	would, _, err := post[changed](ctx, c, "/plan/undo", "", body)
	if err != nil {
		return nil, err
	}
	return would.proposal(func(ctx context.Context) (int64, error) {
		body["dry_run"], body["change"] = false, would.Undoes // the change that was shown, whatever was changed since
		done, _, err := post[changed](ctx, c, "/plan/undo", "", body)
		if err != nil {
			return 0, err
		}
		return done.Change, nil
	}), nil
}

func (x *changed) proposal(apply func(context.Context) (int64, error)) *desk.Proposal {
	return desk.ProposalOf(desk.Proposal{Lines: x.Allocations, Undoes: x.Undoes, Request: x.Request, Over: x.Over}, apply)
}

// Changes is desk.Desk's.
func (c *Client) Changes(ctx context.Context, q desk.LogQuery) ([]desk.Logged, error) {
	if q.Limit < 1 || q.Limit > desk.MaxLog {
		return nil, &failure{fmt.Errorf("--limit %d: want 1 to %d", q.Limit, desk.MaxLog), desk.ErrInvalid}
	}
	all := []desk.Logged{}
	for {
		part := min(q.Limit-len(all), maxPart)
		found, err := get[[]desk.Logged](ctx, c, "/log", values("project", q.Project, "since", q.Since, "limit", number(int64(part)), "before", number(q.Before)))
		if err != nil {
			return nil, err
		}
		if all = append(all, *found...); len(*found) < part || len(all) >= q.Limit {
			return all, nil
		}
		q.Before = all[len(all)-1].ID
	}
}

// Requests is desk.Desk's.
func (c *Client) Requests(ctx context.Context, project string, closed bool) ([]desk.Request, error) {
	query := values("project", project, "limit", number(maxPart))
	if closed {
		query.Set("all", "true")
	}
	all := []desk.Request{}
	for {
		found, err := get[[]desk.Request](ctx, c, "/requests", query)
		if err != nil {
			return nil, err
		}
		if all = append(all, *found...); len(*found) < maxPart {
			return all, nil
		}
		query.Set("after", number(all[len(all)-1].ID))
	}
}

// Ask is desk.Desk's.
func (c *Client) Ask(ctx context.Context, pool desk.Pool, slots int, when desk.When, why string) (*desk.Request, error) {
	body := map[string]any{"project": pool.Project, "slots": slots, "why": why}
	for name, value := range values("user", pool.User, "step", pool.Step, "hosts", pool.Hosts, "week", when.Week, "weeks", when.Weeks) {
		body[name] = value[0]
	}
	r, _, err := post[desk.Request](ctx, c, "/requests", "", body)
	return r, err
}

// answer answers a request in one way.
func (c *Client) answer(ctx context.Context, id int64, how string, body any) (*answered, error) {
	r, _, err := post[answered](ctx, c, "/requests/"+strconv.FormatInt(id, 10)+"/"+how, "", body)
	if err != nil {
		return &answered{}, err
	}
	return r, nil
}

type answered struct {
	desk.Asked
	Changed []calendar.Week `json:"changed_weeks"`
}

// Grant is desk.Desk's.
func (c *Client) Grant(ctx context.Context, id int64, comment string) (desk.Asked, []desk.Change, error) {
	r, err := c.answer(ctx, id, "grant", map[string]any{"comment": comment})
	var changes []desk.Change
	for _, w := range r.Changed {
		changes = append(changes, desk.Change{Pool: r.Pool, Week: w})
	}
	return r.Asked, changes, err
}

// Decline is desk.Desk's.
func (c *Client) Decline(ctx context.Context, id int64, why string) (desk.Asked, error) {
	r, err := c.answer(ctx, id, "decline", map[string]any{"why": why})
	return r.Asked, err
}

// Withdraw is desk.Desk's.
func (c *Client) Withdraw(ctx context.Context, id int64) (desk.Asked, error) {
	r, err := c.answer(ctx, id, "withdraw", nil)
	return r.Asked, err
}

// Status is desk.Desk's.
func (c *Client) Status(ctx context.Context) (*desk.Status, error) {
	return get[desk.Status](ctx, c, "/status", nil)
}

// Explain is desk.Desk's.
func (c *Client) Explain(ctx context.Context, id backends.ID) (*desk.Story, error) {
	return get[desk.Story](ctx, c, "/jobs/"+url.PathEscape(id.String()), nil)
}

// ExplainEach is desk.Desk's; a server answers from what the last cycle saw, also of the past.
func (c *Client) ExplainEach(ctx context.Context, ids []backends.ID, _ bool) []desk.Explained {
	all := make([]desk.Explained, len(ids))
	for i, id := range ids {
		all[i].Story, all[i].Err = c.Explain(ctx, id)
	}
	return all
}

// JobNamed is desk.Desk's, but for parts: the API knows jobs by their own numbers, and by their names.
func (c *Client) JobNamed(ctx context.Context, text string) (backends.ID, error) {
	if job, part, ok := backends.ParsePart(text); ok {
		return backends.ID{}, &failure{fmt.Errorf("explain %d+%d: a server is asked by the job's own number, which `ajobs` prints", job, part), desk.ErrInvalid}
	}
	if id, ok := backends.ParseElement(text); ok {
		return id, nil
	}
	id, err := backends.ParseID(text)
	if err == nil {
		return id, nil
	}
	if _, named := bsub.JobByName(text); !named {
		return id, &failure{err, desk.ErrInvalid}
	}
	story, err := get[desk.Story](ctx, c, "/jobs/"+url.PathEscape(text), nil)
	if err != nil {
		return id, err
	}
	return backends.ParseID(story.ID)
}

// Period returns what is asked for: the server decides which time that is, and answers it.
func (c *Client) Period(project string, s desk.Span) (desk.Period, error) {
	return desk.Period{Project: project, Span: s}, nil
}

// Usage is desk.Desk's.
func (c *Client) Usage(ctx context.Context, p desk.Period) (*desk.Usage, error) {
	return get[desk.Usage](ctx, c, "/reports/usage", reportQuery(p, nil))
}

// UsageBy is desk.Desk's.
func (c *Client) UsageBy(ctx context.Context, p desk.Period, by []desk.By) (*desk.UsageBy, error) {
	return get[desk.UsageBy](ctx, c, "/reports/usage-by", reportQuery(p, by))
}

// Waits is desk.Desk's.
func (c *Client) Waits(ctx context.Context, p desk.Period, by []desk.By) (*desk.Waits, error) {
	return get[desk.Waits](ctx, c, "/reports/waits", reportQuery(p, by))
}

// Victims is desk.Desk's.
func (c *Client) Victims(ctx context.Context, p desk.Period, by []desk.By) (*desk.Victims, error) {
	return get[desk.Victims](ctx, c, "/reports/victims", reportQuery(p, by))
}

func reportQuery(p desk.Period, by []desk.By) url.Values {
	query := values("project", p.Project, "week", p.Span.Week, "since", p.Span.Date)
	if p.Span.Week == "" && p.Span.Date == "" {
		query.Set("since", p.Span.Since.Round(time.Second).String())
	}
	var keys string
	for _, key := range by {
		keys += "," + string(key)
	}
	if keys != "" {
		query.Set("by", keys[1:])
	}
	return query
}

// Close closes nothing: connections end with their answers.
func (c *Client) Close() {}
