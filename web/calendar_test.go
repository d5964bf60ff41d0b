package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// cells are edits as the page sends them: project, week, slots.
func cells(t *testing.T, since int64, all ...[3]string) string {
	t.Helper()
	var edits []desk.CellEdit
	for _, c := range all {
		edits = append(edits, desk.CellEdit{Pool: desk.Pool{Project: c[0]}, Week: c[1], Slots: c[2], Since: since})
	}
	text, err := json.Marshal(edits)
	must(t, err)
	return string(text)
}

func (s *site) revision() (n int64) {
	s.t.Helper()
	s.desk(func(ctx context.Context, d *desk.Desk) (err error) {
		n, err = d.Revision(ctx)
		return err
	})
	return n
}

// slots returns what a project's own pool has in a week.
func (s *site) slots(project, week string) (n int) {
	s.t.Helper()
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		all, err := d.Allocations(ctx, project, desk.When{Week: week, Weeks: "1"})
		for _, a := range all {
			if a.User == "" && a.Step == "" && a.Hosts == "" {
				n = a.Slots
			}
		}
		return err
	})
	return n
}

func (s *site) wantSlots(project, week string, want int) {
	s.t.Helper()
	if got := s.slots(project, week); got != want {
		s.t.Errorf("%s has %d slots in %s, want %d", project, got, week, want)
	}
}

func TestCalendarShowsTheGrid(t *testing.T) {
	s := newSite(t)
	w := s.get(anna, "/calendar")
	s.want(w, http.StatusOK, `data-week="2026-W48" data-open class="this"`, `data-week="2027-W06"`,
		`<tr data-project="chipA"><th scope="row"><span title="Managers: anna">chipA</span></th><td>3</td><td></td>`,
		`<tr><th scope="row"><span title="Managers: bert">chipB</span></th><td>2</td>`, // not hers
		`Free <small>of 6</small></th><td>1</td><td>6</td>`, "uid", "alloc set", "&#43; 2026-W48 chipA: 3 slots")
	if strings.Contains(w.Body.String(), "2027-W07") {
		t.Error("more than twelve weeks")
	}
	s.want(s.get(dora, "/calendar"), http.StatusOK, "chipA", "None is open")
	if body := s.get(dora, "/calendar").Body.String(); strings.Contains(body, "data-project") || strings.Contains(body, `id="set"`) {
		t.Error("a reader is shown forms that are refused")
	}
	s.want(s.get(anna, "/calendar?own=1"), http.StatusOK, "chipA")
	if strings.Contains(s.get(anna, "/calendar?own=1").Body.String(), `Managers: bert`) {
		t.Error("own=1 shows other projects")
	}
	s.want(s.get(dora, "/calendar?week=nonsense"), http.StatusBadRequest, "nonsense")
}

// TestCellIsChangedByAForm: without JavaScript a manager sets weeks in two steps.
func TestCellIsChangedByAForm(t *testing.T) {
	s := newSite(t)
	form := url.Values{
		"project": {"chipA"}, "from": {"2026-W49"}, "to": {"2026-W51"}, "slots": {"4"}, "since": {fmt.Sprint(s.revision())},
		"do": {"check"},
	}
	checked := s.post(anna, "/calendar/draft", form)
	s.want(checked, http.StatusOK, "&#43; 2026-W49..2026-W51 chipA: 4 slots", "3 cells changed, not saved yet", `<td>1</td><td>2</td><td>2</td><td>2</td><td>6</td>`)
	s.wantSlots("chipA", "2026-W49", 0)

	found := regexp.MustCompile(`name="cells" value="([^"]*)"`).FindStringSubmatch(checked.Body.String())
	if found == nil {
		t.Fatal("the draft has no cells")
	}
	saved := s.post(anna, "/calendar/draft?own=1", url.Values{"cells": {html.UnescapeString(found[1])}, "comment": {"tape-out"}, "do": {"save"}})
	if to := saved.Header().Get("Location"); saved.Code != http.StatusSeeOther || !strings.HasPrefix(to, "/calendar?own=1&done=") {
		t.Fatalf("%d %s\n%s", saved.Code, to, saved.Body)
	}
	s.wantSlots("chipA", "2026-W50", 4)
	s.want(s.get(anna, saved.Header().Get("Location")), http.StatusOK, "is saved.", "anna (uid", "by page", "“tape-out”", "&#43; 2026-W49..2026-W51 chipA: 4 slots")
}

