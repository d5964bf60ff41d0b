package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// The time in which a certificate is valid: it ends with its server, whose clock may be ahead of its callers'.
const (
	validBefore = 24 * time.Hour
	validAfter  = 10 * 365 * 24 * time.Hour
)

// Certificate makes a key and its own certificate, with which a server proves to be the one at an
// address, and returns what a TLS listener needs. The text is the certificate as PEM, which callers
// know beforehand (curl --cacert): no authority vouches for it.
func Certificate(now time.Time, address netip.Addr) (config *tls.Config, text []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a certificate for %v: %w", address, err)
		}
	}()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "asplit serve"},
		NotBefore: now.Add(-validBefore), NotAfter: now.Add(validAfter),
		IPAddresses: []net.IP{address.Unmap().AsSlice()},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, // some clients accept a known certificate only if it may sign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	config = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return config, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
