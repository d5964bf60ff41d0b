package bus

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// authority is what the farm's identities are signed by. Its file is allotd's alone.
type authority struct {
	operator, system, account, hosts nkeys.KeyPair // hosts: signs hosts' identities, and can give no more rights than its template
	ca                               *x509.Certificate
	caKey                            *ecdsa.PrivateKey
	lasts                            time.Duration // a host's identity

	mu   sync.Mutex
	leaf *tls.Certificate // of the server, made when it is needed
}

// authorityFile is the file's content.
type authorityFile struct {
	Operator, System, Account, Hosts string // seeds
	CA, CAKey                        []byte // DER
}

const authorityName = "authority.json"

// maxKeys is beyond the size of a file with keys, in bytes.
const maxKeys = 64 << 10

// identityTime is how long a host's identity is valid. A host asks for a new one each time it
// connects, and at two thirds of that; a key that is withdrawn is remembered for longer.
const identityTime = 24 * time.Hour

// caTime is how long the authority is valid: a new one means to enrol all hosts again.
const caTime = 30 * 365 * 24 * time.Hour

// leafTime is how long a server's certificate is; it is renewed at two thirds of that.
const leafTime = 90 * 24 * time.Hour

// serverName is the name in the certificate. Hosts know the server by the authority, not by
// its address.
const serverName = "allotd"

// openAuthority reads the authority in a directory, or makes one.
func openAuthority(dir string, now time.Time) (*authority, error) {
	path := filepath.Join(dir, authorityName)
	text, err := trusted.ReadPrivate(path, maxKeys, trusted.Others)
	if errors.Is(err, fs.ErrNotExist) {
		var made authorityFile
		if made, err = newAuthority(now); err == nil {
			text, err = json.Marshal(made)
		}
		if err == nil {
			err = disk.Replace(disk.OS(), path, 0o600, text)
		}
	}
	var f authorityFile
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of the bus, %s: %w", path, err)
	}
	a, err := f.open()
	if err != nil {
		return nil, fmt.Errorf("read the keys of the bus, %s: %w", path, err)
	}
	return a, nil
}

func newAuthority(now time.Time) (f authorityFile, err error) {
	for _, one := range []struct {
		make func() (nkeys.KeyPair, error)
		seed *string
	}{{nkeys.CreateOperator, &f.Operator}, {nkeys.CreateAccount, &f.System}, {nkeys.CreateAccount, &f.Account}, {nkeys.CreateAccount, &f.Hosts}} {
		pair, err := one.make()
		if err != nil {
			return f, err
		}
		seed, err := pair.Seed()
		if err != nil {
			return f, err
		}
		*one.seed = string(seed)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return f, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Allotment bus"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(caTime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if f.CA, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		return f, err
	}
	f.CAKey, err = x509.MarshalPKCS8PrivateKey(key)
	return f, err
}

func (f authorityFile) open() (*authority, error) {
	a := &authority{lasts: identityTime}
	for _, one := range []struct {
		pair *nkeys.KeyPair
		seed string
	}{{&a.operator, f.Operator}, {&a.system, f.System}, {&a.account, f.Account}, {&a.hosts, f.Hosts}} {
		pair, err := nkeys.FromSeed([]byte(one.seed))
		if err != nil {
			return nil, err
		}
		*one.pair = pair
	}
	var err error
	if a.ca, err = x509.ParseCertificate(f.CA); err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(f.CAKey)
	if err != nil {
		return nil, err
	}
	var ok bool
	if a.caKey, ok = key.(*ecdsa.PrivateKey); !ok {
		return nil, fmt.Errorf("the key is a %T", key)
	}
	return a, nil
}

// public returns the public half of a pair that was read from a seed, or was made.
func public(pair nkeys.KeyPair) string {
	key, err := pair.PublicKey()
	if err != nil { // of a pair that was wiped
		panic(err)
	}
	return key
}

// fingerprint is what hosts know the authority by.
func (a *authority) fingerprint() string { return fingerprintOf(a.ca) }

