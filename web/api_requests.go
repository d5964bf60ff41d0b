package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

type requestsOut struct {
	Link string `header:"Link" doc:"the next part, by rel=\"next\""`
	Body []desk.Request
}

type requestOut struct {
	Body *desk.Request
}

type grantOut struct {
	Body granted
}

type granted struct {
	desk.Request
	Changed []calendar.Week `json:"changed_weeks,omitempty" doc:"none: it had as many slots already"`
}

// AnswerIn is an answer to a request.
type AnswerIn struct {
	ID int64 `path:"id" minimum:"1"`
}

func (a api) addRequests() {
	add(a, http.MethodGet, "/requests", "get-requests", "requests for slots, by their numbers", func(ctx context.Context, d *desk.Desk, in *struct {
		PageIn
		Project string `query:"project"`
		All     bool   `query:"all" doc:"closed ones, too"`
		After   int64  `query:"after" minimum:"0" doc:"only those after this one"`
	},
	) (*requestsOut, error) {
		all, err := d.Requests(ctx, in.Project, in.All)
		if err != nil {
			return nil, err
		}
		for len(all) > 0 && all[0].ID <= in.After {
			all = all[1:]
		}
		out := &requestsOut{Body: all}
		if len(all) > in.Limit {
			out.Body = all[:in.Limit]
			query := url.Values{"project": {in.Project}, "limit": {strconv.Itoa(in.Limit)}, "after": {strconv.FormatInt(all[in.Limit-1].ID, 10)}}
			if in.All {
				query.Set("all", "true")
			}
			out.Link = next("/requests", query)
		}
		return out, nil
	})
	add(a, http.MethodPost, "/requests", "make-request", "ask for slots", func(ctx context.Context, d *desk.Desk, in *struct {
		Body struct {
			Project string `json:"project"`
			User    string `json:"user,omitempty"`
			Step    string `json:"step,omitempty"`
			Hosts   string `json:"hosts,omitempty"`
			Slots   int    `json:"slots" minimum:"1"`
			Week    string `json:"week,omitempty"`
			Weeks   string `json:"weeks,omitempty"`
			Why     string `json:"why" maxLength:"300"`
		}
	},
	) (*requestOut, error) {
		b := &in.Body
		r, err := d.Ask(ctx, desk.Pool{Project: b.Project, User: b.User, Step: b.Step, Hosts: b.Hosts}, b.Slots, desk.When{Week: b.Week, Weeks: b.Weeks}, b.Why)
		return &requestOut{r}, err
	})
	add(a, http.MethodPost, "/requests/{id}/grant", "grant-request", "change the plan as a request asks", func(ctx context.Context, d *desk.Desk, in *struct {
		AnswerIn
		Body *struct {
			Comment string `json:"comment,omitempty" maxLength:"200"`
		}
	},
	) (*grantOut, error) {
		comment := ""
		if in.Body != nil {
			comment = in.Body.Comment
		}
		_, changes, err := d.Grant(ctx, in.ID, comment)
		if err != nil {
			return nil, err
		}
		now, err := requestNow(ctx, d, in.ID)
		if err != nil {
			return nil, err
		}
		out := &grantOut{Body: granted{Request: *now.Body}}
		for _, c := range changes {
			out.Body.Changed = append(out.Body.Changed, c.Week)
		}
		return out, nil
	})
	add(a, http.MethodPost, "/requests/{id}/decline", "decline-request", "decline a request", func(ctx context.Context, d *desk.Desk, in *struct {
		AnswerIn
		Body struct {
			Why string `json:"why" maxLength:"300"`
		}
	},
	) (*requestOut, error) {
		if _, err := d.Decline(ctx, in.ID, in.Body.Why); err != nil {
			return nil, err
		}
		return requestNow(ctx, d, in.ID)
	})
	add(a, http.MethodPost, "/requests/{id}/withdraw", "withdraw-request", "withdraw a request of one's own", func(ctx context.Context, d *desk.Desk, in *AnswerIn) (*requestOut, error) {
		if _, err := d.Withdraw(ctx, in.ID); err != nil {
			return nil, err
		}
		return requestNow(ctx, d, in.ID)
	})
}

// requestNow answers with a request as it is now.
func requestNow(ctx context.Context, d *desk.Desk, id int64) (*requestOut, error) {
	all, err := d.Requests(ctx, "", true)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r desk.Request) bool { return r.ID == id })
	if i < 0 {
		return nil, &statusError{http.StatusNotFound, "the request is not kept any more"}
	}
	return &requestOut{&all[i]}, nil
}
