package miniq

import (
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// Names, paths and environments are bytes; JSON is UTF-8. On the wire and on
// disk a byte that is not UTF-8 stands as the private-use character
// U+10FF00 + byte, and so do the bytes of such a character itself: any text
// survives, and ordinary text stays as it is.
const escapes = 0x10FF00

// Escape makes any text valid UTF-8.
func Escape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || r >= escapes {
			for i := range n {
				b.WriteRune(escapes + rune(s[i]))
			}
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func plain(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || r >= escapes {
			return false // U+FFFD itself passes through Escape unchanged
		}
	}
	return true
}

// Unescape is the inverse of Escape.
func Unescape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= escapes {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func mapAll(list []string, f func(string) string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// EscapeAll is a list with each of its texts escaped; nil stays nil.
func EscapeAll(list []string) []string { return mapAll(list, Escape) }

// EscapeSpec is a Spec with each of its texts escaped; UnescapeSpec undoes it.
func EscapeSpec(s backends.Spec) backends.Spec { return s.MapTexts(Escape) }

// UnescapeSpec is the inverse of EscapeSpec.
func UnescapeSpec(s backends.Spec) backends.Spec { return s.MapTexts(Unescape) }
