package bus

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/time/rate"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// HubOptions are what a Hub is made of.
type HubOptions struct {
	Dir     string   // of the keys and the list of hosts: made, and open to its owner alone
	Machine string   // this one's name
	Listen  string   // ADDRESS:PORT of the embedded server; ignored with Servers
	Servers []string // the site's own servers, such as tls://nats1:4222
	CA      string   // a file with the authority of the site's servers, PEM; "": the system's
	Enrol   string   // ADDRESS:PORT where hosts of other machines ask to be admitted; "": none do
	Address string   // HOST:PORT by which they reach Enrol; "": of Machine and Enrol
	Log     *slog.Logger

	Messages int // that a host may send a second; 0: 20
	Joins    int // hosts of one address that may ask at a time; 0: 64
}

// Hub is allotd's end of the bus. It decides which hosts are admitted.
type Hub struct {
	o      HubOptions
	keys   *authority
	server *server.Server // embedded; nil: the site's own
	port   int            // of the embedded server
	conn   *nats.Conn
	system *nats.Conn // in the servers' system account: it receives their connection events, and sends withdrawn keys to the site's own servers
	ca     string     // the content of the file
	joins  *joinServer

	saving sync.Mutex // held while the list is saved; taken before hosts
	saved  uint64     // the last change that is

	hosts   sync.Mutex // held while the list changes
	list    *registry
	changes uint64               // their number
	may     map[string]bool      // the names of those that are not withdrawn; nil: the list has changed since
	faults  map[string]time.Time // hosts that sent too much, and since when they may not join

	mu       sync.RWMutex
	handlers map[string]func(Message)

	rates  map[string]*budget // of the hosts, by name: only used by receive
	opened map[uint64]string  // the connections' hosts: only used by connections
	places map[string]int     // the number of each one's
	closed chan struct{}

	ending sync.Mutex // of what is started, and of the end
	over   bool
	ended  sync.WaitGroup
}

// Bounds of the embedded server.
const (
	maxConnections = 20_000
	maxPending     = 16 << 20 // bytes that wait for one client; a host that does not read is disconnected
	writeDeadline  = 5 * time.Second
)

// OpenHub reads the keys, or makes them, and starts or joins the servers. The site's own servers
// need not be in reach: the Hub returns to them by itself.
func OpenHub(ctx context.Context, o HubOptions) (*Hub, error) {
	if err := prepareDir(o.Dir); err != nil {
		return nil, err
	}
	h := &Hub{o: o, handlers: map[string]func(Message){}, rates: map[string]*budget{}, opened: map[uint64]string{}, places: map[string]int{}, faults: map[string]time.Time{}, closed: make(chan struct{})}
	if err := h.open(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *Hub) open(ctx context.Context) (err error) {
	if h.keys, err = openAuthority(h.o.Dir, time.Now()); err != nil {
		return err
	}
	if h.list, err = readRegistry(filepath.Join(h.o.Dir, registryName)); err != nil {
		return err
	}
	if h.o.CA != "" {
		text, err := os.ReadFile(h.o.CA)
		if err != nil {
			return fmt.Errorf("read bus.ca: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return fmt.Errorf("read bus.ca: %s has no certificate", h.o.CA)
		}
		h.ca = string(text)
	}
	if len(h.o.Servers) == 0 {
		if err := h.embed(); err != nil {
			return err
		}
	}
	if err := h.connect(); err != nil || h.o.Enrol == "" {
		return err
	}
	h.joins, err = h.listenForJoins(ctx)
	return err
}

// prepareDir makes a directory that is its owner's alone.
func prepareDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = trusted.Dir(dir)
	}
	if err != nil {
		return fmt.Errorf("make the directory of the bus, %s: %w", dir, err)
	}
	return nil
}

const registryName = "hosts.json"

// maxRegistry bounds the file of hosts, in bytes.
const maxRegistry = 32 << 20

func readRegistry(path string) (*registry, error) {
	r := newRegistry()
	text, err := trusted.ReadPrivate(path, maxRegistry, trusted.Others)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err == nil:
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the hosts of the bus, %s: %w", path, err)
	}
	if r.Hosts == nil || r.Revoked == nil { // null
		return nil, fmt.Errorf("read the hosts of the bus, %s: hosts or revoked is missing", path)
	}
	return r, nil
}

