package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/listen"
)

// Link opens the management page once.
type Link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// SignedOut is how many browsers were signed out.
type SignedOut struct {
	Sessions int `json:"sessions"`
}

// Login asks allotd for a link by which the caller can sign in with a browser.
func (d *Desk) Login(ctx context.Context) (*Link, error) {
	if err := d.notBySudo("sign in"); err != nil {
		return nil, err
	}
	var link Link
	if err := d.AskAllotd(ctx, "sign in", "/login/link", nil, &link); err != nil {
		return nil, err
	}
	return &link, nil
}

// Logout signs out all of the caller's browsers.
func (d *Desk) Logout(ctx context.Context) (*SignedOut, error) {
	if err := d.notBySudo("sign out"); err != nil {
		return nil, err
	}
	var out SignedOut
	if err := d.AskAllotd(ctx, "sign out", "/logout", nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Bounds of a question to allotd.
const (
	allotdTime   = 30 * time.Second
	allotdAnswer = 16 << 20
)

// notBySudo is an error through sudo: on allotd's socket the kernel names the process's user.
func (d *Desk) notBySudo(what string) error {
	if !d.Caller.sudo() {
		return nil
	}
	return deniedf("%s: through sudo the management page would take you for user ID %d: type it without sudo", what, d.Caller.As)
}

// AskAllotd posts a question, which may be nil, to the socket of the allotd that runs, where the
// kernel names this process's user. What is the purpose, for errors.
func (d *Desk) AskAllotd(ctx context.Context, what, path string, question, answer any) error {
	return d.askAllotd(ctx, http.MethodPost, what, path, question, answer)
}

// askAllotd is AskAllotd by any method. One that only reads has no question.
func (d *Desk) askAllotd(ctx context.Context, method, what, path string, question, answer any) error {
	var text []byte
	if method != http.MethodGet {
		var err error
		if text, err = json.Marshal(question); err != nil {
			return err
		}
	}
	socket := d.Web.SocketIn(d.Paths.Runtime)
	r, err := http.NewRequestWithContext(ctx, method, "http://allotd"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := listen.Client(socket, allotdTime).Do(r)
	if err != nil {
		var refused *net.OpError
		if errors.As(err, &refused) {
			err = refused
		}
		return marked{fmt.Errorf("%s: %w: is allotd running? (systemctl status allotment-allotd)", what, err), backends.ErrUnreachable}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, allotdAnswer))
	if err != nil {
		return fmt.Errorf("%s: read allotd's answer: %w", what, err)
	}
	switch {
	case response.StatusCode == http.StatusOK:
		if err := json.Unmarshal(body, answer); err != nil {
			return fmt.Errorf("%s: read allotd's answer: %w", what, err)
		}
		return nil
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		return againf("%s: %s", what, strings.TrimSpace(string(body)))
	}
	var problem struct { // of the API
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
		body = []byte(problem.Detail)
	}
	return fmt.Errorf("%s: %s", what, strings.TrimSpace(string(body)))
}
