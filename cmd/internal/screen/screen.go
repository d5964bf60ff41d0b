// Package screen draws lines at a terminal, anew in their place each time.
package screen

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// What a terminal understands (ECMA-48 and xterm).
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the other screen, no cursor, lines are cut at its edge
	screenClose = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineEnd     = "\x1b[K\r\n" // which erases the rest of an older line
	screenEnd   = "\x1b[K\x1b[J"
)

// Screen is a terminal that lines are drawn at.
type Screen struct {
	Resized <-chan os.Signal // its size has changed: draw again

	resized chan os.Signal
	file    *os.File
}

// Open clears the terminal. The caller closes the screen, which restores what was there.
func Open(file *os.File) (*Screen, error) {
	if _, err := io.WriteString(file, screenOpen); err != nil {
		return nil, fmt.Errorf("write to the terminal: %w", err)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	return &Screen{resized, resized, file}, nil
}

// Draw draws lines, which must be printable; those that don't fit are counted in the last one.
func (s *Screen) Draw(lines []string) error {
	const defaultHeight = 24
	_, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil || height < 1 {
		height = defaultHeight
	}
	if len(lines) > height {
		left := len(lines) - height + 1
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… and %d more lines", left))
	}
	if _, err := io.WriteString(s.file, screenHome+strings.Join(lines, lineEnd)+screenEnd); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// Close restores the terminal.
func (s *Screen) Close() {
	signal.Stop(s.resized)
	_, _ = io.WriteString(s.file, screenClose)
}
