// Package reach connects to a machine that has several addresses, of which some may lead nowhere.
package reach

import (
	"context"
	"errors"
	"net"
	"time"
)

// Limit bounds the search for an address that answers.
const Limit = 3 * time.Second

// keepAlive finds out within half a minute that the other end is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

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
			conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
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
