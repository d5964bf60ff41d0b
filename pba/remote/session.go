package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// sessionFile keeps the session of one server below the user's config directory. It is the
// user's alone: who reads it is signed in as the user.
type sessionFile struct{ path string }

// maxSession is beyond the size of a session's cookie, in bytes.
const maxSession = 4096

// findSession returns the file for a server, which need not exist.
func findSession(base string) (*sessionFile, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("find the session: %w", err)
	}
	return &sessionFile{filepath.Join(dir, "allotment", "sessions", url.PathEscape(base))}, nil
}

// read returns the session's cookie; nil: there is none.
func (s *sessionFile) read() (*http.Cookie, error) {
	text, err := trusted.ReadPrivate(s.path, maxSession, trusted.Others)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no session, no cookie
	}
	if errors.Is(err, trusted.ErrExposed) {
		err = fmt.Errorf("%w: the secret is your session: `pba logout` on a machine of the farm ends it, then remove the file and sign in again", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the session: %w", err)
	}
	name, value, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), "=")
	cookie := &http.Cookie{Name: name, Value: value}
	if !ok || !isSession(name) || cookie.Valid() != nil {
		return nil, fmt.Errorf("read the session: %s is broken: remove it, and sign in again", s.path)
	}
	return cookie, nil
}

// isSession reports whether a cookie of this name is a session of allotd.
func isSession(name string) bool { return name == "allotment" || name == "__Host-allotment" }

// renew keeps the session that an answer sets, and forgets one that it ends.
func (s *sessionFile) renew(cookies []*http.Cookie) error {
	for _, c := range cookies {
		switch {
		case !isSession(c.Name):
		case c.Value == "" || c.MaxAge < 0:
			return s.forget()
		default:
			return s.write(c)
		}
	}
	return nil
}

func (s *sessionFile) write(c *http.Cookie) error {
	dir := filepath.Dir(s.path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = disk.Put(s.path, 0o600, []byte(c.Name+"="+c.Value+"\n"))
	}
	if err != nil {
		return fmt.Errorf("keep the session: %w", err)
	}
	return nil
}

func (s *sessionFile) forget() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the session: %w", err)
	}
	return nil
}

var errSocket = &failure{errors.New("on a socket the kernel names you: there is nothing to sign in to or out of"), desk.ErrInvalid}

// Login uses up a link of pba login, and keeps the session that it begins.
func (c *Client) Login(ctx context.Context, link string) error {
	if c.session == nil {
		return errSocket
	}
	u, err := url.Parse(strings.TrimSpace(link))
	if err != nil || u.Path != "/login" || u.Query().Get("token") == "" {
		return &failure{errors.New("sign in: want the link that `pba login` printed on a machine of the farm"), desk.ErrInvalid}
	}
	if base := u.Scheme + "://" + strings.ToLower(u.Host); base != c.base {
		return &failure{fmt.Errorf("sign in: the link is for %s, not for %s: type pba --server %s login LINK", base, c.base, base), desk.ErrInvalid}
	}
	if err := c.session.forget(); err != nil {
		return err
	}
	response, err := c.follow(ctx, http.MethodGet, "/login?"+url.Values{"token": {u.Query().Get("token")}}.Encode())
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusForbidden {
		return errors.New("sign in: the link was used before, or is older than a minute: type `pba login` again")
	}
	cookie, err := c.session.read()
	if err == nil && (cookie == nil || response.StatusCode != http.StatusSeeOther) {
		err = c.notAllotd(response)
	}
	return err
}

// Logout ends the session.
func (c *Client) Logout(ctx context.Context) error {
	if c.session == nil {
		return errSocket
	}
	cookie, err := c.session.read()
	if err != nil {
		return err
	}
	if cookie == nil {
		return fmt.Errorf("sign out: no session of %s is kept here", c.server)
	}
	response, err := c.follow(ctx, http.MethodPost, "/logout")
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSeeOther && response.StatusCode != http.StatusUnauthorized {
		return c.notAllotd(response)
	}
	return c.session.forget()
}

// follow sends a request for a page, of which the status and the session count.
func (c *Client) follow(ctx context.Context, method, address string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+address, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.send(r)
	if err != nil {
		return nil, err
	}
	return response, response.Body.Close()
}