// change changes the list, and saves it.
func (h *Hub) change(do func() error) error {
	h.hosts.Lock()
	err := do()
	at := h.note()
	h.hosts.Unlock()
	if err != nil {
		return err
	}
	return h.save(at)
}

// note notes a change of the list, and returns its number. The caller holds the list.
func (h *Hub) note() uint64 {
	h.may = nil
	h.changes++
	return h.changes
}

// save returns when the list is saved with a change, which may be by the save of another one:
// where many hosts join at once, one save has those that came during the last.
func (h *Hub) save(change uint64) error {
	h.saving.Lock()
	defer h.saving.Unlock()
	if h.saved >= change {
		return nil
	}
	h.hosts.Lock()
	h.list.prune(time.Now())
	text, err := json.Marshal(h.list)
	at := h.changes
	h.hosts.Unlock()
	if err == nil {
		err = disk.Replace(disk.OS(), filepath.Join(h.o.Dir, registryName), 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("save the hosts of the bus: %w", err)
	}
	h.saved = at
	return nil
}

// start runs a function that Close waits for, unless that was called.
func (h *Hub) start(f func()) {
	h.ending.Lock()
	defer h.ending.Unlock()
	if !h.over {
		h.ended.Go(f)
	}
}

// Close stops the server and disconnects.
func (h *Hub) Close() {
	close(h.closed)
	h.ending.Lock()
	h.over = true
	h.ending.Unlock()
	if h.joins != nil {
		h.joins.close()
	}
	for _, conn := range []*nats.Conn{h.conn, h.system} {
		if conn != nil {
			conn.Close()
		}
	}
	h.ended.Wait()
	if h.server != nil {
		h.server.Shutdown()
		h.server.WaitForShutdown()
	}
}

// embed starts the server in this process.
func (h *Hub) embed() error {
	host, port, err := splitAddress(h.o.Listen)
	if err != nil {
		return fmt.Errorf("bus.listen: %w", err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	resolver := &server.MemAccResolver{}
	h.hosts.Lock()
	h.list.prune(time.Now())
	claims := h.keys.accountClaims(h.list.Revoked)
	h.hosts.Unlock()
	for _, c := range []*jwt.AccountClaims{h.keys.systemClaims(), claims} {
		if _, err := h.store(resolver, c); err != nil {
			return err
		}
	}
	h.server, err = server.NewServer(&server.Options{
		ServerName: serverName, Host: host, Port: port, NoSigs: true, NoLog: true,
		TrustedOperators: []*jwt.OperatorClaims{h.keys.operatorClaims()}, AccountResolver: resolver, SystemAccount: public(h.keys.system),
		TLSConfig: h.keys.serverTLS(), TLSHandshakeFirst: true, TLSTimeout: 10, AuthTimeout: 12,
		MaxConn: maxConnections, MaxPayload: MaxPayload, MaxControlLine: 1024, MaxPending: maxPending, WriteDeadline: writeDeadline,
		MaxClosedClients: 100, PingInterval: 20 * time.Second, MaxPingsOut: 2, NoHeaderSupport: true,
	})
	if err != nil {
		return fmt.Errorf("make the bus: %w", err)
	}
	h.server.SetLoggerV2(serverLog{h.o.Log}, false, false, false)
	h.server.Start()
	if !h.server.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("listen on %s: see the log, and bus.listen in the config", h.o.Listen)
	}
	_, h.port, err = splitAddress(h.server.Addr().String())
	return err
}

// store gives the embedded server an account, and returns its claims as the server reads them:
// where an empty list is no list, it would believe that the rights of all hosts had changed, and
// disconnect them.
func (h *Hub) store(r server.AccountResolver, c *jwt.AccountClaims) (*jwt.AccountClaims, error) {
	text, err := c.Encode(h.keys.operator)
	if err == nil {
		err = r.Store(c.Subject, text)
	}
	if err != nil {
		return nil, err
	}
	return jwt.DecodeAccountClaims(text)
}

// connect connects allotd itself.
func (h *Hub) connect() error {
	var err error
	if h.conn, err = h.dial(h.keys.account); err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	publish := func(system *nats.Conn) {
		if h.server == nil {
			h.start(func() { h.publishClaims(system) })
		}
	}
	if h.system, err = h.dial(h.keys.system, nats.ConnectHandler(publish), nats.ReconnectHandler(publish)); err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	if h.server != nil {
		if _, err = h.system.Subscribe("$SYS.ACCOUNT."+public(h.keys.account)+".*", h.connections); err == nil {
			err = h.system.Flush()
		}
	}
	var sub *nats.Subscription
	if err == nil {
		sub, err = h.conn.Subscribe(fromHosts+">", h.receive)
	}
	if err == nil {
		err = sub.SetPendingLimits(1<<16, 64<<20)
	}
	if err == nil && h.server != nil {
		err = h.conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("hear the hosts: %w", err)
	}
	return nil
}

// maxHostConnections is how many connections a host may have at a time: its agent has one, and
// for a while another one, which is lost and not yet known to be.
const maxHostConnections = 4

// connections hears from the embedded server who connects and who leaves. A host that opens too
// many connections is disconnected: they are places that others need.
func (h *Hub) connections(m *nats.Msg) {
	var event struct {
		Client struct {
			ID  uint64 `json:"id"`
			JWT string `json:"jwt"`
		} `json:"client"`
	}
	if json.Unmarshal(m.Data, &event) != nil {
		return
	}
	id := event.Client.ID
	if strings.HasSuffix(m.Subject, ".DISCONNECT") {
		host := h.opened[id]
		delete(h.opened, id)
		if h.places[host]--; h.places[host] <= 0 {
			delete(h.places, host)
		}
		return
	}
	claims, err := jwt.DecodeUserClaims(event.Client.JWT)
	if err != nil || claims.Name == serverName && claims.Issuer == public(h.keys.account) {
		return
	}
	host := strings.ReplaceAll(claims.Name, ":", ".")
	h.opened[id] = host
	if h.places[host]++; h.places[host] == maxHostConnections+1 {
		h.start(func() { h.expel(host, "opens too many connections") })
	}
}

// dial connects with an identity of this process's own, and returns by itself.
func (h *Hub) dial(account nkeys.KeyPair, more ...nats.Option) (*nats.Conn, error) {
	token, pair, err := h.keys.ownIdentity(account)
	if err != nil {
		return nil, err
	}
	o := append([]nats.Option{
		nats.Name(serverName), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1),
		nats.ReconnectJitter(time.Second, time.Second), nats.Timeout(5 * time.Second),
		nats.UserJWT(func() (string, error) { return token, nil }, pair.Sign),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			h.o.Log.Warn("the bus reports an error", "error", err)
		}),
	}, more...)
	if h.server != nil {
		// Without the handshake the server would wait whether one comes, for 50 ms.
		return nats.Connect("", append(o, nats.InProcessServer(h.server), nats.Secure(pinned(h.keys.fingerprint())), nats.TLSHandshakeFirst())...)
	}
	secure, err := siteTLS(h.o.Servers, h.ca)
	if err != nil {
		return nil, err
	}
	return nats.Connect(joined(h.o.Servers), append(o, secure...)...)
}