const fingerprintPrefix = "sha256:"

func fingerprintOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return fingerprintPrefix + hex.EncodeToString(sum[:])
}

// operatorClaims are the farm's, which a server trusts.
func (a *authority) operatorClaims() *jwt.OperatorClaims {
	c := jwt.NewOperatorClaims(public(a.operator))
	c.Name, c.SystemAccount = "allotment", public(a.system)
	return c
}

// systemClaims are those of the server's own account.
func (a *authority) systemClaims() *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(a.system))
	c.Name = "allotment-system"
	return c
}

// accountClaims are those of the account in which hosts and allotd talk.
func (a *authority) accountClaims(revoked map[string]time.Time) *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(a.account))
	c.Name = "allotment"
	scope := jwt.NewUserScope()
	scope.Key, scope.Role = public(a.hosts), "host"
	scope.Template = jwt.UserPermissionLimits{
		Permissions: jwt.Permissions{
			Pub: jwt.Permission{Allow: jwt.StringList{fromHosts + "{{name()}}.>"}},
			Sub: jwt.Permission{Allow: jwt.StringList{toHosts + "{{name()}}.>"}},
		},
		Limits: jwt.Limits{
			UserLimits: jwt.UserLimits{Src: jwt.CIDRList{}},
			NatsLimits: jwt.NatsLimits{Subs: maxHostSubscriptions, Data: jwt.NoLimit, Payload: MaxPayload},
		},
		AllowedConnectionTypes: jwt.StringList{jwt.ConnectionTypeStandard},
	}
	c.SigningKeys.AddScopedSigner(scope)
	for key, at := range revoked {
		c.RevokeAt(key, at)
	}
	return c
}

// maxHostSubscriptions is how many subscriptions a host may have: its agent has one.
const maxHostSubscriptions = 8

// hostIdentity returns a host's identity, which is worth nothing without the private key.
func (a *authority) hostIdentity(host, key string, now time.Time) (string, error) {
	name, err := token(host)
	if err != nil {
		return "", err
	}
	c := jwt.NewUserClaims(key)
	c.Name, c.IssuerAccount, c.Expires = name, public(a.account), now.Add(a.lasts).Unix()
	c.SetScoped(true)
	return c.Encode(a.hosts)
}

// ownIdentity returns an identity for this process, in the account of the hosts or the server's
// own, and its key.
func (a *authority) ownIdentity(account nkeys.KeyPair) (token string, pair nkeys.KeyPair, err error) {
	if pair, err = nkeys.CreateUser(); err != nil {
		return "", nil, err
	}
	c := jwt.NewUserClaims(public(pair))
	c.Name = serverName
	token, err = c.Encode(account)
	return token, pair, err
}

// serverTLS is the config of a server of hosts.
func (a *authority) serverTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate(time.Now()) }}
}

// certificate returns the server's certificate, and makes a new one in time.
func (a *authority) certificate(now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaf != nil && now.Before(a.leaf.Leaf.NotAfter.Add(-leafTime/3)) {
		return a.leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(leafTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, key.Public(), a.caKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der, a.ca.Raw}, PrivateKey: key, Leaf: leaf}
	return a.leaf, nil
}

// errForeignAuthority is returned for a server of another authority.
var errForeignAuthority = errors.New("the server has another authority's certificate: nothing was sent to it")

// pinned is the config of a client that knows its server by the authority's fingerprint: it
// sends nothing to any other.
func pinned(fingerprint string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks more: the very authority, whatever the address
		VerifyConnection: func(s tls.ConnectionState) error {
			n := len(s.PeerCertificates)
			if n < 2 || !bytes.Equal([]byte(fingerprintOf(s.PeerCertificates[n-1])), []byte(fingerprint)) {
				return errForeignAuthority
			}
			roots := x509.NewCertPool()
			roots.AddCert(s.PeerCertificates[n-1])
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		},
	}
}
