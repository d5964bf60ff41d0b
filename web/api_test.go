package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// call sends a user's request to the API, with a body unless it is "".
func (s *site) call(user, method, route, body string, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, apiPath+route, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.do(user, r)
}

// TestAPIAnswersWhatPbaPrints: the same as the desk's types in JSON.
func TestAPIAnswersWhatPbaPrints(t *testing.T) {
	s := newSite(t)
	if w := s.call(carl, http.MethodPost, "/requests", `{"project": "chipA", "slots": 4, "why": "tape-out"}`); w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	for route, ask := range map[string]func(context.Context, *desk.Desk) (any, error){
		"/plan": func(ctx context.Context, d *desk.Desk) (any, error) {
			return d.Grid(ctx, desk.GridQuery{}, desk.When{})
		},
		"/plan?weeks=2&by=step,hosts": func(ctx context.Context, d *desk.Desk) (any, error) {
			return d.Grid(ctx, desk.GridQuery{ByStep: true, ByHosts: true}, desk.When{Weeks: "2"})
		},
		"/log":                         func(ctx context.Context, d *desk.Desk) (any, error) { return d.Changes(ctx, desk.LogQuery{Limit: 50}) },
		"/requests":                    func(ctx context.Context, d *desk.Desk) (any, error) { return d.Requests(ctx, "", false) },
		"/status":                      func(ctx context.Context, d *desk.Desk) (any, error) { return d.Status(ctx) },
		"/jobs/1":                      func(ctx context.Context, d *desk.Desk) (any, error) { return d.Explain(ctx, backends.ID{Job: 1}) },
		"/reports/usage?week=2026-W48": func(ctx context.Context, d *desk.Desk) (any, error) { return d.Usage(ctx, week48(d)) },
		"/reports/usage-by?week=2026-W48&by=project": func(ctx context.Context, d *desk.Desk) (any, error) {
			return d.UsageBy(ctx, week48(d), []desk.By{"project"})
		},
		"/reports/waits?week=2026-W48":   func(ctx context.Context, d *desk.Desk) (any, error) { return d.Waits(ctx, week48(d), nil) },
		"/reports/victims?week=2026-W48": func(ctx context.Context, d *desk.Desk) (any, error) { return d.Victims(ctx, week48(d), nil) },
	} {
		d, err := s.Desks.Open(t.Context(), s.accounts.known[anna].Visitor)
		must(t, err)
		want, err := ask(t.Context(), d)
		must(t, err)
		d.Close()
		text, err := json.Marshal(want)
		must(t, err)
		w := s.call(anna, http.MethodGet, route, "")
		s.want(w, http.StatusOK)
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: %s", route, got)
		}
		if diff := cmp.Diff(decoded(t, text), decoded(t, w.Body.Bytes())); diff != "" {
			t.Errorf("%s differs (-desk +API):\n%s", route, diff)
		}
	}
}

func week48(d *desk.Desk) desk.Period {
	p, err := d.Period("", desk.Span{Week: "2026-W48"})
	if err != nil {
		panic(err)
	}
	return p
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	must(t, json.Unmarshal(text, &v))
	return v
}

