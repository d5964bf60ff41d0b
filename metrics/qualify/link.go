package qualify

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Link is the measured network path to the submitting host.
type Link struct {
	Latency    float64 `json:"latency_us"`        // of a round trip, the median, in microseconds
	Throughput float64 `json:"throughput_mbytes"` // million bytes a second that arrive there
	Address    string  `json:"address"`
}

// Both sides prove that they have the file by an HMAC over a nonce of the other side: the
// secret itself is never sent. Then the client sends single bytes, which come back, and,
// after endOfPings, as much as it can until the server answers how much arrived in how
// many nanoseconds.
const (
	nonceSize   = 32
	endOfPings  = 'd'
	maxPings    = 200
	maxPeers    = 64 // at a time
	authTime    = 300 * time.Millisecond
	serverTime  = 5 * time.Second // for one client
	streamBlock = 256 << 10
)

// offer is the file by which jobs find the server.
type offer struct {
	Host      string   `json:"host"`
	Boot      string   `json:"boot"` // of this kernel: a process with the same one is on this host
	Addresses []string `json:"addresses"`
	Secret    []byte   `json:"secret"`
}

const maxOffer = 64 << 10

// authenticate proves to the other side that the secret is known here, and asks for the same.
func authenticate(conn net.Conn, secret []byte, own, other string) error {
	sent, got := make([]byte, nonceSize), make([]byte, nonceSize)
	_, _ = rand.Read(sent) // never fails
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if _, err := conn.Write(proof(secret, own, got)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !hmac.Equal(got, proof(secret, other, sent)) {
		return errors.New("the other side does not know the secret")
	}
	return nil
}

// proof returns an HMAC that names the side that makes it: sent back to that side it
// proves nothing.
func proof(secret []byte, side string, nonce []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(side))
	h.Write(nonce)
	return h.Sum(nil)
}

func bootID() string { return readText("/", "proc/sys/kernel/random/boot_id") }

// readOffer reads what Serve wrote; the offer is empty if the file is missing.
func readOffer(path string) (offer, error) {
	if path == "" {
		return offer{}, nil
	}
	f, err := trusted.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return offer{}, nil
	}
	if err != nil {
		return offer{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxOffer))
	if err != nil {
		return offer{}, err
	}
	o, err := parseOffer(text)
	if err != nil {
		return offer{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

func parseOffer(text []byte) (offer, error) {
	var o offer
	if err := json.Unmarshal(text, &o); err != nil {
		return offer{}, err
	}
	if len(o.Secret) != nonceSize || len(o.Addresses) == 0 {
		return offer{}, errors.New("not a link offer: its secret or its addresses are missing")
	}
	for _, a := range o.Addresses {
		host, port, err := net.SplitHostPort(a)
		if _, err2 := strconv.ParseUint(port, 10, 16); err != nil || err2 != nil || net.ParseIP(host) == nil {
			return offer{}, fmt.Errorf("%q is not an address", a)
		}
	}
	return o, nil
}

// measure measures the link to the first address that answers. An offer without addresses
// gives no link, and no error.
func (o offer) measure(ctx context.Context) (*Link, error) {
	if len(o.Addresses) == 0 {
		return nil, nil
	}
	all := slices.Clone(o.Addresses)
	if o.Boot != "" && o.Boot == bootID() {
		slices.Reverse(all) // loopback first
	}
	var failed error
	for _, address := range all {
		conn, err := o.dial(ctx, address)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		link, err := measureLink(ctx, conn)
		_ = conn.SetLinger(0) // unsent bytes are dropped
		_ = conn.Close()
		if err != nil {
			return nil, fmt.Errorf("%s, at %s: %w", o.Host, address, err)
		}
		link.Address = address
		return &link, nil
	}
	return nil, fmt.Errorf("%s can't be reached: %w", o.Host, failed)
}

func (o offer) dial(ctx context.Context, address string) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: authTime}
	dialed, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn, ok := dialed.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: not a TCP connection", address), dialed.Close())
	}
	if err = conn.SetDeadline(time.Now().Add(authTime)); err == nil {
		err = authenticate(conn, o.Secret, "client", "server")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, errors.Join(err, conn.Close()))
	}
	return conn, nil
}

func measureLink(ctx context.Context, conn net.Conn) (Link, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	began := time.Now()
	if err := conn.SetDeadline(began.Add(latencyTime + streamTime + time.Second)); err != nil {
		return Link{}, err
	}
	var trips []time.Duration
	one := []byte{'p'}
	for until := began.Add(latencyTime); len(trips) < maxPings && (len(trips) == 0 || timeLeft(ctx, until)); {
		sent := time.Now()
		if _, err := conn.Write(one); err != nil {
			return Link{}, err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return Link{}, err
		}
		trips = append(trips, time.Since(sent))
	}
	count, took, err := stream(conn)
	if err == nil && count == 0 {
		err = errors.New("nothing arrived")
	}
	if err != nil {
		return Link{}, err
	}
	return Link{Latency: rounded(float64(median(trips)) / 1e3), Throughput: perSecond(float64(count), took)}, nil
}

// stream sends until the other side has counted enough.
func stream(conn net.Conn) (uint64, time.Duration, error) {
	if _, err := conn.Write([]byte{endOfPings}); err != nil {
		return 0, 0, err
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		noise := make([]byte, streamBlock)
		for {
			if _, err := conn.Write(noise); err != nil {
				return
			}
		}
	})
	answer := make([]byte, 16)
	_, err := io.ReadFull(conn, answer)
	_ = conn.SetWriteDeadline(time.Unix(1, 0)) // ends the sending
	sending.Wait()
	return binary.BigEndian.Uint64(answer), time.Duration(binary.BigEndian.Uint64(answer[8:]) & (1<<62 - 1)), err
}
