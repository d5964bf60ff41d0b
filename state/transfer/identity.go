// Package transfer moves jobs' state objects between hosts, and gives them to allotd, over
// HTTPS.
//
// Each end has a certificate of its own, which no authority signs: both know the other by the
// fingerprint that the bus, whose identities are true, gave them. A host takes an object
// only from the host that allotd named for this job, of late; it gives one only to allotd.
package transfer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/identity"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Identity is a host's certificate and its key.
type Identity struct {
	certificate tls.Certificate
}

// maxIdentity bounds the file of an identity, in bytes.
const maxIdentity = 16 << 10

// OpenIdentity reads the certificate of a host, or makes it. Its file names the host, and is its
// owner's alone: a copied directory is no other host's identity.
func OpenIdentity(dir, host string) (*Identity, error) {
	if host == "" || strings.ContainsAny(host, "/\x00") || host[0] == '.' {
		return nil, fmt.Errorf("%.80q is no name of a host", host)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of this host's certificate: %w", err)
	}
	path := filepath.Join(dir, "transfer-"+host+".pem")
	text, err := trusted.ReadPrivate(path, maxIdentity, trusted.Others)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = identity.New(host); err == nil {
			err = disk.Replace(disk.OS(), path, 0o600, text)
		}
	}
	var i Identity
	if err == nil {
		i.certificate, err = tls.X509KeyPair(text, text)
	}
	if err != nil {
		return nil, fmt.Errorf("read this host's certificate, %s (if it is damaged, remove it, and a new one is made): %w", path, err)
	}
	return &i, nil
}

// Fingerprint is by which others know it: SHA-256 of the certificate, in hexadecimal digits.
func (i *Identity) Fingerprint() string { return identity.Fingerprint(i.certificate.Certificate[0]) }

// errForeign is returned for an end with another certificate.
var errForeign = errors.New("it has another certificate than allotd said")

// tls is the config of either end, which knows the other one by its fingerprint.
func (i *Identity) tls(knows func(fingerprint string) bool) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{i.certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // VerifyConnection checks more: the very certificate, whatever the address
		NextProtos:             []string{"http/1.1"},
		VerifyConnection:       identity.Check(knows, errForeign),
		SessionTicketsDisabled: true,
	}
}