// Receive has a function called for each message of this kind, one after the other. It must
// return soon: it may keep the payload.
func (h *Hub) Receive(kind string, f func(Message)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers[kind] = f
}

// Send sends a message to a host. One that is not connected does not get it: there is no store.
func (h *Hub) Send(host, kind string, payload []byte) error {
	name, err := token(host)
	if err == nil {
		err = checkMessage(kind, payload)
	}
	if err != nil {
		return err
	}
	if err := h.conn.Publish(toHosts+name+"."+kind, payload); err != nil {
		return fmt.Errorf("send %s to %s: %w: %w", kind, host, ErrNotConnected, err)
	}
	return nil
}

// What a host may send: beyond that its messages are dropped, and beyond what may be dropped it
// is disconnected for a while.
const (
	hostMessages, hostMessagesAtOnce = 20, 200            // a second
	hostBytes, hostBytesAtOnce       = 256 << 10, 4 << 20 // a second
	hostDropped, hostDroppedAtOnce   = 10, 400            // messages a second
	faultTime                        = time.Minute
)

// budget is what a host may still send, and have dropped.
type budget struct{ messages, bytes, dropped *rate.Limiter }

func newBudget(perSecond int) *budget {
	if perSecond == 0 {
		perSecond = hostMessages
	}
	return &budget{
		messages: rate.NewLimiter(rate.Limit(perSecond), max(perSecond, hostMessagesAtOnce)), bytes: rate.NewLimiter(hostBytes, hostBytesAtOnce),
		dropped: rate.NewLimiter(hostDropped, hostDroppedAtOnce),
	}
}

