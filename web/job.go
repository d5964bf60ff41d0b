package web

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/allotment-hpc/allotment/pba/desk"
)

func jobPage() page {
	return page{path: "/jobs", name: "Jobs", routes: map[string]handler{"GET /jobs": listJobs, "GET /jobs/{id}": showJob}}
}

// jobsOnPage is the number of jobs on a page of a list.
const jobsOnPage = 50

// jobsView is a list of jobs.
type jobsView struct {
	*desk.JobList
	Whose          string // in words
	Project, State string
	States         []stateTab
	Ended          []desk.EndedJob
	Pager          pager
	Self           string
}

// stateTab leads to the jobs of a state.
type stateTab struct {
	Name, Address string
	Jobs          int
	Here          bool
}

// listJobs lists the caller's own jobs, those of a project, or an array's, and leads to the page
// of a job that is asked for by its number.
func listJobs(q *request) error {
	if id := q.FormValue("id"); id != "" {
		return q.see("/jobs/" + url.PathEscape(id))
	}
	project := q.FormValue("project")
	v := jobsView{Whose: "Jobs of " + q.who.Name, Project: project, State: q.FormValue("state")}
	query := desk.JobQuery{User: q.who.Name, State: v.State}
	if project != "" {
		v.Whose, query.User, query.Project = "Jobs of project "+project, "", project
	}
	if query.User == "" && project == "" {
		return &statusError{http.StatusForbidden, "your user ID has no account here: there are no jobs of yours"}
	}
	if err := v.list(q, query); err != nil {
		return err
	}
	if project == "" {
		var err error
		if v.Ended, err = q.desk.EndedJobs(q.Context(), q.who.Name); err != nil {
			return err
		}
	}
	return q.show("jobs", v.Whose, v)
}

// list reads the page of the list that a request wants.
func (v *jobsView) list(q *request, query desk.JobQuery) error {
	query.Size, query.Page = jobsOnPage, q.pager(1<<30, jobsOnPage).Page
	var err error
	if v.JobList, err = q.desk.Jobs(q.Context(), query); err != nil {
		return err
	}
	if err := q.server.addProgresses(q.Context(), q.desk, v.JobList); err != nil {
		return err
	}
	v.Pager = q.pager(v.Total, jobsOnPage)
	v.Self = v.Pager.address(v.Pager.Page)
	all := 0
	for _, n := range v.JobList.States {
		all += n
	}
	for _, state := range []string{"", "pending", "running", "suspended", "held"} {
		tab := stateTab{Name: state, Jobs: v.JobList.States[state], Here: state == v.State}
		if state == "" {
			tab.Name, tab.Jobs = "all", all
		}
		p := q.pager(0, 1)
		p.query.Set("state", state)
		tab.Address = p.address(1)
		v.States = append(v.States, tab)
	}
	return nil
}

// jobView is a job's page.
type jobView struct {
	*desk.Story
	At    time.Time
	Own   bool // it is the viewer's
	Self  string
	Waits bool
	Lost  []lostTo
	For   []desk.Reclaim // it is their beneficiary
	Kept  *ownState      // by its hosts; nil: nothing, or it is not the viewer's to read
}

// lostTo is a reclaim that a job lost its slots to.
type lostTo struct {
	desk.Reclaim
	Victim desk.Victim
	At     time.Time
}

// showJob explains a job, or lists an array's elements.
func showJob(q *request) error {
	id, err := q.desk.JobNamed(q.Context(), q.PathValue("id"))
	if errors.Is(err, desk.ErrInvalid) {
		return &statusError{http.StatusNotFound, err.Error()}
	}
	if err != nil {
		return err
	}
	if id.Index == 0 {
		v := jobsView{State: q.FormValue("state"), Whose: "Array " + id.String()}
		err := v.list(q, desk.JobQuery{Array: id.Job, State: v.State})
		if err == nil && len(v.JobList.States) > 0 {
			return q.show("jobs", v.Whose, v)
		}
		if err != nil && !desk.Temporary(err) {
			return err
		}
	}
	story, err := q.desk.Explain(q.Context(), id)
	if err == nil {
		err = q.server.addProgress(q.Context(), q.desk, story)
	}
	if err != nil {
		return err
	}
	v := jobView{Story: story, Own: story.User == q.who.Name, Self: "/jobs/" + url.PathEscape(story.ID), Waits: !story.State.Ended() && story.Started.IsZero(), Kept: q.ownState(id)}
	if v.At, err = q.desk.Seen(); err != nil && !desk.Temporary(err) {
		return err
	}
	for _, r := range story.Reclaims {
		if r.Beneficiary == story.ID {
			v.For = append(v.For, r)
			continue
		}
		for _, victim := range r.Victims {
			if victim.Job == story.ID {
				at := r.Acted
				if at.IsZero() {
					at = r.Planned
				}
				v.Lost = append(v.Lost, lostTo{r, victim, at})
			}
		}
	}
	return q.show("job", "Job "+story.ID, v)
}
