package bus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// LinkOptions are what a Link is made of.
type LinkOptions struct {
	Dir       string                                // of the host's key, which is made there: its owner's alone
	Host      string                                // this one's name
	Socket    string                                // allotd's on this machine, where there is no enrolment
	Enrolment func() (Enrolment, error)             // is asked before each attempt; zero: this machine's allotd
	Find      func(context.Context) (string, error) // looks for an address, HOST:PORT, for an enrolment without one; nil: nothing does
	Log       *slog.Logger
}

// Link is a host's end of the bus. Nothing waits for it: without a bus it keeps the newest
// message of each kind.
type Link struct {
	o    LinkOptions
	name string // its token
	key  nkeys.KeyPair

	mu       sync.Mutex
	box      []message // that are not sent, one of each kind, oldest first
	boxBytes int
	handlers map[string]func([]byte)
	state    State
	logged   string
	last     admission // the last that admitted
	lastAt   time.Time // when it did

	wake chan struct{} // there is something in the box
}

// State is how a link stands.
type State struct {
	Connected bool
	Why       string // not
	Address   string // this host's own, of the connection, as the server sees it; "": not known
}

type message struct {
	kind    string
	payload []byte
}

// Bounds of what is kept while it can't be sent.
const (
	maxKinds    = 64
	maxBoxBytes = 4 << 20
)

// NewLink reads the host's key, or makes it. It connects when it is run.
func NewLink(o LinkOptions) (*Link, error) {
	l := &Link{o: o, handlers: map[string]func([]byte){}, wake: make(chan struct{}, 1), state: State{Why: "not tried yet"}}
	var err error
	if l.name, err = token(o.Host); err != nil {
		return nil, err
	}
	if l.key, err = hostKey(o.Dir, o.Host); err != nil {
		return nil, err
	}
	return l, nil
}

// hostKey reads the key of a host, or makes it. Its file names the host: a copy of another
// host's directory, or one that hosts share, is no other host's key.
func hostKey(dir, host string) (nkeys.KeyPair, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of this host's key: %w", err)
	}
	path := filepath.Join(dir, "bus-"+host+".seed")
	text, err := trusted.ReadPrivate(path, maxKeys, trusted.Others)
	if errors.Is(err, fs.ErrNotExist) {
		var pair nkeys.KeyPair
		if pair, err = nkeys.CreateUser(); err == nil {
			text, err = pair.Seed()
		}
		if err == nil {
			err = disk.Replace(disk.OS(), path, 0o600, text)
		}
	}
	var pair nkeys.KeyPair
	if err == nil {
		pair, err = nkeys.FromSeed(text)
	}
	if err == nil {
		if key, wrong := pair.PublicKey(); wrong != nil || !nkeys.IsValidPublicUserKey(key) {
			err = errors.New("it holds no key of a host: remove it, and a new one is made")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read this host's key, %s: %w", path, err)
	}
	return pair, nil
}

// Key is the public half of the host's key, which allotd approve shows.
func (l *Link) Key() string { return public(l.key) }

// Publish sends a message as soon as there is a connection. It never blocks: until then it is
// replaced by a newer one of its kind, and the oldest are dropped where there are too many. A
// kind is a constant of the program, of small letters, digits, dots. The payload is the link's from now on.
func (l *Link) Publish(kind string, payload []byte) error {
	if err := checkMessage(kind, payload); err != nil {
		return err
	}
	l.put(message{kind, payload}, true)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// put puts a message into the box: one that could not be sent only if there is no newer one.
func (l *Link) put(m message, newer bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.box, func(o message) bool { return o.kind == m.kind })
	if i >= 0 && !newer {
		return
	}
	if i >= 0 {
		l.boxBytes -= len(l.box[i].payload)
		l.box = slices.Delete(l.box, i, i+1)
	}
	l.box, l.boxBytes = append(l.box, m), l.boxBytes+len(m.payload)
	for len(l.box) > maxKinds || l.boxBytes > maxBoxBytes {
		l.boxBytes -= len(l.box[0].payload)
		l.box = slices.Delete(l.box, 0, 1)
	}
}

// take empties the box.
func (l *Link) take() []message {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.box
	l.box, l.boxBytes = nil, 0
	return all
}

