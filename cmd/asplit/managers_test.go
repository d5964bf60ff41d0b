package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/reach"
	"github.com/allotment-hpc/allotment/lease"
)

// floodConnections is the number of connections that a manager's socket takes at a time. It is more
// than the holders and workers of one may be, by default.
const floodConnections = 4096

// managerTime bounds the test: nothing in it waits for a time.
const managerTime = 8 * time.Minute

// manager is a running asplit serve, and what its user knows of it.
type manager struct {
	*testing.T
	ctx         context.Context
	name, home  string
	program     string
	process     *os.Process
	socket, key string
	certificate string // its file; empty: it has none
	url         string // of its TCP listener
	client      *http.Client
}

// startManager starts an asplit serve, and returns when it serves.
func startManager(ctx context.Context, t *testing.T, program, home, name, address string) *manager {
	t.Helper()
	m := &manager{T: t, ctx: ctx, name: name, home: home, program: program, socket: filepath.Join(home, "asplit-"+name+".sock")}
	m.client = listen.Client(m.socket, 0)
	cmd := m.command("serve", "--name", name, "--listen", address, "--idle", "0s", "--max-workers", fmt.Sprint(floodConnections))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.process = cmd.Process
	t.Cleanup(func() {
		m.signal(syscall.SIGCONT)
		m.signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "serving "+m.socket {
		url, files, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "serving "), ", key in ")
		file, certificate, _ := strings.Cut(files, ", certificate in ")
		key, err := os.ReadFile(file)
		if err != nil || !ok || file != filepath.Join(home, "asplit-"+name+".key") {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		m.url, m.key, m.certificate = url, strings.TrimSpace(string(key)), certificate
	}
	if m.url == "" || lines.Err() != nil {
		t.Fatalf("manager %s does not serve: %v", name, lines.Err())
	}
	return m
}

// buildAsplit builds asplit alone, which needs no queue here.
func buildAsplit(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "asplit")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build asplit: %v\n%s", err, text)
	}
	return program
}

// managerHome returns a directory that ends with the test.
func managerHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("", "two-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	return home
}

// command returns a command line of asplit in the manager's home.
func (m *manager) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.ctx, m.program, args...)
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+m.home)
	return cmd
}

func (m *manager) signal(s os.Signal) { _ = m.process.Signal(s) }

// refused checks that a second manager of the name does not start, and says why.
func (m *manager) refused() {
	m.Helper()
	text, err := m.command("serve", "--name", m.name).CombinedOutput()
	if err == nil || !bytes.Contains(text, []byte("another asplit serve serves "+m.socket)) {
		m.Errorf("a second manager %s: %v %s", m.name, err, text)
	}
}

// do sends a call to the socket, or to the TCP listener; its answer is read to the end.
func (m *manager) do(client *http.Client, base, method, path, token, body string) (int, []byte) {
	m.Helper()
	r, err := http.NewRequestWithContext(m.ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		m.Fatal(err)
	}
	return answer.StatusCode, text
}

func (m *manager) want(code int, method, path, token, body string) {
	m.Helper()
	if got, text := m.do(m.client, "http://x", method, path, token, body); got != code {
		m.Fatalf("manager %s: %s %s %s: %d %s, want %d", m.name, method, path, body, got, text, code)
	}
}

// view returns what the manager knows. Whether a grant was posted yet is left out.
func (m *manager) view() (v lease.View) {
	m.Helper()
	_, text := m.do(m.client, "http://x", "GET", "/v1/view", "", "")
	if err := json.Unmarshal(text, &v); err != nil {
		m.Fatalf("%s: %v", text, err)
	}
	for i := range v.Leases {
		v.Leases[i].Locked = false
	}
	return v
}

// connection is one of a worker or a holder.
type connection struct {
	m     *manager
	body  io.Reader
	lines *bufio.Reader
	token string
	close func()
}

