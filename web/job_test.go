package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func httpRequest(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

func TestMyJobsAreMineAlone(t *testing.T) {
	s := newSite(t)
	w := s.get(carl, "/jobs")
	s.want(w, http.StatusOK, `<a href="/jobs/3">3</a>`, "it is a normal job", "The queue says: &lt;script&gt;", "pending 1")
	if strings.Contains(w.Body.String(), "/jobs/2") {
		t.Error("another user's job is there")
	}
	s.want(s.get(carl, "/jobs?project=chipA"), http.StatusOK, `<a href="/jobs/1">1</a>`)
	s.want(s.get(carl, "/jobs?state=running"), http.StatusOK, "There are none.")
	s.want(s.get(carl, "/jobs?state=x"), http.StatusBadRequest, "want pending")
	if w := s.get(carl, "/jobs?id=12_3"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/jobs/12_3" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestJobPage(t *testing.T) {
	s := newSite(t)
	s.want(s.get(carl, "/jobs/1"), http.StatusOK, "it is charged to chipA", `<td class="text">n1 (2)</td>`, `<span class="yes">yes</span>`)
	if w := s.get(carl, "/jobs/1"); strings.Contains(w.Body.String(), "Its output") {
		t.Error("another user's output is offered")
	}
	s.want(s.get(carl, "/jobs/3"), http.StatusOK, "<code>apeek -f 3</code>, which goes on until the job ends")
	s.queue.farm.Jobs[0].Progress = "40 half <b>"
	s.queue.farm.Jobs[0].Tag = backends.Tag{Minimum: backends.Minimum{CPU: 2000}}.String()
	s.cycle()
	s.want(s.get(carl, "/jobs/"+s.queue.farm.Jobs[0].ID.String()), http.StatusOK, "<p>Progress: 40% half &lt;b&gt;</p>", "<p>Minimum: 2 cores: it does not count, since jobs are promised nothing here beside slots (limits.mode: off).</p>")
	s.want(s.get(carl, "/jobs/82+1"), http.StatusNotFound, "pba explain 82&#43;1")
	s.want(s.get(carl, "/jobs/x"), http.StatusNotFound, "job x: no job has this name")
	s.want(s.get(carl, "/jobs/1/x"), http.StatusNotFound)
}

// An array's number leads to its elements, which 82_3 and 82[3] name. Lists have pages.
func TestArrays(t *testing.T) {
	s := newSite(t)
	for i := range 120 {
		s.queue.farm.Jobs = append(s.queue.farm.Jobs, backends.Job{ID: backends.ID{Job: 82, Index: i + 1}, User: dora, State: backends.Pending, Wait: backends.WaitResources, Slots: 1, Submitted: s.now.Add(-time.Hour)})
	}
	s.cycle()
	s.want(s.get(carl, "/jobs/82"), http.StatusOK, "Array 82", "120 jobs", `<a href="/jobs/82[50]">82[50]</a>`, "Page 1 of 3", `<a href="/jobs/82?page=2" rel="next">`)
	s.want(s.get(carl, "/jobs/82?page=9"), http.StatusOK, "82[120]", "Page 3 of 3")
	for _, name := range []string{"82_3", "82%5B3%5D"} {
		s.want(s.get(carl, "/jobs/"+name), http.StatusOK, "<h1>Job 82[3]</h1>")
	}
}

// A job within its guarantee says until when slots come free for it at the latest.
func TestExpectedStart(t *testing.T) {
	s := newSite(t)
	name, _ := engineer(t)
	s.queue.farm.Jobs = append(s.queue.farm.Jobs, backends.Job{ID: backends.ID{Job: 7}, User: name, Project: "chipA", State: backends.Pending, Wait: backends.WaitResources, Slots: 1, Submitted: s.now.Add(-time.Second)},
		backends.Job{ID: backends.ID{Job: 8}, User: carl, State: backends.Pending, Wait: backends.WaitTime, Slots: 1, Submitted: s.now, BeginTime: s.now.Add(time.Hour)})
	s.cycle()
	at := s.now
	s.want(s.get(carl, "/jobs/7"), http.StatusOK, "it holds room in chipA; unless slots come free before, they are preempted for it from "+at.Add(time.Minute).Format("2006-01-02 15:04:05"))
	s.want(s.get(carl, "/jobs"), http.StatusOK, fmt.Sprintf("it does not start before %s", at.Add(time.Hour).Format("2006-01-02 15:04:05")))
}
