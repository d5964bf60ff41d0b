package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/lease"
)

// face is a server on a unix socket, and one on TCP.
type face struct {
	*testing.T
	server *Server
	socket string
	unix   *http.Client
	tcp    string // http://127.0.0.1:PORT
}

const secret = "secret"

func newFace(t *testing.T, o Options) *face {
	t.Helper()
	o.Key = secret
	if o.UID == 0 {
		o.UID = os.Getuid()
	}
	o.Pauses = []time.Duration{time.Millisecond, time.Millisecond}
	f := &face{T: t, server: New(o), socket: filepath.Join(t.TempDir(), "s")}
	l, err := listen.Unix(t.Context(), f.socket, listen.Names{})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.tcp = "http://" + tcp.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	for _, l := range []net.Listener{l, tcp} {
		go func() { done <- f.server.Serve(ctx, l) }()
	}
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	f.unix = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.socket)
	}}}
	return f
}

// call sends a body, and returns the answer's status and text.
func (f *face) call(client *http.Client, method, url, token, body string) (int, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, url, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (f *face) want(code int, method, path, token, body string) {
	f.Helper()
	if got, text := f.call(f.unix, method, "http://x"+path, token, body); got != code {
		f.Errorf("%s %s %.100s: %d %s, want %d", method, path, body, got, text, code)
	}
}

// stream is a connection of a worker or holder.
type stream struct {
	f     *face
	lines *bufio.Scanner
	token string
	close func()
}

func (f *face) join(path, body string) *stream {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	answer, err := f.unix.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	s := &stream{f: f, lines: bufio.NewScanner(answer.Body), close: func() { stop(); answer.Body.Close() }}
	f.Cleanup(s.close)
	if answer.StatusCode != http.StatusOK {
		f.Fatalf("%s %s: %s", path, body, answer.Status)
	}
	s.token, _ = s.next()["token"].(string)
	return s
}

func (s *stream) next() map[string]any {
	s.f.Helper()
	if !s.lines.Scan() {
		s.f.Fatal("the connection ended")
	}
	var v map[string]any
	if err := json.Unmarshal(s.lines.Bytes(), &v); err != nil {
		s.f.Fatal(err)
	}
	return v
}

// expect reads the next line, which must have a field of that name, and returns it as a number.
func (s *stream) expect(what string) string {
	s.f.Helper()
	line := s.next()
	if line[what] == nil {
		s.f.Fatalf("%v, want %s", line, what)
	}
	return fmt.Sprint(line[what])
}

const (
	worker = `{"worker":"w","host":"h","milli_cores":2000}`
	holder = `{"holder":"ann"}`
)

// TestLeasesByHTTP: a worker and a holder see a request through to its end; what a connection held
// ends with it.
func TestLeasesByHTTP(t *testing.T) {
	f := newFace(t, Options{})
	ann := f.join("/v1/holders", holder)
	f.want(202, "POST", "/v1/requests", ann.token, `{"id":"r","slots":3}`)
	w := f.join("/v1/workers", worker)
	f.want(204, "POST", "/v1/heartbeats", w.token, `{"free_milli_cores":1500}`)
	for _, want := range []string{"1", "2"} {
		if lock, grant := w.expect("lock"), ann.expect("grant"); lock != want || grant != want {
			t.Errorf("lock %s, grant %s; want %s", lock, grant, want)
		}
	}
	f.want(204, "DELETE", "/v1/leases/1", ann.token, "")
	w.expect("unlock")
	w.expect("lock")
	ann.expect("grant")
	bob := f.join("/v1/holders", `{"holder":"bob"}`)
	f.want(404, "DELETE", "/v1/leases/2", bob.token, "")
	f.want(401, "DELETE", "/v1/leases/2", w.token, "")
	f.want(202, "POST", "/v1/requests", bob.token, `{"id":"r","slots":3}`)
	ann.close()
	for range 2 {
		w.expect("unlock")
	}
	for range 2 {
		w.expect("lock")
		bob.expect("grant")
	}
	f.want(204, "DELETE", "/v1/requests/r", bob.token, "")
	f.want(204, "POST", "/v1/withdrawals", w.token, "")
	bob.expect("revoke")
	bob.expect("revoke")
	w.close()
	bob.expect("revoke")
	bob.expect("revoke")
	_, text := f.call(f.unix, "GET", "http://x/v1/view", "", "")
	var v lease.View
	if err := json.Unmarshal([]byte(text), &v); err != nil || len(v.Workers)+len(v.Leases)+len(v.Waiting) > 0 {
		t.Errorf("%s remains, %v", text, err)
	}
}

// TestTasks: a worker gets tasks with its locks, and the holder what came of them; several in a call.
func TestTasks(t *testing.T) {
	f := newFace(t, Options{})
	ann := f.join("/v1/holders", holder)
	w := f.join("/v1/workers", worker)
	code, text := f.call(f.unix, "POST", "http://x/v1/requests", ann.token, `{"id":"a","task":"<1> & \u001b"} {"id":"b","task":"2"}`+"\n"+`{"id":"c"}`)
	if want := "{\"acknowledged\":\"a\"}\n{\"acknowledged\":\"b\"}\n{\"acknowledged\":\"c\"}\n"; code != 202 || text != want {
		t.Errorf("%d %s, want 202 %s", code, text, want)
	}
	for _, task := range []string{"<1> & \x1b", "2"} {
		if lock := w.next(); lock["task"] != task {
			t.Errorf("%v, want the task %q", lock, task)
		}
		ann.expect("grant")
	}
	other := f.join("/v1/workers", `{"worker":"v","host":"h","milli_cores":1}`)
	f.want(404, "POST", "/v1/results", other.token, `{"lease":1,"result":"stolen"}`)
	f.want(401, "POST", "/v1/results", ann.token, `{"lease":1,"result":"its own"}`)
	f.want(400, "POST", "/v1/results", w.token, `{"lease":1} {"leases":2}`)
	f.want(400, "POST", "/v1/results", w.token, strings.Repeat(`{"lease":1}`, maxObjects+1))
	f.want(400, "POST", "/v1/results", w.token, "")
	code, text = f.call(f.unix, "POST", "http://x/v1/results", w.token, `{"lease":9,"result":"none"}{"lease":1,"result":"one"}{"lease":2}`)
	if code != 404 || !strings.Contains(text, "object 1 of 3") {
		t.Errorf("%d %s, want 404 for object 1", code, text)
	}
	if lock := w.next(); fmt.Sprint(lock["lock"]) != "3" || lock["task"] != nil {
		t.Errorf("%v, want lock 3 without a task", lock)
	}
	for _, want := range []map[string]any{
		{"lease": 1., "request": "a", "worker": "w", "result": "one"},
		{"grant": 3., "request": "c", "job": 1., "worker": "w", "host": "h", "milli_cores": 1000., "memory": 0.},
		{"lease": 2., "request": "b", "worker": "w", "result": ""},
	} {
		if got := ann.next(); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	f.want(404, "POST", "/v1/results", w.token, `{"lease":1,"result":"again"}`)
	f.want(404, "POST", "/v1/results", w.token, `{"lease":3,"result":"it has no task"}`)
	f.want(202, "POST", "/v1/requests", ann.token, `{"id":"d","task":"4"}`)
	w.expect("lock")
	ann.expect("grant")
	w.close()
	for _, id := range []string{"c", "d"} {
		if line := ann.next(); line["revoke"] == nil || line["request"] != id {
			t.Errorf("%v, want the revoke of request %s", line, id)
		}
	}
	code, text = f.call(f.unix, "POST", "http://x/v1/requests", ann.token, `{"id":"e"}{"id":"e"}{"id":"f"}`)
	if code != 409 || !strings.Contains(text, "object 2 of 3") {
		t.Errorf("%d %s, want 409 for object 2", code, text)
	}
	f.want(204, "DELETE", "/v1/requests/e", ann.token, "")
	f.want(404, "DELETE", "/v1/requests/f", ann.token, "")
}

// TestUnreadResultsAreBounded: a holder that does not read is disconnected, with what it had.
func TestUnreadResultsAreBounded(t *testing.T) {
	s := New(Options{})
	dropped := 0
	s.holders["ann"] = newClient("ann", func() { dropped++ })
	result := lease.Result{Holder: "ann", Result: strings.Repeat("x", lease.MaxResult)}
	for range maxTexts / lease.MaxResult {
		s.carryOut(result)
	}
	if dropped > 0 {
		t.Fatal("dropped within the bound")
	}
	if s.carryOut(result); dropped != 1 {
		t.Error("not dropped beyond the bound")
	}
}

// TestPostBack: grants are posted to the URL of a request; one that can't be is freed after a few tries.
func TestPostBack(t *testing.T) {
	f := newFace(t, Options{})
	tries := map[string]int{}
	posted := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries[r.URL.Path]++ // one grant at a time: they come one after the other
		switch {
		case r.URL.Path == "/redirect":
			http.Redirect(w, r, "/good", http.StatusTemporaryRedirect)
		case r.URL.Path == "/refused" || r.URL.Path == "/late" && tries[r.URL.Path] == 1:
			w.WriteHeader(http.StatusTeapot)
		default:
			body, _ := io.ReadAll(r.Body)
			posted <- string(body)
		}
	}))
	defer target.Close()
	w := f.join("/v1/workers", worker)
	ann := f.join("/v1/holders", holder)
	for path, want := range map[string]int{"/good": 1, "/late": 2, "/refused": 3, "/redirect": 3} {
		f.want(202, "POST", "/v1/requests", ann.token, fmt.Sprintf(`{"id":%q,"milli_cores":2000,"slots":2,"post_back":%q}`, path, target.URL+path))
		number := w.expect("lock")
		if want < 3 {
			if body := <-posted; !strings.Contains(body, `"grant":`+number+",") {
				t.Errorf("%s: %s is posted, want lease %s", path, body, number)
			}
			f.want(204, "DELETE", "/v1/requests/"+strings.ReplaceAll(path, "/", "%2F"), ann.token, "")
			f.want(204, "DELETE", "/v1/leases/"+number, ann.token, "")
		}
		w.expect("unlock")
		if tries[path] != want {
			t.Errorf("%s: %d tries, want %d", path, tries[path], want)
		}
	}
	for _, url := range []string{
		"http://192.0.2.1:80/", "http://example.org:80/", "https://127.0.0.1:80/", "file:///etc/passwd", "http://127.0.0.1/", "http://127.0.0.1:80@192.0.2.1:80/",
		"http://localhost.example.org:1/", "http://0.0.0.0:80/", "http://[::]:80/", "http:127.0.0.1:80", "gopher://127.0.0.1:70/", "127.0.0.1:80", "http://%31:80/",
	} {
		f.want(400, "POST", "/v1/requests", ann.token, fmt.Sprintf(`{"id":"x","post_back":%q}`, url))
	}
}

