package web

import (
	"net/http"

	"github.com/allotment-hpc/allotment/backends"
)

func jobPage() page {
	return page{path: "/jobs", name: "Jobs", routes: map[string]handler{"GET /jobs": findJob, "GET /jobs/{id}": showJob}}
}

// findJob shows a form for a job's number, and leads to the job's page.
func findJob(q *request) error {
	if id := q.FormValue("id"); id != "" {
		parsed, err := backends.ParseID(id)
		if err != nil {
			return &statusError{http.StatusBadRequest, err.Error()}
		}
		return q.see("/jobs/" + parsed.String())
	}
	return q.show("jobs", "Jobs", nil)
}

// showJob explains a job.
func showJob(q *request) error {
	id, err := backends.ParseID(q.PathValue("id"))
	if err != nil {
		return &statusError{http.StatusNotFound, err.Error()}
	}
	story, err := q.desk.Explain(q.Context(), id)
	if err != nil {
		return err
	}
	return q.show("job", "Job "+story.ID, story)
}
