package shell

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Printable makes every control character, invisible character and broken byte
// of a text visible, as Go would write it: \x1b, \n, \u202e. Users' texts (names,
// paths, output) go through it on their way to a terminal.
func Printable(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

func hidden(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

// Terminal tells whether a writer ends at a terminal.
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
