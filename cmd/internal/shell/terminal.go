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
func Terminal(w io.Writer) bool {
	for {
		switch to := w.(type) {
		case *os.File:
			return term.IsTerminal(int(to.Fd()))
		case interface{ Unwrap() io.Writer }:
			w = to.Unwrap()
		default:
			return false
		}
	}
}
