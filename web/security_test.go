package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// link has pba login make one.
func (s *site) link(user string) string {
	s.t.Helper()
	w := s.do(user, httptest.NewRequest(http.MethodPost, "/login/link", nil))
	s.want(w, http.StatusOK)
	var l desk.Link
	must(s.t, json.Unmarshal(w.Body.Bytes(), &l))
	path, ok := strings.CutPrefix(l.URL, "http://127.0.0.1:8470")
	if !ok {
		s.t.Fatalf("link %s", l.URL)
	}
	return path
}

// browser is one that is signed in, or not yet.
type browser struct {
	*site
	cookies map[string]string
}

func (s *site) browser() *browser { return &browser{s, map[string]string{}} }

// signIn opens a link of a user's.
func (s *site) signIn(user string) *browser {
	s.t.Helper()
	b := s.browser()
	w := b.send(http.MethodGet, s.link(user), nil, nil)
	s.want(w, http.StatusSeeOther)
	if got := w.Header().Get("Location"); got != "/" {
		s.t.Errorf("it leads to %q", got)
	}
	return b
}

// send sends a request with the browser's cookies, as by TCP, and keeps those of the answer.
func (b *browser) send(method, path string, form url.Values, header http.Header) *httptest.ResponseRecorder {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if path != "" && strings.HasPrefix(path, loginPath) {
		r.Header.Set("Sec-Fetch-Site", "none")
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := b.do("", r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

func (b *browser) open(path string) *httptest.ResponseRecorder {
	return b.send(http.MethodGet, path, nil, nil)
}

func TestLinkSignsInOnce(t *testing.T) {
	s := newSite(t)
	path, b := s.link(anna), s.browser()
	s.want(b.open("/farm"), http.StatusUnauthorized)
	w := b.open(path)
	s.want(w, http.StatusSeeOther)
	cookie := w.Result().Cookies()[0]
	if cookie.Name != "allotment" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie %+v", cookie)
	}
	if w.Header().Get("Location") != "/" || w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	s.want(b.open("/farm"), http.StatusOK, "<span>anna</span>", "Sign out")

	thief := s.browser()
	s.want(thief.open(path), http.StatusForbidden, "was used before")
	s.want(thief.open("/farm"), http.StatusUnauthorized)
	_, token, _ := strings.Cut(path, "token=")
	if text := s.log.String(); strings.Contains(text, token) || strings.Contains(text, cookie.Value) {
		t.Errorf("a secret is in the log:\n%s", text)
	}
}

func TestLinksEndAndAreFew(t *testing.T) {
	s := newSite(t)
	path := s.link(anna)
	s.now = s.now.Add(linkTime)
	s.want(s.browser().open(path), http.StatusForbidden)
	for range maxLinksOfUser {
		path = s.link(anna)
	}
	s.want(s.do(anna, httptest.NewRequest(http.MethodPost, "/login/link", nil)), http.StatusTooManyRequests)
	s.link(bert)
	s.want(s.do("", httptest.NewRequest(http.MethodPost, "/login/link", nil)), http.StatusForbidden)
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Purpose": {"prefetch"}}} {
		s.want(s.browser().send(http.MethodGet, path, nil, header), http.StatusForbidden, "another page led here")
	}
	s.want(s.browser().open(path), http.StatusSeeOther) // none of these used it up
	for _, made := range []string{"", "?token=", "?token=" + strings.Repeat("A", 43)} {
		s.want(s.browser().open(loginPath+made), http.StatusForbidden)
	}
}

func TestCookieWithTLSIsOfThisHostAlone(t *testing.T) {
	s := newSite(t)
	s.Config.Certificate = "/c.pem"
	w := s.browser().open(s.link(anna))
	if c := w.Result().Cookies()[0]; c.Name != "__Host-allotment" || !c.Secure || c.Path != "/" || c.Domain != "" {
		t.Errorf("cookie %+v", c)
	}
	if w.Header().Get("Strict-Transport-Security") == "" {
		t.Error("the browser may come back without TLS")
	}
}

func TestStolenCookieIsWorthNothingAfterLogout(t *testing.T) {
	for name, logout := range map[string]func(*site, *browser){
		"by the page": func(s *site, b *browser) {
			s.want(b.send(http.MethodPost, logoutPath, url.Values{}, nil), http.StatusSeeOther)
		},
		"everywhere": func(s *site, _ *browser) {
			s.want(s.signIn(anna).send(http.MethodPost, logoutPath, url.Values{"all": {"1"}}, nil), http.StatusSeeOther)
		},
		"by pba": func(s *site, _ *browser) {
			s.want(s.do(anna, httptest.NewRequest(http.MethodPost, logoutPath, nil)), http.StatusOK, `"sessions":1`)
		},
		"unused":   func(s *site, _ *browser) { s.now = s.now.Add(time.Duration(s.Config.SessionIdle)) },
		"its user": func(s *site, _ *browser) { s.accounts.remember(desk.Visitor{Name: anna, UID: 6000}, s.now) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			other, b := s.signIn(bert), s.signIn(anna)
			thief := s.browser()
			thief.cookies["allotment"] = b.cookies["allotment"]
			s.want(thief.open("/farm"), http.StatusOK)
			logout(s, b)
			s.want(thief.open("/farm"), http.StatusUnauthorized)
			if name != "unused" {
				s.want(other.open("/farm"), http.StatusOK)
			}
		})
	}
}

