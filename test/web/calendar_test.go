package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// planFourWeeks: a manager chooses four weeks of a project, types a number once, saves, and
// undoes it.
func planFourWeeks(t *testing.T, s *site) {
	w := s.open(t)
	w.visit("/calendar")
	weeks := w.weeks()
	w.click(cell(planned, 1))
	for range 3 {
		w.keys(kb.ArrowRight, chromedp.ModifierShift)
	}
	w.keys("12" + kb.Enter)
	w.untilText("#draft", "4 cells changed, not saved yet")
	w.untilText(fmt.Sprintf("#grid tr[data-project=%s] .total", planned), "48")
	s.wantSlots(t, planned, weeks[1], 0)
	w.screenshot("calendar.png")
	w.click("#draft button[value=effect]")
	w.untilText("#draft .effect", "under the plan with the draft and without")
	w.click("#draft button[value=save]")
	w.untilText("#message", "is saved")
	w.wantCells(planned, "", "12", "12", "12", "12", "")
	s.wantSlots(t, planned, weeks[1], 12)
	s.wantSlots(t, planned, weeks[4], 12)
	w.untilText("#log", "by page")

	w.click("#message button")
	w.wantCells(planned, "", "", "", "", "", "")
	s.wantSlots(t, planned, weeks[1], 0)
}

// tooMuchIsRefused says by how much, before it is saved, and where.
func tooMuchIsRefused(t *testing.T, s *site) {
	w := s.open(t)
	w.visit("/calendar")
	weeks := w.weeks()
	w.drag(cell(planned, 1), cell(planned, 2))
	w.keys("300" + kb.Enter)
	w.untilText("#draft", weeks[2]+" would have ")
	w.untilText("#draft", " slots too many")
	w.until("what is left to be less than nothing in two weeks", "document.querySelectorAll('#heads .free .over').length === 2")
	if !evaluate[bool](w, "document.querySelector('#draft button[value=save]').disabled") {
		t.Error("too many slots can be saved")
	}
	w.keys("z", chromedp.ModifierCtrl)
	w.until("no draft", "!document.querySelector('#draft form')")
	w.wantCells(planned, "", "", "", "")
	s.wantSlots(t, planned, weeks[1], 0)
}

// takenBackMeanwhile takes a draft back just before the server's word on it comes.
func takenBackMeanwhile(t *testing.T, s *site) {
	w := s.open(t)
	w.visit("/calendar")
	evaluate[bool](w, `{
		const fetched = window.fetch;
		window.fetch = (...asked) => fetched(...asked).then((answer) => new Promise((give) => {
			window.give = () => {
				window.fetch = (...again) => fetched(...again).then((a) => { window.answers = (window.answers ?? 0) + 1; return a; });
				give(answer);
			};
		}));
		true
	}`)
	w.click(cell(planned, 1))
	w.keys("5" + kb.Enter)
	w.until("the server's word on the draft", "!!window.give")
	evaluate[bool](w, `document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "z", ctrlKey: true, bubbles: true, cancelable: true})); window.give(); true`)
	w.until("the server's word on what is left", "window.answers > 0 && !document.querySelector('#draft.busy')")
	w.until("no draft", "!document.querySelector('#draft form')")
	w.wantCells(planned, "", "", "", "")
}

// twoEditors: the second of two who changed the same cell sees what the first one did, and
// chooses.
func twoEditors(t *testing.T, s *site) {
	one, two := s.open(t), s.open(t)
	one.visit("/calendar")
	week := one.weeks()[2]
	two.visit("/calendar")
	one.click(cell(contested, 2))
	one.keys("5" + kb.Enter)
	one.untilText("#draft", "1 cell changed, not saved yet")

	two.click(cell(contested, 2))
	two.keys("7" + kb.Enter)
	two.untilText("#draft", "1 cell changed, not saved yet")
	two.click("#draft button[value=save]")
	two.untilText("#message", "is saved")

	one.untilText("#draft", "changed it from none to 7") // it was sent
	if !evaluate[bool](one, "document.querySelector('#draft button[value=save]').disabled") {
		t.Error("the edit of another user can be overwritten unseen")
	}
	s.wantSlots(t, contested, week, 7)
	one.click("#draft button[name=mine]")
	one.untilText("#draft", "1 cell changed, not saved yet")
	one.click("#draft button[value=save]")
	one.untilText("#message", "is saved")
	s.wantSlots(t, contested, week, 5)
	two.wantCells(contested, "", "", "5", "")
}

