package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// sendAll sends to sinks by TCP and UDP, and returns what was sent and received, by address.
func sendAll(ctx context.Context, tcp, udp string) (sent, received map[string]int64, err error) {
	sent, received = map[string]int64{}, map[string]int64{}
	for i, list := range []string{tcp, udp} {
		for word := range strings.SplitSeq(list, ",") {
			if word == "" {
				continue
			}
			address, text, _ := strings.Cut(word, "=")
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, nil, err
			}
			back := int64(0)
			if i == 0 {
				back, err = exchange(ctx, address, n)
			} else {
				err = scatter(ctx, address, n)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("send to %s: %w", address, err)
			}
			sent[address] += n
			received[address] += back
		}
	}
	return sent, received, nil
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// exchange sends n bytes, and reads what the sink answers.
func exchange(ctx context.Context, address string, n int64) (int64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.CopyN(conn, zeros{}, n); err != nil {
		return 0, err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, conn)
}

// scatter sends n bytes in datagrams, of 1,000 bytes each.
func scatter(ctx context.Context, address string, n int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for ; n > 0; n -= 1000 {
		if _, err := conn.Write(make([]byte, min(n, 1000))); err != nil {
			return err
		}
	}
	return nil
}

// receive is the sink. The port takes UDP, too, so that senders get no errors.
func receive(address string) error {
	packets, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return err
	}
	defer packets.Close()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			n, err := io.Copy(io.Discard, conn)
			if err == nil {
				_, err = io.CopyN(conn, zeros{}, n/4)
			}
			_ = errors.Join(err, conn.Close()) // the sender notices
		}()
	}
}
