package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// WeeksIn are weeks in a query.
type WeeksIn struct {
	Week  string `query:"week" doc:"the first week: 2026-W48, W48, 48, a date, now, next, +1; none: this one" example:"2026-W48"`
	Weeks string `query:"weeks" doc:"a number of weeks, or the weeks themselves: 48-52" example:"4"`
}

func (w WeeksIn) when() desk.When { return desk.When{Week: w.Week, Weeks: w.Weeks} }

// gridOut is the plan as a table.
type gridOut struct {
	ETag string `header:"ETag"`
	Body *desk.Grid
}

// changedOut is what an edit of the plan has changed.
type changedOut struct {
	ETag string `header:"ETag" doc:"of the plan as it is now"`
	Body changed
}

type changed struct {
	Change      int64            `json:"change" doc:"its number in the log; 0: nothing was to be changed, or it was tried only"`
	Allocations []desk.Line      `json:"allocations"`
	Undoes      int64            `json:"undoes,omitempty" doc:"the change that is undone"`
	Request     *desk.Asked      `json:"request,omitempty" doc:"that the undone change granted, or opened again, as it was"`
	Over        []calendar.Range `json:"over,omitempty" doc:"weeks that are over and stay as they are"`
}

// PageIn is what of a list is answered; the next part's address is in Link.
type PageIn struct {
	Limit int `query:"limit" default:"50" minimum:"1" maximum:"1000"`
}

func (a api) addPlan() {
	add(a, http.MethodGet, "/projects", "get-projects", "the projects, by name", func(ctx context.Context, d *desk.Desk, in *struct {
		PageIn
		After string `query:"after" maxLength:"64" doc:"only those after this one"`
	},
	) (*projectsOut, error) {
		all, err := d.Projects(ctx)
		if err != nil {
			return nil, err
		}
		first := slices.IndexFunc(all, func(p desk.Project) bool { return p.Name > in.After })
		if first < 0 {
			first = len(all)
		}
		out := &projectsOut{Body: all[first:]}
		if len(out.Body) > in.Limit {
			out.Body = out.Body[:in.Limit]
			out.Link = next("/projects", url.Values{"limit": {strconv.Itoa(in.Limit)}, "after": {out.Body[in.Limit-1].Name}})
		}
		return out, nil
	})
	add(a, http.MethodGet, "/allocations", "get-allocations", "what is planned, from this week on unless weeks are given", func(ctx context.Context, d *desk.Desk, in *struct {
		WeeksIn
		Project string `query:"project"`
	},
	) (*allocationsOut, error) {
		all, err := d.Allocations(ctx, in.Project, in.when())
		return &allocationsOut{all}, err
	})
	add(a, http.MethodGet, "/plan", "get-plan", "the plan, projects by weeks", func(ctx context.Context, d *desk.Desk, in *struct {
		WeeksIn
		Matching
		Project []string `query:"project,explode" doc:"only these"`
		By      []string `query:"by" doc:"rows by these, too" enum:"step,user,hosts,terms"`
		Hosts   string   `query:"hosts" doc:"only on this host set; - is the hosts in none"`
	},
	) (*gridOut, error) {
		has := func(by string) bool { return slices.Contains(in.By, by) }
		q := desk.GridQuery{Projects: in.Project, ByStep: has("step"), ByUser: has("user"), ByHosts: has("hosts"), ByTerms: has("terms")}
		if in.Hosts != "" {
			set := strings.TrimPrefix(in.Hosts, "-")
			q.Hosts = &set
		}
		g, err := d.Grid(ctx, q, in.when())
		if err != nil {
			return nil, err
		}
		tag := planTag(g.Revision)
		return &gridOut{tag, g}, in.same(tag)
	})
	add(a, http.MethodPut, "/plan/{project}", "put-plan", "give a project slots in some weeks", func(ctx context.Context, d *desk.Desk, in *struct {
		Expecting
		Project string `path:"project" maxLength:"64"`
		Body    struct {
			User    string `json:"user,omitempty"`
			Step    string `json:"step,omitempty"`
			Hosts   string `json:"hosts,omitempty" doc:"a host set"`
			Slots   int    `json:"slots" minimum:"0" doc:"0 withdraws them"`
			SLA     string `json:"sla,omitempty" enum:"velocity,throughput" default:"velocity"`
			Jobs    int    `json:"jobs,omitempty" minimum:"0" doc:"to be done in the week, with the SLA throughput"`
			Week    string `json:"week,omitempty"`
			Weeks   string `json:"weeks,omitempty"`
			Comment string `json:"comment,omitempty" maxLength:"200"`
		}
	},
	) (*weeksOut, error) {
		if err := in.revision(d.ExpectCells); err != nil {
			return nil, err
		}
		b := &in.Body
		terms := desk.Terms{Slots: b.Slots, Jobs: b.Jobs}
		if b.Slots > 0 {
			terms.SLA = desk.SLA(cmp.Or(b.SLA, desk.DefaultSLA))
		}
		weeks, err := d.SetAllocation(ctx, desk.Pool{Project: in.Project, User: b.User, Step: b.Step, Hosts: b.Hosts}, terms, desk.When{Week: b.Week, Weeks: b.Weeks}, b.Comment)
		if err != nil {
			return nil, err
		}
		out := &weeksOut{Body: weeks}
		if d.Overtaken() {
			return out, nil
		}
		revision, err := d.Revision(ctx)
		out.ETag = planTag(revision)
		return out, err
	})
	add(a, http.MethodPost, "/plan/copy", "copy-plan", "give weeks the plan of another week", func(ctx context.Context, d *desk.Desk, in *struct {
		Expecting
		Body struct {
			Week     string   `json:"week" doc:"the one that is copied"`
			Weeks    string   `json:"weeks,omitempty" default:"1"`
			Projects []string `json:"projects,omitempty"`
			Comment  string   `json:"comment,omitempty" maxLength:"200"`
			DryRun   bool     `json:"dry_run,omitempty"`
		}
	},
	) (*changedOut, error) {
		if err := in.revision(d.Expect); err != nil {
			return nil, err
		}
		p, err := d.Copy(ctx, in.Body.Week, in.Body.Weeks, in.Body.Projects, in.Body.Comment)
		if err != nil {
			return nil, err
		}
		return apply(ctx, d, p, in.Body.DryRun)
	})
	add(a, http.MethodPost, "/plan/undo", "undo", "undo a change of the plan", func(ctx context.Context, d *desk.Desk, in *struct {
		Body struct {
			Change  int64  `json:"change,omitempty" minimum:"0" doc:"its number in the log; 0: the caller's last one"`
			Comment string `json:"comment,omitempty" maxLength:"200"`
			DryRun  bool   `json:"dry_run,omitempty"`
		}
	},
	) (*changedOut, error) {
		p, err := d.Undo(ctx, in.Body.Change, in.Body.Comment)
		if err != nil {
			return nil, err
		}
		return apply(ctx, d, p, in.Body.DryRun)
	})
	add(a, http.MethodGet, "/log", "get-log", "who changed what, when and why, the latest change first", func(ctx context.Context, d *desk.Desk, in *struct {
		PageIn
		Project string `query:"project"`
		Since   string `query:"since" doc:"a week or a date"`
		Before  int64  `query:"before" minimum:"0" doc:"only changes before this one"`
	},
	) (*logOut, error) {
		all, err := d.Changes(ctx, desk.LogQuery{Project: in.Project, Since: in.Since, Limit: in.Limit + 1, Before: in.Before})
		if err != nil {
			return nil, err
		}
		out := &logOut{Body: all}
		if len(all) > in.Limit {
			out.Body = all[:in.Limit]
			out.Link = next("/log", url.Values{
				"project": {in.Project}, "since": {in.Since}, "limit": {strconv.Itoa(in.Limit)}, "before": {strconv.FormatInt(all[in.Limit-1].ID, 10)},
			})
		}
		return out, nil
	})
}

