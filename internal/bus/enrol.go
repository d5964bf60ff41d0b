package bus

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/allotment-hpc/allotment/internal/listen"
)

// Enrolment is what a host needs to join from another machine: one line of text.
type Enrolment struct {
	Address     string // HOST:PORT where hosts ask to be admitted; "-": it is found otherwise
	Fingerprint string // of the authority
	Secret      string // "": the host waits to be approved
}

// String is the line that ParseEnrolment reads.
func (e Enrolment) String() string {
	return strings.TrimSpace(strings.Join([]string{e.Address, e.Fingerprint, e.Secret}, " "))
}

// ParseEnrolment reads a line: address, fingerprint and, or not, secret. Empty lines and such
// that begin with # are skipped; without another line it is zero.
func ParseEnrolment(text string) (Enrolment, error) {
	var e Enrolment
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if e != (Enrolment{}) {
			return Enrolment{}, errors.New("it has more than one line")
		}
		fields := strings.Fields(line)
		if len(fields) < 2 || len(fields) > 3 {
			return Enrolment{}, errors.New("want ADDRESS FINGERPRINT [SECRET], as allotd enrol prints it")
		}
		e.Address, e.Fingerprint = fields[0], fields[1]
		if len(fields) == 3 {
			e.Secret = fields[2]
		}
		if _, port, err := splitAddress(e.Address); e.Address != "-" && (err != nil || port == 0) {
			return Enrolment{}, fmt.Errorf("%.80q is no HOST:PORT", e.Address)
		}
		digits, ok := strings.CutPrefix(e.Fingerprint, fingerprintPrefix)
		if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != 32 || strings.ToLower(digits) != digits {
			return Enrolment{}, fmt.Errorf("%.80q is no fingerprint: want sha256: and 64 hexadecimal digits", e.Fingerprint)
		}
		if len(e.Secret) > maxSecret || strings.ContainsFunc(e.Secret, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return Enrolment{}, errors.New("the secret is none that allotd enrol printed")
		}
	}
	return e, nil
}

// maxSecret bounds a secret's length.
const maxSecret = 128

// splitAddress splits HOST:PORT.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%.80q: want ADDRESS:PORT", address)
	}
	return host, int(n), nil
}

// admission is allotd's answer to a request.
type admission struct {
	Waiting   string   `json:"waiting,omitempty"` // why; "": admitted
	Identity  string   `json:"identity,omitempty"`
	Port      int      `json:"port,omitempty"` // of the bus, at the address that answers
	Servers   []string `json:"servers,omitempty"`
	CA        string   `json:"ca,omitempty"`          // of Servers, PEM
	Authority string   `json:"fingerprint,omitempty"` // of the bus at Port
}

// Bounds of a request and its answer, in bytes.
const (
	maxRequest = 4 << 10
	maxAnswer  = 256 << 10
)

// JoinPath is where hosts ask to be admitted: of other machines at the address of the config,
// of this one on allotd's socket.
const JoinPath = "/bus/join"

// AnswerLocal answers a host of this machine, whose request came from its root, or from the
// user who runs allotd: it is admitted by the machine's name.
func (h *Hub) AnswerLocal(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, origin{address: "this machine", machine: h.o.Machine})
}

// answerRemote answers a host of another machine.
func (h *Hub) answerRemote(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, origin{address: listen.Network(r.RemoteAddr)})
}

func (h *Hub) answer(w http.ResponseWriter, r *http.Request, from origin) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var q request
	if err == nil {
		q, err = parseRequest(text)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := h.admit(q, from, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the host may be gone
}

// parseRequest reads a host's request.
func parseRequest(text []byte) (request, error) {
	var q request
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&q); err != nil {
		return request{}, fmt.Errorf("the request is no JSON: %w", err)
	}
	if len(q.Secret) > maxSecret {
		return request{}, errors.New("the secret is too long")
	}
	return q, q.check()
}

// admit decides about a request, and makes the host's identity.
func (h *Hub) admit(q request, from origin, now time.Time) (admission, error) {
	var a admission
	h.hosts.Lock()
	v, change, err := h.join(q, from, now)
	if err == nil && v.admitted {
		a, err = h.admission(q, now)
	}
	h.hosts.Unlock()
	if err != nil {
		return admission{}, err
	}
	if v.changed {
		if err := h.save(change); err != nil {
			return admission{}, err
		}
		h.o.Log.Info("a host is enrolled", "host", q.Host, "by", v.by, "from", from.address)
	}
	if !v.admitted {
		return admission{Waiting: v.why}, nil
	}
	return a, nil
}

