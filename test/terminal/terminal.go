// Package terminal runs a program at a terminal of its own and types at it, as a user
// does.
package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/pty"
)

// Terminal is a program at work, and all that it has shown.
type Terminal struct {
	keyboard *os.File
	cmd      *exec.Cmd
	gone     chan struct{} // closed when the program shows no more

	mu     sync.Mutex
	screen []byte
	more   chan struct{} // closed and made anew when something is shown
}

// Start starts a program at a terminal of 80 columns and 50 lines.
func Start(cmd *exec.Cmd) (*Terminal, error) {
	keyboard, screen, err := open()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer func() { _ = screen.Close() }()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		_ = keyboard.Close()
		return nil, err
	}
	t := &Terminal{keyboard: keyboard, cmd: cmd, gone: make(chan struct{}), more: make(chan struct{})}
	go t.watch()
	return t, nil
}

func open() (keyboard, screen *os.File, err error) {
	keyboard, screen, err = pty.Open()
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 80}); err != nil {
		return nil, nil, errors.Join(err, keyboard.Close(), screen.Close())
	}
	return keyboard, screen, nil
}

func (t *Terminal) watch() {
	defer close(t.gone)
	buffer := make([]byte, 4096)
	for {
		n, err := t.keyboard.Read(buffer)
		t.mu.Lock()
		t.screen = append(t.screen, buffer[:n]...)
		close(t.more)
		t.more = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Type types a text and returns where on the screen its answer will begin.
func (t *Terminal) Type(text string) (mark int, err error) {
	t.mu.Lock()
	mark = len(t.screen)
	t.mu.Unlock()
	_, err = t.keyboard.WriteString(text)
	return mark, err
}

// Await waits until what was shown since mark satisfies ok, and returns it.
func (t *Terminal) Await(mark int, ok func(shown []byte) bool, atMost time.Duration) (string, error) {
	late := time.NewTimer(atMost)
	defer late.Stop()
	for {
		t.mu.Lock()
		shown, more := bytes.Clone(t.screen[mark:]), t.more
		t.mu.Unlock()
		if ok(shown) {
			return string(shown), nil
		}
		select {
		case <-more:
		case <-t.gone:
			return string(shown), fmt.Errorf("the program ended; it showed %q", shown)
		case <-late.C:
			return string(shown), fmt.Errorf("not seen within %v; it showed %q", atMost, shown)
		}
	}
}

// Close kills the program and waits for its end.
func (t *Terminal) Close() {
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait()
	_ = t.keyboard.Close()
	<-t.gone
}