func TestSessionsRotateAndEnd(t *testing.T) {
	s := newSite(t)
	b := s.signIn(anna)
	first := b.cookies["allotment"]
	s.now = s.now.Add(rotateEvery)
	s.want(b.open("/farm"), http.StatusOK)
	second := b.cookies["allotment"]
	if second == first {
		t.Error("the secret is the same after an hour")
	}
	late := s.browser() // a request that was under way
	late.cookies["allotment"] = first
	s.want(late.open("/farm"), http.StatusOK)
	if late.cookies["allotment"] != first {
		t.Error("an old secret gets a new one")
	}
	s.now = s.now.Add(oldTime)
	late.cookies["allotment"] = first
	s.want(late.open("/farm"), http.StatusUnauthorized)
	s.want(b.open("/farm"), http.StatusOK)

	for end := s.now.Add(time.Duration(s.Config.SessionMax)); s.now.Before(end); s.now = s.now.Add(6 * time.Hour) {
		b.open("/farm") // it is used all the time
	}
	s.want(b.open("/farm"), http.StatusUnauthorized)
	s.sessions.sweep(s.now)
	if n := len(s.sessions.open); n != 0 {
		t.Errorf("%d secrets are kept", n)
	}
}

func TestSessionsAreFew(t *testing.T) {
	s := newSite(t)
	var all []*browser
	for range maxSessionsOfUser + 1 {
		s.now = s.now.Add(time.Second)
		all = append(all, s.signIn(anna))
	}
	s.now = s.now.Add(time.Minute) // the limit of rates is another test's
	s.want(all[0].open("/farm"), http.StatusUnauthorized)
	s.want(all[1].open("/farm"), http.StatusOK)
	s.want(all[maxSessionsOfUser].open("/farm"), http.StatusOK)
}

// TestFixation: who plants a cookie in another's browser has nothing of it.
func TestFixation(t *testing.T) {
	s := newSite(t)
	planted := string(newSecret())
	b := s.browser()
	b.cookies["allotment"] = planted
	s.want(b.open(s.link(anna)), http.StatusSeeOther)
	if b.cookies["allotment"] == planted {
		t.Error("the planted secret became a session's")
	}
	attacker := s.browser()
	attacker.cookies["allotment"] = planted
	s.want(attacker.open("/farm"), http.StatusUnauthorized)

	own := s.signIn(bert) // one that is bert's becomes anna's only by another secret
	before := own.cookies["allotment"]
	s.want(own.open(s.link(anna)), http.StatusSeeOther)
	s.want(own.open("/farm"), http.StatusOK, "<span>anna</span>")
	attacker.cookies["allotment"] = before
	s.want(attacker.open("/farm"), http.StatusUnauthorized)
}

