// Package transfer moves jobs' state objects between hosts, and gives them to allotd, over
// HTTPS.
//
// Each end has a certificate of its own, which no authority signs: both know the other by the
// fingerprint that the bus, whose identities are true, gave them. A host takes an object
// only from the host that allotd named for this job, of late; it gives one only to allotd.
package transfer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Identity is a host's certificate and its key.
type Identity struct {
	certificate tls.Certificate
}

// Bounds of an identity.
const (
	maxIdentity  = 16 << 10                  // bytes of its file
	identityTime = 50 * 365 * 24 * time.Hour // it is known by its fingerprint, not by its time
)

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
		if text, err = newIdentity(host); err == nil {
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

func newIdentity(host string) ([]byte, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(identityTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

// Fingerprint is by which others know it: SHA-256 of the certificate, in hexadecimal digits.
func (i *Identity) Fingerprint() string { return fingerprint(i.certificate.Certificate[0]) }

func fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// errForeign is returned for an end with another certificate.
var errForeign = errors.New("it has another certificate than allotd said")

// tls is the config of either end, which knows the other one by its fingerprint.
func (i *Identity) tls(knows func(fingerprint string) bool) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{i.certificate},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks more: the very certificate, whatever the address
		NextProtos:         []string{"http/1.1"},
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !knows(fingerprint(s.PeerCertificates[0].Raw)) {
				return errForeign
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}
}