// TestStrangers: who is not admitted, and what is refused.
func TestStrangers(t *testing.T) {
	f := newFace(t, Options{Limits: lease.Limits{Slots: 5}})
	ann := f.join("/v1/holders", holder)
	w := f.join("/v1/workers", worker)
	f.want(202, "POST", "/v1/requests", ann.token, `{"id":"r"}`)
	w.expect("lock")
	for token, want := range map[string]int{"": 403, "wrong": 403, secret: 200, ann.token: 200} {
		if code, text := f.call(http.DefaultClient, "GET", f.tcp+"/v1/view", token, ""); code != want {
			t.Errorf("by TCP with %q: %d %s, want %d", token, code, text, want)
		}
	}
	if code, text := f.call(http.DefaultClient, "DELETE", f.tcp+"/v1/leases/1", secret, ""); code != 401 {
		t.Errorf("the key frees another process's lease: %d %s", code, text)
	}
	for _, token := range []string{"", "wrong", secret, w.token} {
		f.want(401, "DELETE", "/v1/leases/1", token, "")
		f.want(401, "POST", "/v1/requests", token, `{"id":"x"}`)
	}
	f.want(401, "POST", "/v1/heartbeats", ann.token, `{}`)
	f.want(409, "POST", "/v1/holders", "", holder)
	f.want(409, "POST", "/v1/workers", "", worker)
	f.want(409, "POST", "/v1/workers", "", worker)
	f.want(400, "POST", "/v1/workers", "", `{"worker":"\u001b","host":"h","milli_cores":1}`)
	f.want(400, "POST", "/v1/workers", "", `{"worker":"v","host":"h","milli_cores":-1}`)
	f.want(400, "POST", "/v1/workers", "", `{"worker":"v","host":"h","milli_cores":1e300}`)
	f.want(400, "POST", "/v1/workers", "", `{"worker":"v","hosts":"h","milli_cores":1}`)
	f.want(400, "POST", "/v1/workers", "", `{} {}`)
	f.want(400, "POST", "/v1/holders", "", `{"holder":"`+strings.Repeat("x", maxBody)+`"}`)
	f.want(429, "POST", "/v1/requests", ann.token, `{"id":"x","slots":6}`)
	f.want(400, "DELETE", "/v1/leases/0x1", ann.token, "")
	f.want(404, "DELETE", "/v1/leases/2", ann.token, "")
	f.want(404, "DELETE", "/v1/requests/x", ann.token, "")
	f.want(204, "DELETE", "/v1/leases/1", ann.token, "")
	f.want(404, "DELETE", "/v1/leases/1", ann.token, "")

	other := newFace(t, Options{UID: os.Getuid() + 1})
	other.want(403, "GET", "/v1/view", "", "")
	other.want(403, "POST", "/v1/workers", secret, worker)
}