// TestExcessIsRefused says by how much, and changes nothing.
func TestExcessIsRefused(t *testing.T) {
	s := newSite(t)
	form := url.Values{"cells": {cells(t, s.revision(), [3]string{"chipA", "2026-W48", "7"}, [3]string{"chipA", "2026-W49", "5"})}, "do": {"save"}}
	s.want(s.post(anna, "/calendar/draft", form), http.StatusUnprocessableEntity, "2026-W48 would have 3 slots too many: 9 of the 6", "1 fault: nothing can be saved yet",
		`<td class="over"><span class="unseen">too many: </span>-3</td><td>1</td>`)
	s.wantSlots("chipA", "2026-W48", 3)
	s.wantSlots("chipA", "2026-W49", 0)
}

// TestOthersProjectIsDenied: a manager changes what she manages alone, by whatever way.
func TestOthersProjectIsDenied(t *testing.T) {
	s := newSite(t)
	for _, user := range []string{anna, carl, dora} {
		form := url.Values{"cells": {cells(t, s.revision(), [3]string{"chipB", "2026-W49", "1"})}, "do": {"save"}}
		s.want(s.post(user, "/calendar/draft", form), http.StatusForbidden, "only its managers")
		form.Set("do", "effect")
		s.want(s.post(user, "/calendar/draft", form), http.StatusForbidden, "only its managers")
		s.want(s.post(user, "/calendar/copy", url.Values{"copy": {"2026-W48"}, "weeks": {"1"}, "project": {"chipB"}}), http.StatusOK, "only its managers")
	}
	s.wantSlots("chipB", "2026-W49", 0)
	form := url.Values{"cells": {cells(t, s.revision(), [3]string{"chipB", "2026-W49", "1"})}, "do": {"save"}}
	if w := s.post("", "/calendar/draft", form); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/calendar/draft", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := s.do(bert, r); w.Code != http.StatusForbidden {
		t.Errorf("another site's form: status %d", w.Code)
	}
	s.wantSlots("chipB", "2026-W49", 0)
}

// TestTwoEditorsConflict: what another user, or the same one in another window, changed
// meanwhile is shown, and overwritten only on demand.
func TestTwoEditorsConflict(t *testing.T) {
	s := newSite(t)
	seen := s.revision()
	s.now = s.now.Add(time.Minute)
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		_, err := d.SetAllocation(ctx, desk.Pool{Project: "chipA"}, desk.Terms{Slots: 5}, desk.When{Week: "2026-W49"}, "")
		return err
	})
	form := url.Values{"cells": {cells(t, seen, [3]string{"chipA", "2026-W49", "2"}, [3]string{"chipA", "2026-W50", "2"})}, "do": {"save"}}
	w := s.post(anna, "/calendar/draft", form)
	s.want(w, http.StatusUnprocessableEntity, "chipA in 2026-W49: operator (uid", "changed it from none to 5 on 2026-11-24 12:01", `name="theirs" value="0"`, `name="mine" value="0"`)
	s.wantSlots("chipA", "2026-W49", 5)
	s.wantSlots("chipA", "2026-W50", 0)

	theirs := url.Values{"cells": form["cells"], "theirs": {"0"}}
	s.want(s.post(anna, "/calendar/draft", theirs), http.StatusOK, "1 cell changed", "&#43; 2026-W50 chipA: 2 slots")
	mine := url.Values{"cells": form["cells"], "mine": {"0"}, "checked": {fmt.Sprint(s.revision())}, "do": {"save"}}
	if w := s.post(anna, "/calendar/draft", mine); w.Code != http.StatusSeeOther {
		t.Errorf("status %d\n%s", w.Code, w.Body)
	}
	s.wantSlots("chipA", "2026-W49", 2)
	s.wantSlots("chipA", "2026-W50", 2)

	// Another cell's edit is no conflict; nor is one with the same result.
	seen = s.revision()
	s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, seen, [3]string{"chipA", "2026-W51", "1"})}, "do": {"save"}})
	w = s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, seen, [3]string{"chipA", "2026-W52", "1"}, [3]string{"chipA", "2026-W51", "1"})}, "do": {"save"}})
	if w.Code != http.StatusSeeOther {
		t.Errorf("status %d\n%s", w.Code, w.Body)
	}
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, seen, [3]string{"chipA", "2026-W52", "3"})}, "do": {"save"}}),
		http.StatusUnprocessableEntity, "anna (uid", "changed it from none to 1")
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, 1e6, [3]string{"chipA", "2026-W52", "3"})}, "do": {"save"}}), http.StatusBadRequest, "reload the page")
}

