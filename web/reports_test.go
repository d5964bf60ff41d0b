package web

import (
	"net/http"
	"testing"
	"time"
)

func TestReports(t *testing.T) {
	s := newSite(t)
	s.now = s.now.Add(10 * time.Second)
	s.queue.later = 10 * time.Second
	s.cycle()
	s.want(s.get(dora, "/reports"), http.StatusOK, "Week 2026-W48", "Use against promise", `<figure class="chart">`, `href="/reports/week.csv"`)
	s.want(s.get(dora, "/reports?kind=usage"), http.StatusOK, `<th scope="row">2026-11-24</th><td>chipA</td>`, "used slot-hours")
	s.want(s.get(dora, "/reports?kind=usage&by=project&project=chipA"), http.StatusOK, `href="/reports/usage.csv?by=project&amp;project=chipA"`, "used percent")
	s.want(s.get(dora, "/reports?kind=usage&by=colour"), http.StatusBadRequest, "want some of")
	s.want(s.get(dora, "/reports?kind=usage&week=2026-W60"), http.StatusBadRequest, "week")
	s.want(s.get(dora, "/reports?kind=forecast"), http.StatusOK, "2026-W49")
	s.want(s.get(dora, "/reports?kind=nothing"), http.StatusNotFound)
	s.want(s.get(dora, "/reports?project=nothing"), http.StatusNotFound)
	w := s.get(dora, "/reports/usage.csv?by=project")
	s.want(w, http.StatusOK, "project,guaranteed_slot_hours,used_slot_hours", "chipA,0.01,0.01")
	if got := w.Header().Get("Content-Disposition"); got != `attachment; filename="usage.csv"` {
		t.Error(got)
	}
	s.want(s.get(dora, "/reports/week.csv"), http.StatusOK, "project,promised,used,")
	s.want(s.get(dora, "/reports/nothing.csv"), http.StatusNotFound)
	s.want(s.get(dora, "/reports/usage.xml"), http.StatusNotFound)
}

func TestFormulasAreHarmless(t *testing.T) {
	got := harmless([]string{"=1+1", "-2.5", "+x", "@a", "chipA", "-", ""})
	want := []string{"'=1+1", "-2.5", "'+x", "'@a", "chipA", "-", ""}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
