package joined

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/identity"
	"github.com/allotment-hpc/allotment/internal/reach"
)

// A connection begins with the secret, in a line, and is answered with a line: admitted, or what is
// wrong. Then it is the machine's miniq.

const (
	admitted  = "ok"
	maxLine   = 500              // bytes
	helloTime = 10 * time.Second // in which a connection begins
)

// errForeign is returned for a machine with another certificate.
var errForeign = errors.New("another machine answers there: nothing was sent to it")

// dial connects to the miniq of a machine.
func (r *record) dial(ctx context.Context) (*os.File, error) {
	conn, _, err := reach.Any(ctx, r.Addresses)
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks more: the very certificate, whatever the address
		VerifyConnection:   identity.Check(func(fingerprint string) bool { return fingerprint == r.Certificate }, errForeign),
	})
	file, err := r.enter(ctx, c)
	if err != nil {
		_ = c.Close()
	}
	return file, err
}

// enter says the secret, and returns the stream behind it.
func (r *record) enter(ctx context.Context, c *tls.Conn) (*os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if err := c.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(c, r.Secret); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(c, maxLine)
	line, err := readLine(in)
	if err != nil {
		return nil, fmt.Errorf("%s answered nothing: %w", r.Host, err)
	}
	if line != admitted {
		return nil, fmt.Errorf("%s answers: %.200q", r.Host, line)
	}
	if err := c.SetDeadline(time.Time{}); err != nil || in.Buffered() > 0 || !stop() {
		return nil, errors.Join(errors.New("the connection did not begin as it should"), err, ctx.Err())
	}
	return tunnel(c)
}

// readLine reads a line without its newline.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	return strings.TrimSuffix(string(line), "\n"), err
}

// tunnel returns one end of a pair of sockets. What it says goes to the connection, and back.
func tunnel(c net.Conn) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	go join(os.NewFile(uintptr(fds[1]), "joined"), c)
	return os.NewFile(uintptr(fds[0]), "joined"), nil
}

// join copies both ways between two streams until one ends, and closes both.
func join(a, b io.ReadWriteCloser) {
	var copies sync.WaitGroup
	one := func(to io.WriteCloser, from io.ReadCloser) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	copies.Go(func() { one(a, b) })
	copies.Go(func() { one(b, a) })
	copies.Wait()
}

// serve answers one connection to a machine, whose miniq open connects to.
func serve(conn *tls.Conn, secret string, open func() (net.Conn, error)) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	line, err := readLine(bufio.NewReaderSize(io.LimitReader(conn, secretDigits+1), maxLine))
	if err != nil || subtle.ConstantTimeCompare([]byte(line), []byte(secret)) != 1 {
		return
	}
	queue, err := open()
	if err != nil {
		fmt.Fprintf(conn, "%.*s\n", maxLine/2, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	if _, err := fmt.Fprintln(conn, admitted); err != nil {
		_ = queue.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	join(queue, conn)
}