// TestDraftIsCheckedAgainWhenItIsSaved: an edit between check and save is not overwritten.
func TestDraftIsCheckedAgainWhenItIsSaved(t *testing.T) {
	s := newSite(t)
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		pool, week := desk.Pool{Project: "chipA"}, desk.When{Week: "2026-W49"}
		edits := []desk.CellEdit{{Pool: pool, Week: "2026-W49", Slots: "2", Since: s.revision()}}
		x, err := d.Draft(ctx, edits, "", desk.When{Weeks: "1"})
		must(t, err)
		_, err = d.SetAllocation(ctx, pool, desk.Terms{Slots: 5, SLA: "velocity"}, week, "")
		must(t, err)
		if _, err := x.Apply(ctx); !desk.Temporary(err) {
			t.Errorf("%v", err)
		}
		return nil
	})
	s.wantSlots("chipA", "2026-W49", 5)
}

func TestUndoAndCopy(t *testing.T) {
	s := newSite(t)
	copied := s.post(anna, "/calendar/copy", url.Values{"copy": {"2026-W48"}, "weeks": {"2"}})
	s.want(copied, http.StatusOK, "&#43; 2026-W49..2026-W50 chipA: 3 slots", "2 cells changed")
	if strings.Contains(copied.Body.String(), "chipB: ") && strings.Contains(copied.Body.String(), "W50 chipB") {
		t.Error("another manager's project is copied")
	}
	saved := s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, s.revision(), [3]string{"chipA", "2026-W48", "-"})}, "do": {"save"}})
	s.wantSlots("chipA", "2026-W48", 0)
	_, change, _ := strings.Cut(saved.Header().Get("Location"), "done=")
	s.want(s.post(bert, "/calendar/undo", url.Values{"change": {change}}), http.StatusForbidden, "only its managers")
	if w := s.post(anna, "/calendar/undo", url.Values{"change": {change}}); w.Code != http.StatusSeeOther {
		t.Errorf("status %d\n%s", w.Code, w.Body)
	}
	s.wantSlots("chipA", "2026-W48", 3)
	s.want(s.post(anna, "/calendar/undo", url.Values{"change": {change}}), http.StatusUnprocessableEntity, "has undone it already")
}

