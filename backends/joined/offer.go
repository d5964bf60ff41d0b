package joined

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/identity"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/internal/trusted"
	wire "github.com/allotment-hpc/allotment/miniq"
)

// Options describe a machine that joins.
type Options struct {
	Dir   string       // that all machines share, and that is its owner's alone
	State string       // the machine's own directory, for its miniq
	Name  string       // of the machine; "": its host name
	Slots int          // 0: one for each processor
	Log   func(string) // gets a line for users
}

// Names in the state directory of a machine's miniq.
const (
	fileNumber = "joined"
	fileLock   = "joined.lock"
)

// Bounds of an offer.
const (
	maxConnections = 1024
	leaveTime      = 20 * time.Second // in which splits take their work elsewhere
	stopTime       = 10 * time.Second
	retryPause     = 5 * time.Second // before a miniqd that does not start is started again
)

// Offer offers this machine until the context ends. Then it takes no more jobs, waits a while until
// splits have taken back those that it has, and ends the others with its miniq.
func Offer(ctx context.Context, o Options) (err error) {
	if err := makeDir(o.Dir); err != nil {
		return err
	}
	d, err := newDaemon(&o)
	if err != nil {
		return err
	}
	lock, err := flock.Open(ctx, filepath.Join(o.State, fileLock), 0)
	if err != nil {
		return fmt.Errorf("another process may offer this machine: %w", err)
	}
	defer func() { _ = lock.Close() }()
	r := record{Host: d.node.Name, Secret: random.Text() + random.Text()}
	if r.Number, err = numberOf(filepath.Join(o.State, fileNumber)); err != nil {
		return err
	}
	if err := checkName(ctx, o.Dir, &r); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start this machine's miniqd: %w", err)
	}
	queue := miniq.Open(miniq.Options{Paths: d.paths})
	defer func() { _ = queue.Close() }()
	listener, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := r.write(o.Dir); err != nil {
		return err
	}
	o.Log(fmt.Sprintf("%s has joined: splits of %s use it", r.Host, o.Dir))
	go accept(ctx, listener, r.Secret, wire.Socket(d.paths))
	d.keep(ctx, queue, o.Log)
	return o.end(&r, queue)
}

// daemon is the machine's own miniq.
type daemon struct {
	paths   home.Paths
	node    wire.Node
	program string
}

func newDaemon(o *Options) (*daemon, error) {
	d := &daemon{paths: home.Paths{Config: filepath.Join(o.State, "config.yaml"), State: o.State, Runtime: o.State}, node: wire.ThisMachine()}
	if o.Name != "" {
		d.node.Name = o.Name
	}
	if o.Slots != 0 {
		d.node.Slots = o.Slots
	}
	if _, err := wire.ParseNode(d.node.String()); err != nil {
		return nil, err
	}
	// The daemon and what it starts find their state by the environment.
	if err := errors.Join(os.Setenv("ALLOTMENT_HOME", o.State), os.Unsetenv("ALLOTMENT_CONFIG")); err != nil {
		return nil, err
	}
	if err := d.paths.Prepare(); err != nil {
		return nil, err
	}
	var err error
	d.program, err = command.Sibling("miniqd")
	return d, err
}

// start starts it, or finds that it runs.
func (d *daemon) start(ctx context.Context) error {
	return wire.Spawn(ctx, d.paths, d.program, "--foreground", wire.ReadyArgument, "--node", d.node.String())
}

// keep starts it again whenever it has ended, until the context ends.
func (d *daemon) keep(ctx context.Context, queue *miniq.Client, log func(string)) {
	for seen := uint64(0); ctx.Err() == nil; {
		var err error
		if seen, err = queue.WaitChange(ctx, seen); err == nil || ctx.Err() != nil {
			continue
		}
		seen = 0
		if err := d.start(ctx); err != nil && ctx.Err() == nil {
			log("start this machine's miniqd again: " + err.Error())
			_ = clock.Sleep(ctx, retryPause)
		}
	}
}

