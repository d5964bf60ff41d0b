package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a Chromium without a screen, spoken to over a pipe.
type browser struct {
	t    *testing.T
	in   *os.File
	out  *bufio.Reader
	last int
	tab  string

	complaints []string // of the console: errors, exceptions, refused requests
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// startBrowser starts a browser with one empty tab; the test skips where there is none.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("chromium is not installed (apt-get install chromium): the page is not rendered")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	// Root has no sandbox to run it in; the page is our own.
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+home)
	c.Env = append(os.Environ(), "HOME="+home)
	c.ExtraFiles = []*os.File{theirIn, theirOut}
	var complaints bytes.Buffer
	c.Stderr = &complaints
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		b.tab = ""
		if err := b.send("Browser.close", nil); err == nil {
			for err == nil {
				_, err = b.out.ReadByte() // until it is gone, its files too
			}
		}
		in.Close()
		out.Close()
		err := c.Wait()
		stop()
		if t.Failed() {
			t.Logf("chromium ended: %v\n%s", err, complaints.String())
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.tab = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) send(method string, params any) error {
	b.last++
	text, err := json.Marshal(message{ID: b.last, Method: method, SessionID: b.tab, Params: params})
	if err != nil {
		return err
	}
	_, err = b.in.Write(append(text, 0))
	return err
}

// read returns the browser's next message, and records what its console reports.
func (b *browser) read() (message, error) {
	text, err := b.out.ReadBytes(0)
	if err != nil {
		return message{}, fmt.Errorf("chromium went away: %w", err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		return m, err
	}
	switch m.Method {
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed", "Page.javascriptDialogOpening":
		b.complaints = append(b.complaints, string(text))
	}
	return m, nil
}

// call calls a method and waits for its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.send(method, params); err != nil {
		b.t.Fatal(err)
	}
	for {
		m, err := b.read()
		if err == nil && m.ID == b.last && m.Error != nil {
			err = errors.New(string(m.Error))
		}
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		if m.ID != b.last {
			continue
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

// show opens a file in a window of a width, and waits until it is laid out.
func (b *browser) show(file string, width int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	if err := b.send("Page.navigate", map[string]any{"url": (&url.URL{Scheme: "file", Path: file}).String()}); err != nil {
		b.t.Fatal(err)
	}
	for {
		m, err := b.read()
		if err != nil {
			b.t.Fatal(err)
		}
		if m.Method == "Page.loadEventFired" {
			return
		}
	}
}

// evaluate evaluates an expression in the page.
func (b *browser) evaluate(expression string, value any) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, value); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

// save saves the base64 data that a call returns in the folder ALLOTMENT_SCREENSHOTS.
func (b *browser) save(name, method string, params any) {
	b.t.Helper()
	folder := os.Getenv("ALLOTMENT_SCREENSHOTS")
	if folder == "" {
		return
	}
	var answer struct{ Data string }
	b.call(method, params, &answer)
	data, err := base64.StdEncoding.DecodeString(answer.Data)
	if err != nil || len(data) < 10_000 {
		b.t.Errorf("%s of %s: %d bytes, %v", method, name, len(data), err)
	}
	if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
		b.t.Error(err)
	}
}

// The page is readable on a phone, at a desk and on paper. To see it:
// ALLOTMENT_SCREENSHOTS=FOLDER go test ./pba/simulate/page -run TestBrowser
func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	folder := t.TempDir()
	plain := fixturePage()
	plain.Runs, plain.Command, plain.Version = plain.Runs[:1], strings.TrimSuffix(plain.Command, hostile), "1.0.0"
	for name, p := range map[string]Page{"plain": plain, "hostile": fixturePage(), "empty": {}} {
		var out bytes.Buffer
		if err := Write(&out, p); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name+".html")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{390, 1440} {
			b.show(file, width)
			b.checkLayout(fmt.Sprintf("%s at %d px", name, width), width, len(p.Runs) > 0)
			if len(p.Runs) > 0 {
				b.save(fmt.Sprintf("%s-%d.png", name, width), "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "optimizeForSpeed": true})
			}
		}
		if len(p.Runs) > 0 {
			b.save(name+".pdf", "Page.printToPDF", map[string]any{"preferCSSPageSize": true, "paperWidth": 8.27, "paperHeight": 11.69})
		}
		if len(b.complaints) > 0 {
			t.Errorf("%s: the console reports: %s", name, strings.Join(b.complaints, "\n"))
			b.complaints = nil
		}
	}
}

// checkLayout checks the page as it is laid out now.
func (b *browser) checkLayout(at string, width int, charts bool) {
	b.t.Helper()
	var seen struct {
		Width, Inner float64
		Beyond       []string
		Charts       int
		Small        []string
		Unreadable   []string
		Unnamed      int
		Headless     int
	}
	b.evaluate(`(() => {
	const shown = e => e.getClientRects().length > 0
	const svgs = [...document.querySelectorAll('svg')].filter(shown)
	const name = e => e.closest('figure') ? e.closest('figure').querySelector('figcaption').textContent : e.tagName
	return {
		Width: document.scrollingElement.scrollWidth, Inner: innerWidth,
		Beyond: [...document.querySelectorAll('body *')].filter(e => shown(e) && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 200)),
		Charts: svgs.length,
		Small: svgs.filter(e => e.getBoundingClientRect().width < 250 || e.getBoundingClientRect().height < 150).map(name),
		Unreadable: svgs.filter(e => { const box = e.getBoundingClientRect(); return [...e.querySelectorAll('text')].some(t => {
			const r = t.getBoundingClientRect()
			const size = parseFloat(getComputedStyle(t).fontSize) * box.width / e.viewBox.baseVal.width
			return t.textContent.trim() && (size < 9 || r.left < box.left - 2 || r.right > box.right + 2 || r.top < box.top - 2 || r.bottom > box.bottom + 2)
		})}).map(name),
		Unnamed: svgs.filter(e => e.getAttribute('aria-labelledby').split(' ').some(id => !document.getElementById(id) || !document.getElementById(id).textContent)).length,
		Headless: [...document.querySelectorAll('tbody tr')].filter(e => !e.querySelector('th[scope]')).length + [...document.querySelectorAll('table')].filter(e => !e.caption || !e.tHead).length,
	}})()`, &seen)
	if seen.Inner != float64(width) || seen.Width > seen.Inner {
		b.t.Errorf("%s: %v px wide in a window of %v px", at, seen.Width, seen.Inner)
	}
	if len(seen.Beyond) > 0 {
		b.t.Errorf("%s: cut off: %s", at, strings.Join(seen.Beyond, "\n"))
	}
	if charts && seen.Charts < 8 {
		b.t.Errorf("%s: %d charts", at, seen.Charts)
	}
	if len(seen.Small) > 0 || len(seen.Unreadable) > 0 {
		b.t.Errorf("%s: charts without a size %q, with letters too small or cut off %q", at, seen.Small, seen.Unreadable)
	}
	if seen.Unnamed > 0 || seen.Headless > 0 {
		b.t.Errorf("%s: %d charts without text alternatives, %d rows or tables without heads", at, seen.Unnamed, seen.Headless)
	}
}