func TestTypedCellsAreRead(t *testing.T) {
	s := newSite(t)
	w := s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, s.revision(),
		[3]string{"chipA", "2026-W49", "2x"}, [3]string{"chipA", "2026-W50", "1.5"}, [3]string{"chipA", "2026-W47", "1"}, [3]string{"chipA", "2027-W30", "1"},
		[3]string{"chipA", "next", "1"}, [3]string{"nothing", "2026-W49", "1"}, [3]string{"chipA", "2026-W51", " 1.0 "}, [3]string{"chipA", "2026-W51", "2"})}})
	s.want(w, http.StatusOK, "is no number of slots", "is no whole number of slots", "week 2026-W47 is over", "the last week that may be planned is",
		"is another week later", "unknown project", "it is given a second time", "&#43; 2026-W51 chipA: 1 slot")
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {`[{"weak":1}]`}}), http.StatusBadRequest, "unknown field")
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {`[`}}), http.StatusBadRequest)
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, 0, [3]string{hostile, "2026-W49", "1"})}}), http.StatusOK,
		`&lt;script&gt;alert(1)&lt;/script&gt;`)
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {cells(t, 0, [3]string{"chipA", "2026-W49", "1"})}, "comment": {"a\x1bb"}}), http.StatusBadRequest, "control characters")
}

// TestSplitByStepAndSLA: a pool of a step with a throughput, its row, and a cell of it that
// keeps its SLA.
func TestSplitByStepAndSLA(t *testing.T) {
	s := newSite(t)
	form := url.Values{
		"project": {"chipA"}, "step": {"drc"}, "from": {"2026-W49"}, "slots": {"2"}, "sla": {"throughput"}, "jobs": {"600"},
		"since": {fmt.Sprint(s.revision())}, "do": {"save"},
	}
	if w := s.post(anna, "/calendar/draft", form); w.Code != http.StatusSeeOther {
		t.Fatalf("status %d\n%s", w.Code, w.Body)
	}
	s.want(s.get(anna, "/calendar"), http.StatusOK, `<tr class="sum">`, `aria-label="show the pools of chipA"`)
	s.want(s.get(anna, "/calendar?split=chipA"), http.StatusOK, `data-project="chipA" data-step="drc"`, `<td class="jobs" title="2 slots for 600 jobs in the week">2</td>`)
	edit := `[{"project":"chipA","step":"drc","week":"2026-W49","slots":"3","since":` + fmt.Sprint(s.revision()) + `}]`
	s.want(s.post(anna, "/calendar/draft", url.Values{"cells": {edit}}), http.StatusOK, "~ 2026-W49 chipA:drc: 3 slots for 600 jobs a week, was 2 slots for 600 jobs a week")
	form.Set("jobs", "")
	form.Set("from", "2026-W50")
	s.want(s.post(anna, "/calendar/draft", form), http.StatusUnprocessableEntity, "throughput needs a number of jobs")
}

func TestRequestsAreAnsweredOnThePage(t *testing.T) {
	s := newSite(t)
	ask := url.Values{"project": {"chipA"}, "slots": {"5"}, "from": {"2026-W49"}, "to": {"2026-W50"}, "why": {"tapeout <b>now</b>"}}
	s.want(s.post(dora, "/calendar/requests", ask), http.StatusForbidden, "only members of its group")
	if w := s.post(carl, "/calendar/requests", ask); w.Code != http.StatusSeeOther {
		t.Fatalf("status %d\n%s", w.Code, w.Body)
	}
	s.want(s.get(anna, "/calendar"), http.StatusOK, "asks carl: tapeout &lt;b&gt;now", "fits: 5 more, 1 stay free", `value="grant"`)
	if strings.Contains(s.get(bert, "/calendar").Body.String(), `value="grant"`) {
		t.Error("another project's manager is offered to grant")
	}
	s.want(s.post(bert, "/calendar/requests/1", url.Values{"do": {"grant"}}), http.StatusForbidden)
	s.want(s.post(anna, "/calendar/requests/1", url.Values{"do": {"decline"}}), http.StatusBadRequest, "say why")
	if w := s.post(anna, "/calendar/requests/1", url.Values{"do": {"grant"}}); w.Code != http.StatusSeeOther {
		t.Fatalf("status %d\n%s", w.Code, w.Body)
	}
	s.wantSlots("chipA", "2026-W50", 5)
	s.want(s.post(anna, "/calendar/requests/9", url.Values{"do": {"grant"}}), http.StatusNotFound)
	s.want(s.post(anna, "/calendar/requests/x", url.Values{"do": {"grant"}}), http.StatusNotFound)
}

