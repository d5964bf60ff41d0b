package web

import "github.com/allotment-hpc/allotment/pba/desk"

func calendarPage() page {
	return page{path: "/calendar", name: "Calendar", routes: map[string]handler{"GET /calendar": showCalendar}}
}

// showCalendar shows what is planned, projects by weeks.
func showCalendar(q *request) error {
	grid, err := q.desk.Grid(q.Context(), desk.GridQuery{}, desk.When{Week: q.FormValue("week"), Weeks: q.FormValue("weeks")})
	if err != nil {
		return err
	}
	return q.show("calendar", "Calendar", grid)
}
