// Package client speaks to asplit serve, as a worker or as a holder.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/reach"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// The variables of a job of asplit serve's that say where it is reached.
const (
	EnvSocket      = "ASPLIT_SOCKET"      // on its own host
	EnvURL         = "ASPLIT_URL"         // from other hosts, too; "": by the socket alone
	EnvHeader      = "ASPLIT_HEADER"      // a file with the key, as a header of HTTP
	EnvCertificate = "ASPLIT_CERTIFICATE" // a file with the certificate of an https URL
)

// Place is where a manager is reached.
type Place struct {
	Socket                   string
	URL, Header, Certificate string // URL goes before Socket unless it is ""
}

// FromEnvironment returns the place that the environment names; false: it names none.
func FromEnvironment(env func(string) string) (Place, bool) {
	p := Place{env(EnvSocket), env(EnvURL), env(EnvHeader), env(EnvCertificate)}
	return p, p.URL != "" || p.Socket != ""
}

// Client speaks to a manager: as a stranger, or on a connection that Join opened.
type Client struct {
	ctx           context.Context
	http          *http.Client
	base          string // of URLs
	authorization string
	lines         *json.Decoder // of its connection
	limit         int
}

// New returns a client of the manager of a socket until the context ends.
func New(ctx context.Context, socket string) *Client {
	return &Client{ctx: ctx, http: listen.Client(socket, 0), base: "http://asplit"}
}

// Bounds of the files that say how a manager is reached, and of an answer of an error, in bytes.
const (
	maxFile  = 64 << 10
	maxError = 1000
)

// unheardTime is how long the manager's host may be away.
const unheardTime = 20 * time.Second

// Open returns a client of the manager of a place until the context ends.
func Open(ctx context.Context, p Place) (*Client, error) {
	if p.URL == "" {
		return New(ctx, p.Socket), nil
	}
	c := &Client{ctx: ctx, base: p.URL}
	header, err := trusted.ReadPrivate(p.Header, maxFile, trusted.Others)
	if err != nil {
		return nil, fmt.Errorf("read the key of asplit serve: %w", err)
	}
	name, value, _ := strings.Cut(strings.TrimSpace(string(header)), ": ")
	if name != "Authorization" {
		return nil, fmt.Errorf("read the key of asplit serve: %s has no header Authorization", p.Header)
	}
	c.authorization = value
	dialer := &net.Dialer{KeepAliveConfig: reach.KeepAlive, Control: reach.GiveUp(unheardTime)}
	transport := &http.Transport{DialContext: dialer.DialContext}
	if p.Certificate != "" {
		text, err := os.ReadFile(p.Certificate)
		if err != nil {
			return nil, fmt.Errorf("read the certificate of asplit serve: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the certificate of asplit serve: %s has none", p.Certificate)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	}
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// Join opens a connection, as "workers" or "holders"; it is there until the context ends.
func (c *Client) Join(path, body string) (*Client, error) {
	answer, err := c.send(http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	joined := *c
	joined.lines = json.NewDecoder(answer.Body)
	var first struct {
		Token string
		Limit int
	}
	if err := joined.lines.Decode(&first); err != nil {
		return nil, errors.Join(fmt.Errorf("join asplit serve: %w", err), answer.Body.Close())
	}
	joined.authorization, joined.limit = "Bearer "+first.Token, first.Limit
	return &joined, nil
}

// Limit returns the slots that a holder may hold and wait for, by the manager's word.
func (c *Client) Limit() int { return c.limit }

// Next reads the next line of its connection.
func (c *Client) Next(line any) error { return c.lines.Decode(line) }

// Error is the answer to a call that was refused.
type Error struct {
	Status int // of HTTP
	text   string
}

func (e *Error) Error() string { return e.text }

// Call makes a call, and reads its answer into one unless that is nil. The error wraps an *Error if it was
// refused.
func (c *Client) Call(method, path, body string, into any) error {
	answer, err := c.send(method, path, body)
	if err != nil {
		return err
	}
	if into != nil {
		err = json.NewDecoder(answer.Body).Decode(into)
	}
	_, more := io.Copy(io.Discard, answer.Body)
	return errors.Join(err, more, answer.Body.Close())
}

func (c *Client) send(method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(c.ctx, method, c.base+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxError))
		refused := &Error{answer.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(text))}
		return nil, errors.Join(refused, answer.Body.Close())
	}
	return answer, nil
}