func TestPlanGoesToASpreadsheetAndBack(t *testing.T) {
	s := newSite(t)
	w := s.get(anna, "/calendar/plan.csv?weeks=2")
	s.want(w, http.StatusOK, "chipA,,,,velocity,,3,,3")
	if got := w.Header().Get("Content-Disposition"); got != `attachment; filename="plan-2026-W48.csv"` {
		t.Error(got)
	}
	if w := s.get(anna, "/calendar/plan.xlsx"); w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "PK") {
		t.Errorf("status %d", w.Code)
	}
	for _, path := range []string{"/calendar/plan.yaml", "/calendar/plan.", "/calendar/xlsx", "/calendar/..%2fplan.csv"} {
		if w := s.get(anna, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	table := "project\t2026-W49\t2026-W50\nchipA\t1\t2\n"
	s.want(s.post(anna, "/calendar/import", url.Values{"table": {table}}), http.StatusOK, "&#43; 2026-W49 chipA: 1 slot", "&#43; 2026-W50 chipA: 2 slots", "2 cells changed")
	s.want(s.post(anna, "/calendar/import", url.Values{"table": {strings.ReplaceAll(table, "\t2\n", "\tx\n")}}), http.StatusUnprocessableEntity, "cell C2", "is no number of slots")
	s.want(s.post(anna, "/calendar/import", url.Values{}), http.StatusBadRequest, "choose a file")
}

// TestEffectOfADraftIsSimulated with the jobs that the ledger recorded: who gives way is
// named before anything is saved.
func TestEffectOfADraftIsSimulated(t *testing.T) {
	s := newSite(t)
	form := url.Values{"cells": {cells(t, s.revision(), [3]string{"chipA", "2026-W48", "6"}, [3]string{"chipB", "2026-W48", "0"})}, "do": {"effect"}}
	s.want(s.post(operator, "/calendar/draft", form), http.StatusBadRequest, "has recorded no jobs in the last 1 week")

	name, _ := engineer(t)
	begin := s.now.Add(-20 * time.Hour)
	for i := range 40 {
		project := []string{"chipA", "chipB"}[i%2]
		at := begin.Add(time.Duration(i) * 10 * time.Minute)
		s.queue.farm.Ended = append(s.queue.farm.Ended, backends.Job{
			ID: backends.ID{Job: int64(100 + i)}, User: name, Project: project, State: backends.Done, Slots: 2,
			Submitted: at, Started: at, Ended: at.Add(2 * time.Hour), Hosts: []backends.Placement{{Host: "n1", Slots: 2}},
		})
	}
	s.cycle()
	w := s.post(operator, "/calendar/draft", form)
	s.want(w, http.StatusOK, "1 project gives way", "<strong>chipB</strong> (20 jobs): ", "40 jobs that the ledger recorded, on 8 slots", "2 cells changed, not saved yet")
	s.wantSlots("chipA", "2026-W48", 3)
}

// TestCalendarOfManyProjects stays small.
func TestCalendarOfManyProjects(t *testing.T) {
	s := newSite(t)
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		group := "group"
		for i := range 198 {
			if err := d.AddProject(ctx, desk.ProjectChange{Name: fmt.Sprintf("project-%03d", i), Group: &group, Managers: &[]string{anna}}); err != nil {
				return err
			}
		}
		return nil
	})
	body := s.get(anna, "/calendar?split=all").Body.Bytes()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(body)
	must(t, err)
	must(t, z.Close())
	if rows := bytes.Count(body, []byte("data-project=\"project-")); rows != 198 || packed.Len() > 100_000 {
		t.Errorf("%d rows in %d bytes, %d compressed", rows, len(body), packed.Len())
	}
}
