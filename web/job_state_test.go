package web

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A job's page shows what its hosts keep of it, and limit (R47), to those who may read that, without markup.
func TestJobPageShowsState(t *testing.T) {
	s := newSite(t)
	must(t, os.WriteFile(s.dir+"/config.yaml", []byte("timezone: UTC\nbackend: slurm\n"), 0o600))
	s.queue.farm.Jobs[1].ID = backends.ID{Job: 7} // dora's
	s.cycle()
	s.carries()
	for user, may := range map[string]bool{operator: true, dora: true, bert: false} {
		w := s.get(user, "/jobs/7")
		s.want(w, http.StatusOK)
		text := w.Body.String()
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "\x1b") {
			t.Errorf("%s: what a host says is markup: %s", user, text)
		}
		limited := "<p>Limited: disk, by rate 7: &lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e, on n1 since " + s.now.UTC().Format(time.TimeOnly) + ", until that is not needed any more.</p>"
		for _, want := range []string{limited, "<h2>Its state</h2>", "It is on n1.", `<th scope="row">stage</th><td class="text">&lt;script&gt;`, `<th scope="row">go.sh</th><td class="n">8B</td><td>program</td>`} {
			if strings.Contains(text, want) != may {
				t.Errorf("%s: %q in\n%s", user, want, text)
			}
		}
	}
	if text := s.get(dora, "/jobs/1").Body.String(); strings.Contains(text, "Its state") {
		t.Error("a job without state has some")
	}
}

// However much a job keeps, its page is bounded.
func TestStateOnPageIsBounded(t *testing.T) {
	v := &stateView{Host: "n1", Record: &backends.Record{}}
	for n := range 3 * shownState {
		v.Record.Settings = append(v.Record.Settings, backends.SettingRecord{Key: fmt.Sprint("k", n), Value: strings.Repeat("é", 2000)})
	}
	o := ownStateOf(v, time.UTC)
	if len(o.Settings) != shownState || o.More != 2*shownState || len(o.Settings[0].Value) > 140 {
		t.Errorf("%d settings, %d more, %q", len(o.Settings), o.More, o.Settings[0].Value)
	}
}
