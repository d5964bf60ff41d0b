package web

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/nvml"
)

// TestPage does what users do, each case in a window of its own, on one farm.
func TestPage(t *testing.T) {
	s := startSite(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *site)
	}{
		{"sign in", signIn},
		{"farm is live", farmIsLive},
		{"job is explained", jobIsExplained},
		{"hosts are heard", hostsAreHeard},
		{"four weeks are planned, and undone", planFourWeeks},
		{"too much is refused", tooMuchIsRefused},
		{"a draft is taken back meanwhile", takenBackMeanwhile},
		{"two editors", twoEditors},
		{"keyboard alone", keyboardAlone},
		{"on a phone", onAPhone},
		{"without scripts", withoutScripts},
		{"looks", looks},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

// signIn: a link opens the page once, and leaves no secret where a script or a reader of
// the address line would find it.
func signIn(t *testing.T, s *site) {
	w := s.openWindow(t)
	w.expect(http.StatusUnauthorized)
	w.expect(http.StatusForbidden)
	w.visit("/calendar")
	w.untilText("main", "pba login")
	link := s.link(t)
	w.do("open the link", chromedp.Navigate(link))
	w.untilText(".who", "Sign out")
	if seen := evaluate[string](w, "location.href + document.cookie + document.referrer + JSON.stringify(localStorage)"); strings.Contains(seen, "token") || strings.Contains(seen, "allotment=") {
		t.Errorf("scripts find a secret: %s", seen)
	}
	w.visit("/calendar")
	w.untilText("main tbody", "chip07")

	other := s.openWindow(t)
	other.expect(http.StatusForbidden)
	other.expect(http.StatusUnauthorized)
	other.do("open the link again", chromedp.Navigate(link))
	other.untilText("main", "this link was used before")
	other.visit("/calendar")
	other.untilText("main", "pba login")

	w.click(".who button")
	w.untilText("main", "pba login")
	w.visit("/calendar")
	w.untilText("main", "pba login")
}

// farmIsLive: what a job changes is seen on a page that stays open.
func farmIsLive(t *testing.T, s *site) {
	w := s.open(t)
	w.visit("/farm")
	evaluate[bool](w, "window.stays = true")
	w.untilText("#farm", waker)
	used := `[...document.querySelectorAll('#farm tbody tr')].find(r => r.cells[0].innerText === '` + waker + `').cells[3].innerText`
	w.until("no slot in use", used+" === '0'")
	s.submit(t, waker, "sim", 3)
	w.until("3 slots in use", used+" === '3'")
	if !evaluate[bool](w, "window.stays === true") {
		t.Error("the page was loaded again")
	}
}

// jobIsExplained: a user asks why a job runs, or does not.
func jobIsExplained(t *testing.T, s *site) {
	id := s.submit(t, filler, "lint", 1)
	s.cycle(t)
	w := s.open(t)
	w.visit("/jobs")
	w.click("#id")
	w.keys(fmt.Sprint(id) + "\r")
	w.untilText("#job", filler)
	w.untilText("#job", "no allocation in force matches it")
}

// hostsAreHeard: the agent of this machine is started, and its host, its GPUs and its jobs are
// shown on a page that is open, and what a job uses of them in the lists of commands.
func hostsAreHeard(t *testing.T, s *site) {
	file := filepath.Join(t.TempDir(), "pid")
	id, err := farm.Submitted(s.run(t, "asub", "-P", "dft", "-J", "measured", "-o", "/dev/null", "echo $$ >"+file+".new; mv "+file+".new "+file+"; exec sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	w := s.open(t)
	w.visit("/hosts")
	w.untilText("#agents", "No agent is heard")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var pid string
	if err := await.File(ctx, file, func(text string) bool { pid = strings.TrimSpace(text); return pid != "" }); err != nil {
		t.Fatal(err)
	}
	library := nvml.Build(t)
	library.Says(t, "fine\n0 "+pid+" 3221225472 30\n")
	agent := s.Background(context.Background(), "ahostd")
	agent.Env = append(agent.Env, library.Env...)
	farm.StartForTest(t, agent)
	w.untilText("#agents", "here")
	w.untilText("#agents", "0.81 of 2")
	w.click("#agents tbody a")
	w.untilText("#agent", "What its jobs use")
	w.untilText("#agent tbody", "250 W")
	w.untilText("#agent", "miniq")
	w.until("what jobs use of GPUs", `[...document.querySelectorAll('#agent tr')].some(row => row.innerText.endsWith('\t0.00\t0B'))`)
	query := []string{"-o", "jobid gpuuse gpumem delimiter=','", "-noheader", fmt.Sprint(id)}
	want, got := fmt.Sprintf("%d,0.30,3 G", id), ""
	if !await.Every(ctx, 200*time.Millisecond, func() bool { got = strings.TrimSpace(s.run(t, "ajobs", query...)); return got == want }) {
		t.Errorf("ajobs: %q, want %q", got, want)
	}
	if got := strings.Fields(s.run(t, "ahosts", "--agents", "-o", "gpus,gpuuse")); !slices.Equal(got, []string{"GPUS", "GPUUSE", "2", "0.81"}) {
		t.Errorf("ahosts: %q", got)
	}
}

// keyboardAlone: a user without a mouse reaches each page, and sees where the focus is.
func keyboardAlone(t *testing.T, s *site) {
	w := s.open(t)
	w.visit("/farm")
	w.keys(kb.Tab + kb.Enter)
	w.until("the focus in the content", "document.activeElement.id === 'main'")
	w.visit("/farm")
	for _, page := range []string{"Calendar", "Jobs", "Hosts", "Reports"} {
		w.tabTo(fmt.Sprintf("nav a with %s", page), fmt.Sprintf("document.activeElement.closest('nav') && document.activeElement.innerText === %q", page))
		w.keys(kb.Enter)
		w.until("the page "+page, fmt.Sprintf("document.readyState === 'complete' && document.querySelector('nav [aria-current]').innerText === %q", page))
	}

	w.visit("/calendar")
	week := w.weeks()[1]
	w.tabTo("the plan", "document.activeElement.tagName === 'TD'")
	for !evaluate[bool](w, fmt.Sprintf("document.activeElement.parentElement.dataset.project === %q", typed)) {
		before := evaluate[int](w, "document.activeElement.parentElement.rowIndex")
		w.keys(kb.ArrowDown)
		if evaluate[int](w, "document.activeElement.parentElement.rowIndex") != before+1 {
			t.Fatal("ArrowDown does not move to the next row")
		}
	}
	w.keys(kb.ArrowRight + "3" + kb.Enter)
	w.untilText("#draft", "1 cell changed, not saved yet")
	w.tabTo("the button that saves", "document.activeElement.value === 'save'")
	w.keys(kb.Enter)
	w.untilText("#message", "is saved")
	s.wantSlots(t, typed, week, 3)
}