// connect joins a worker or a holder.
func (m *manager) connect(path, body string) *connection {
	m.Helper()
	ctx, stop := context.WithCancel(m.ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+path, strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	answer, err := m.client.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	c := &connection{m: m, body: answer.Body, lines: bufio.NewReaderSize(answer.Body, 512), close: func() { stop(); answer.Body.Close() }}
	m.Cleanup(c.close)
	if answer.StatusCode != http.StatusOK {
		m.Fatalf("manager %s: %s %s: %s", m.name, path, body, answer.Status)
	}
	c.token, _ = c.next()["token"].(string)
	return c
}

func (m *manager) worker(name, host string, milli int) *connection {
	m.Helper()
	return m.connect("/v1/workers", fmt.Sprintf(`{"worker":%q,"host":%q,"milli_cores":%d}`, name, host, milli))
}

func (m *manager) holder(name string) *connection {
	m.Helper()
	return m.connect("/v1/holders", fmt.Sprintf(`{"holder":%q}`, name))
}

// next returns the next line.
func (c *connection) next() (v map[string]any) {
	c.m.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &v)
	}
	if err != nil {
		c.m.Fatalf("manager %s: %q: %v", c.m.name, line, err)
	}
	return v
}

// flood takes all connections but one that the manager has, as workers and holders, whose slots are all
// granted. Nothing is said on them from then on. It returns a connection whose end changes no lease.
func (m *manager) flood() (spare *connection) {
	m.Helper()
	greedy := m.holder("greedy")
	for i := range 10 {
		m.want(http.StatusAccepted, "POST", "/v1/requests", greedy.token, fmt.Sprintf(`{"id":"r%d","slots":10000}`, i))
	}
	m.want(http.StatusTooManyRequests, "POST", "/v1/requests", greedy.token, `{"id":"more"}`)
	go io.Copy(io.Discard, greedy.body) //nolint:errcheck // until the test ends
	const holders = 1000
	spare = m.holder("spare")
	for i := range holders - 2 {
		if c := m.holder(fmt.Sprintf("h%d", i)); i%10 == 0 {
			m.want(http.StatusAccepted, "POST", "/v1/requests", c.token, `{"id":"r"}`)
		}
	}
	m.want(http.StatusTooManyRequests, "POST", "/v1/holders", "", `{"holder":"more"}`)
	for i := range floodConnections - holders - 3 { // two workers are there, and one connection is left
		m.worker(fmt.Sprintf("f%d", i), fmt.Sprintf("f%d", i), 1000)
	}
	return spare
}

