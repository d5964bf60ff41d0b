package web

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/backends"
)

// How far a job is comes with what it uses, and is read by those who may read that. What a process
// of another user says of it counts for nothing.
func TestReportedProgress(t *testing.T) {
	s := newSite(t)
	s.get(anna, "/jobs/1") // without hosts
	s.hears()
	report := func(host string, said map[measure.Key]roster.Said) {
		r := roster.Report{Elapsed: time.Hour, Said: said}
		for key := range said {
			r.Jobs = append(r.Jobs, measure.Job{Key: key, Source: measure.FromGroupV2})
		}
		text, _ := r.Encode()
		s.Hosts.Report(host, text)
	}
	key := func(uid int) measure.Key {
		return measure.Key{Queue: measure.Miniq, ID: backends.ID{Job: 1}, User: uid}
	}
	report("n1", map[measure.Key]roster.Said{key(os.Getuid()): {Progress: "40 half <b>\x1b", Ago: time.Minute}, key(5003): {Progress: "100 a lie"}})
	report("n2", map[measure.Key]roster.Said{key(os.Getuid()): {Progress: "39 earlier", Ago: time.Hour}})
	for user, may := range map[string]bool{operator: true, anna: true, bert: false, carl: false, dora: false} {
		for path, want := range map[string]string{"/jobs/1": `<p>Progress: 40% half &lt;b&gt;\x1b</p>`, "/jobs?project=chipA": `progress 40% half &lt;b&gt;\x1b; `} {
			w := s.get(user, path)
			s.want(w, http.StatusOK)
			if text := w.Body.String(); strings.Contains(text, want) != may || strings.Contains(text, "a lie") || strings.Contains(text, "earlier") {
				t.Errorf("%s reads %s: %s", user, path, text)
			}
		}
		w := s.call(user, http.MethodGet, "/jobs/1", "")
		s.want(w, http.StatusOK)
		if text := w.Body.String(); strings.Contains(text, `"progress":"40% half `) != may || strings.Contains(text, "a lie") {
			t.Errorf("%s reads %s", user, text)
		}
	}
	s.want(s.call(anna, http.MethodGet, "/uses?job=1", ""), http.StatusOK, `"progress":"40 half `, `"said_at":"2026-11-24T12:00:40Z"`)
	s.queue.farm.Jobs[0].Progress = "41 the queue's word"
	s.cycle()
	s.want(s.get(anna, "/jobs/1"), http.StatusOK, "41% the queue")
}
