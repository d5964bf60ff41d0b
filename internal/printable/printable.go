// Package printable makes users' texts fit for a terminal.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text makes every control character, invisible or direction-changing character
// and broken byte of a text visible, as Go would write it: \x1b, \n, \u202e. A
// backslash stays as it is. Users' texts (names, paths, output) go through it on
// their way to a terminal.
func Text(text string) string {
	if !strings.ContainsFunc(text, Hidden) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case Hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// Hidden reports whether a character is one that a terminal does not show.
func Hidden(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

// Count returns a number with its noun: 1 job, 2 jobs.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
