package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// mostPages bounds the pages that looks follows links to.
const mostPages = 30

// looks checks each page that a link leads to: a page of a kind once.
func looks(t *testing.T, s *site) {
	axe := loadAxe(t)
	w := s.open(t)
	w.expect(http.StatusNotFound)
	seen := map[string]bool{}
	for todo := []string{"/farm", "/nothing"}; len(todo) > 0; todo = todo[1:] {
		path := todo[0]
		kind := kindOf(t, path)
		if seen[kind] || len(seen) == mostPages {
			continue
		}
		seen[kind] = true
		w.size(phone)
		w.visit(path)
		w.fits(path, phone)
		w.size(desk)
		w.visit(path)
		w.fits(path, desk)
		for _, scheme := range []string{"dark", "light"} {
			w.scheme(scheme)
			if axe != "" {
				w.accessible(axe, path+" in "+scheme)
			}
		}
		if text := evaluate[string](w, "document.body.innerText"); strings.Contains(text, `\u`) || strings.Contains(text, `\x`) {
			t.Errorf("%s shows an escape: no user wrote one:\n%s", path, text)
		}
		todo = append(todo, evaluate[[]string](w, `[...document.querySelectorAll('a[href^="/"]:not([href="/"], [download])')].map(a => a.getAttribute('href'))`)...)
	}
	for _, path := range []string{"/farm", "/calendar", "/jobs", "/reports"} {
		if !seen[path] {
			t.Errorf("no link leads to %s", path)
		}
	}
	t.Logf("%d pages: %q", len(seen), sortedKeys(seen))

	w.visit("/farm")
	w.screenshot("farm.png")
	w.scheme("dark")
	w.visit("/reports")
	w.screenshot("report-dark.png")
	w.size(phone)
	w.visit("/calendar")
	w.screenshot("calendar-phone.png")
}

// kindOf returns an address without what differs between pages of a kind.
func kindOf(t *testing.T, path string) string {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	kind := regexp.MustCompile(`[0-9]+`).ReplaceAllString(u.Path, "N")
	if report := u.Query().Get("kind"); report != "" {
		kind += " " + report
	}
	return kind
}

// fits fails if the page can be scrolled sideways.
func (w *window) fits(path string, s size) {
	w.t.Helper()
	seen := evaluate[struct {
		Width, Inner int64
		Beyond       []string
	}](w, `({
		Width: document.scrollingElement.scrollWidth, Inner: innerWidth,
		Beyond: [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length && !e.closest('.wide, .skip, .unseen') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 200)),
	})`)
	if seen.Inner != s.width || seen.Width > seen.Inner || len(seen.Beyond) > 0 {
		w.t.Errorf("%s: %d px wide in a window of %d px; cut off: %s", path, seen.Width, seen.Inner, strings.Join(seen.Beyond, "\n"))
	}
}

// loadAxe returns axe-core, which finds what people with disabilities can't use; "" where
// npm can't install it.
func loadAxe(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Log("skip: npm is not installed: axe-core does not check the pages")
		return ""
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Logf("skip: npm ci: %v: axe-core does not check the pages:\n%s", err, out)
		return ""
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accessible fails if axe-core finds a fault that is serious or critical.
func (w *window) accessible(axe, where string) {
	w.t.Helper()
	w.do("load axe-core", chromedp.Evaluate[chromedp.Void]("if (!window.axe) {"+axe+"\n}"))
	text := evaluate[string](w, `axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then(r =>
		JSON.stringify(r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ': ' + v.help + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join('\n'))))`)
	var found []string
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		w.t.Fatal(err)
	}
	for _, fault := range found {
		w.t.Errorf("%s: axe-core: %s", where, fault)
	}
}

// screenshot writes what the window shows into the folder ALLOTMENT_SCREENSHOTS, if that is set.
func (w *window) screenshot(name string) {
	w.t.Helper()
	folder := os.Getenv("ALLOTMENT_SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), data, 0o644)
	}
	if err != nil {
		w.t.Error(err)
	}
	if len(data) > 150_000 {
		w.t.Errorf("%s has %d bytes", name, len(data))
	}
}
