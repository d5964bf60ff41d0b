package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/remote"
)

// makePair writes a new certificate for 127.0.0.1 and its key, and returns the certificate.
func makePair(t *testing.T, certificate, key string, serial int64) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "farm"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	der2, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(certificate, text, 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der2}), 0o600))
	return text
}

// serveTLS serves a site on its socket and by TLS, and returns where. The system's roots are
// its certificates.
func (s *site) serveTLS() (socket, address string) {
	s.t.Helper()
	c := &s.Config
	c.Listen, c.Certificate, c.Key = "127.0.0.1:0", filepath.Join(s.dir, "c.pem"), filepath.Join(s.dir, "k.pem")
	roots := makePair(s.t, filepath.Join(s.dir, "next.pem"), filepath.Join(s.dir, "next.key"), 2)
	roots = append(roots, makePair(s.t, c.Certificate, c.Key, 1)...)
	must(s.t, os.WriteFile(filepath.Join(s.dir, "roots.pem"), roots, 0o600))
	s.t.Setenv("SSL_CERT_FILE", filepath.Join(s.dir, "roots.pem")) // read once in a process
	s.t.Setenv("XDG_CONFIG_HOME", filepath.Join(s.dir, "xdg"))
	s.t.Setenv("SUDO_UID", "")
	ctx, stop := context.WithCancel(s.t.Context())
	listeners, err := Listen(ctx, *c, config.Paths{Runtime: s.dir}, s.Log)
	must(s.t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listeners...) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	return "unix://" + filepath.Join(s.dir, "allotd.sock"), "https://" + listeners[1].Addr().String()
}

// linkFor has a link made for a user of the server at an address.
func (s *site) linkFor(user, address string) string {
	s.t.Helper()
	w := s.do(user, httptest.NewRequest(http.MethodPost, "/login/link", nil))
	var l desk.Link
	must(s.t, json.Unmarshal(w.Body.Bytes(), &l))
	_, token, _ := strings.Cut(l.URL, "/login")
	return address + "/login" + token
}

func open(t *testing.T, server string) *remote.Client {
	t.Helper()
	c, err := remote.Open(server)
	must(t, err)
	return c
}

// wantError fails unless an error has this text and, if one is named, this kind.
func wantError(t *testing.T, err error, text string, kind error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || kind != nil && !errors.Is(err, kind) {
		t.Errorf("%v, want %q, %v", err, text, kind)
	}
}

