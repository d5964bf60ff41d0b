package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// effectView is what a draft would do to recorded jobs.
type effectView struct {
	*desk.ChangeEffect
	GiveWay []yieldView
	Gain    []yieldView
	More    int // projects that give way and are not shown
}

// yieldView is a project, or a user without one, before a draft and after it.
type yieldView struct {
	Name                          string
	Jobs                          int
	WaitBefore, WaitAfter         string
	VictimsBefore, VictimsAfter   int
	LostBefore, LostAfter         string
	BorrowedBefore, BorrowedAfter string
	Why                           []string
}

// GiveWayCount says how many projects give way.
func (v *effectView) GiveWayCount() string {
	if n := len(v.GiveWay) + v.More; n > 1 {
		return fmt.Sprintf("%d projects give way", n)
	}
	return "1 project gives way"
}

// maxYields is the number of projects that an effect shows of each kind.
const maxYields = 20

// effect simulates a draft.
func (q *request) effect(d *desk.Draft) (*effectView, error) {
	e, err := q.desk.Effect(q.Context(), d)
	if err != nil {
		return nil, err
	}
	v := &effectView{ChangeEffect: e}
	hours := func(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) + " h" }
	wait := func(seconds float64) string { return (time.Duration(seconds) * time.Second).String() }
	for _, y := range e.Projects {
		one := yieldView{
			Name: y.Project, Jobs: y.Jobs, Why: y.Why, WaitBefore: wait(y.Before.MeanWait), WaitAfter: wait(y.After.MeanWait),
			VictimsBefore: y.Before.Victims, VictimsAfter: y.After.Victims, LostBefore: hours(y.Before.Lost), LostAfter: hours(y.After.Lost),
			BorrowedBefore: hours(y.Before.Borrowed), BorrowedAfter: hours(y.After.Borrowed),
		}
		if one.Name == "" {
			one.Name = "user " + y.User
		}
		switch {
		case len(y.Why) > 0 && len(v.GiveWay) < maxYields:
			v.GiveWay = append(v.GiveWay, one)
		case len(y.Why) > 0:
			v.More++
		case y.After != y.Before:
			if v.Gain = append(v.Gain, one); len(v.Gain) > maxYields {
				v.Gain = v.Gain[1:] // those who gain most come last
			}
		}
	}
	return v, nil
}

// importTable makes a draft of a table: a file, or what was copied from a spreadsheet.
func importTable(q *request) error {
	revision, err := q.desk.Revision(q.Context())
	if err != nil {
		return err
	}
	var table io.Reader = strings.NewReader(q.PostFormValue("table"))
	file, _, err := q.FormFile("file")
	switch {
	case err == nil:
		defer func() { _ = file.Close() }() // it was only read
		table = file
	case errors.Is(err, http.ErrMissingFile), errors.Is(err, http.ErrNotMultipart):
		if strings.TrimSpace(q.PostFormValue("table")) == "" {
			return q.refuse(&statusError{http.StatusBadRequest, "choose a file, or paste a table"})
		}
	default:
		return fmt.Errorf("read the file: %w", err)
	}
	i, err := q.desk.Import(q.Context(), "-", table, false, "")
	var faults *desk.FileFaults
	switch {
	case errors.As(err, &faults):
		return q.refuse(&statusError{http.StatusUnprocessableEntity, strings.Join(faults.Lines(), "\n")})
	case i == nil || len(i.Differences) == 0:
		return q.refuse(err)
	}
	return q.startDraft(i.Draft(revision)) // other faults are shown there
}

// exportTable sends the plan as a workbook or as comma-separated values.
func exportTable(q *request) error {
	format, is := strings.CutPrefix(q.PathValue("file"), "plan.")
	kind := desk.FileKind(format)
	types := map[desk.FileKind]string{
		desk.CSVFile:  "text/csv; charset=utf-8",
		desk.XLSXFile: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	}
	if !is || types[kind] == "" {
		return notFound(q)
	}
	g, err := q.desk.ExportGrid(q.Context(), nil, placeOf(q).when())
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", types[kind])
	q.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=\"plan-%s.%s\"", g.Weeks[0], kind))
	return g.Write(kind, q.w)
}

// askForSlots records a request.
func askForSlots(q *request) error {
	slots, err := strconv.Atoi(strings.TrimSpace(q.PostFormValue("slots")))
	if err != nil {
		return q.refuse(&statusError{http.StatusBadRequest, "slots: want a number"})
	}
	pool := desk.Pool{Project: q.PostFormValue("project"), Step: strings.TrimSpace(q.PostFormValue("step")), User: strings.TrimSpace(q.PostFormValue("user")), Hosts: q.PostFormValue("hosts")}
	when := desk.When{Weeks: q.PostFormValue("from")}
	if to := q.PostFormValue("to"); to != "" {
		when.Weeks += ".." + to
	}
	if _, err := q.desk.Ask(q.Context(), pool, slots, when, q.PostFormValue("why")); err != nil {
		return q.refuse(err)
	}
	return q.done("answer", "asked")
}

// answerRequest grants, declines or withdraws a request.
func answerRequest(q *request) error {
	id, err := strconv.ParseInt(q.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return notFound(q)
	}
	answer := ""
	switch q.PostFormValue("do") {
	case "grant":
		answer = "granted"
		_, _, err = q.desk.Grant(q.Context(), id, q.PostFormValue("why"))
	case "decline":
		answer = "declined"
		_, err = q.desk.Decline(q.Context(), id, q.PostFormValue("why"))
	case "withdraw":
		answer = "withdrawn"
		_, err = q.desk.Withdraw(q.Context(), id)
	default:
		err = &statusError{http.StatusBadRequest, "do: want grant, decline or withdraw"}
	}
	if err != nil {
		return q.refuse(err)
	}
	return q.done("answer", answer)
}
