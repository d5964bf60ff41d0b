package web

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/allotment-hpc/allotment/test/await"
)

// patience is how long one step in the browser may take. None needs a tenth of it.
const patience = 60 * time.Second

// findChromium returns the browser's program; the test is skipped where there is none.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("chromium is not installed (apt-get install chromium): the management page is not tested in a browser")
	return ""
}

// startBrowser starts a browser that ends with the test, all its processes included. The
// context is for windows.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	var process *exec.Cmd
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(findChromium(t)), chromedp.DisableGPU,
		chromedp.NoSandbox, // root has none to run it in, nor has a user where namespaces are forbidden; the page is our own
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), // the browser's own requests, too
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			process = cmd
		}))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		closeBrowser()
		stop()
		if process == nil || process.Process == nil {
			return
		}
		group := -process.Process.Pid
		_ = syscall.Kill(group, syscall.SIGKILL)
		if !await.Soon(func() bool { return syscall.Kill(group, 0) != nil }) {
			t.Errorf("processes of the browser's group %d are left", -group)
		}
	})
	starting, cancel := context.WithTimeoutCause(browser, patience, fmt.Errorf("the browser has not started within %v", patience))
	defer cancel()
	// The browser lives as long as the context that it is started with.
	started := make(chan error, 1)
	go func() { started <- chromedp.Do(browser) }()
	select {
	case err := <-started:
		if err != nil {
			t.Fatalf("start the browser: %v", err)
		}
	case <-starting.Done():
		t.Fatal(context.Cause(starting))
	}
	return browser
}

// window is a browser's window with its own cookies. It records what a page may not do.
type window struct {
	t    *testing.T
	ctx  context.Context
	host string // of all requests

	mu       sync.Mutex
	faults   []string
	statuses map[int64]bool // that are wanted: the console reports 4xx as an error
}

// openWindow opens a window of a desk's size.
func (s *site) openWindow(t *testing.T) *window {
	t.Helper()
	w := &window{t: t, host: s.host, statuses: map[int64]bool{}}
	ctx, stop := chromedp.NewContext(s.browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(w.record))
	w.ctx = ctx
	t.Cleanup(stop)
	t.Cleanup(func() {
		if t.Failed() {
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
			t.Logf("the page at last: %v\n%s", err, text)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, fault := range w.faults {
			t.Error(fault)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // a window lives as long as the context of its first action
		t.Fatalf("open a window: %v", err)
	}
	w.size(desk)
	return w
}

// record is called for each event of the window.
func (w *window) record(event any) {
	fault := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Host != w.host && u.Scheme != "data" && u.Scheme != "about" {
			fault = "a request to another host: " + e.Request.URL
		}
	case *network.EventLoadingFailed:
		if !e.Canceled { // by leaving the page
			fault = fmt.Sprintf("a request failed: %s %s", e.Type, e.ErrorText)
		}
	case *runtime.EventConsoleAPICalled:
		fault = fmt.Sprintf("the console has a call of %s", e.Type)
	case *runtime.EventExceptionThrown:
		fault = "an exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			fault += " " + x.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			fault = fmt.Sprintf("the console reports: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		fault = "a dialog: " + e.Message
	}
	if fault == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for status := range w.statuses {
		if strings.Contains(fault, fmt.Sprintf("the server responded with a status of %d", status)) {
			return
		}
	}
	w.faults = append(w.faults, fault)
}

// expect has a status of 400 or more be no fault.
func (w *window) expect(status int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses[status] = true
}

// do does something in the window.
func (w *window) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// visit opens a page of the site and waits until it is loaded.
func (w *window) visit(path string) {
	w.t.Helper()
	w.do("open "+path, chromedp.Navigate("http://"+w.host+path))
}

// evaluate returns the value of a JavaScript expression, or of its promise.
func evaluate[T any](w *window, expression string) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		w.t.Fatalf("evaluate %s: %v", short(expression), err)
	}
	return value
}

// until waits until a JavaScript expression is true, on this page or on one that follows it.
func (w *window) until(what, expression string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var last error
	if !await.Until(ctx, func() bool {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ctx.Err() == nil {
			last = err // as on a page that is just being left
		}
		return is
	}) {
		w.t.Fatalf("wait for %s: not so within %v (last error: %v): %s", what, patience, last, expression)
	}
}

// untilText waits until an element shows a text.
func (w *window) untilText(selector, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf("(document.querySelector(%q)?.innerText ?? '').includes(%q)", selector, text))
}

// click clicks an element as soon as it is there to be clicked. It tries again where the
// page replaced the element meanwhile.
func (w *window) click(selector string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var err error
	if !await.Until(ctx, func() bool {
		err = chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
		return err == nil
	}) {
		w.t.Fatalf("click %s: %v", selector, err)
	}
}

// drag presses the mouse on an element, and releases it on another.
func (w *window) drag(from, to string) {
	w.t.Helper()
	w.until(from, fmt.Sprintf("document.querySelector(%q) && document.querySelector(%q)", from, to))
	at := evaluate[[4]float64](w, fmt.Sprintf(`[%q, %q].flatMap(s => { const r = document.querySelector(s).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })`, from, to))
	w.do("drag", chromedp.DragAndDropXY(at[0], at[1], at[2], at[3]))
}

// keys presses keys, one after the other, as a keyboard does: a page that handles a key
// keeps its character from being typed. (chromedp.KeyEvent types it all the same.)
func (w *window) keys(keys string, modifiers ...chromedp.Modifier) {
	w.t.Helper()
	w.do(fmt.Sprintf("press %q", keys), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, key := range keys {
			var down, up input.DispatchKeyEventParams
			for _, e := range kb.Encode(key) {
				chromedp.KeyModifiers(modifiers...)(e)
				switch e.Type {
				case kb.KeyDown:
					down = *e
				case kb.KeyUp:
					up = *e
				case kb.KeyChar:
					if e.Modifiers&^int64(chromedp.ModifierShift) == 0 {
						down.Text, down.UnmodifiedText = e.Text, e.UnmodifiedText
					}
				}
			}
			for _, e := range []input.DispatchKeyEventParams{down, up} {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, e); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// tabTo presses Tab until the focus is where a JavaScript expression is true. On its way
// each element that has the focus must show it.
func (w *window) tabTo(what, expression string) {
	w.t.Helper()
	const most = 200
	for range most {
		w.keys(kb.Tab)
		seen := evaluate[struct {
			There, Shown bool
			Element      string
		}](w, `({There: !!(`+expression+`), Element: document.activeElement.outerHTML.slice(0, 200),
			Shown: document.activeElement === document.body || document.activeElement.id === 'main' || parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 1 && getComputedStyle(document.activeElement).outlineStyle !== 'none'})`)
		if !seen.Shown {
			w.t.Errorf("it can't be seen that the focus is in %s", seen.Element)
		}
		if seen.There {
			return
		}
	}
	w.t.Fatalf("Tab never reaches %s", what)
}

// size is that of a window, in CSS pixels.
type size struct{ width, height int64 }

var (
	desk  = size{1440, 900}
	phone = size{390, 844}
)

func (w *window) size(s size) {
	w.t.Helper()
	var options []chromedp.EmulateViewportOption
	if s == phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	w.do("size", chromedp.EmulateViewport(s.width, s.height, options...))
}

// scheme sets the system's colours: light or dark.
func (w *window) scheme(name string) {
	w.t.Helper()
	w.do("colours", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	}))
}

// noScript forbids pages to run scripts.
func (w *window) noScript() {
	w.t.Helper()
	w.do("forbid scripts", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// short cuts a long text.
func short(text string) string {
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}
