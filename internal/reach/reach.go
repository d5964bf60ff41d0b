// Package reach connects to a machine that has several addresses, of which some may lead nowhere.
package reach

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limit bounds the search for an address that answers.
const Limit = 3 * time.Second

// KeepAlive finds out within half a minute that the other end is gone, of a connection where nothing
// was sent. See GiveUp.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// GiveUp is the Control of a net.Dialer, or of a net.ListenConfig for the connections that it accepts,
// that ends a TCP connection when what was sent is not acknowledged for so long. Linux would try for a
// quarter of an hour (tcp(7), TCP_USER_TIMEOUT).
func GiveUp(after time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
		}), err)
	}
}

// Any connects to the first of the addresses, HOST:PORT, that answers, and returns its place among
// them.
func Any(ctx context.Context, addresses []string) (net.Conn, int, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	type answer struct {
		at   int
		conn net.Conn
		err  error
	}
	answers := make(chan answer, len(addresses))
	for i, address := range addresses {
		go func() {
			conn, err := (&net.Dialer{KeepAliveConfig: KeepAlive}).DialContext(ctx, "tcp", address)
			answers <- answer{i, conn, err}
		}()
	}
	errs := make([]error, len(addresses))
	for n := range addresses {
		a := <-answers
		if a.err != nil {
			errs[a.at] = a.err
			continue
		}
		cancel()
		go func() { // the others
			for range len(addresses) - n - 1 {
				if late := <-answers; late.err == nil {
					_ = late.conn.Close()
				}
			}
		}()
		return a.conn, a.at, nil
	}
	if len(addresses) == 0 {
		return nil, 0, errors.New("there is no address")
	}
	return nil, 0, errors.Join(errs...)
}
