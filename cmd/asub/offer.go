package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/internal/pty"
)

// offer is what asub -I passes to the job that it submits, over a socket that other
// users can't reach: its own standard files, with a pseudo-terminal in place of those
// that are a terminal; see backends.Abilities.
type offer struct {
	dir      string
	path     string
	listener *net.UnixListener
	files    [3]*os.File // for the job
	control  byte        // which of them is its controlling terminal; '-': none
	pty      *os.File    // our side of it; nil: there is none
	keyboard *os.File    // the terminal that we read from; nil: none
	screen   io.Writer   // what the job writes goes there
	size     *os.File    // the terminal whose size the job's has; nil: none
}

// offerTerminal makes a socket at which the job gets this process's standard files.
// If forced, the job gets a terminal even if this process has none.
func (p process) offerTerminal(forced bool) (*offer, error) {
	o := &offer{control: '-'}
	own := [3]*os.File{}
	for i, f := range []any{p.stdin, p.stdout, p.stderr} {
		file, ok := f.(*os.File)
		if !ok {
			return nil, fmt.Errorf("join a job to this terminal: %w: standard input, output and error must be files, pipes or terminals", backends.ErrUnable)
		}
		own[i] = file
	}
	if err := o.assignFiles(own, forced); err != nil {
		o.close()
		return nil, fmt.Errorf("make a terminal for the job: %w", err)
	}
	if err := o.listen(); err != nil {
		o.close()
		return nil, fmt.Errorf("make a socket for the job: %w", err)
	}
	return o, nil
}

// assignFiles chooses the job's standard files.
func (o *offer) assignFiles(own [3]*os.File, forced bool) error {
	isTerminal := [3]bool{}
	for i, f := range own {
		isTerminal[i] = term.IsTerminal(int(f.Fd()))
		if isTerminal[i] && o.size == nil {
			o.size = f
		}
	}
	var slave *os.File
	var err error
	if forced || o.size != nil {
		if o.pty, slave, err = pty.Open(); err != nil {
			return err
		}
		o.resize()
		o.copySettings()
	}
	for i, f := range own {
		o.files[i] = f
		if isTerminal[i] || forced && i > 0 {
			o.files[i] = slave
			if o.control == '-' {
				o.control = byte('0' + i)
			}
		}
	}
	if isTerminal[0] {
		o.keyboard = own[0]
	}
	for _, i := range []int{1, 2} {
		if isTerminal[i] && o.screen == nil {
			o.screen = own[i]
		}
	}
	if o.screen == nil {
		o.screen = own[1]
	}
	return nil
}

// onPTY does something to our side of the pseudo-terminal.
func (o *offer) onPTY(do func(fd int) error) {
	if o.pty == nil || o.size == nil {
		return
	}
	raw, err := o.pty.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = do(int(fd)) }) // a terminal of another size, or with other keys, is usable, too
	}
}

// resize gives the job's terminal the size of asub's; the kernel signals the job.
func (o *offer) resize() {
	o.onPTY(func(fd int) error {
		size, err := unix.IoctlGetWinsize(int(o.size.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return err
		}
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size)
	})
}

// copySettings copies asub's settings to the job's terminal: its keys to erase and
// to interrupt, its character set.
func (o *offer) copySettings() {
	o.onPTY(func(fd int) error {
		settings, err := unix.IoctlGetTermios(int(o.size.Fd()), unix.TCGETS)
		if err != nil {
			return err
		}
		return unix.IoctlSetTermios(fd, unix.TCSETS, settings)
	})
}

// listen makes the socket, in a directory that is closed to others.
func (o *offer) listen() (err error) {
	if o.dir, err = os.MkdirTemp("", "allotment-tty-"); err != nil { // mode 0700
		return err
	}
	o.path = filepath.Join(o.dir, "socket")
	o.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: o.path, Net: "unix"})
	return err
}

// accept waits for the job and sends it the files. The connection lasts as
// long as asub.
func (o *offer) accept() (*net.UnixConn, error) {
	for {
		conn, err := o.listener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := o.sendFiles(conn); err != nil {
			_ = conn.Close()
			continue // not the job, or the job has ended, which the queue reports
		}
		_ = o.listener.Close() // a killed asub leaves nothing behind
		_ = os.RemoveAll(o.dir)
		return conn, nil
	}
}

func (o *offer) sendFiles(conn *net.UnixConn) error {
	uid, err := peer.UID(conn)
	if err != nil {
		return err
	}
	if uid != os.Getuid() {
		return backends.ErrDenied
	}
	rights := unix.UnixRights(int(o.files[0].Fd()), int(o.files[1].Fd()), int(o.files[2].Fd()))
	_, _, err = conn.WriteMsgUnix([]byte{o.control}, rights, nil)
	if err == nil {
		o.closeFiles()
	}
	return err
}

// closeFiles closes the job's files in this process: the job's side of the pseudo-terminal
// then closes with the job.
func (o *offer) closeFiles() {
	for i, f := range o.files {
		if f != nil && f != os.Stdin && f != os.Stdout && f != os.Stderr {
			_ = f.Close()
		}
		o.files[i] = nil
	}
}

func (o *offer) close() {
	if o.listener != nil {
		_ = o.listener.Close()
	}
	if o.dir != "" {
		_ = os.RemoveAll(o.dir)
	}
	o.closeFiles()
	if o.pty != nil {
		_ = o.pty.Close()
	}
}