// TestRemoteSession: a manager signs in to a server by a link, plans, and signs out. The
// session is the manager's file alone, is renewed, and goes to no other server.
func TestRemoteSession(t *testing.T) {
	s := newSite(t)
	socket, address := s.serveTLS()
	ctx := t.Context()
	c := open(t, address)
	_, err := c.Status(ctx)
	wantError(t, err, "does not know you: type `pba login` on a machine of the farm", nil)
	link := s.linkFor(anna, address)
	wantError(t, c.Login(ctx, s.linkFor(anna, "https://farm")), "the link is for https://farm, not for "+address, desk.ErrInvalid)
	wantError(t, c.Login(ctx, address+"/login"), "want the link", desk.ErrInvalid)
	must(t, c.Login(ctx, link))
	files, err := filepath.Glob(filepath.Join(s.dir, "xdg", "allotment", "sessions", "*"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("sessions: %q", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	weeks, err := c.SetAllocation(ctx, desk.Pool{Project: "chipA"}, desk.Terms{Slots: 2}, desk.When{Weeks: "2"}, "from afar")
	if d := cmp.Diff([]calendar.Week{{Year: 2026, Week: 48}, {Year: 2026, Week: 49}}, weeks); d != "" || err != nil {
		t.Error(err, d)
	}
	log, err := c.Changes(ctx, desk.LogQuery{Limit: 1})
	if err != nil || log[0].Who != "anna (uid 5001) by page" || log[0].Comment != "from afar" {
		t.Errorf("%+v, %v", log, err)
	}
	_, err = c.SetAllocation(ctx, desk.Pool{Project: "chipB"}, desk.Terms{Slots: 2}, desk.When{}, "")
	wantError(t, err, "plan for chipB: you are anna (uid 5001) by page: only its managers", desk.ErrDenied)
	_, err = c.SetAllocation(ctx, desk.Pool{Project: "chipA"}, desk.Terms{Slots: -1}, desk.When{}, "")
	wantError(t, err, "slots: expected number", desk.ErrInvalid)
	for _, name := range []string{"", ".", ".."} {
		_, err = c.SetAllocation(ctx, desk.Pool{Project: name}, desk.Terms{Slots: 1}, desk.When{}, "")
		wantError(t, err, "unknown project", nil)
	}

	p, err := c.Copy(ctx, "now", "+2", []string{"chipA"}, "")
	must(t, err)
	if _, err := open(t, socket).SetAllocation(ctx, desk.Pool{Project: "chipB"}, desk.Terms{Slots: 1}, desk.When{Week: "+2"}, ""); err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(ctx)
	wantError(t, err, "copy: another edit changed the plan meanwhile: nothing is applied; run it again", nil)

	before, err := os.ReadFile(files[0])
	must(t, err)
	s.now = s.now.Add(rotateEvery + time.Minute)
	for range 2 {
		_, err = c.Status(ctx)
		must(t, err)
	}
	if after, err := os.ReadFile(files[0]); err != nil || string(after) == string(before) {
		t.Errorf("the session is not renewed: %v", err)
	}

	must(t, os.Chmod(files[0], 0o640))
	_, err = c.Status(ctx)
	wantError(t, err, files[0]+": not trusted: others can read it (mode 0640)", nil)
	must(t, os.Chmod(files[0], 0o600))
	must(t, c.Logout(ctx))
	_, err = c.Status(ctx)
	wantError(t, err, "does not know you", nil)
	wantError(t, c.Login(ctx, link), "the link was used before", nil)
	if _, err := os.Stat(files[0]); !os.IsNotExist(err) {
		t.Errorf("the session is left: %v", err)
	}
}

// TestRemoteIsAsLocal: a server's answers are, printed as JSON, those of a desk.
func TestRemoteIsAsLocal(t *testing.T) {
	s := newSite(t)
	socket, _ := s.serveTLS()
	c, ctx := open(t, socket), t.Context()
	d, err := s.Desks.Open(ctx, s.accounts.known[operator].Visitor)
	must(t, err)
	defer d.Close()
	for i := range 3 {
		if _, err := c.Ask(ctx, desk.Pool{Project: "chipA"}, 4, desk.When{Week: "+1", Weeks: string(rune('1' + i))}, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if r, changes, err := c.Grant(ctx, 2, "yes"); err != nil || r.By != "root" && r.By == "" || len(changes) != 2 {
		t.Errorf("%+v, %v, %v", r, changes, err)
	}
	same := func(what string, here, there any, errs ...error) {
		t.Helper()
		must(t, errors.Join(errs...))
		a, err := json.MarshalIndent(here, "", " ")
		must(t, err)
		b, err := json.MarshalIndent(there, "", " ")
		must(t, err)
		if d := cmp.Diff(strings.Split(string(a), "\n"), strings.Split(string(b), "\n")); d != "" {
			t.Errorf("%s (-here +there):\n%s", what, d)
		}
	}
	span := desk.Span{Since: 7 * 24 * time.Hour}
	period, err := d.Period("", span)
	must(t, err)
	asked, err := c.Period("", span)
	must(t, err)
	{
		here, err := d.Projects(ctx)
		there, err2 := c.Projects(ctx)
		same("projects", here, there, err, err2)
	}
	{
		here, err := d.Allocations(ctx, "chipA", desk.When{Weeks: "3"})
		there, err2 := c.Allocations(ctx, "chipA", desk.When{Weeks: "3"})
		same("allocations", here, there, err, err2)
	}
	none := ""
	for _, q := range []desk.GridQuery{{}, {ByStep: true, ByUser: true, ByHosts: true, ByTerms: true, Projects: []string{"chipA", "chipB"}}, {Hosts: &none}} {
		here, err := d.Grid(ctx, q, desk.When{Weeks: "4"})
		there, err2 := c.Grid(ctx, q, desk.When{Weeks: "4"})
		same("grid", here, there, err, err2)
	}
	{
		here, err := d.Requests(ctx, "", true)
		there, err2 := c.Requests(ctx, "", true)
		same("requests", here, there, err, err2)
	}
	{
		here, err := d.Changes(ctx, desk.LogQuery{Limit: 9})
		there, err2 := c.Changes(ctx, desk.LogQuery{Limit: 9})
		same("log", here, there, err, err2)
	}
	{
		here, err := d.Undo(ctx, 0, "")
		there, err2 := c.Undo(ctx, 0, "")
		must(t, errors.Join(err, err2))
		same("undo", []any{here.Lines, here.Undoes, here.Request, here.Over}, []any{there.Lines, there.Undoes, there.Request, there.Over})
	}
	{
		here, err := d.Status(ctx)
		there, err2 := c.Status(ctx)
		same("status", here, there, err, err2)
	}
	for _, j := range s.queue.farm.Jobs {
		id := j.ID
		here, err := d.Explain(ctx, id)
		there, err2 := c.Explain(ctx, id)
		same("explain", here, there, err, err2)
	}
	{
		here, err := d.Usage(ctx, period)
		there, err2 := c.Usage(ctx, asked)
		same("usage", here, there, err, err2)
	}
	{
		by := []desk.By{"project", "week"}
		here, err := d.UsageBy(ctx, period, by)
		there, err2 := c.UsageBy(ctx, asked, by)
		same("usage by", here, there, err, err2)
	}
	{
		here, err := d.Waits(ctx, period, nil)
		there, err2 := c.Waits(ctx, asked, nil)
		same("waits", here, there, err, err2)
	}
	{
		here, err := d.Victims(ctx, period, nil)
		there, err2 := c.Victims(ctx, asked, nil)
		same("victims", here, there, err, err2)
	}
}

// TestRemoteTrustsNoOther: a session goes to no other server than its own, and what is no
// allotd is named.
func TestRemoteTrustsNoOther(t *testing.T) {
	s := newSite(t)
	_, address := s.serveTLS()
	ctx := t.Context()
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	stranger.Config.ErrorLog = nil
	_, err := open(t, stranger.URL).Status(ctx)
	wantError(t, err, "failed to verify certificate", nil)
	if desk.Temporary(err) {
		t.Error("a wrong certificate is temporary")
	}
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	answer := func(status int, header, value, body string) error {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header, value)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body)) // the client may be gone
		}))
		defer server.Close()
		_, err := open(t, server.URL).Status(ctx)
		return err
	}
	for _, status := range []int{301, 302, 307, 308} {
		wantError(t, answer(status, "Location", other.URL, ""), "as no allotd does", nil)
	}
	if asked > 0 {
		t.Error("a redirect is followed")
	}
	wantError(t, answer(200, "Content-Type", "text/html", "{}"), "as no allotd does", nil)
	wantError(t, answer(200, "Content-Type", "application/json", "{"), "read the answer of", nil)
	if err := answer(502, "Content-Type", "text/html", "<p>Bad gateway"); !desk.Temporary(err) {
		t.Errorf("a proxy without a server: %v", err)
	}
	const problem = "application/problem+json"
	if err := answer(503, "Content-Type", problem, `{"detail": "locked"}`); err.Error() != "locked" || !desk.Temporary(err) {
		t.Errorf("busy: %v", err)
	}
	wantError(t, answer(412, "Content-Type", problem, `{"detail": "changed"}`), "changed", desk.ErrChanged)
	_, err = open(t, strings.Replace(address, "https", "http", 1)).Status(ctx)
	wantError(t, err, "", nil)
	_, err = open(t, "http://192.0.2.1:1").Status(ctx)
	wantError(t, err, "http is for this machine alone", desk.ErrInvalid)
	if err := open(t, "unix://"+filepath.Join(s.dir, "nothing")).Login(ctx, "x"); !errors.Is(err, desk.ErrInvalid) {
		t.Error(err)
	}
}

// TestRenewedCertificateNeedsNoRestart: it is used for the next connection. One that can't be
// read leaves the former one, and is logged once.
func TestRenewedCertificateNeedsNoRestart(t *testing.T) {
	s := newSite(t)
	_, address := s.serveTLS()
	serial := func(want int64) {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "https://")) //nolint:gosec // it is the certificate that is looked at
		must(t, err)
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("certificate %d, want %d", got, want)
		}
	}
	serial(1)
	must(t, os.Rename(filepath.Join(s.dir, "next.pem"), s.Config.Certificate)) // the key is still the old one
	serial(1)
	serial(1)
	if n := strings.Count(s.log.String(), "the former one is kept"); n != 1 {
		t.Errorf("logged %d times: %s", n, s.log.String())
	}
	must(t, os.Rename(filepath.Join(s.dir, "next.key"), s.Config.Key))
	serial(2)
	must(t, os.Remove(s.Config.Key))
	serial(2)
	if n := strings.Count(s.log.String(), "the former one is kept"); n != 2 || !strings.Contains(s.log.String(), "the new one is used") {
		t.Errorf("logged %d times: %s", n, s.log.String())
	}
}