// TestTwoManagers: two asplit serve of one user share nothing. The one for what is urgent grants what
// its workers can hold while the other one has no free slot and no free connection, and also while
// it is stopped (R50).
func TestTwoManagers(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < floodConnections+500 {
		t.Skipf("skip: %d files may be open, %d are needed: %v", limit.Max, floodConnections+500, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), managerTime)
	defer stop()
	program, home := buildAsplit(t), managerHome(t)
	high, low := startManager(ctx, t, program, home, "high", "127.0.0.1:0"), startManager(ctx, t, program, home, "low", "127.0.0.1:0")

	worker := high.worker("w1", "high1", 2000)
	high.worker("w2", "high2", 1000)
	urgent := high.holder("urgent")
	other := low.worker("w1", "low1", 2000)
	low.worker("w2", "low2", 1000)

	// What proves to the one who a caller is proves nothing to the other.
	for _, x := range []struct {
		m              *manager
		worker, holder *connection
		foreignKey     string
	}{{low, worker, urgent, high.key}, {high, other, low.holder("u"), low.key}} {
		x.m.want(http.StatusUnauthorized, "POST", "/v1/requests", x.holder.token, `{"id":"r"}`)
		x.m.want(http.StatusUnauthorized, "POST", "/v1/heartbeats", x.worker.token, `{"free_milli_cores":0}`)
		x.m.want(http.StatusUnauthorized, "POST", "/v1/withdrawals", x.worker.token, "")
		for token, want := range map[string]int{x.foreignKey: 403, x.holder.token: 403, x.worker.token: 403, x.m.key: 200} {
			if code, text := x.m.do(http.DefaultClient, x.m.url, "GET", "/v1/view", token, ""); code != want {
				t.Errorf("manager %s by TCP: %d %.100s, want %d", x.m.name, code, text, want)
			}
		}
		x.holder.close()
	}
	urgent = high.holder("pressing")

	spare := low.flood()
	before := saturated(low)
	last := low.worker("last", "last", 1000) // with this one no connection is left
	last.next()
	unanswered := make(chan lease.View, 1)
	go func() { unanswered <- low.view() }()

	for _, stopped := range []bool{false, true} {
		if stopped {
			low.signal(syscall.SIGSTOP)
		}
		grantAll(urgent, fmt.Sprint(stopped))
		late := high.worker("late", "high3", 4000)
		h := high.holder("late")
		high.want(http.StatusAccepted, "POST", "/v1/requests", h.token, `{"id":"wide","milli_cores":4000}`)
		late.next()
		if g := h.next(); g["host"] != "high3" {
			t.Errorf("%v is granted, want a slot of high3", g)
		}
		h.close()
		late.next()
		late.close()
		high.refused()
		low.refused()
	}
	checkTop(high)
	low.signal(syscall.SIGCONT)
	select {
	case v := <-unanswered:
		t.Fatalf("a connection was free at the low manager: %d workers", len(v.Workers))
	default:
	}
	spare.close()
	after := <-unanswered
	if len(after.Leases) != len(before.Leases)+1 || !reflect.DeepEqual(after.Leases[:len(before.Leases)], before.Leases) {
		t.Errorf("leases of the low manager changed: %d, %d before the last worker", len(after.Leases), len(before.Leases))
	}
	for _, l := range after.Leases {
		if strings.HasPrefix(l.Host, "high") {
			t.Errorf("the low manager granted %+v", l)
		}
	}
	// The name is taken as long as its manager runs, whatever became of the socket.
	if err := os.Remove(high.socket); err != nil {
		t.Fatal(err)
	}
	high.refused()
}

// saturated returns what a manager knows, all of whose slots must be held.
func saturated(m *manager) lease.View {
	m.Helper()
	v := m.view()
	for _, w := range v.Workers {
		if w.FreeMilli > 0 {
			m.Fatalf("a slot is free: %+v", w)
		}
	}
	if len(v.Waiting) < 100 || len(v.Leases) < len(v.Workers) {
		m.Fatalf("%d requests wait, %d leases are held, there are %d workers", len(v.Waiting), len(v.Leases), len(v.Workers))
	}
	return v
}

// grantAll requests all that high1, with two cores, and high2, with one, can hold, and frees it.
func grantAll(c *connection, id string) {
	c.m.Helper()
	for i, x := range []struct{ slots, milli int }{{1, 1000}, {3, 1000}, {1, 2000}, {6, 500}, {30, 100}, {1, 1}} {
		c.m.want(http.StatusAccepted, "POST", "/v1/requests", c.token, fmt.Sprintf(`{"id":"%s-%d","slots":%d,"milli_cores":%d}`, id, i, x.slots, x.milli))
		var held []any
		for range x.slots {
			g := c.next()
			if g["host"] != "high1" && g["host"] != "high2" {
				c.m.Errorf("%v is granted, want a slot of high1 or high2", g)
			}
			held = append(held, g["grant"])
		}
		for _, number := range held {
			c.m.want(http.StatusNoContent, "DELETE", fmt.Sprintf("/v1/leases/%v", number), c.token, "")
		}
	}
}