// Receive has a function called for each message of this kind, one after the other. It must
// return soon.
func (l *Link) Receive(kind string, f func(payload []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handlers[kind] = f
}

// State returns how the link stands.
func (l *Link) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// How long a link waits before it tries again: at least half of each, doubled up to the most.
const (
	firstPause = time.Second
	mostPause  = 15 * time.Second
	waitPause  = 10 * time.Second // of a host that is not approved
)

// Run joins, and returns to the bus for ever, until the context ends.
func (l *Link) Run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := l.session(ctx)
		l.note(State{Why: err.Error()})
		next := pause
		var waits waitingError
		switch {
		case errors.As(err, &waits):
			next = waitPause
		case time.Since(began) > mostPause:
			pause, next = firstPause, firstPause
		default:
			pause = min(2*pause, mostPause)
		}
		select {
		case <-time.After(next/2 + rand.N(next/2+1)):
		case <-ctx.Done():
		}
	}
}

// note notes how the link stands, and logs what is new.
func (l *Link) note(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	text := s.Why
	if s.Connected {
		text = "connected"
	}
	if text == l.logged {
		return
	}
	l.logged = text
	if s.Connected {
		l.o.Log.Info("connected to the bus", "host", l.o.Host)
	} else {
		l.o.Log.Info("not connected to the bus", "why", s.Why)
	}
}

// waitingError is for a host that is not approved.
type waitingError struct{ text string }

func (e waitingError) Error() string { return e.text }

// connection is one to the bus.
type connection struct {
	*nats.Conn
	closed chan struct{}
	ends   time.Time // its identity
}

// own returns this host's address, as the server sees it; "": it is not known.
func (c connection) own() string {
	ip, err := c.GetClientIP()
	if err != nil || ip == nil {
		return ""
	}
	return ip.String()
}