// receive hands a message to its receiver. One goroutine calls it.
func (h *Hub) receive(m *nats.Msg) {
	host, kind, ok := sender(m.Subject)
	if !ok {
		return
	}
	b := h.rates[host]
	if b == nil {
		if len(h.rates) >= maxHosts {
			clear(h.rates)
		}
		b = newBudget(h.o.Messages)
		h.rates[host] = b
	}
	now := time.Now()
	if !b.messages.AllowN(now, 1) || !b.bytes.AllowN(now, len(m.Data)) {
		if !b.dropped.AllowN(now, 1) {
			h.rates[host] = newBudget(h.o.Messages) // when it is back; what is under way may have it expelled once more
			h.start(func() { h.expel(host, "sends too much") })
		}
		return
	}
	h.mu.RLock()
	f := h.handlers[kind]
	h.mu.RUnlock()
	if f != nil {
		f(Message{Host: host, Kind: kind, Payload: m.Data})
	}
}

// expel disconnects a host that does too much. It may join again after a while.
func (h *Hub) expel(host, why string) {
	h.hosts.Lock()
	defer h.hosts.Unlock()
	is, known := h.list.Hosts[host]
	if !known {
		return
	}
	now := time.Now()
	h.o.Log.Warn("a host is disconnected for a while", "host", host, "for", faultTime, "why", "it "+why)
	maps.DeleteFunc(h.faults, func(_ string, at time.Time) bool { return now.After(at) })
	h.faults[host] = now.Add(faultTime)
	h.list.Revoked[is.Key] = now
	h.revoke()
}

// revoke tells the servers which keys are withdrawn: they disconnect these. The caller holds
// the list.
func (h *Hub) revoke() {
	h.list.prune(time.Now())
	if h.server == nil {
		h.start(func() { h.publishClaims(h.system) })
		return
	}
	claims, err := h.store(h.server.AccountResolver(), h.keys.accountClaims(h.list.Revoked))
	if err != nil {
		h.o.Log.Error("withdraw a key", "error", err)
		return
	}
	account, err := h.server.LookupAccount(public(h.keys.account))
	if err != nil {
		h.o.Log.Error("withdraw a key", "error", err)
		return
	}
	h.server.UpdateAccountClaims(account, claims)
}

// publishClaims tells the site's own servers of the account, until one of them answers.
func (h *Hub) publishClaims(system *nats.Conn) {
	for {
		err := h.publishClaimsOnce(system)
		if err == nil {
			return
		}
		h.o.Log.Warn("tell the site's servers which keys are withdrawn", "error", err)
		select {
		case <-time.After(5 * time.Second):
		case <-h.closed:
			return
		}
	}
}

