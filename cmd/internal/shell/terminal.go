package shell

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// Printable is printable.Text.
func Printable(text string) string { return printable.Text(text) }

// Terminal reports whether a writer ends at a terminal.
func Terminal(w io.Writer) bool { return TerminalOf(w) != nil }

// Width returns how many characters the lines of the terminal have at which a writer ends;
// 0: it ends elsewhere, or that is not known.
func Width(w io.Writer) int {
	file := TerminalOf(w)
	if file == nil {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// TerminalOf returns the terminal at which a writer ends, or nil.
func TerminalOf(w io.Writer) *os.File {
	for {
		switch to := w.(type) {
		case *os.File:
			if !term.IsTerminal(int(to.Fd())) {
				return nil
			}
			return to
		case interface{ Unwrap() io.Writer }:
			w = to.Unwrap()
		default:
			return nil
		}
	}
}
