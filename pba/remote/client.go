// Package remote asks an allotd what pba/desk answers on a machine of the farm: by its API, in
// the same types and with the same errors.
package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// Client asks one server. By TCP it is signed in by a session that Login has kept.
type Client struct {
	server  string // as the user named it, for errors
	base    string // of addresses
	http    *http.Client
	session *sessionFile // nil: on a socket, where the kernel names the user
}

// Bounds of a question and its answer.
const (
	dialTime   = 10 * time.Second
	askTime    = 2 * time.Minute // as long as allotd lets an answer take
	maxAnswer  = 64 << 20
	maxHeaders = 64 << 10
)

const apiPath = "/api/v1"

// Open returns a client of a server: unix:///PATH, https://HOST[:PORT], or http://HOST[:PORT] of
// this machine. It does not connect yet.
func Open(server string) (*Client, error) {
	if err := refuseSudo(os.Getenv("SUDO_UID"), os.Getuid()); err != nil {
		return nil, err
	}
	c, err := newClient(server)
	if err != nil {
		return nil, &failure{fmt.Errorf("--server %s: %w", server, err), desk.ErrInvalid}
	}
	return c, nil
}

// refuseSudo returns an error where the process runs as another user than the one who typed
// the command: the server would take the caller for that user.
func refuseSudo(sudoUID string, uid int) error {
	if sudoUID == "" || sudoUID == strconv.Itoa(uid) {
		return nil
	}
	return &failure{fmt.Errorf("ask a server: through sudo it would take you for user ID %d: type it without sudo", uid), desk.ErrDenied}
}

func newClient(server string) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return nil, errForm
	}
	c := &Client{server: server}
	dialer := &net.Dialer{Timeout: dialTime}
	transport := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders, TLSHandshakeTimeout: dialTime,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DialContext: dialer.DialContext,
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		c.base = "http://allotd"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", u.Path)
		}
	case (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && strings.Trim(u.Path, "/") == "":
		c.base = u.Scheme + "://" + strings.ToLower(u.Host)
		if u.Scheme == "http" {
			dialer.Control = loopbackOnly
		}
		if c.session, err = findSession(c.base); err != nil {
			return nil, err
		}
	default:
		return nil, errForm
	}
	c.http = &http.Client{
		Timeout: askTime, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the session is for this server alone
	}
	return c, nil
}

var errForm = errors.New("want unix:///PATH, https://HOST[:PORT], or http://HOST[:PORT] of this machine")

var errClear = errors.New("http is for this machine alone, since it is not encrypted: use https")

// loopbackOnly refuses an address of another machine, whatever name led to it.
func loopbackOnly(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Unmap().IsLoopback() {
		return errClear
	}
	return nil
}

// failure is an error with the kind that the same error of a desk has.
type failure struct {
	error
	kind error
}

// Is reports whether the error is of a kind.
func (f *failure) Is(kind error) bool { return f.kind != nil && f.kind == kind }

// Unwrap returns the error without its kind.
func (f *failure) Unwrap() error { return f.error }

// question is what is asked at an address of the API.
type question struct {
	method, route string
	query         url.Values
	expects       string // the ETag of the plan that is changed; "": none
	body          any    // nil: none
}

// ask sends a question and reads the answer. It returns the ETag of the answer.
func (c *Client) ask(ctx context.Context, q question, answer any) (etag string, err error) {
	var body io.Reader
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return "", err
		}
		body = bytes.NewReader(text)
	}
	address := c.base + apiPath + q.route
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, address, body)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if q.expects != "" {
		r.Header.Set("If-Match", q.expects)
	}
	response, err := c.send(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := readBounded(response.Body, maxAnswer)
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", c.refused(response, text)
	}
	if !isType(response.Header, "application/json") {
		return "", c.notAllotd(response)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	return response.Header.Get("ETag"), nil
}

// send sends a request with the session, and keeps the session that the answer renews.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	if c.session != nil {
		cookie, err := c.session.read()
		if err != nil {
			return nil, err
		}
		if cookie != nil {
			r.AddCookie(cookie)
		}
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if c.session != nil {
		if err := c.session.renew(response.Cookies()); err != nil {
			return nil, errors.Join(err, response.Body.Close())
		}
	}
	return response, nil
}

// unreachable says why there is no answer, without the address, which may have a secret.
func (c *Client) unreachable(err error) error {
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errClear):
		return &failure{fmt.Errorf("--server %s: %w", c.server, errClear), desk.ErrInvalid}
	case errors.As(err, &certificate):
		return fmt.Errorf("ask %s: %w: SSL_CERT_FILE may name the certificate of the site's authority", c.server, err)
	}
	return &failure{fmt.Errorf("ask %s: %w: is allotd running there?", c.server, err), backends.ErrUnreachable}
}

// refused returns the error that an answer has.
func (c *Client) refused(response *http.Response, text []byte) error {
	var problem struct {
		Detail string
		Errors []struct{ Message, Location string }
	}
	status := response.StatusCode
	if status == http.StatusUnauthorized {
		return fmt.Errorf("%s does not know you: type `pba login` on a machine of the farm, and here `pba --server %s login LINK` with the link that it prints", c.server, c.server)
	}
	if !isType(response.Header, "application/problem+json") || json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		return c.notAllotd(response)
	}
	for _, e := range problem.Errors {
		problem.Detail += "; " + strings.TrimPrefix(e.Location, "body.") + ": " + e.Message
	}
	err := errors.New(problem.Detail)
	switch {
	case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
		return &failure{err, backends.ErrUnreachable}
	case status == http.StatusBadRequest || len(problem.Errors) > 0:
		return &failure{err, desk.ErrInvalid}
	case status == http.StatusForbidden:
		return &failure{err, desk.ErrDenied}
	case status == http.StatusPreconditionFailed:
		return &failure{err, desk.ErrChanged}
	}
	return err
}

// notAllotd is the error of an answer that is not the API's, such as a proxy's.
func (c *Client) notAllotd(response *http.Response) error {
	err := fmt.Errorf("%s answers %s as no allotd does: is the address right?", c.server, response.Status)
	if response.StatusCode >= http.StatusInternalServerError { // a proxy whose server is away
		return &failure{err, backends.ErrUnreachable}
	}
	return err
}

func isType(header http.Header, want string) bool {
	got, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && got == want
}

func readBounded(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return text, err
}