// makeDir makes the directory of machines, or checks that it is its owner's alone.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of machines that join: %w", err)
	}
	if err := trusted.Dir(dir); err != nil {
		return fmt.Errorf("use the directory of machines that join, %s: %w", dir, err)
	}
	return nil
}

// numberOf returns a machine's number: each of its miniqs has one of its own, for good.
func numberOf(path string) (int64, error) {
	text, err := trusted.ReadPrivate(path, maxLine, trusted.Others)
	if err == nil {
		n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if wrong == nil && n >= 1 && n <= maxNumber {
			return n, nil
		}
		return 0, fmt.Errorf("%s holds no number of a machine: remove it, and a new one is made", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	n, err := rand.Int(rand.Reader, big.NewInt(maxNumber))
	if err != nil {
		return 0, err
	}
	number := n.Int64() + 1
	return number, disk.Replace(disk.OS(), path, 0o600, strconv.AppendInt(nil, number, 10))
}

// checkName refuses a name that another machine has, which answers.
func checkName(ctx context.Context, dir string, r *record) error {
	other, err := readRecord(dir, r.Host)
	if errors.Is(err, fs.ErrNotExist) || err == nil && other.Number == r.Number {
		return nil
	}
	if err != nil {
		return err
	}
	conn, err := other.dial(ctx)
	if err != nil {
		return nil //nolint:nilerr // it is left over
	}
	_ = conn.Close()
	return fmt.Errorf("another machine has joined as %s: choose another --name", r.Host)
}

// listen listens on all addresses of this machine, and notes them.
func (r *record) listen(ctx context.Context) (net.Listener, error) {
	pem, err := identity.New(r.Host)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		return nil, err
	}
	r.Certificate = identity.Fingerprint(certificate.Certificate[0])
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for splits: %w", err)
	}
	machine, err := os.Hostname()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	for _, a := range listen.Addresses(machine, maxAddresses) {
		r.Addresses = append(r.Addresses, net.JoinHostPort(a, port))
	}
	l = listen.Bound(l, maxConnections, maxConnections, func(net.Conn) string { return "" })
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}), nil
}

func (r *record) write(dir string) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = disk.Replace(disk.OS(), path(dir, r.Host), 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("write the record of this machine: %w", err)
	}
	return nil
}

// accept serves connections until the listener is closed.
func accept(ctx context.Context, l net.Listener, secret, socket string) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files, as a rule
			time.Sleep(time.Second)
			continue
		}
		if c, ok := conn.(*tls.Conn); ok {
			go serve(c, secret, func() (net.Conn, error) { return openSocket(context.WithoutCancel(ctx), socket) })
		}
	}
}

func openSocket(ctx context.Context, path string) (net.Conn, error) {
	name, release, err := wire.ShortName(path)
	if err != nil {
		return nil, err
	}
	defer release()
	return (&net.Dialer{Timeout: helloTime}).DialContext(ctx, "unix", name)
}

// end takes the machine out.
func (o *Options) end(r *record, queue *miniq.Client) error {
	r.Leaving = true
	err := r.write(o.Dir)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if n := awaitIdle(ctx, queue, func(n int) {
		o.Log(fmt.Sprintf("leaving: splits have %v to take back %d jobs", leaveTime, n))
	}); n > 0 {
		o.Log(fmt.Sprintf("%d jobs are killed", n))
	}
	stop, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return errors.Join(err, queue.Stop(stop, true), os.Remove(path(o.Dir, r.Host)))
}

// awaitIdle waits until the machine has no jobs, and returns how many there are still. told is
// called once, if there are some.
func awaitIdle(ctx context.Context, queue *miniq.Client, told func(n int)) (n int) {
	for seen := uint64(0); ; {
		s, err := queue.Snapshot(ctx, time.Now())
		if err != nil {
			return n
		}
		if n == 0 && len(s.Jobs) > 0 {
			told(len(s.Jobs))
		}
		if n = len(s.Jobs); n == 0 {
			return 0
		}
		if seen, err = queue.WaitChange(ctx, seen); err != nil {
			return n
		}
	}
}