// session joins, and stays until the connection is lost. It returns why. Before its identity
// ends, when the server would disconnect it, it joins anew, and goes over to a new connection.
func (l *Link) session(ctx context.Context) error {
	c, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { c.Close() }()
	if err := l.hear(c); err != nil {
		return err
	}
	l.note(State{Connected: true, Address: c.own()})
	renewal := time.NewTimer(renewIn(time.Until(c.ends)))
	defer renewal.Stop()
	renewed := make(chan connection)
	ctx, leave := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer leave()
	for {
		for i, m := range l.take() {
			if err := c.Publish(fromHosts+l.name+"."+m.kind, m.payload); err != nil {
				l.put(m, false)
				if i == 0 {
					l.o.Log.Debug("send to the bus", "kind", m.kind, "error", err)
				}
			}
		}
		select {
		case <-l.wake:
		case <-renewal.C:
			renewing.Go(func() { l.renew(ctx, c.ends, renewed) })
		case next := <-renewed:
			err := c.FlushTimeout(10 * time.Second) // no message overtakes another
			c.Close()
			c = next
			if err = errors.Join(err, l.hear(c)); err != nil {
				return err
			}
			renewal.Reset(renewIn(time.Until(c.ends)))
		case <-c.closed:
			if err := c.LastError(); err != nil {
				return fmt.Errorf("the connection to the bus is lost: %w", err)
			}
			return errors.New("the connection to the bus is lost")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renewIn returns when an identity that lasts so long is renewed: at two thirds, more or less,
// so that hosts that joined together do not come back together.
func renewIn(lasts time.Duration) time.Duration {
	third := max(lasts/3, time.Second)
	return 2*third - rand.N(third/2)
}

// renew makes a connection with a new identity, and tries until the present one ends.
func (l *Link) renew(ctx context.Context, ends time.Time, renewed chan<- connection) {
	for pause := firstPause; ctx.Err() == nil && time.Now().Before(ends); pause = min(2*pause, mostPause) {
		var next connection
		p, err := l.join(ctx)
		if err == nil && !p.ends.After(ends) {
			err = errors.New("allotd is not in reach")
		}
		if err == nil {
			next, err = l.dial(p)
		}
		if err == nil {
			select {
			case renewed <- next:
			case <-ctx.Done():
				next.Close()
			}
			return
		}
		l.o.Log.Info("the identity on the bus is not renewed yet", "ends", ends, "why", err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
	}
}

// connect joins, and connects with the identity that it is given.
func (l *Link) connect(ctx context.Context) (connection, error) {
	p, err := l.join(ctx)
	if err != nil {
		return connection{}, err
	}
	return l.dial(p)
}

func (l *Link) dial(p place) (connection, error) {
	c := connection{closed: make(chan struct{}), ends: p.ends}
	o := append([]nats.Option{
		nats.Name(l.o.Host), nats.NoReconnect(), nats.Timeout(10 * time.Second), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.CustomInboxPrefix(toHosts + l.name + ".inbox"), nats.FlusherTimeout(10 * time.Second), nats.IgnoreDiscoveredServers(),
		nats.UserJWT(func() (string, error) { return p.identity, nil }, l.key.Sign),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			l.o.Log.Debug("the bus reports an error", "error", err)
		}),
	}, p.secure...)
	var err error
	if c.Conn, err = nats.Connect(p.url, o...); err != nil {
		return connection{}, fmt.Errorf("connect to the bus: %w", err)
	}
	return c, nil
}

// hear has the handlers called for what is sent to this host.
func (l *Link) hear(c connection) error {
	sub, err := c.Subscribe(toHosts+l.name+".>", l.receive)
	if err == nil {
		err = sub.SetPendingLimits(1000, 4<<20)
	}
	if err == nil {
		err = c.FlushTimeout(10 * time.Second)
	}
	if err != nil {
		return fmt.Errorf("hear the bus: %w", err)
	}
	return nil
}

func (l *Link) receive(m *nats.Msg) {
	kind := m.Subject[min(len(m.Subject), len(toHosts)+len(l.name)+1):]
	l.mu.Lock()
	f := l.handlers[kind]
	l.mu.Unlock()
	if f != nil {
		f(m.Data)
	}
}

// place is where the bus is, how it is known, and the host's identity there.
type place struct {
	url      string
	secure   []nats.Option
	identity string
	ends     time.Time // the identity, by this host's clock
}

// join asks to be admitted.
func (l *Link) join(ctx context.Context) (place, error) {
	e, err := l.o.Enrolment()
	if err != nil {
		return place{}, err
	}
	at := time.Now()
	host, a, err := l.ask(ctx, e)
	switch {
	case err != nil && len(l.last.Servers) > 0 && !errors.Is(err, errRefused):
		a, at = l.last, l.lastAt // allotd is away, but not the site's servers
	case err != nil:
		return place{}, err
	case a.Waiting != "":
		return place{}, waitingError{fmt.Sprintf("%s waits for `allotd approve %s` (%s); its key is %s", l.o.Host, l.o.Host, a.Waiting, l.Key())}
	}
	l.last, l.lastAt = a, at
	claims, err := jwt.DecodeUserClaims(a.Identity)
	if err != nil {
		return place{}, fmt.Errorf("read this host's identity on the bus: %w", err)
	}
	p := place{identity: a.Identity, ends: at.Add(time.Duration(claims.Expires-claims.IssuedAt) * time.Second)}
	if len(a.Servers) > 0 {
		p.url = joined(a.Servers)
		p.secure, err = siteTLS(a.Servers, a.CA)
		return p, err
	}
	fingerprint := e.Fingerprint
	if fingerprint == "" {
		fingerprint = a.Authority
	}
	p.url = "tls://" + net.JoinHostPort(host, strconv.Itoa(a.Port))
	p.secure = []nats.Option{nats.Secure(pinned(fingerprint)), nats.TLSHandshakeFirst()}
	return p, nil
}

// ask asks where the enrolment says, or else on this machine, and returns the host that answered.
func (l *Link) ask(ctx context.Context, e Enrolment) (host string, a admission, err error) {
	q := request{Host: l.o.Host, Key: l.Key(), Secret: e.Secret}
	if e == (Enrolment{}) {
		a, err = askLocal(l.dialLocal).ask(ctx, q)
		if errors.Is(err, fs.ErrNotExist) || isRefused(err) {
			err = errors.New("no allotd runs on this machine, and no enrolment names another")
		}
		return "127.0.0.1", a, err
	}
	address := e.Address
	if address == "-" {
		if l.o.Find == nil {
			return "", a, errors.New("the enrolment names no address")
		}
		if address, err = l.o.Find(ctx); err != nil {
			return "", a, fmt.Errorf("find allotd: %w", err)
		}
	}
	if host, _, err = splitAddress(address); err != nil {
		return "", a, err
	}
	if a, err = askRemote(address, e.Fingerprint).ask(ctx, q); err != nil {
		err = fmt.Errorf("ask allotd at %s: %w", address, err)
	}
	return host, a, err
}

// dialLocal connects to allotd's socket: one that root, or this process's own user, listens on.
func (l *Link) dialLocal(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", l.o.Socket)
	if err != nil {
		return nil, err
	}
	uid, err := peer.UID(conn.(*net.UnixConn))
	if err == nil && uid != 0 && uid != os.Geteuid() {
		err = fmt.Errorf("%s is served by user ID %d: only root's allotd, and that of this user, are trusted", l.o.Socket, uid)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// isRefused reports whether nothing listens on a socket.
func isRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