// proxied returns a site with a proxy of this user on the socket, and of this secret.
func proxied(t *testing.T, user, secretText string) *site {
	t.Helper()
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(secretText+"\n"), 0o600))
	var err error
	s.Proxy, err = OpenProxy(settings.WebProxy{Header: "X-Remote-User", SecretFile: file})
	must(t, err)
	if user != "" {
		s.Proxy.uid = s.accounts.known[user].UID
	}
	return s
}

func TestProxysHeader(t *testing.T) {
	const right = "0123456789abcdef0123456789abcdef"
	s := proxied(t, dora, right)
	for name, test := range map[string]struct {
		user   string // on the socket
		header http.Header
		status int
		text   string
	}{
		"forged":                 {"", http.Header{"X-Remote-User": {anna}}, 401, "pba login"},
		"with a wrong secret":    {"", http.Header{"X-Remote-User": {anna}, secretHeader: {right[1:]}}, 401, ""},
		"with two secrets":       {"", http.Header{"X-Remote-User": {anna}, secretHeader: {"x", right}}, 401, ""},
		"with the secret":        {"", http.Header{"X-Remote-User": {anna}, secretHeader: {right}}, 200, "<span>anna</span>"},
		"of two users":           {"", http.Header{"X-Remote-User": {anna, bert}, secretHeader: {right}}, 401, ""},
		"of no user":             {"", http.Header{"X-Remote-User": {""}, secretHeader: {right}}, 401, ""},
		"of the ledger's owner":  {"", http.Header{"X-Remote-User": {operator}, secretHeader: {right}}, 403, "sign in root or the ledger&#39;s owner"},
		"of an unknown user":     {"", http.Header{"X-Remote-User": {"no such user"}, secretHeader: {right}}, 403, "does not know"},
		"on the socket":          {dora, http.Header{"X-Remote-User": {anna}}, 200, "<span>anna</span>"},
		"on the socket, of none": {dora, http.Header{}, 401, ""},
		"on another's socket":    {bert, http.Header{"X-Remote-User": {anna}}, 200, "<span>bert</span>"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/farm", nil)
			r.Header = test.header
			s.want(s.do(test.user, r), test.status, test.text)
		})
	}
	if strings.Contains(s.log.String(), right) {
		t.Error("the secret is in the log")
	}
}

func TestProxysSecretIsSafe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for _, test := range []struct {
		text string
		mode os.FileMode
		want string
	}{{strings.Repeat("x", 32), 0o644, "others can read"}, {"short", 0o600, "want 32 or more"}} {
		must(t, os.WriteFile(file, []byte(test.text), 0o600))
		must(t, os.Chmod(file, test.mode))
		if _, err := OpenProxy(settings.WebProxy{Header: "X-User", SecretFile: file}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	if _, err := OpenProxy(settings.WebProxy{Header: "X-User", User: "root"}); err == nil {
		t.Error("root may be the proxy")
	}
}

func TestOtherSitesChangeNothing(t *testing.T) {
	s := newSite(t)
	b := s.signIn(anna)
	for _, header := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}},
		{"Sec-Fetch-Site": {""}, "Origin": {"https://evil.example"}},
		{"Sec-Fetch-Site": {""}, "Origin": {"null"}},
	} {
		s.want(b.send(http.MethodPost, logoutPath, url.Values{}, header), http.StatusForbidden, "another site sent this request")
	}
	s.want(b.open("/farm"), http.StatusOK)
	s.want(b.send(http.MethodGet, logoutPath, nil, nil), http.StatusNotFound)
	s.want(b.open("/farm"), http.StatusOK)
}