// checkTop checks that asplit top shows what the manager of the name has alone.
func checkTop(m *manager) {
	m.Helper()
	text, err := m.command("top", "--name", m.name, "--json").Output()
	var v lease.View
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Workers) != 2 || v.Workers[0].Host != "high1" || v.Workers[1].Host != "high2" || len(v.Leases)+len(v.Waiting) > 0 {
		m.Errorf("asplit top: %v, %s", err, text)
	}
	if text, err := m.command("top").CombinedOutput(); err == nil || !bytes.Contains(text, []byte("start it with asplit serve\n")) {
		m.Errorf("asplit top without a name: %v, %s", err, text)
	}
}

// TestOtherHosts: to an address that other hosts reach a worker comes by curl, with the certificate and
// the key; nothing there answers without TLS, and no file is left.
func TestOtherHosts(t *testing.T) {
	address := foreignAddress(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("skip: there is no curl")
	}
	ctx, stop := context.WithTimeout(t.Context(), managerTime)
	defer stop()
	home := managerHome(t)
	m := startManager(ctx, t, buildAsplit(t), home, "far", address)
	for file, want := range map[string]os.FileMode{"asplit-far.key": 0o600, "asplit-far.pem": 0o644} {
		if info, err := os.Stat(filepath.Join(home, file)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", file, info, err, want)
		}
	}
	header := filepath.Join(home, "header")
	if err := os.WriteFile(header, []byte("Authorization: Bearer "+m.key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(args ...string) (string, error) {
		args = append([]string{"--silent", "--noproxy", "*", "--output", filepath.Join(home, "out"), "--write-out", "%{http_code}"}, args...)
		text, err := exec.CommandContext(ctx, "curl", args...).Output()
		return string(text), err
	}
	view := m.url + "/v1/view"
	if code, err := curl("--cacert", m.certificate, "-H", "@"+header, view); code != "200" {
		t.Errorf("with certificate and key: %s, %v", code, err)
	}
	if code, err := curl("--cacert", m.certificate, view); code != "403" {
		t.Errorf("without the key: %s, %v", code, err)
	}
	if code, err := curl("-H", "@"+header, view); code != "000" || err == nil {
		t.Errorf("without the certificate: %s", code)
	}
	if code, _ := curl("-H", "@"+header, "http"+strings.TrimPrefix(view, "https")); code == "200" {
		t.Error("without TLS it answers")
	}
	worker := exec.CommandContext(ctx, "curl", "--silent", "--no-buffer", "--noproxy", "*", "--cacert", m.certificate, "-H", "@"+header,
		"-d", `{"worker":"w","host":"h","milli_cores":1000}`, m.url+"/v1/workers")
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // its token
		t.Fatal("the worker is not admitted")
	}
	h := m.holder("h")
	m.want(http.StatusAccepted, "POST", "/v1/requests", h.token, `{"id":"r"}`)
	if g := h.next(); g["worker"] != "w" || !lines.Scan() || !strings.Contains(lines.Text(), `"lock":1`) {
		t.Errorf("%v is granted, the worker gets %s", g, lines.Text())
	}
	m.signal(syscall.SIGTERM)
	for lines.Scan() {
	}
	_ = worker.Wait() // its connection ends
	_, _ = m.process.Wait()
	if left, _ := filepath.Glob(filepath.Join(home, "*.[kps]e[ym]")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// foreignAddress returns an address of this machine that is not of its loopback, with port 0.
func foreignAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return netip.AddrPortFrom(p.Addr(), 0).String()
		}
	}
	t.Skip("skip: this machine has the loopback alone")
	return ""
}

// A host that is lost acknowledges nothing: connections of --listen end then, also where the manager
// has sent something.
func TestLostHostsAreNoticed(t *testing.T) {
	l, _, err := listenAt(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	raw, err := here.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var unacknowledged, probed int
	err = raw.Control(func(fd uintptr) {
		unacknowledged, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		probed, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
	})
	if err != nil || time.Duration(unacknowledged)*time.Millisecond != unheardTime || time.Duration(probed)*time.Second != reach.KeepAlive.Idle {
		t.Errorf("%v: a connection ends after %d ms without an acknowledgement, and is probed after %d s", err, unacknowledged, probed)
	}
}
