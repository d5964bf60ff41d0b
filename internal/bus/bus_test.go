package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/allotment-hpc/allotment/test/await"
)

// newHub opens a hub that other machines could join, in a directory.
func newHub(t *testing.T, dir string, change func(*HubOptions)) *Hub {
	t.Helper()
	o := HubOptions{Dir: dir, Machine: "farm", Listen: "127.0.0.1:0", Enrol: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&o)
	}
	h, err := OpenHub(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(func() {
		select {
		case <-h.closed: // by the test
		default:
			h.Close()
		}
	}))
	return h
}

// hubDir is a directory for a hub, by a umask that others' programs have.
func hubDir(t *testing.T) string {
	t.Helper()
	t.Cleanup(func() func() { old := syscall.Umask(0o022); return func() { syscall.Umask(old) } }())
	return filepath.Join(t.TempDir(), "bus")
}

// enrolment makes an enrolment.
func enrolment(t *testing.T, h *Hub, secret bool) Enrolment {
	t.Helper()
	e, err := h.Enrol(secret, 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newLink runs the link of a host until the test ends.
func newLink(t *testing.T, host string, e Enrolment) *Link {
	t.Helper()
	l, err := NewLink(LinkOptions{Dir: t.TempDir(), Host: host, Enrolment: func() (Enrolment, error) { return e, nil }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	run(t, l)
	return l
}

func run(t *testing.T, l *Link) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !await.Soon(holds) {
		t.Fatalf("in vain: %s", what)
	}
}

// A host has a new identity before the old one ends, and loses no heartbeat over it; one that
// gets none is out when its identity ends, and says why.
func TestIdentityIsRenewed(t *testing.T) {
	h := newHub(t, hubDir(t), nil)
	h.keys.lasts = 4 * time.Second
	e := enrolment(t, h, true)
	var gone atomic.Bool
	heard := make(chan string, 1)
	h.Receive("beat", func(m Message) { heard <- m.Host + " " + string(m.Payload) })
	link := func(host string, e func() (Enrolment, error)) (l *Link, out *atomic.Int64) {
		out = new(atomic.Int64)
		l, err := NewLink(LinkOptions{Dir: t.TempDir(), Host: host, Enrolment: e, Log: slog.New(counting{slog.NewTextHandler(t.Output(), nil), "not connected to the bus", out})})
		if err != nil {
			t.Fatal(err)
		}
		run(t, l)
		until(t, host+" is connected", connected(l))
		return l, out
	}
	good, goodOut := link("good", func() (Enrolment, error) { return e, nil })
	bad, badOut := link("bad", func() (Enrolment, error) {
		if gone.Load() {
			return Enrolment{}, errors.New("the enrolment is gone")
		}
		return e, nil
	})
	began := time.Now()
	gone.Store(true)
	each := time.NewTicker(time.Second / 4) // less than a host may send
	defer each.Stop()
	for n := 1; time.Since(began) < 2*h.keys.lasts || badOut.Load() == 0; n++ {
		if err := good.Publish("beat", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-heard:
			if got != fmt.Sprintf("good %d", n) {
				t.Fatalf("heartbeat %d is heard as %q", n, got)
			}
		case <-time.After(time.Minute):
			t.Fatalf("heartbeat %d is lost", n)
		}
		<-each.C
	}
	if goodOut.Load() > 0 {
		t.Error("the host with an enrolment was disconnected")
	}
	until(t, "the other says why it is out", func() bool { return strings.Contains(bad.State().Why, "the enrolment is gone") })
}

// counting counts the records with a message.
type counting struct {
	slog.Handler
	message string
	n       *atomic.Int64
}

func (c counting) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == c.message {
		c.n.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

func connected(l *Link) func() bool { return func() bool { return l.State().Connected } }

// inbox keeps the messages of a kind.
type inbox struct {
	mu  sync.Mutex
	all []string
}

func hear(h *Hub, kind string) *inbox {
	var in inbox
	h.Receive(kind, func(m Message) {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.all = append(in.all, m.Host+" "+string(m.Payload[:min(len(m.Payload), 20)])); len(in.all) > 10_000 {
			in.all = in.all[5000:]
		}
	})
	return &in
}

func (in *inbox) has(text string) func() bool {
	return func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, m := range in.all {
			if m == text {
				return true
			}
		}
		return false
	}
}

// TestBothWays: a host with a secret is admitted, is heard by its own name, and hears.
func TestBothWays(t *testing.T) {
	dir := hubDir(t)
	h := newHub(t, dir, nil)
	beats := hear(h, "beat")
	l := newLink(t, "n1.farm.example", enrolment(t, h, true))
	heard := make(chan string, 1)
	l.Receive("limits", func(b []byte) { heard <- string(b) })
	if err := l.Publish("beat", []byte("first")); err != nil { // before there is a connection
		t.Fatal(err)
	}
	until(t, "a beat is heard", beats.has("n1.farm.example first"))
	if err := h.Send("n1.farm.example", "limits", []byte("half")); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "half" {
		t.Errorf("the host hears %q", got)
	}
	for _, name := range []string{authorityName, registryName} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	seed := filepath.Join(l.o.Dir, "bus-n1.farm.example.seed")
	if info, err := os.Stat(seed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the host's key: %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, registryName)); err != nil || strings.Contains(string(text), enrolmentSecret(l)) {
		t.Errorf("the secret is saved as it is: %v, %s", err, text)
	}
}

func enrolmentSecret(l *Link) string { e, _ := l.o.Enrolment(); return e.Secret }

// raw connects as an enrolled host does, but without its manners.
func raw(t *testing.T, h *Hub, l *Link, more ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	identity, err := h.keys.hostIdentity(l.o.Host, l.Key(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return nats.Connect(fmt.Sprintf("tls://127.0.0.1:%d", h.port), append([]nats.Option{
		nats.Secure(pinned(h.keys.fingerprint())), nats.TLSHandshakeFirst(), nats.NoReconnect(), nats.Timeout(30 * time.Second),
		nats.UserJWT(func() (string, error) { return identity, nil }, l.key.Sign), nats.PermissionErrOnSubscribe(true),
	}, more...)...)
}

// next waits for an error for a minute; nil: there is none.
func next(errs chan error) error {
	select {
	case err := <-errs:
		return err
	case <-time.After(time.Minute):
		return nil
	}
}

// TestKeptApart: a host neither publishes for another, nor hears what is for others.
func TestKeptApart(t *testing.T) {
	h := newHub(t, hubDir(t), nil)
	beats := hear(h, "beat")
	e := enrolment(t, h, true)
	n1, n2 := newLink(t, "n1", e), newLink(t, "n2", e)
	until(t, "both are connected", func() bool { return n1.State().Connected && n2.State().Connected })
	denied := make(chan error, 100)
	conn, err := raw(t, h, n1, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{fromHosts + "n2.beat", fromHosts + "n1:x.beat", "allotment.host", toHosts + "n2.limits", toHosts + "n1.limits", "$SYS.REQ.SERVER.PING", "_INBOX.x", "other"} {
		if err := conn.Publish(subject, []byte("forged")); err != nil {
			t.Fatal(err)
		}
		if err := next(denied); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("publish %s: %v", subject, err)
		}
	}
	for _, subject := range []string{">", "allotment.>", "allotment.to.>", "allotment.to.*.limits", toHosts + "n2.limits", fromHosts + ">", fromHosts + "n1.beat", "$SYS.>", "_INBOX.>"} {
		sub, err := conn.SubscribeSync(subject)
		if err == nil {
			_, err = sub.NextMsg(time.Minute)
		}
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("subscribe to %s: %v", subject, err)
		}
	}
	if err := conn.Publish(fromHosts+"n1.beat", []byte("last")); err != nil {
		t.Fatal(err)
	}
	until(t, "its own beat is heard", beats.has("n1 last"))
	if beats.has("n2 forged")() || beats.has("n1.x forged")() {
		t.Error("a forged message was heard")
	}
}

// TestWithdrawn: a withdrawn host is out within 5 s, and stays out after a restart, with its
// secret and its old identity; approved, it is back.
func TestWithdrawn(t *testing.T) {
	dir := hubDir(t)
	h := newHub(t, dir, nil)
	e := enrolment(t, h, true)
	l, stays := newLink(t, "n1", e), newLink(t, "n2", e)
	until(t, "both are connected", func() bool { return l.State().Connected && stays.State().Connected })
	other, err := raw(t, h, stays)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lost := make(chan struct{})
	conn, err := raw(t, h, l, nats.ClosedHandler(func(*nats.Conn) { close(lost) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	old, err := h.keys.hostIdentity("n1", l.Key(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if may := h.Admitted(); !may["n1"] || !may["n2"] || len(may) != 2 {
		t.Errorf("admitted are %v", may)
	}
	began := time.Now()
	if _, err := h.Withdraw("n1"); err != nil {
		t.Fatal(err)
	}
	<-lost
	if may := h.Admitted(); may["n1"] || !may["n2"] {
		t.Errorf("admitted are %v", may)
	}
	until(t, "it is disconnected", func() bool { return !l.State().Connected })
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it was out after %v", d)
	}
	if err := other.FlushTimeout(time.Minute); err != nil {
		t.Errorf("another host is out, too: %v", err)
	}
	again := func(h *Hub) error {
		conn, err := nats.Connect(fmt.Sprintf("tls://127.0.0.1:%d", h.port), nats.Secure(pinned(h.keys.fingerprint())), nats.TLSHandshakeFirst(), nats.Timeout(30*time.Second),
			nats.UserJWT(func() (string, error) { return old, nil }, l.key.Sign))
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := again(h); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("with its old identity: %v", err)
	}
	until(t, "it waits", func() bool { return strings.Contains(l.State().Why, "the host was withdrawn") })
	h.Close()
	h = newHub(t, dir, func(o *HubOptions) { o.Enrol = e.Address })
	if err := again(h); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("after a restart, with its old identity: %v", err)
	}
	until(t, "it waits again", func() bool { _, w := h.Hosts(); return len(w) == 1 && w[0].Why == "the host was withdrawn" })
	if _, err := h.Approve("n1", "", "root"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is back", connected(l))
}

// TestUnapproved: a host without a secret, or with a bad one, sees nothing until it is approved.
func TestUnapproved(t *testing.T) {
	h := newHub(t, hubDir(t), nil)
	e := enrolment(t, h, true)
	withdrawn := enrolment(t, h, true)
	if err := h.WithdrawSecret(hashOf(withdrawn.Secret)[:8]); err != nil {
		t.Fatal(err)
	}
	expired, err := h.Enrol(true, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	none := e
	none.Secret = ""
	for host, c := range map[string]struct {
		e   Enrolment
		why string
	}{"none": {none, "no secret"}, "withdrawn": {withdrawn, "withdrawn, expired or unknown"}, "expired": {expired, "withdrawn, expired or unknown"}} {
		l := newLink(t, host, c.e)
		until(t, host+" waits", func() bool { return strings.Contains(l.State().Why, c.why) })
		if _, a, err := l.ask(t.Context(), c.e); err != nil || a.Identity != "" || a.Port != 0 || len(a.Servers) != 0 {
			t.Errorf("%s: it is told %+v, %v", host, a, err)
		}
	}
	if _, waiting := h.Hosts(); len(waiting) != 3 {
		t.Errorf("these wait: %v", waiting)
	}
	// A key that was not admitted, with an identity that it signed itself.
	stranger, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	forged, pair, err := h.keys.ownIdentity(stranger)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]nats.Option{
		"no identity": nats.Name("x"), "a password": nats.UserInfo("allotd", "x"),
		"a forged identity": nats.UserJWT(func() (string, error) { return forged, nil }, pair.Sign),
	} {
		conn, err := nats.Connect(fmt.Sprintf("tls://127.0.0.1:%d", h.port), nats.Secure(pinned(h.keys.fingerprint())), nats.TLSHandshakeFirst(), nats.Timeout(30*time.Second), o)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// TestNameTaken: a secret does not replace the key of an enrolled host, and a copied key enrols
// no second one.
func TestNameTaken(t *testing.T) {
	h := newHub(t, hubDir(t), nil)
	e := enrolment(t, h, true)
	first := newLink(t, "n1", e)
	until(t, "it is connected", connected(first))
	other := newLink(t, "n1", e)
	until(t, "the other waits", func() bool { return strings.Contains(other.State().Why, "another key is enrolled for this name") })
	if !first.State().Connected {
		t.Error("the first one is gone")
	}
	if _, err := askRemote(e.Address, e.Fingerprint).ask(t.Context(), request{Host: "n2", Key: first.Key(), Secret: e.Secret}); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "this key is that of host n1") {
		t.Errorf("a copied key: %v", err)
	}
	if _, err := h.Approve("n1", other.Key(), "root"); err != nil {
		t.Fatal(err)
	}
	until(t, "they changed places", func() bool { return other.State().Connected && !first.State().Connected })
}

// TestForeignAuthority: nothing is sent to a server whose authority is another one.
func TestForeignAuthority(t *testing.T) {
	h, other := newHub(t, hubDir(t), nil), newHub(t, hubDir(t), nil)
	e := enrolment(t, h, true)
	e.Fingerprint = other.keys.fingerprint()
	l := newLink(t, "n1", e)
	until(t, "it refuses", func() bool { return strings.Contains(l.State().Why, errForeignAuthority.Error()) })
	if hosts, waiting := h.Hosts(); len(hosts)+len(waiting) > 0 {
		t.Errorf("it asked: %v, %v", hosts, waiting)
	}
	// A server that only shows the authority's certificate does not have its key.
	foreign, err := other.keys.certificate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign.Certificate[1] = h.keys.ca.Raw
	e = enrolment(t, other, true)
	e.Fingerprint = h.keys.fingerprint()
	if _, err := askRemote(e.Address, e.Fingerprint).ask(t.Context(), request{Host: "n1", Key: l.Key()}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stolen certificate: %v", err)
	}
}

// TestReturns: hosts return by themselves when allotd was away, and send what is newest.
func TestReturns(t *testing.T) {
	dir := hubDir(t)
	h := newHub(t, dir, nil)
	e := enrolment(t, h, true)
	l := newLink(t, "n1", e)
	until(t, "it is connected", connected(l))
	h.Close()
	until(t, "it notices", func() bool { return !l.State().Connected })
	for i := range 100_000 {
		if err := l.Publish("beat", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	h = newHub(t, dir, func(o *HubOptions) { o.Enrol = e.Address })
	beats := hear(h, "beat")
	until(t, "it is back", beats.has("n1 99999"))
	beats.mu.Lock()
	defer beats.mu.Unlock()
	if len(beats.all) != 1 {
		t.Errorf("it sent %d beats", len(beats.all))
	}
}

// TestBox: what is kept has a bound, and the newest of a kind counts.
func TestBox(t *testing.T) {
	l := &Link{wake: make(chan struct{}, 1)}
	for i := range 1000 {
		if err := l.Publish(fmt.Sprintf("k%d", i), make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.box) != maxKinds || l.box[maxKinds-1].kind != "k999" {
		t.Errorf("%d messages, the last is %s", len(l.box), l.box[len(l.box)-1].kind)
	}
	for i := range 100 {
		if err := l.Publish(fmt.Sprintf("big%d", i), make([]byte, MaxPayload)); err != nil {
			t.Fatal(err)
		}
	}
	if l.boxBytes > maxBoxBytes || len(l.box) != maxBoxBytes/MaxPayload {
		t.Errorf("%d messages of %d bytes", len(l.box), l.boxBytes)
	}
	all := l.take()
	if err := l.Publish("big99", []byte("new")); err != nil {
		t.Fatal(err)
	}
	l.put(all[len(all)-1], false)
	if len(l.box) != 1 || string(l.box[0].payload) != "new" {
		t.Errorf("an old message replaced a new one")
	}
	if err := l.Publish("beat", make([]byte, MaxPayload+1)); err == nil {
		t.Error("a giant message is taken")
	}
}

// TestFlood: a host that floods is disconnected, others are heard meanwhile.
func TestFlood(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": MaxPayload / 4} {
		t.Run(name, func(t *testing.T) { flood(t, size) })
	}
}

func flood(t *testing.T, size int) {
	t.Helper()
	h := newHub(t, hubDir(t), nil)
	beats := hear(h, "beat")
	e := enrolment(t, h, true)
	bad, good := newLink(t, "bad", e), newLink(t, "good", e)
	until(t, "both are connected", func() bool { return bad.State().Connected && good.State().Connected })
	conn, err := raw(t, h, bad)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop := make(chan struct{})
	flooding := make(chan int)
	go func() {
		n := 0
		for ; conn.Publish(fromHosts+"bad.beat", make([]byte, size)) == nil; n++ {
			select {
			case <-stop:
			default:
			}
		}
		flooding <- n
	}()
	still, err := raw(t, h, good)
	if err != nil {
		t.Fatal(err)
	}
	defer still.Close()
	for i := range 20 {
		if err := good.Publish("beat", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
		until(t, "the good one is heard", beats.has(fmt.Sprintf("good %d", i)))
	}
	close(stop)
	t.Logf("%d messages until it was disconnected", <-flooding)
	if _, err := askRemote(e.Address, e.Fingerprint).ask(t.Context(), request{Host: "bad", Key: bad.Key()}); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "sent too much") {
		t.Errorf("it joins again at once: %v", err)
	}
	if err := still.FlushTimeout(time.Minute); err != nil {
		t.Errorf("the good one was disconnected: %v", err)
	}
	// One giant message, whatever the client believes.
	giant, err := raw(t, h, good)
	if err != nil {
		t.Fatal(err)
	}
	defer giant.Close()
	if err := giant.Publish(fromHosts+"good.beat", make([]byte, 8<<20)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a giant message: %v", err)
	}
}

// TestTooManyConnections: a host can't take the places of others.
func TestTooManyConnections(t *testing.T) {
	h := newHub(t, hubDir(t), nil)
	e := enrolment(t, h, true)
	bad, good := newLink(t, "bad", e), newLink(t, "good", e)
	until(t, "both are connected", func() bool { return bad.State().Connected && good.State().Connected })
	still, err := raw(t, h, good)
	if err != nil {
		t.Fatal(err)
	}
	defer still.Close()
	refused := false
	for i := 0; i < 500 && !refused; i++ {
		conn, err := raw(t, h, bad)
		if refused = errors.Is(err, nats.ErrAuthorization); err == nil {
			defer conn.Close()
		}
	}
	if !refused {
		t.Error("500 connections are accepted")
	}
	until(t, "it is disconnected", func() bool { return strings.Contains(bad.State().Why, "too many connections") })
	if err := still.FlushTimeout(time.Minute); err != nil {
		t.Errorf("the good one was disconnected: %v", err)
	}
}

// TestSitesServers: with a server of the site, configured as allotd says, hosts join, are kept
// apart, and are withdrawn at once; hosts stay while allotd is away.
func TestSitesServers(t *testing.T) {
	dir := hubDir(t)
	first := newHub(t, dir, nil) // makes the keys
	text, err := first.SiteConfig()
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	site := t.TempDir()
	config := filepath.Join(site, "nats.conf")
	text = strings.ReplaceAll(text, "./jwt", filepath.Join(site, "jwt")) + "listen: 127.0.0.1:-1\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the site's server does not start")
	}
	servers := func(o *HubOptions) { o.Listen, o.Servers = "", []string{s.ClientURL()} }
	h := newHub(t, dir, servers)
	beats := hear(h, "beat")
	e := enrolment(t, h, true)
	n1, n2 := newLink(t, "n1", e), newLink(t, "n2", e)
	for _, l := range []*Link{n1, n2} {
		until(t, "it is connected", connected(l))
		if err := l.Publish("beat", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both are heard", func() bool { return beats.has("n1 x")() && beats.has("n2 x")() })
	heard := make(chan string, 1)
	n1.Receive("limits", func(b []byte) { heard <- string(b) })
	if err := h.Send("n1", "limits", []byte("half")); err != nil || <-heard != "half" {
		t.Errorf("send: %v", err)
	}
	identity, err := h.keys.hostIdentity("n1", n1.Key(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 10)
	conn, err := nats.Connect(s.ClientURL(), nats.UserJWT(func() (string, error) { return identity, nil }, n1.key.Sign), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Publish(fromHosts+"n2.beat", []byte("forged")); err != nil {
		t.Fatal(err)
	}
	if err := next(denied); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a forged message: %v", err)
	}
	began := time.Now()
	if _, err := h.Withdraw("n1"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is withdrawn", func() bool { return !n1.State().Connected })
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it was out after %v", d)
	}
	h.Close()
	if !n2.State().Connected {
		t.Error("without allotd, the other host left")
	}
	h = newHub(t, dir, func(o *HubOptions) { servers(o); o.Enrol = e.Address })
	beats = hear(h, "beat")
	until(t, "it is heard again", func() bool {
		if err := n2.Publish("beat", []byte("y")); err != nil {
			t.Fatal(err)
		}
		return beats.has("n2 y")()
	})
}

// TestLocal: a host of allotd's own machine needs no enrolment; one of another name waits.
func TestLocal(t *testing.T) {
	h := newHub(t, hubDir(t), func(o *HubOptions) { o.Enrol = "" })
	dir, err := os.MkdirTemp("", "bus-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "allotd.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+JoinPath, h.AnswerLocal)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for _, host := range []string{"farm", "other"} {
		link, err := NewLink(LinkOptions{Dir: filepath.Join(dir, host), Host: host, Socket: socket, Enrolment: func() (Enrolment, error) { return Enrolment{}, nil }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		run(t, link)
		until(t, "it stands", func() bool {
			s := link.State()
			return s.Connected == (host == "farm") && (s.Connected || strings.Contains(s.Why, "allotd approve other"))
		})
	}
}

// TestFound: what is found is an address alone. A server of another authority is refused, and
// the next one is tried.
func TestFound(t *testing.T) {
	h, forged := newHub(t, hubDir(t), nil), newHub(t, hubDir(t), nil)
	e := enrolment(t, h, true)
	found := []string{enrolment(t, forged, false).Address, "nonsense", e.Address}
	e.Address = "-"
	var refused atomic.Int32
	l, err := NewLink(LinkOptions{
		Dir: t.TempDir(), Host: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Enrolment: func() (Enrolment, error) { return e, nil },
		Find: func(context.Context) (string, error) {
			n := int(refused.Add(1)) - 1
			return found[min(n, len(found)-1)], nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, l)
	until(t, "it joins", connected(l))
	if hosts, waiting := forged.Hosts(); refused.Load() < 3 || len(hosts)+len(waiting) > 0 {
		t.Errorf("it asked the forged one: %v, %v, after %d", hosts, waiting, refused.Load())
	}
	if port, err := h.JoinPort(); err != nil || !strings.HasSuffix(found[2], fmt.Sprint(":", port)) {
		t.Errorf("%d, %v", port, err)
	}
}
