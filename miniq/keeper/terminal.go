package keeper

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/peer"
)

// terminal is what a client that waits for the job at a terminal handed over.
type terminal struct {
	conn   int         // closed by the client when it stops waiting
	files  [3]*os.File // for the job alone: an open copy keeps a terminal open
	master int         // index of the controlling terminal among them; -1: none
}

// hangUpGrace is how long a job may take to end after its client hung up.
const hangUpGrace = 10e9 // nanoseconds

var errTerminal = errors.New("malformed message")

// openTerminal receives the job's standard files at a socket. It uses no package
// net: a keeper has to start within a millisecond.
func openTerminal(path string, as *User) (t *terminal, err error) {
	err = as.as(func() error {
		t, err = connectTerminal(path, as.uid())
		return err
	})
	return t, err
}

func connectTerminal(path string, owner int) (*terminal, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t, err := receive(fd, path, owner)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return t, nil
}

func receive(fd int, path string, owner int) (*terminal, error) {
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	uid, err := peer.UIDOf(fd)
	if err != nil {
		return nil, err
	}
	if uid != owner {
		return nil, unix.EPERM
	}
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(3*4))
	n, size, _, _, err := unix.Recvmsg(fd, data, rights, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return nil, err
	case n != 1:
		return nil, errTerminal
	}
	return newTerminal(fd, data[0], rights[:size])
}

func newTerminal(fd int, control byte, rights []byte) (*terminal, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errTerminal
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 3 {
		return nil, errTerminal
	}
	t := &terminal{conn: fd, master: -1}
	for i := range t.files {
		t.files[i] = os.NewFile(uintptr(fds[i]), "terminal")
	}
	if control >= '0' && control <= '2' {
		t.master = int(control - '0')
	}
	return t, nil
}

// openFiles returns the job's standard files: those that the order names are opened, and
// replace the terminal's, which are closed.
func (t *terminal) openFiles(o *Order, killed func() bool) (files [3]*os.File, path string, err error) {
	files = t.files
	replace := func(i int, path string, open func() (*os.File, error)) error {
		if path == "" {
			return nil
		}
		f, err := open()
		if err == nil {
			_ = files[i].Close()
			files[i] = f
		}
		return err
	}
	if err := replace(0, o.Stdin, func() (*os.File, error) { return openUserFile(o.Stdin, unix.O_RDONLY, killed) }); err != nil {
		return files, o.Stdin, err
	}
	if err := replace(1, o.Stdout, func() (*os.File, error) { return openOutput(o.Stdout, o.TruncateStdout, killed) }); err != nil {
		return files, o.Stdout, err
	}
	if o.Stderr == o.Stdout && o.Stdout != "" {
		_ = files[2].Close()
		files[2] = files[1]
		return files, "", nil
	}
	err = replace(2, o.Stderr, func() (*os.File, error) { return openOutput(o.Stderr, o.TruncateStderr, killed) })
	return files, o.Stderr, err
}

// control returns which of a job's standard files becomes its controlling terminal;
// -1: none.
func (t *terminal) control(files [3]*os.File) int {
	if t == nil || t.master < 0 || files[t.master] != t.files[t.master] {
		return -1
	}
	return t.master
}

// watchClient ends the job when its client hangs up.
func (k *supervisor) watchClient(t *terminal) {
	var b [1]byte
	for {
		n, err := unix.Read(t.conn, b[:])
		if errors.Is(err, unix.EINTR) || n > 0 {
			continue
		}
		break
	}
	select {
	case <-k.left:
		return
	default:
	}
	signalTree(os.Getpid(), syscall.SIGHUP)
	k.kill(Want{Verb: Kill, Grace: hangUpGrace})
}
