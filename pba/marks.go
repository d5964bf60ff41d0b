package pba

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/esub"
)

// Marks hears the marks that the submit filter leaves in a state directory (R6): the
// kernel notifies it whenever a process opens esub.MarkName, whose ever it is. A mark is
// read only once the one before was received, and the kernel keeps one of equal notices:
// so marks cost a waiting engine nothing, however many there are.
type Marks struct {
	path   string
	fd     int
	events *os.File
	heard  chan struct{}
	done   chan struct{}
}

// ListenForMarks begins to listen.
func ListenForMarks(state string) (*Marks, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("listen for the submit filter's marks: %w", err)
	}
	m := &Marks{
		path: filepath.Join(state, esub.MarkName), fd: fd, events: os.NewFile(uintptr(fd), "inotify"),
		heard: make(chan struct{}), done: make(chan struct{}),
	}
	go m.read()
	return m, nil
}

// Heard returns the channel that receives marks. It watches the file anew, which may not
// have been there before.
func (m *Marks) Heard() <-chan struct{} {
	_, _ = unix.InotifyAddWatch(m.fd, m.path, unix.IN_OPEN) // without the file no project needs marks
	return m.heard
}

// Close ends it.
func (m *Marks) Close() error {
	close(m.done)
	return m.events.Close()
}

func (m *Marks) read() {
	for buffer := make([]byte, 4096); ; {
		if _, err := m.events.Read(buffer); err != nil {
			return
		}
		select {
		case m.heard <- struct{}{}:
		case <-m.done:
			return
		}
	}
}