func TestAPIEditsAreMadeToThePlanThatWasRead(t *testing.T) {
	s := newSite(t)
	read := s.call(anna, http.MethodGet, "/plan", "").Header().Get("ETag")
	if !regexp.MustCompile(`^"plan-[0-9]+"$`).MatchString(read) {
		t.Fatalf("ETag %q", read)
	}
	if w := s.call(anna, http.MethodGet, "/plan", "", "If-None-Match", "\"other\", "+read); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.want(s.call(anna, http.MethodPut, "/plan/chipA", `{"slots": 2, "weeks": "2", "comment": "less"}`), http.StatusUnprocessableEntity, "If-Match")
	s.want(s.call(anna, http.MethodPut, "/plan/chipA", `{"slots": 2}`, "If-Match", "x"), http.StatusBadRequest, "want * or an ETag")

	w := s.call(anna, http.MethodPut, "/plan/chipA", `{"slots": 2, "weeks": "2", "comment": "less"}`, "If-Match", read)
	s.want(w, http.StatusOK, `["2026-W48","2026-W49"]`)
	if now := w.Header().Get("ETag"); now == read || now == "" {
		t.Errorf("ETag %q after an edit of %q", now, read)
	}
	other := s.call(bert, http.MethodPut, "/plan/chipB", `{"slots": 1}`, "If-Match", read) // bert has not seen anna's edit, which is of other cells
	s.want(other, http.StatusOK)
	if tag := other.Header().Get("ETag"); tag != "" {
		t.Errorf("bert has not read anna's edit, and is given the plan's tag %s", tag)
	}
	lost := s.call(operator, http.MethodPut, "/plan/chipB", `{"slots": 2, "weeks": "2"}`, "If-Match", read)
	s.want(lost, http.StatusPreconditionFailed, "the plan has changed: chipB of 2026-W48: bert (uid 5002) by page changed it from 2 to 1 on 2026-11-24 12:00: nothing is changed; read the plan again")
	s.want(s.call(bert, http.MethodGet, "/plan?project=chipB&weeks=2", ""), http.StatusOK, `"slots":[1,0]`)
	s.want(s.call(bert, http.MethodPut, "/plan/chipB", `{"slots": 1}`, "If-Match", `"plan-9999"`), http.StatusPreconditionFailed, "such as before a backup was restored")
	s.want(s.call(anna, http.MethodPost, "/plan/copy", `{"week": "2026-W48", "weeks": "2026-W50", "projects": ["chipA"]}`, "If-Match", read), http.StatusPreconditionFailed, "it is at revision")
	if got := lost.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("an error is %s", got)
	}
	s.want(s.call(bert, http.MethodPut, "/plan/chipB", `{"slots": 1}`, "If-Match", "*"), http.StatusOK)

	s.want(s.call(anna, http.MethodPost, "/plan/copy", `{"week": "2026-W48", "weeks": "2026-W50", "projects": ["chipA"], "dry_run": true}`, "If-Match", "*"), http.StatusOK, `"change":0`, "2026-W50")
	s.want(s.call(anna, http.MethodPost, "/plan/copy", `{"week": "2026-W48", "weeks": "2026-W50", "projects": ["chipA"]}`, "If-Match", "*"), http.StatusOK, "2026-W50")
	s.want(s.call(anna, http.MethodPost, "/plan/undo", `{"comment": "no"}`), http.StatusOK, "2026-W50")
	s.want(s.call(anna, http.MethodGet, "/log?project=chipA", ""), http.StatusOK, `"comment":"less"`, `"undone_by"`, "by page")
}

func TestAPIRolesAreThoseOfPba(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		user, method, route, body string
		status                    int
		text                      string
	}{
		{bert, "PUT", "/plan/chipA", `{"slots": 1}`, 403, "only its managers"},
		{dora, "PUT", "/plan/chipA", `{"slots": 1}`, 403, "only its managers"},
		{dora, "POST", "/requests", `{"project": "chipA", "slots": 4, "why": "x"}`, 403, "only members of its group"},
		{anna, "PUT", "/plan/chipA", `{"slots": 100}`, 422, "don't fit into 2026-W48"},
		{anna, "PUT", "/plan/nothing", `{"slots": 1}`, 404, "unknown project"},
		{anna, "PUT", "/plan/..%2fchipB", `{"slots": 1}`, 404, "unknown project"},
		{anna, "PUT", "/plan/chipA", `{"slots": -1}`, 422, "expected number"},
		{anna, "PUT", "/plan/chipA", `{"slots": 1, "slot": 2}`, 422, "unexpected property"},
		{anna, "PUT", "/plan/chipA", `{"slots": 1, "weeks": "2020-W01"}`, 422, "over"},
		{anna, "PUT", "/plan/chipA", `{`, 400, ""},
		{anna, "GET", "/plan?week=never", "", 400, "--week"},
		{anna, "GET", "/plan?by=moon", "", 422, "by"},
		{anna, "GET", "/log?limit=100000", "", 422, "limit"},
		{anna, "GET", "/jobs/-1", "", 400, "-1"},
		{anna, "GET", "/jobs/smi", "", 404, "job smi: no job has this name (did you mean sim?)"},
		{anna, "GET", "/jobs/99", "", 404, "neither the last cycle nor the ledger knows it"},
		{anna, "GET", "/reports/usage?week=last&since=7d", "", 400, "exclude"},
		{anna, "GET", "/nothing", "", 404, "there is no such address"},
		{anna, "POST", "/requests/7/grant", "", 404, "alloc requests"},
		{"", "GET", "/plan", "", 401, "pba login"},
	} {
		w := s.call(test.user, test.method, test.route, test.body, "If-Match", "*")
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.text) || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %s: %d %s %s, want %d %q", test.user, test.method, test.route, w.Code, w.Header().Get("Content-Type"), w.Body, test.status, test.text)
		}
	}
	s.want(s.call(bert, http.MethodGet, "/plan?project=chipA", ""), http.StatusOK, `"slots":[3,`) // nothing has changed
}

