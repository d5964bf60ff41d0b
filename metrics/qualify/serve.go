package qualify

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Server serves jobs that measure the link to this host.
type Server struct {
	listener net.Listener
	secret   []byte
	path     string
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// Serve answers jobs that can read a file, which it writes for its owner alone, until
// ctx ends or it is closed.
func Serve(ctx context.Context, path string) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("serve measurements of the link to this host: %w", err)
	}
	secret := make([]byte, nonceSize)
	_, _ = rand.Read(secret) // never fails
	o := offer{Host: readText("/", "proc/sys/kernel/hostname"), Boot: bootID(), Secret: secret}
	if o.Addresses, err = addresses(listener); err == nil {
		err = writeFile(path, o)
	}
	if err != nil {
		return nil, fmt.Errorf("serve measurements of the link to this host: %w", errors.Join(err, listener.Close()))
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{listener: listener, secret: secret, path: path, cancel: cancel}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	s.done.Go(func() { s.accept(ctx) })
	return s, nil
}

// Close ends the server and removes its file.
func (s *Server) Close() {
	s.cancel()
	s.done.Wait()
	_ = os.Remove(s.path)
}

func (s *Server) accept(ctx context.Context) {
	peers := make(chan struct{}, maxPeers)
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		select {
		case peers <- struct{}{}:
		default: // too many clients: a job without this figure goes on
			_ = conn.Close()
			continue
		}
		s.done.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			_ = s.answer(conn) // the client notices
			_ = conn.Close()
			<-peers
		})
	}
}

func (s *Server) answer(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(serverTime)); err != nil {
		return err
	}
	if err := authenticate(conn, s.secret, "server", "client"); err != nil {
		return err
	}
	one := make([]byte, 1)
	for range maxPings + 1 {
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
		if one[0] == endOfPings {
			return receive(conn)
		}
		if _, err := conn.Write(one); err != nil {
			return err
		}
	}
	return errors.New("too many pings")
}

// receive counts what arrives for a while from the first byte on.
func receive(conn net.Conn) error {
	buffer := make([]byte, streamBlock)
	if _, err := io.ReadFull(conn, buffer[:1]); err != nil {
		return err
	}
	began := time.Now()
	if err := conn.SetReadDeadline(began.Add(streamTime)); err != nil {
		return err
	}
	count := uint64(0)
	var err error
	for err == nil {
		var n int
		n, err = conn.Read(buffer)
		count += uint64(n)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	answer := binary.BigEndian.AppendUint64(nil, count)
	if _, err = conn.Write(binary.BigEndian.AppendUint64(answer, uint64(time.Since(began)))); err != nil {
		return err
	}
	// What still arrives is read: closing earlier would reset the connection and lose the
	// answer.
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{conn}, buffer)
	return err
}

// addresses lists where the listener can be reached: on loopback last.
func addresses(listener net.Listener) ([]string, error) {
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			found = append(found, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(found, net.JoinHostPort("127.0.0.1", port)), nil
}