// onAPhone: a finger chooses a cell, and touches it again to edit it.
func onAPhone(t *testing.T, s *site) {
	w := s.open(t)
	w.size(phone)
	w.visit("/calendar")
	week := w.weeks()[1]
	for range 2 {
		w.do("touch the cell", chromedp.Tap(chromedp.CSS(cell(touched, 1)), chromedp.NodeVisible))
	}
	w.until("the cell to be edited", "document.activeElement.tagName === 'INPUT'")
	w.keys("4" + kb.Enter)
	w.untilText("#draft", "1 cell changed, not saved yet")
	w.fits("/calendar with a draft", phone)
	w.do("touch the button that saves", chromedp.Tap(chromedp.CSS("#draft button[value=save]"), chromedp.NodeVisible))
	w.untilText("#message", "is saved")
	s.wantSlots(t, touched, week, 4)
}

// withoutScripts: where scripts are forbidden the plan is read, cells are changed by a form,
// too many slots refused, and a change undone.
func withoutScripts(t *testing.T, s *site) {
	w := s.open(t)
	w.expect(http.StatusUnprocessableEntity)
	w.noScript()
	w.visit("/calendar")
	w.untilText("#grid tbody", "chip07")
	weeks := w.weeks()

	w.setByForm(unscripted, weeks[1], weeks[4], "12")
	w.untilText("#draft", "4 cells changed, not saved yet")
	s.wantSlots(t, unscripted, weeks[1], 0)
	w.click("#draft button[value=save]")
	w.untilText("#message", "is saved")
	w.wantCells(unscripted, "", "12", "12", "12", "12", "")
	s.wantSlots(t, unscripted, weeks[4], 12)

	w.setByForm(unscripted, weeks[2], "", "1000")
	w.untilText("#draft", "slots too many")
	if !evaluate[bool](w, "document.querySelector('#draft button[value=save]').disabled") {
		t.Error("too many slots can be saved")
	}
	s.wantSlots(t, unscripted, weeks[2], 12)

	w.visit("/calendar")
	w.click("#log li:first-child form button")
	w.untilText("#message", "is saved")
	w.wantCells(unscripted, "", "", "", "", "", "")
	s.wantSlots(t, unscripted, weeks[1], 0)
}

// weeks returns the weeks that the calendar shows.
func (w *window) weeks() []string {
	w.t.Helper()
	all := evaluate[[]string](w, "[...document.querySelectorAll('#grid [data-week]')].map(e => e.dataset.week)")
	if len(all) != 12 {
		w.t.Fatalf("the calendar shows %q, want twelve weeks", all)
	}
	return all
}

// setByForm fills in the form that sets slots, and sends it.
func (w *window) setByForm(project, from, to, slots string) {
	w.t.Helper()
	if !evaluate[bool](w, "document.querySelector('#set').open") {
		w.click("#set > summary")
	}
	for _, field := range [][2]string{{"#set-project", project}, {"#set-from", from}, {"#set-to", to}, {"#set-slots", slots}} {
		if field[1] != "" { // typed, as into the lists, too
			w.do("fill in "+field[0], chromedp.SendKeys(chromedp.CSS(field[0]), field[1], chromedp.NodeVisible))
		}
	}
	w.click("#set button")
}

// cell is a selector of a project's cell.
func cell(project string, week int) string {
	return fmt.Sprintf("#grid tr[data-project=%s] > td:nth-child(%d)", project, week+2)
}

// wantCells waits until a project's first cells are these.
func (w *window) wantCells(project string, cells ...string) {
	w.t.Helper()
	text, err := json.Marshal(cells)
	if err != nil {
		w.t.Fatal(err)
	}
	w.until(fmt.Sprintf("%s to have %q", project, cells), fmt.Sprintf("JSON.stringify([...document.querySelector('#grid tr[data-project=%s]').cells].slice(1, %d).map(c => c.innerText)) === %q", project, len(cells)+1, text))
}

// wantSlots fails unless the plan itself has these slots for a project in a week.
func (s *site) wantSlots(t *testing.T, project, week string, want int) {
	t.Helper()
	var planned []struct {
		Project, Week string
		Slots         int
	}
	out := s.pba(t, "alloc", "list", "--project", project, "--json")
	if err := json.Unmarshal([]byte(out), &planned); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := 0
	for _, p := range planned {
		if strings.EqualFold(p.Week, week) {
			got += p.Slots
		}
	}
	if got != want {
		t.Errorf("%s has %d slots in %s, want %d:\n%s", project, got, week, want, out)
	}
}
