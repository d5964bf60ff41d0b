package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func calendarPage() page {
	return page{path: "/calendar", name: "Calendar", routes: map[string]handler{
		"GET /calendar":                showCalendar,
		"POST /calendar/draft":         changeDraft,
		"POST /calendar/copy":          copyWeek,
		"POST /calendar/import":        importTable,
		"GET /calendar/{file}":         exportTable,
		"POST /calendar/undo":          undoChange,
		"POST /calendar/requests":      askForSlots,
		"POST /calendar/requests/{id}": answerRequest,
	}}
}

// place is the part of the plan that a calendar shows: it is in each of its addresses.
type place struct {
	Week, Count string // the first week; "": this one
	Own, All    bool
	Split       []string
}

// Bounds and defaults of what a calendar shows.
const (
	calendarWeeks = "12"
	calendarStep  = 4 // weeks that earlier and later move by
	maxSplit      = 500
	calendarLog   = 20 // changes
	maxShownLines = 100
)

func placeOf(q *request) place {
	query := q.URL.Query() // the form of a POST has weeks, too
	p := place{Week: query.Get("week"), Count: query.Get("weeks"), Own: query.Get("own") != "", All: query.Get("split") == "all"}
	if p.Count == "" {
		p.Count = calendarWeeks
	}
	if !p.All && len(query["split"]) <= maxSplit {
		p.Split = query["split"]
	}
	return p
}

func (p place) when() desk.When { return desk.When{Week: p.Week, Weeks: p.Count} }

// To returns the address of a page below /calendar that shows the same place.
func (p place) To(path string) string {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("week", p.Week)
	if p.Count != calendarWeeks {
		set("weeks", p.Count)
	}
	if p.Own {
		v.Set("own", "1")
	}
	if v["split"] = p.Split; p.All {
		v.Set("split", "all")
	}
	if len(v["split"]) == 0 {
		v.Del("split")
	}
	if len(v) == 0 {
		return "/calendar" + path
	}
	return "/calendar" + path + "?" + v.Encode()
}

// Here is the address of the calendar itself.
func (p place) Here() string { return p.To("") }

// calendarView is what the template shows.
type calendarView struct {
	*desk.Calendar
	place
	Sets     []string // host sets
	Draft    *draftView
	Requests []desk.Request
	Log      []logView
	Done     *doneView
	Form     slotForm
	User     string
	Ask      bool   // the user may request slots
	Wrong    string // what could not be done
	Part     bool   // only what a draft changes
}

// doneView says what was changed.
type doneView struct {
	Text   string
	Change int64 // in the log, to be undone; 0: nothing
}

// draftView is a draft as the page shows it.
type draftView struct {
	*desk.Draft
	Edits   []desk.CellEdit
	Comment string
	Wrong   string // why it can't be checked
	Shown   []string
	MoreOf  int // lines that are not shown
	Effect  *effectView
}

// Cells is what the page sends again.
func (d *draftView) Cells() (string, error) {
	text, err := json.Marshal(d.Edits)
	return string(text), err
}

// Summary says how much a draft changes.
func (d *draftView) Summary() string {
	switch {
	case d.Draft == nil:
		return printable.Count(len(d.Edits), "cell") + " typed"
	case len(d.Faults) > 0:
		return printable.Count(len(d.Faults)+d.More, "fault") + ": nothing can be saved yet"
	case len(d.Lines) == 0:
		return "No change: the plan is so already"
	}
	return printable.Count(d.Changed(), "cell") + " changed, not saved yet"
}

// Blocked reports whether the draft can't be saved.
func (d *draftView) Blocked() bool { return d.Draft == nil || len(d.Faults) > 0 || len(d.Lines) == 0 }

// slotForm is what was typed into the form that sets slots.
type slotForm struct {
	Project, Step, User, Hosts, From, To, Slots, SLA, Jobs string
}

// logView is a change in the log.
type logView struct {
	desk.Logged
	Shown  []string
	MoreOf int
}

// Earlier and Later are the addresses of other weeks.
func (v *calendarView) Earlier() string { return v.moved(-calendarStep) }