// TestIdleWorkersAreReleased: by the time that passes alone.
func TestIdleWorkersAreReleased(t *testing.T) {
	f := newFace(t, Options{Limits: lease.Limits{Idle: 20 * time.Millisecond}})
	f.join("/v1/workers", worker).expect("release")
}

// TestCurl: a shell script with curl alone joins a host, asks for three slots, gets them and frees them.
func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("skip: there is no curl")
	}
	f := newFace(t, Options{})
	var out, errs bytes.Buffer
	if err := f.script("testdata/curl.sh", &out, &errs).Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	const want = "{\"acknowledged\":\"r1\"}\ngranted 1\ngranted 2\ngranted 3\nfreed 1\nfreed 2\nfreed 3\n"
	if out.String() != want {
		t.Errorf("%s%s, want %s", &out, &errs, want)
	}
}

// script is a shell script that speaks to the server by curl.
func (f *face) script(path string, out, errs io.Writer) *exec.Cmd {
	f.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		f.Fatal(err)
	}
	cmd := exec.CommandContext(f.Context(), "sh", path, f.socket)
	cmd.Dir, cmd.WaitDelay, cmd.Stdout, cmd.Stderr = f.TempDir(), 10*time.Second, out, errs
	return cmd
}

// TestCurlDoesTasks: a worker of a shell script with curl alone does tasks until it is released.
func TestCurlDoesTasks(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("skip: there is no curl")
	}
	f := newFace(t, Options{Limits: lease.Limits{Idle: time.Millisecond}})
	ann := f.join("/v1/holders", holder)
	f.want(202, "POST", "/v1/requests", ann.token, `{"id":"a","task":"one"} {"id":"b","task":"three"} {"id":"c","task":"seventeen"}`)
	var out bytes.Buffer
	worker := f.script("testdata/tasks.sh", &out, &out)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for len(results) < 3 {
		if line := ann.next(); line["result"] != nil {
			results[fmt.Sprint(line["request"])] = fmt.Sprint(line["result"])
		}
	}
	if want := map[string]string{"a": "3 letters", "b": "5 letters", "c": "9 letters"}; !maps.Equal(results, want) {
		t.Errorf("%v, want %v", results, want)
	}
	if err := worker.Wait(); err != nil || out.Len() > 0 {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestCertificate: a caller that knows the certificate comes by TLS, to the address of the certificate
// alone; then it needs the key. One that does not know it sends nothing.
func TestCertificate(t *testing.T) {
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	here := netip.MustParseAddrPort(tcp.Addr().String()).Addr()
	config, text, err := Certificate(time.Now(), here)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := Certificate(time.Now(), here)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	f := newFace(t, Options{})
	go func() { done <- f.server.Serve(ctx, tls.NewListener(tcp, config)) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, x := range []struct {
		name    string
		known   []byte
		server  string
		token   string
		want    int
		refused string
	}{
		{name: "key", known: text, token: secret, want: 200},
		{name: "no key", known: text, want: 403},
		{name: "wrong key", known: text, token: "wrong", want: 403},
		{name: "another server's certificate", known: foreign, token: secret, refused: "certificate"},
		{name: "another address", known: text, server: "192.0.2.1", token: secret, refused: "certificate is valid for 127.0.0.1"},
	} {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(x.known) {
			t.Fatalf("no certificate: %s", x.known)
		}
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: x.server},
		}}
		if x.refused == "" {
			if code, text := f.call(client, "GET", "https://"+tcp.Addr().String()+"/v1/view", x.token, ""); code != x.want {
				t.Errorf("%s: %d %s, want %d", x.name, code, text, x.want)
			}
			continue
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+tcp.Addr().String()+"/v1/view", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := client.Do(r); err == nil || !strings.Contains(err.Error(), x.refused) {
			if err == nil {
				answer.Body.Close()
			}
			t.Errorf("%s: %v, want an error", x.name, err)
		}
	}
}
