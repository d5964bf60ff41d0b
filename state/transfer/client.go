package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/reach"
	"github.com/allotment-hpc/allotment/state"
)

// Client pushes and fetches objects. Its methods may be called concurrently.
type Client struct {
	identity *Identity
	fetches  *http.Transport // keeps a few connections for those that follow soon
	pushes   *http.Transport // each has a connection of its own: what is sent on a stale one is not repeated
	pause    time.Duration   // before what was not found is asked for again
}

// NewClient returns a client.
func NewClient(i *Identity) *Client {
	c := &Client{identity: i, pause: firstPause}
	c.fetches = &http.Transport{
		DialTLSContext: c.dial, MaxIdleConns: idleConnections, MaxIdleConnsPerHost: idleToOneHost, IdleConnTimeout: clientIdleTime,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaderSize, ResponseHeaderTimeout: requestTime,
	}
	c.pushes = c.fetches.Clone()
	c.pushes.DisableKeepAlives = true
	return c
}

// ErrRefused is wrapped where the other host does not take an object, and would not take it a
// second time.
var ErrRefused = errors.New("it is refused")

// ErrMoving is wrapped where no host has the object right now, though it must be somewhere.
var ErrMoving = errors.New("the job's state is on its way between hosts: ask again in a moment")

// Bounds of a client.
const (
	requestTime = 60 * time.Second
	maxHops     = 8
	maxRetries  = 4
	firstPause  = 100 * time.Millisecond // doubled each time
	maxText     = 300                    // bytes of an error

	idleConnections = 128
	idleToOneHost   = 2                // a server has ofOneAddress for all clients of a machine
	clientIdleTime  = 10 * time.Second // less than the server's idleTime
	connectTime     = 10 * time.Second // and handshake
	unheardTime     = 10 * time.Second // a connection is given up when what was sent is not acknowledged for so long
)

// peerKey is the key of a request's context for the Peer that it goes to.
type peerKey struct{}

// dial connects to the Peer of the context, which must have this very certificate. The
// transport takes the host of a URL for a connection's place: so it is the fingerprint there.
func (c *Client) dial(ctx context.Context, network, place string) (net.Conn, error) {
	to, ok := ctx.Value(peerKey{}).(Peer)
	if host, _, err := net.SplitHostPort(place); err != nil || !ok || host != to.Fingerprint {
		return nil, fmt.Errorf("no host is known for %s", place)
	}
	dialer := &net.Dialer{Timeout: connectTime, Control: reach.GiveUp(unheardTime)}
	conn, err := dialer.DialContext(ctx, network, to.Address)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, c.identity.tls(func(fingerprint string) bool { return fingerprint == to.Fingerprint }))
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// do sends a request to the host with this very certificate.
func (c *Client) do(ctx context.Context, to Peer, request *http.Request) (*http.Response, func(), error) {
	request.URL.Host, request.Host = to.Fingerprint, to.Address
	transport := c.fetches
	if request.Method != http.MethodGet {
		transport = c.pushes
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, peerKey{}, to), requestTime)
	response, err := transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return response, func() { _ = response.Body.Close(); cancel() }, nil
}

func objectURL(p Peer, job state.Job) string { return "https://" + p.Address + "/jobs/" + job.String() }

// Push sends a job's object to another host. It returns nil when that has it on disk, and may be
// repeated. ErrRefused: the object can't be taken.
func (c *Client) Push(ctx context.Context, to Peer, job state.Job, object []byte, at state.Sequence) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, objectURL(to, job), bytes.NewReader(object))
	if err != nil {
		return err
	}
	request.Header.Set(sequenceHeader, sequenceText(at))
	request.Header.Set(digestHeader, digest(object))
	response, done, err := c.do(ctx, to, request)
	if err != nil {
		return fmt.Errorf("push the state of job %v to %s: %w", job, to.Host, err)
	}
	defer done()
	switch response.StatusCode {
	case http.StatusCreated:
		return nil
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return fmt.Errorf("push the state of job %v to %s: %w: %s", job, to.Host, ErrRefused, answer(response))
	}
	return fmt.Errorf("push the state of job %v to %s: %s", job, to.Host, answer(response))
}

// answer is the text of a response, for people.
func answer(r *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxText))
	return r.Status + ": " + printable.Text(string(bytes.TrimSpace(text)))
}

// Fetched is an object, and where it was.
type Fetched struct {
	Object []byte // the digest is right; the caller verifies what is in it
	At     state.Sequence
	From   Peer
}

// Fetch fetches a job's object. find asks the tracker for its holder: first, and again where
// the holder has it no more. peer returns a host by its name: what has moved is followed to such
// alone, whatever address a host names, for a few hops. ErrMoving: it is nowhere right now.
func (c *Client) Fetch(ctx context.Context, job state.Job, find func() (Peer, error), peer func(host string) (Peer, bool)) (Fetched, error) {
	pause := c.pause
	var at Peer
	for try := 0; ; try++ {
		var err error
		if at, err = find(); err != nil {
			return Fetched{}, err
		}
		f, err := c.follow(ctx, job, at, peer)
		if !errors.Is(err, errNotHere) {
			return f, err
		}
		if try == maxRetries {
			return Fetched{}, fmt.Errorf("fetch the state of job %v: %w", job, ErrMoving)
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return Fetched{}, context.Cause(ctx)
		}
	}
}

// errNotHere says that a host neither has an object nor knows where it went.
var errNotHere = errors.New("no host has it")

// follow asks a host, and those that it names.
func (c *Client) follow(ctx context.Context, job state.Job, at Peer, peer func(string) (Peer, bool)) (Fetched, error) {
	for range maxHops {
		f, next, err := c.ask(ctx, job, at)
		if err != nil || next == "" {
			return f, err
		}
		to, known := peer(next)
		if !known {
			return Fetched{}, fmt.Errorf("fetch the state of job %v: %s says that it went to %s, which is no host of this farm", job, at.Host, printable.Text(next))
		}
		at = to
	}
	return Fetched{}, fmt.Errorf("fetch the state of job %v: %d hosts, one after the other, named another: %w", job, maxHops, ErrMoving)
}

// ask asks one host. next: the host that has it now.
func (c *Client) ask(ctx context.Context, job state.Job, at Peer) (f Fetched, next string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, objectURL(at, job), nil)
	if err != nil {
		return Fetched{}, "", err
	}
	response, done, err := c.do(ctx, at, request)
	if err != nil {
		return Fetched{}, "", fmt.Errorf("fetch the state of job %v from %s: %w", job, at.Host, err)
	}
	defer done()
	switch response.StatusCode {
	case http.StatusOK:
		f.From = at
		if f.At, err = parseSequence(response.Header.Get(sequenceHeader)); err == nil {
			f.Object, err = readObject(response.Body, response.ContentLength, response.Header.Get(digestHeader))
		}
	case http.StatusMovedPermanently:
		if next = response.Header.Get(hostHeader); next == "" || len(next) > 255 {
			err = errors.New("it does not say where the object went")
		}
	case http.StatusNotFound:
		return Fetched{}, "", errNotHere
	default:
		err = errors.New(answer(response))
	}
	if err != nil {
		return Fetched{}, "", fmt.Errorf("fetch the state of job %v from %s: %w", job, at.Host, err)
	}
	return f, next, nil
}