// Later is Earlier's counterpart.
func (v *calendarView) Later() string { return v.moved(calendarStep) }

func (v *calendarView) moved(weeks int) string {
	p := v.place
	p.Week = calendar.AddWeeks(v.Weeks[0].Week, weeks).String()
	return p.Here()
}

// Now is the address with this week first.
func (v *calendarView) Now() string {
	p := v.place
	p.Week = ""
	return p.Here()
}

// Owned is the address with the user's own projects alone, or with all.
func (v *calendarView) Owned(own bool) string {
	p := v.place
	p.Own = own
	return p.Here()
}

// Splitted is the address with the pools of all projects, or with the sums alone.
func (v *calendarView) Splitted(all bool) string {
	p := v.place
	p.All, p.Split = all, nil
	return p.Here()
}

// IsSplit reports whether a project's pools are shown.
func (v *calendarView) IsSplit(project string) bool {
	return v.All || slices.Contains(v.Split, project)
}

// Toggle is the address where a project's pools are shown, or no longer.
func (v *calendarView) Toggle(project string) string {
	p := v.place
	p.Split = slices.Clone(p.Split)
	if p.All {
		p.All, p.Split = false, nil
		for _, one := range v.Projects {
			p.Split = append(p.Split, one.Project)
		}
	}
	if i := slices.Index(p.Split, project); i >= 0 {
		p.Split = slices.Delete(p.Split, i, i+1)
	} else {
		p.Split = append(p.Split, project)
	}
	return p.Here()
}

// rowView is the head of a project's row.
type rowView struct {
	Project string
	Title   string
	Toggle  string // the address where its pools are shown, or no longer; "": it has one
	Open    bool
}

// Row returns the head of a project's row.
func (v *calendarView) Row(p desk.CalendarProject, plain bool) rowView {
	r := rowView{Project: p.Project, Open: v.IsSplit(p.Project), Title: "Managers: " + strings.Join(p.Managers, ", ")}
	if len(p.Managers) == 0 {
		r.Title = "It has no manager: admins plan it."
	}
	if !plain || p.MayPlan && len(p.Steps) > 0 {
		r.Toggle = v.Toggle(p.Project)
	}
	return r
}

// Columns is the number of columns of the grid.
func (v *calendarView) Columns() int { return len(v.Weeks) + 2 }

