package printable

import (
	"strconv"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	tests := map[string]string{
		"plain text":       "plain text",
		"größe 中文 😀":       "größe 中文 😀",
		`back\slash "q" '`: `back\slash "q" '`,
		"a\nb\tc":          `a\nb\tc`,
		"\x1b[31m":         `\x1b[31m`,
		"\u009b2J":         `\u009b2J`,
		"evil\u202etxt":    `evil\u202etxt`,
		"zero\u200bwidth":  `zero\u200bwidth`,
		"bad \xff byte":    `bad \xff byte`,
		"sign \ufffd":      `sign \ufffd`,
		"tag \U000e0041":   `tag \U000e0041`,
	}
	for text, want := range tests {
		if got := Text(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b\u009b\xff\U000e0041")
	f.Fuzz(func(t *testing.T, text string) {
		if got := Text(text); strings.ContainsFunc(got, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
