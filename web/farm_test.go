package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFarmShowsPoolsAsTheLastCycleSawThem(t *testing.T) {
	s := newSite(t)
	asked := s.queue.asked
	s.want(s.get(dora, "/farm"), http.StatusOK, "2026-11-24 12:00:00", `<th scope="row">chipA</th><td class="n">3</td><td class="n">3</td><td class="n">2</td>`)
	if s.queue.asked != asked {
		t.Error("the page asked the queue")
	}
}

func TestJobsTextsAreHarmless(t *testing.T) {
	s := newSite(t)
	s.want(s.get(carl, "/jobs/3"), http.StatusOK, `&lt;script&gt;alert(1)&lt;/script&gt;\x1b[31m\u202e`)
	s.want(s.get(carl, "/jobs/99"), http.StatusNotFound, "neither the queue nor the ledger knows it")
	s.want(s.get(carl, "/calendar"), http.StatusOK, "2026-W48")
	s.want(s.get(carl, "/reports"), http.StatusOK)
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
