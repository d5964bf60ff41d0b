package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// pba explain says how far a job is and where its state is, by an allotd of this machine, where the
// queue keeps none of that; it is the same without.
func TestExplainShowsState(t *testing.T) {
	q := heavyQueue()
	y := newTestCLI(t, q)
	plain := func(line string) string {
		t.Helper()
		code, out, errs := y.run(line)
		if code != 0 || errs != "" {
			t.Errorf("%s: exit code %d, %s", line, code, errs)
		}
		return out
	}
	without := plain("explain 1 20")
	l, err := net.Listen("unix", y.config.Web.SocketIn(y.config.Paths.Runtime))
	if err != nil {
		t.Fatal(err)
	}
	answer, asked := "", 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/api/v1/states/miniq/1" || answer == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, answer)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	if got := plain("explain 1 20"); got != without || asked != 2 {
		t.Errorf("no host has anything: asked %d times, %s", asked, got)
	}
	answer = `{"places":[{"host":"n1","run":2,"status":"lost"},{"host":"n2","run":1,"status":"here"}],"moving":true,"why":"n1 is lost"}`
	if got := plain("explain 1 20"); strings.Count(got, "Its state is on") != 1 || !strings.Contains(got, "\nIts state is on n1, run 2, which is lost; more of it is on its way there.\n") || strings.Contains(got, "Progress") {
		t.Errorf("it can't be read: %s", got)
	}
	answer = `{"places":[{"host":"n1\u001b","run":2,"status":"here"}],"record":{"settings":[{"key":"phase","value":"1"},{"key":"progress","value":"40 half\n\u001b[31m"}]}}`
	if got := plain("explain 1 20"); !strings.Contains(got, "\nProgress: 40% half; \\x1b[31m\nIts state is on n1\\x1b, run 2.\n") {
		t.Errorf("got %q", got)
	}
	answer = `{"record":{"history":[
		{"at":"2026-11-29T03:21:13Z","event":"limited","detail":"disk, by rate 7: lost","host":"n1","run":1},{"event":"started","host":"n2","run":2},
		{"at":"2026-11-29T03:21:13Z","event":"limited","detail":"CPU, by weight 20: a","host":"n1"},{"event":"unlimited","detail":"CPU, by weight, since then","host":"n1"},
		{"at":"2026-11-29T03:22:13Z","event":"limited","detail":"disk, by rate 7: slurm 1\u001b waits","host":"n1"}]}}`
	if got := plain("explain 1 20"); strings.Count(got, "Limited:") != 1 || !strings.Contains(got, `Limited: disk, by rate 7: slurm 1\x1b waits, on n1 since `) {
		t.Errorf("got %q", got)
	}
	answer = `{"places":[{"host":"n1\u001b","run":2,"status":"here"}],"record":{"settings":[{"key":"phase","value":"1"},{"key":"progress","value":"40 half\n\u001b[31m"}]}}`
	var story desk.Story
	if err := json.Unmarshal([]byte(plain("explain --json 1")), &story); err != nil || !strings.HasPrefix(story.Progress, "40% half") || !strings.HasSuffix(story.KeptOn, "run 2") {
		t.Errorf("%+v, %v", story, err)
	}
	asked = 0
	y.run("explain --json --past 1")
	y.Identify = func(configfile.Config) (desk.Caller, error) { return desk.Caller{UID: 1000, Writes: true}, nil } // by sudo
	plain("explain 1 20")
	y.Identify = func(configfile.Config) (desk.Caller, error) { return desk.Caller{}, nil }
	q.Extra.Set = func(context.Context, backends.ID, string, string) error { return nil }
	if got := plain("explain 1 20"); got != without || asked != 0 {
		t.Errorf("allotd is asked %d times", asked)
	}
}
