package root

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// Client asks a helper. It is for one goroutine. After an error it asks no more: see Err.
type Client struct {
	conn    int
	err     error
	in, out []byte
	why     string // nothing is counted by networks
}

// patience is how long an answer may take, in seconds.
const patience = 60

// Connect returns a client on an inherited descriptor. No program that this process starts has
// it, and no other process of this user can take it from this one.
func Connect(fd int) (*Client, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("descriptor %d is no socket of the root helper: only ahostd-root starts ahostd with one", fd)
	}
	unix.CloseOnExec(fd)
	limit := unix.Timeval{Sec: patience}
	err = errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), // else pidfd_getfd(2) hands the descriptor to the user's other processes
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	if err != nil {
		return nil, fmt.Errorf("set up the root helper's socket: %w", err)
	}
	return &Client{conn: fd, in: make([]byte, maxAnswer+1), why: "the config names no networks (ahostd.networks)"}, nil
}

// Err returns why the client asks no more; nil: it does.
func (c *Client) Err() error { return c.err }

// Claims asks for the jobs that processes' environments name.
func (c *Client) Claims(of []measure.ProcessID) ([]measure.RootClaims, error) {
	return ask(c, Claims, of, claimsSize, decodeClaims)
}

// Bytes asks for what processes have moved from and to storage.
func (c *Client) Bytes(of []measure.ProcessID) ([]measure.RootBytes, error) {
	return ask(c, Bytes, of, bytesSize, decodeBytes)
}

// SetNetworks sets the classes of networks. Until then nothing is counted by them.
func (c *Client) SetNetworks(networks map[netip.Prefix]measure.NetworkClass) error {
	c.out = encodeRequest(c.out[:0], request{verb: Networks, networks: networks})
	b, err := c.exchange()
	if err == nil && (len(b) < headSize || len(b) > headSize+maxText) {
		err = errMalformed
	}
	if err == nil {
		b, err = records(b, Networks, len(b)-headSize, 1)
	}
	if err != nil {
		return c.fail(err)
	}
	c.why = string(b)
	return nil
}

// Network returns what the jobs' control groups have sent and received, by their inodes, or why
// nothing is counted.
func (c *Client) Network() (map[uint64]measure.Network, string, error) {
	if c.why != "" {
		return nil, c.why, c.err
	}
	all := map[uint64]measure.Network{}
	for range 100 {
		c.out = encodeRequest(c.out[:0], request{verb: Network, first: uint32(len(all))})
		b, err := c.exchange()
		if err == nil && len(b) < headSize {
			err = errMalformed
		}
		if err != nil {
			return nil, "", c.fail(err)
		}
		total := int(binary.LittleEndian.Uint32(b[4:]))
		r, err := records(b, Network, (len(b)-headSize)/groupSize, groupSize)
		if err != nil {
			return nil, "", c.fail(err)
		}
		was := len(all)
		for ; len(r) > 0; r = r[groupSize:] {
			inode, n := decodeGroup(r)
			all[inode] = n
		}
		if len(all) >= total || len(all) == was {
			return all, "", nil
		}
	}
	return all, "", nil
}

// SetLimits brings about limits of jobs, and lifts all others, and returns why each is not in force; "": it is. What
// is beyond the bound of a message is not.
func (c *Client) SetLimits(all []Limit) ([]string, error) {
	some := all[:min(len(all), maxLimits)]
	b, err := c.answer(request{verb: Limits, limits: some}, len(some), whySize)
	if err != nil {
		return nil, err
	}
	why := make([]string, 0, len(all))
	for ; len(b) > 0; b = b[whySize:] {
		why = append(why, decodeWhy(b))
	}
	for range len(all) - len(some) {
		why = append(why, fmt.Sprintf("there are more than %d limits", maxLimits))
	}
	return why, nil
}

func (c *Client) fail(err error) error {
	c.err = fmt.Errorf("ask the root helper: %w", err)
	return c.err
}

func ask[T any](c *Client, verb Verb, of []measure.ProcessID, size int, decode func([]byte) T) ([]T, error) {
	all := make([]T, 0, len(of))
	for some := range slices.Chunk(of, maxRecords) {
		b, err := c.answer(request{verb: verb, processes: some}, len(some), size)
		if err != nil {
			return nil, err
		}
		for ; len(b) > 0; b = b[size:] {
			all = append(all, decode(b))
		}
	}
	return all, nil
}

// answer returns the records that answer a request for n of them.
func (c *Client) answer(r request, n, size int) ([]byte, error) {
	c.out = encodeRequest(c.out[:0], r)
	b, err := c.exchange()
	if err == nil {
		b, err = records(b, r.verb, n, size)
	}
	if err != nil {
		return nil, c.fail(err)
	}
	return b, nil
}

func (c *Client) exchange() ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	if err := again(func() error { return unix.Sendto(c.conn, c.out, unix.MSG_NOSIGNAL, nil) }); err != nil {
		return nil, err
	}
	var n int
	err := again(func() (err error) { n, _, err = unix.Recvfrom(c.conn, c.in, 0); return err })
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return c.in[:max(n, 0)], err
}

// again repeats a call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
