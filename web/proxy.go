package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// secretHeader is the one in which the site's proxy proves who it is.
const secretHeader = "Allotment-Proxy-Secret"

// Bounds of that secret, in bytes.
const (
	minSecret = 32
	maxSecret = 4096
)

// Proxy is the site's proxy, which signs users in and names them in a header.
type Proxy struct {
	header string // "": there is none
	user   string
	uid    int  // as which it connects to the socket; -1: it does not
	has    bool // a secret
	secret [sha256.Size]byte
}

// OpenProxy reads what proves who the proxy is.
func OpenProxy(c settings.WebProxy) (Proxy, error) {
	p := Proxy{header: c.Header, uid: -1}
	if c.User != "" {
		v, err := desk.VisitorNamed(c.User)
		if err != nil {
			return p, fmt.Errorf("web.proxy.user: %w", err)
		}
		if v.UID == 0 {
			return p, errors.New("web.proxy.user: root's own requests would be the proxy's: run the proxy as another user")
		}
		p.uid, p.user = v.UID, v.Name
	}
	if c.SecretFile == "" {
		return p, nil
	}
	content, err := trusted.ReadPrivate(c.SecretFile, maxSecret, trusted.Others)
	if err != nil {
		return p, fmt.Errorf("read web.proxy.secret_file: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if len(text) < minSecret {
		return p, fmt.Errorf("read web.proxy.secret_file: %s has %d characters: want %d or more, such as the output of `openssl rand -hex 32`", c.SecretFile, len(text), minSecret)
	}
	p.has, p.secret = true, sha256.Sum256([]byte(text))
	return p, nil
}

// sent reports whether the proxy itself sent a request: its user did, on the socket, or one
// that knows its secret.
func (p *Proxy) sent(r *http.Request, from peerOf) bool {
	if p.header == "" {
		return false
	}
	if from.unix {
		return p.uid >= 0 && from.err == nil && from.uid == p.uid
	}
	given := r.Header.Values(secretHeader)
	if !p.has || len(given) != 1 {
		return false
	}
	sum := sha256.Sum256([]byte(given[0]))
	return subtle.ConstantTimeCompare(sum[:], p.secret[:]) == 1
}

// errVouched is returned for users that a proxy can't sign in.
var errVouched = &statusError{http.StatusForbidden, "a proxy can't sign in root or the ledger's owner: they use pba login"}

// fromProxy returns the user that the proxy names.
func (s *Server) fromProxy(r *http.Request) (caller, error) {
	names := r.Header.Values(s.Proxy.header)
	if len(names) != 1 || names[0] == "" {
		return caller{}, nil
	}
	v, err := s.accounts.named(names[0])
	if errors.Is(err, desk.ErrNoAccount) {
		return caller{}, &statusError{http.StatusForbidden, "the proxy signed in a user that this machine does not know"}
	}
	if err != nil {
		return caller{}, err
	}
	if v.UID == 0 || v.UID == os.Getuid() {
		return caller{}, errVouched
	}
	return caller{Visitor: v, by: byProxy}, nil
}
