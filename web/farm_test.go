package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func TestFarmShowsPoolsAsTheLastCycleSawThem(t *testing.T) {
	s := newSite(t)
	asked := s.queue.asked
	s.want(s.get(dora, "/farm"), http.StatusOK, "2026-11-24 12:00:00", `<a href="/farm/project?name=chipA">chipA</a>`, `<span class="percent">67 %</span>`,
		"2 within guarantees", "1 other jobs", "5 free", `<title>n1: 2 within, 1 other, 1 free of 4, ok</title>`,
		`<th scope="row">held, or for a time or another job</th><td class="n">1</td><td class="n">1</td>`)
	s.want(s.get(dora, "/farm/hosts"), http.StatusOK, `<th scope="row">n2</th>`, "2 hosts")
	s.want(s.get(dora, "/farm/hosts?find=n1&order=free"), http.StatusOK, "1 host,")
	s.want(s.get(dora, "/farm/hosts?order=x"), http.StatusBadRequest, "want free or down")
	s.want(s.get(dora, "/farm/project?name=chipA"), http.StatusOK, `<th scope="row">chipA</th>`, `<div><dt>Used within</dt><dd>2</dd></div>`, `<figure class="chart">`)
	s.want(s.get(dora, "/farm/project?name=nothing"), http.StatusNotFound)
	s.want(s.get(dora, "/farm?find=%3Cscript"), http.StatusOK, `value="&lt;script"`, "No project")
	if s.queue.asked != asked {
		t.Error("the page asked the queue")
	}
}

// What changes with a cycle is fetched again without the charts; a later cycle shows in it.
func TestFarmAfterACycle(t *testing.T) {
	s := newSite(t)
	s.want(s.get(dora, "/farm"), http.StatusOK, "2 within guarantees", `<figure class="chart">`)
	s.queue.farm.Jobs[0].State, s.queue.farm.Jobs[0].Started, s.queue.farm.Jobs[0].Hosts = backends.Pending, s.now.Add(-1), nil
	s.cycle()
	r := httpRequest("/farm")
	r.Header.Set("HX-Request", "true")
	w := s.do(dora, r)
	s.want(w, http.StatusOK, "1 other jobs")
	if body := w.Body.String(); strings.Contains(body, `<figure class="chart">`) || strings.Contains(body, "2 within guarantees") {
		t.Errorf("it has the charts, or what was:\n%s", body)
	}
}

// No page has a style or a script of its own, which the browser would refuse.
func TestNothingInline(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/farm", "/farm/hosts", "/farm/project?name=chipA", "/jobs", "/jobs/1", "/reports", "/reports?kind=usage&by=project&by=user", "/reports?kind=waits", "/reports?kind=victims", "/reports?kind=dummies", "/reports?kind=forecast"} {
		w := s.get(carl, path)
		s.want(w, http.StatusOK)
		body := w.Body.String()
		for _, never := range []string{` style="`, "<style", "javascript:", " onclick", "<script>"} {
			if strings.Contains(body, never) {
				t.Errorf("%s has %s", path, never)
			}
		}
	}
}

func TestJobsTextsAreHarmless(t *testing.T) {
	s := newSite(t)
	s.want(s.get(carl, "/jobs/3"), http.StatusOK, `&lt;script&gt;alert(1)&lt;/script&gt;\x1b[31m\u202e`)
	s.want(s.get(dora, "/jobs"), http.StatusOK, `<td class="name">&lt;script&gt;alert(1)&lt;/script&gt;\x1b[31m\u202e</td>`)
	s.want(s.get(carl, "/jobs/99"), http.StatusNotFound, "neither the last cycle nor the ledger knows it")
	s.want(s.get(carl, "/calendar"), http.StatusOK, "2026-W48")
	s.want(s.get(carl, "/nothing"), http.StatusNotFound, "there is no such page")
	s.want(s.get("", "/farm"), http.StatusUnauthorized, "pba login")
}

// TestAUserWhoLeftIsNoError: a page that its user leaves before it came is not in the log.
func TestAUserWhoLeftIsNoError(t *testing.T) {
	s := newSite(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	s.do(dora, httptest.NewRequestWithContext(ctx, http.MethodGet, "/farm", nil))
	if strings.Contains(s.log.String(), "ERROR") {
		t.Error(s.log.String())
	}
}