// TestSocketHasItsOwnHost: a user may forward a port to the socket, and a site's name may lead
// to that port.
func TestSocketHasItsOwnHost(t *testing.T) {
	s := newSite(t)
	s.Config.URL = "https://farm.example.org:8443"
	for host, status := range map[string]int{
		"allotd": 200, "localhost:8470": 200, "127.0.0.1:1": 200, "[::1]:8470": 200, "[::1]": 200, "farm.example.org": 200,
		"evil.example": 421, "evil.example:8470": 421, "allotd.evil.example": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/farm", nil)
		r.Host = host
		if w := s.do(anna, r); w.Code != status {
			t.Errorf("host %q: %d, want %d", host, w.Code, status)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/farm", "/nothing", "/static/allotment.css", "/login", "/"} {
		h := s.get(anna, path).Header()
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") ||
			h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestStaticFilesAreAllThatIsServed(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{
		"/static/../server.go", "/static/..%2fserver.go", "/static/%2e%2e/templates/layout.html", "/static//etc/passwd", "/static/..\\server.go",
		"/static/vendor/../../server.go", "/static/", "/static/vendor", "/static/vendor/", "/../../etc/passwd", "/static/allotment.css%00.html",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: path}
		if u, err := url.Parse(path); err == nil {
			r.URL = u
		}
		s.ServeHTTP(w, r)
		if w.Code == http.StatusOK || strings.Contains(w.Body.String(), "package web") || strings.Contains(w.Body.String(), "root:") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := s.get("", "/static/vendor/htmx.min.js?v="+staticHashes()["vendor/htmx.min.js"])
	if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

func TestBodiesAreBounded(t *testing.T) {
	s := newSite(t)
	h, err := s.protect(s.handle(page{}, func(q *request) error {
		_, err := q.form()
		return err
	}))
	must(t, err)
	for kind, status := range map[string]int{"application/x-www-form-urlencoded": http.StatusRequestEntityTooLarge, "multipart/form-data; boundary=x": http.StatusRequestEntityTooLarge} {
		head := "a="
		if strings.HasPrefix(kind, "multipart") {
			head = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
		}
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(head), bytes.NewReader(bytes.Repeat([]byte("x"), maxBody+1))))
		r.Header.Set("Content-Type", kind)
		r.Host = "allotd"
		r = r.WithContext(context.WithValue(r.Context(), peerKey, peerOf{unix: true, uid: s.accounts.known[anna].UID}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		s.want(w, status)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	s := newSite(t)
	for range strangerAll {
		s.want(s.get("", loginPath+"?token=guess"), http.StatusForbidden)
	}
	w := s.get("", loginPath+"?token=guess")
	s.want(w, http.StatusTooManyRequests)
	if w.Header().Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
	s.want(s.get(anna, "/farm"), http.StatusOK)
	s.now = s.now.Add(time.Second)
	s.want(s.get("", loginPath+"?token=guess"), http.StatusForbidden)
	for remote, want := range map[string]string{"192.0.2.1:99": "192.0.2.1", "[2001:db8::1:2]:99": "2001:db8::/64", "[::ffff:192.0.2.1]:5": "192.0.2.1", "@": "@"} {
		if got := listen.Network(remote); got != want {
			t.Errorf("Network(%q) = %q, want %q", remote, got, want)
		}
	}
}

// TestSlowClients: the server closes a connection whose request does not come, or comes in
// drops, and serves others meanwhile.
func TestSlowClients(t *testing.T) {
	s := newSite(t)
	s.times.header, s.times.body = 100*time.Millisecond, 100*time.Millisecond
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, bound(l, 10, 10)) }()
	for _, text := range []string{"GET /farm HT", "POST /logout HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"} {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		must(t, err)
		_, err = io.WriteString(conn, text)
		must(t, err)
		if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes
			t.Logf("%q: %v", text, err)
		}
		_ = conn.Close()
	}
	stop()
	must(t, <-served)
}

func TestConnectionsAreBounded(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	b := bound(l, 10, 1)
	defer b.Close()
	dial := func() net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		must(t, err)
		return conn
	}
	first := dial()
	defer first.Close()
	got, err := b.Accept()
	must(t, err)
	second := dial() // it is closed, and Accept waits for another
	accepted := make(chan net.Conn)
	go func() {
		c, err := b.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- c
	}()
	if _, err := io.Copy(io.Discard, second); err != nil {
		t.Log(err)
	}
	_ = got.Close()
	third := dial()
	defer third.Close()
	if c := <-accepted; c == nil {
		t.Error("no connection is accepted after one was closed")
	}
}

func TestPanicIsOnePagesOwn(t *testing.T) {
	s := newSite(t)
	h, err := s.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") }))
	must(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	s.want(w, http.StatusInternalServerError, "see the log of allotd")
	if strings.Contains(w.Body.String(), "broken") || !strings.Contains(s.log.String(), "broken") {
		t.Error("the panic is shown, or not logged")
	}
}