func TestAPIRequests(t *testing.T) {
	s := newSite(t)
	w := s.call(carl, http.MethodPost, "/requests", `{"project": "chipA", "slots": 4, "why": "tape-out"}`)
	s.want(w, http.StatusOK, `"state":"open"`, `"may_answer":false`)
	var made struct{ ID int64 }
	must(t, json.Unmarshal(w.Body.Bytes(), &made))
	s.call(carl, http.MethodPost, "/requests", `{"project": "chipA", "slots": 4, "week": "2026-W49", "why": "tape-out"}`)
	s.call(carl, http.MethodPost, "/requests", `{"project": "chipA", "slots": 4, "week": "2026-W50", "why": "tape-out"}`)

	first := s.call(anna, http.MethodGet, "/requests?limit=2", "")
	s.want(first, http.StatusOK, `"may_answer":true`)
	link := regexp.MustCompile(`^</api/v1(/requests\?after=2&limit=2)>; rel="next"$`).FindStringSubmatch(first.Header().Get("Link"))
	if link == nil {
		t.Fatalf("Link %q", first.Header().Get("Link"))
	}
	rest := s.call(anna, http.MethodGet, link[1], "")
	s.want(rest, http.StatusOK, `"id":3`)
	if rest.Header().Get("Link") != "" {
		t.Error("the last part names another")
	}
	s.want(s.call(bert, http.MethodPost, "/requests/1/grant", ""), http.StatusForbidden)
	s.want(s.call(anna, http.MethodPost, "/requests/1/grant", `{"comment": "yes"}`), http.StatusOK, `"state":"granted"`)
	s.want(s.call(anna, http.MethodPost, "/requests/2/decline", `{"why": "no room"}`), http.StatusOK, `"state":"declined"`)
	s.want(s.call(bert, http.MethodPost, "/requests/3/withdraw", ""), http.StatusForbidden)
	s.want(s.call(carl, http.MethodPost, "/requests/3/withdraw", ""), http.StatusOK, `"state":"withdrawn"`)

	link = regexp.MustCompile(`^</api/v1(/log\?before=[0-9]+&limit=1)>; rel="next"$`).FindStringSubmatch(s.call(anna, http.MethodGet, "/log?limit=1", "").Header().Get("Link"))
	if link == nil {
		t.Fatal("the log has one part")
	}
	s.want(s.call(anna, http.MethodGet, link[1], ""), http.StatusOK, "chip")
}

// TestAPIIsDescribed: in OpenAPI 3.1, with each route, from the types that are answered.
func TestAPIIsDescribed(t *testing.T) {
	s := newSite(t)
	w := s.call(anna, http.MethodGet, "/openapi.json", "")
	s.want(w, http.StatusOK)
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]map[string]any }
		}
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &doc))
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	for _, route := range []string{"/plan", "/plan/{project}", "/plan/copy", "/plan/undo", "/log", "/requests", "/requests/{id}/grant", "/requests/{id}/decline", "/requests/{id}/withdraw", "/status", "/jobs/{id}", "/reports/usage", "/reports/waits", "/reports/victims"} {
		if doc.Paths[apiPath+route] == nil {
			t.Errorf("%s is not described", route)
		}
	}
	status := doc.Components.Schemas["DeskStatus"].Properties
	for i := range reflect.TypeFor[desk.Status]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[desk.Status]().Field(i).Tag.Get("json"), ",")
		if status[name] == nil {
			t.Errorf("the status has no %s", name)
		}
	}
	if got := status["week"]["type"]; got != "string" {
		t.Errorf("a week is a %v", got)
	}
	if strings.Contains(w.Body.String(), "https://unpkg") {
		t.Error("it names another host")
	}
	if os.Getenv("ALLOTMENT_SHOW") != "" {
		t.Log(w.Body)
	}
}