// join decides about a request, and returns the number of the change that it made. The caller holds
// the list.
func (h *Hub) join(q request, from origin, now time.Time) (v verdict, change uint64, err error) {
	if until, at := h.faults[q.Host]; at && now.Before(until) && h.list.Hosts[q.Host].Key == q.Key {
		return v, 0, errors.New("this host sent too much, or opened too many connections, and may join again in a minute")
	}
	v, err = h.list.join(q, from, now)
	if err == nil && v.changed {
		change = h.note()
	}
	return v, change, err
}

// admission is the answer to a host that is admitted.
func (h *Hub) admission(q request, now time.Time) (a admission, err error) {
	a.Servers, a.CA = h.o.Servers, h.ca
	if h.server != nil {
		a.Port, a.Authority = h.port, h.keys.fingerprint()
	}
	a.Identity, err = h.keys.hostIdentity(q.Host, q.Key, now)
	return a, err
}

// joinServer is where hosts of other machines ask.
type joinServer struct {
	http    *http.Server
	address string // HOST:PORT by which they reach it
	port    int    // that it listens on
}

// Bounds of the connections of hosts that ask, and of those from one address: many hosts may be
// behind one.
const (
	maxJoins     = 256
	maxJoinsFrom = 64 // where HubOptions.Joins is 0
)

// listenForJoins serves hosts that ask. Nothing but the request is answered.
func (h *Hub) listenForJoins(ctx context.Context) (*joinServer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", h.o.Enrol)
	if err != nil {
		return nil, fmt.Errorf("listen for hosts: %w: see bus.enrol in the config", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+JoinPath, h.answerRemote)
	s := &joinServer{address: h.o.Address, port: l.Addr().(*net.TCPAddr).Port, http: &http.Server{
		Handler: mux, TLSConfig: h.keys.serverTLS(), MaxHeaderBytes: 8 << 10,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
	}}
	if s.address == "" {
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		host, _, err := net.SplitHostPort(h.o.Enrol)
		if ip, bad := netip.ParseAddr(host); err != nil || bad != nil || ip.IsUnspecified() {
			host = h.o.Machine
		}
		s.address = net.JoinHostPort(host, port)
	}
	bounded := listen.Bound(l, maxJoins, cmp.Or(h.o.Joins, maxJoinsFrom), func(c net.Conn) string { return listen.Network(c.RemoteAddr().String()) })
	h.o.Log.Info("hosts can join", "address", s.address, "authority", h.keys.fingerprint())
	h.start(func() {
		if err := s.http.ServeTLS(bounded, "", ""); !errors.Is(err, http.ErrServerClosed) {
			h.o.Log.Error("hosts can't join any more", "error", err)
		}
	})
	return s, nil
}

func (s *joinServer) close() { _ = s.http.Close() }

// asker asks to be admitted.
type asker struct {
	client *http.Client
	url    string
}

// askRemote asks at an address, and only a server of this authority.
func askRemote(address, fingerprint string) asker {
	t := &http.Transport{TLSClientConfig: pinned(fingerprint), DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second, Proxy: nil}
	return asker{&http.Client{Transport: t, Timeout: 20 * time.Second, CheckRedirect: noRedirect}, "https://" + address + JoinPath}
}

// askLocal asks on allotd's socket, by a function that connects to it.
func askLocal(dial func(context.Context) (net.Conn, error)) asker {
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return asker{&http.Client{Transport: t, Timeout: 20 * time.Second, CheckRedirect: noRedirect}, "http://allotd" + JoinPath}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// errRefused is wrapped by allotd's own refusals.
var errRefused = errors.New("allotd refuses")

func (a asker) ask(ctx context.Context, q request) (admission, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return admission{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return admission{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(r)
	if err != nil {
		return admission{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return admission{}, err
	}
	if response.StatusCode != http.StatusOK {
		return admission{}, fmt.Errorf("%w: %s: %.300q", errRefused, response.Status, strings.TrimSpace(string(text)))
	}
	return parseAdmission(text)
}

// parseAdmission reads allotd's answer.
func parseAdmission(text []byte) (admission, error) {
	var a admission
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("allotd's answer: %w", err)
	}
	switch {
	case a.Waiting != "":
	case a.Identity == "":
		return a, errors.New("allotd's answer has no identity")
	case len(a.Servers) == 0 && (a.Port < 1 || a.Port > 65535):
		return a, errors.New("allotd's answer has no address of the bus")
	}
	return a, nil
}

// siteTLS are the options of connections to the site's own servers.
func siteTLS(servers []string, ca string) ([]nats.Option, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("the authority of the site's servers has no certificate")
		}
	}
	for _, s := range servers {
		if strings.HasPrefix(s, "tls://") {
			return []nats.Option{nats.Secure(config)}, nil
		}
	}
	return nil, nil // of loopback, as the config allows
}

func joined(servers []string) string { return strings.Join(servers, ",") }
