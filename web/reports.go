package web

import "github.com/allotment-hpc/allotment/pba/desk"

func reportsPage() page {
	return page{path: "/reports", name: "Reports", routes: map[string]handler{"GET /reports": showReports}}
}

// showReports shows what projects used of what they were promised.
func showReports(q *request) error {
	period, err := q.desk.Period("", desk.Span{Week: q.FormValue("week")})
	if err != nil {
		return err
	}
	usage, err := q.desk.Usage(q.Context(), period)
	if err != nil {
		return err
	}
	return q.show("reports", "Reports", usage)
}