func (h *Hub) publishClaimsOnce(system *nats.Conn) error {
	h.hosts.Lock()
	text, err := h.keys.accountClaims(h.list.Revoked).Encode(h.keys.operator)
	h.hosts.Unlock()
	if err != nil {
		return err
	}
	m, err := system.Request("$SYS.REQ.CLAIMS.UPDATE", []byte(text), 5*time.Second)
	if err != nil {
		return err
	}
	var answer struct {
		Error *struct{ Description string } `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("the server answers: %.200q", answer.Error.Description)
	}
	return nil
}

// Hosts returns the hosts that are, or were, admitted, by name, and those that wait, which is
// longest first.
func (h *Hub) Hosts() ([]Host, []Waiting) {
	h.hosts.Lock()
	defer h.hosts.Unlock()
	var waiting []Waiting
	for _, w := range h.list.waiting {
		if time.Since(w.Last) <= waitingTime {
			waiting = append(waiting, w)
		}
	}
	return h.list.hosts(), waiting
}

// Admitted returns the names of the hosts that may send. It is made anew when the list has
// changed: the caller must not change it.
func (h *Hub) Admitted() map[string]bool {
	h.hosts.Lock()
	defer h.hosts.Unlock()
	if h.may == nil {
		h.may = map[string]bool{}
		for name, is := range h.list.Hosts {
			if is.Withdrawn.IsZero() {
				h.may[name] = true
			}
		}
	}
	return h.may
}

// Approve admits a host that waits: if its name is not enough, since several do, with this key.
func (h *Hub) Approve(name, key, by string) (Host, error) {
	var host Host
	err := h.change(func() (err error) {
		if host, err = h.list.approve(name, key, by, time.Now()); err == nil {
			delete(h.faults, name)
			h.revoke()
		}
		return err
	})
	return host, err
}

// Withdraw ends a host's enrolment: it is disconnected, and not admitted again before it is
// approved.
func (h *Hub) Withdraw(name string) (Host, error) {
	var host Host
	err := h.change(func() (err error) {
		if host, err = h.list.withdraw(name, time.Now()); err == nil {
			h.revoke() // even where it can't be saved
		}
		return err
	})
	return host, err
}

// JoinPort is the port where hosts of other machines ask to be admitted.
func (h *Hub) JoinPort() (int, error) {
	if h.joins == nil {
		return 0, errors.New("hosts of other machines can't join: set bus.enrol in the config")
	}
	return h.joins.port, nil
}

// Enrol makes a secret that lasts for a time, 0: until it is withdrawn, and returns the
// enrolment that has it. With no secret it makes none.
func (h *Hub) Enrol(secret bool, lasts time.Duration) (Enrolment, error) {
	e := Enrolment{Fingerprint: h.keys.fingerprint()}
	if h.joins == nil {
		return e, errors.New("hosts of other machines can't join: set bus.enrol in the config, such as 0.0.0.0:8472, and restart allotd")
	}
	e.Address = h.joins.address
	if !secret {
		return e, nil
	}
	e.Secret = random.Text()
	err := h.change(func() error {
		_, err := h.list.addSecret(e.Secret, lasts, time.Now())
		return err
	})
	if err != nil {
		return Enrolment{}, err
	}
	return e, nil
}

// Secrets returns the secrets, oldest first, without what they are.
func (h *Hub) Secrets() []Secret {
	h.hosts.Lock()
	defer h.hosts.Unlock()
	var all []Secret
	for _, s := range h.list.Secrets {
		s.Hash = ""
		all = append(all, s)
	}
	return all
}

// WithdrawSecret removes a secret. The hosts that it admitted stay.
func (h *Hub) WithdrawSecret(id string) error {
	return h.change(func() error { return h.list.withdrawSecret(id) })
}

// SiteConfig returns what the site's own servers must have in their config.
func (h *Hub) SiteConfig() (string, error) {
	operator, err := h.keys.operatorClaims().Encode(h.keys.operator)
	if err != nil {
		return "", err
	}
	system, err := h.keys.systemClaims().Encode(h.keys.operator)
	if err != nil {
		return "", err
	}
	h.hosts.Lock()
	account, err := h.keys.accountClaims(h.list.Revoked).Encode(h.keys.operator)
	h.hosts.Unlock()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("operator: %s\nsystem_account: %s\nmax_payload: %d\nresolver: {type: full, dir: \"./jwt\", allow_delete: false, interval: \"2m\"}\nresolver_preload: {\n  %s: %s\n  %s: %s\n}\n",
		operator, public(h.keys.system), MaxPayload, public(h.keys.system), system, public(h.keys.account), account), nil
}

// serverLog has the embedded server's messages in the log.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) { l.log.Debug("bus: " + fmt.Sprintf(format, v...)) }

func (l serverLog) Warnf(format string, v ...any)  { l.log.Debug("bus: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Debugf(string, ...any)          {}
func (l serverLog) Tracef(string, ...any)          {}
func (l serverLog) Errorf(format string, v ...any) { l.log.Debug("bus: " + fmt.Sprintf(format, v...)) } // most are clients' faults

func (l serverLog) Fatalf(format string, v ...any) {
	l.log.Error("bus: " + fmt.Sprintf(format, v...))
}
