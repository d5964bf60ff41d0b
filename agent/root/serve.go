package root

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server answers one client.
type Server struct {
	conn      int // a socket of whole messages, with SO_PASSCRED
	client    unix.Ucred
	processes *processes
	spent     allowance
}

// NewServer returns a server for the process that has the other end of a socket.
func NewServer(conn int, client unix.Ucred) (*Server, error) {
	p, err := newProcesses()
	if err != nil {
		return nil, fmt.Errorf("open /proc: %w", err)
	}
	return &Server{conn: conn, client: client, processes: p}, nil
}

// Serve answers until the client closes its end (io.EOF), or breaks the protocol.
func (s *Server) Serve() error {
	in, out := make([]byte, maxRequest), make([]byte, 0, maxAnswer)
	for {
		n, err := s.receive(in)
		if err != nil {
			return err
		}
		r, err := decodeRequest(in[:n])
		if err != nil {
			return err
		}
		if out = s.answer(out[:0], r); !s.send(out) {
			return io.EOF
		}
		now := time.Now()
		s.processes.sweep(now)
		time.Sleep(s.spent.wait(now, processorTime()))
	}
}

// receive reads a message, if it is the client's. A larger one, and one with descriptors, is
// an error.
func (s *Server) receive(in []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred)) // no room for descriptors: the kernel makes none
	n, oobn, flags, _, err := unix.Recvmsg(s.conn, in, oob, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, oobn, flags, _, err = unix.Recvmsg(s.conn, in, oob, unix.MSG_CMSG_CLOEXEC)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case n == 0:
		return 0, io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return 0, fmt.Errorf("%w: it is larger than %d bytes, or has descriptors", errMalformed, len(in))
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("%w: it has no sender", errMalformed)
	}
	from, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil || from.Pid != s.client.Pid || from.Uid != s.client.Uid {
		return 0, fmt.Errorf("%w: it is of process %+v, not of %d", errMalformed, from, s.client.Pid)
	}
	return n, nil
}

func (s *Server) answer(out []byte, r request) []byte {
	out = answerHead(out, r.verb, len(r.processes))
	for _, p := range r.processes {
		switch r.verb {
		case Claims:
			out = appendClaims(out, s.processes.claims(p))
		case Bytes:
			out = appendBytes(out, s.processes.bytes(p))
		}
	}
	return out
}

// send sends an answer; false: the client is gone.
func (s *Server) send(out []byte) bool {
	for {
		err := unix.Sendto(s.conn, out, unix.MSG_NOSIGNAL, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// allowance bounds the processor time of a server whose client asks all the time: a burst,
// then a share.
type allowance struct {
	left time.Duration
	at   time.Time
	used time.Duration // then
}

const (
	burst       = 3 * time.Second // 50,000 environments take one
	shareOfCore = 10              // one part in so many
)

// wait returns how long a server that has used so much in all must rest.
func (a *allowance) wait(now time.Time, used time.Duration) time.Duration {
	if a.at.IsZero() {
		a.left, a.used = burst, used
	} else {
		a.left = min(burst, a.left+now.Sub(a.at)/shareOfCore)
	}
	a.left -= used - a.used
	a.at, a.used = now, used
	return max(0, -a.left*shareOfCore)
}

// processorTime returns what this process has used.
func processorTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