type projectsOut struct {
	Link string `header:"Link" doc:"the next part, by rel=\"next\""`
	Body []desk.Project
}

type allocationsOut struct {
	Body []desk.Allocation
}

type weeksOut struct {
	ETag string          `header:"ETag" doc:"of the plan as it is now; none where other cells of it were edited since it was read: read it again before the next change"`
	Body []calendar.Week `doc:"the weeks that were changed"`
}

type logOut struct {
	Link string `header:"Link" doc:"the next part, by rel=\"next\""`
	Body []desk.Logged
}

// next is the header that names the next part of a list.
func next(route string, query url.Values) string {
	for name, values := range query {
		if strings.Join(values, "") == "" {
			query.Del(name)
		}
	}
	return fmt.Sprintf(`<%s%s?%s>; rel="next"`, apiPath, route, query.Encode())
}

// apply makes the change that is proposed, unless it is only tried.
func apply(ctx context.Context, d *desk.Desk, p *desk.Proposal, dryRun bool) (*changedOut, error) {
	out := &changedOut{Body: changed{Allocations: append([]desk.Line{}, p.Lines...), Undoes: p.Undoes, Request: p.Request, Over: p.Over}}
	var err error
	if !dryRun && len(p.Lines) > 0 {
		if out.Body.Change, err = p.Apply(ctx); err != nil {
			return nil, err
		}
	}
	revision, err := d.Revision(ctx)
	out.ETag = planTag(revision)
	return out, err
}