// StepNames lists the steps of the flows of projects that the user may plan.
func (v *calendarView) StepNames() []string {
	var all []string
	for _, p := range v.Projects {
		if p.MayPlan {
			all = append(all, p.Steps...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// LastWeek is the week before this one.
func (v *calendarView) LastWeek() calendar.Week { return calendar.AddWeeks(v.This, -1) }

// Sources are the weeks that may be copied: last week, and those shown.
func (v *calendarView) Sources() []calendar.Week {
	all := []calendar.Week{v.LastWeek()}
	for _, w := range v.Weeks {
		if w.Week != v.LastWeek() {
			all = append(all, w.Week)
		}
	}
	return all
}

// Left is what is free on host sets, with the draft if there is one.
func (v *calendarView) Left() []desk.GridHosts {
	if v.Draft != nil && v.Draft.Draft != nil {
		return v.Draft.HostSets
	}
	return v.HostSets
}

// showCalendar shows what is planned, projects by weeks.
func showCalendar(q *request) error {
	v, err := q.calendar()
	if err != nil {
		return err
	}
	if id, err := strconv.ParseInt(q.FormValue("done"), 10, 64); err == nil && id > 0 {
		v.Done = &doneView{Text: fmt.Sprintf("Change %d is saved.", id), Change: id}
	} else if text := answers[q.FormValue("answer")]; text != "" {
		v.Done = &doneView{Text: text}
	}
	return q.showCalendar(http.StatusOK, v)
}

// answers are what the page says after a form was sent.
var answers = map[string]string{
	"same":      "Nothing to change: the plan is so already.",
	"asked":     "The request is recorded: the project's managers see it here.",
	"granted":   "The request is granted.",
	"declined":  "The request is declined.",
	"withdrawn": "The request is withdrawn.",
}

// done answers that something was done.
func (q *request) done(key, value string) error {
	to := placeOf(q).Here()
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return q.see(to + separator + key + "=" + url.QueryEscape(value))
}

func (q *request) calendar() (*calendarView, error) {
	ctx, p := q.Context(), placeOf(q)
	c, err := q.desk.Calendar(ctx, desk.CalendarQuery{Own: p.Own, Split: p.Split, All: p.All}, p.when())
	if err != nil {
		return nil, err
	}
	v := &calendarView{Calendar: c, place: p, Sets: q.desk.HostSetNames(), User: q.who.Name}
	v.Ask = slices.ContainsFunc(c.Projects, func(p desk.CalendarProject) bool { return p.MayAsk })
	if q.Header.Get("X-Part") == "draft" {
		v.Part = true
		return v, nil
	}
	if v.Requests, err = q.desk.Requests(ctx, "", false); err != nil {
		return nil, err
	}
	log, err := q.desk.Changes(ctx, desk.LogQuery{Limit: calendarLog})
	if err != nil {
		return nil, err
	}
	for _, one := range log {
		shown, more := shownLines(one.Lines, 3)
		v.Log = append(v.Log, logView{one, shown, more})
	}
	return v, nil
}

func shownLines(all []desk.Line, most int) (shown []string, more int) {
	for i := range all {
		if i == most {
			return shown, len(all) - most
		}
		shown = append(shown, all[i].InWords())
	}
	return shown, 0
}

func (q *request) showCalendar(status int, v *calendarView) error {
	return q.showAs(status, "calendar", "Calendar", v)
}

// draftOf reads the cells that a form has, and those that it sets.
func draftOf(q *request) (*draftView, slotForm, error) {
	d := &draftView{Comment: q.PostFormValue("comment")}
	if text := q.PostFormValue("cells"); text != "" {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&d.Edits); err != nil {
			return nil, slotForm{}, &statusError{http.StatusBadRequest, "cells: " + printable.Text(err.Error())}
		}
	}
	f := slotForm{}
	for name, to := range f.fields() {
		*to = strings.TrimSpace(q.PostFormValue(name))
	}
	edits, err := f.edits(q.PostFormValue("since"))
	if err != nil {
		return nil, f, err
	}
	for _, e := range edits { // what is set last holds
		d.Edits = slices.DeleteFunc(d.Edits, func(old desk.CellEdit) bool { return old.Pool == e.Pool && old.Week == e.Week })
	}
	d.Edits = append(d.Edits, edits...)
	return d, f, nil
}

func (f *slotForm) fields() map[string]*string {
	return map[string]*string{
		"project": &f.Project, "step": &f.Step, "user": &f.User, "hosts": &f.Hosts,
		"from": &f.From, "to": &f.To, "slots": &f.Slots, "sla": &f.SLA, "jobs": &f.Jobs,
	}
}

// edits are the cells that the form sets; none where no project is chosen.
func (f *slotForm) edits(since string) ([]desk.CellEdit, error) {
	if f.Project == "" {
		return nil, nil
	}
	revision, err := strconv.ParseInt(since, 10, 64)
	if err != nil || revision < 0 {
		return nil, &statusError{http.StatusBadRequest, "since: want the revision of the plan that the page shows"}
	}
	first, err := calendar.ParseWeek(f.From)
	last := first
	if err == nil && f.To != "" {
		last, err = calendar.ParseWeek(f.To)
	}
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, err.Error()}
	}
	n := calendar.WeeksBetween(first, last) + 1
	if n < 1 || n > calendar.MaxWeeks {
		return nil, &statusError{http.StatusBadRequest, fmt.Sprintf("from %s to %s: want a week, or weeks in a row", first, last)}
	}
	var all []desk.CellEdit
	for _, w := range calendar.From(first, n) {
		all = append(all, desk.CellEdit{
			Pool: desk.Pool{Project: f.Project, Step: f.Step, User: f.User, Hosts: f.Hosts},
			Week: w.String(), Slots: f.Slots, SLA: f.SLA, Jobs: f.Jobs, Since: revision,
		})
	}
	return all, nil
}

// changeDraft checks a draft, and does with it what the button says.
func changeDraft(q *request) error {
	d, form, err := draftOf(q)
	if err != nil {
		return err
	}
	q.settle(d)
	if len(d.Edits) == 0 {
		v, err := q.calendar()
		if err != nil {
			return err
		}
		return q.showCalendar(http.StatusOK, v)
	}
	what := q.PostFormValue("do")
	d.Draft, err = q.desk.Draft(q.Context(), d.Edits, d.Comment, placeOf(q).when())
	if err == nil && what == "save" {
		var id int64
		switch id, err = d.Apply(q.Context()); {
		case err == nil && id == 0:
			return q.done("answer", "same")
		case err == nil:
			return q.done("done", strconv.FormatInt(id, 10))
		case desk.Temporary(err): // another edit came first
			if again, checked := q.desk.Draft(q.Context(), d.Edits, d.Comment, placeOf(q).when()); checked == nil {
				d.Draft = again
			}
		}
	}
	if err == nil && what == "effect" {
		d.Effect, err = q.effect(d.Draft)
	}
	return q.showDraft(d, form, err)
}

// showDraft shows a draft with what is wrong with it: err, unless nil.
func (q *request) showDraft(d *draftView, form slotForm, err error) error {
	v, failed := q.calendar()
	if failed != nil {
		return failed
	}
	status := http.StatusOK
	if err != nil {
		if status = statusOf(q.Method, err); !errors.Is(err, desk.ErrFaulty) {
			d.Wrong = err.Error()
		}
	}
	if d.Draft != nil {
		d.Shown, d.MoreOf = shownLines(d.Lines, maxShownLines)
	}
	v.Draft, v.Form = d, form
	return q.showCalendar(status, v)
}

// settle does what the buttons of conflicts say: the cell at a place keeps what it has, or
// gets what was typed in place of what the user has seen now.
func (q *request) settle(d *draftView) {
	if i, err := strconv.Atoi(q.PostFormValue("mine")); err == nil && i >= 0 && i < len(d.Edits) {
		if revision, err := strconv.ParseInt(q.PostFormValue("checked"), 10, 64); err == nil {
			d.Edits[i].Since = revision
		}
	}
	if i, err := strconv.Atoi(q.PostFormValue("theirs")); err == nil && i >= 0 && i < len(d.Edits) {
		d.Edits = slices.Delete(d.Edits, i, i+1)
	}
}

// copyWeek makes a draft that has weeks be as another one.
func copyWeek(q *request) error {
	revision, err := q.desk.Revision(q.Context())
	if err != nil {
		return err
	}
	p, err := q.desk.CopyOwn(q.Context(), q.PostFormValue("copy"), q.PostFormValue("weeks"), q.PostFormValue("project"))
	if p == nil || err == nil && len(p.Differences) == 0 {
		return q.refuse(err)
	}
	return q.startDraft(p.Draft(revision)) // its faults are shown there
}

// refuse shows the calendar with what could not be done; nil: there was nothing to do.
func (q *request) refuse(err error) error {
	if err == nil {
		return q.done("answer", "same")
	}
	v, failed := q.calendar()
	if failed != nil {
		return err
	}
	v.Wrong = err.Error()
	return q.showCalendar(statusOf(q.Method, err), v)
}

// startDraft shows a new draft.
func (q *request) startDraft(edits []desk.CellEdit) error {
	d := &draftView{Edits: edits}
	var err error
	d.Draft, err = q.desk.Draft(q.Context(), edits, "", placeOf(q).when())
	return q.showDraft(d, slotForm{}, err)
}

// undoChange undoes a change of the log.
func undoChange(q *request) error {
	id, err := strconv.ParseInt(q.PostFormValue("change"), 10, 64)
	if err != nil || id < 1 {
		return &statusError{http.StatusBadRequest, "change: want the number of a change in the log"}
	}
	p, err := q.desk.Undo(q.Context(), id, "")
	if err == nil {
		id, err = p.Apply(q.Context())
	}
	if err != nil {
		return q.refuse(err)
	}
	return q.done("done", strconv.FormatInt(id, 10))
}
