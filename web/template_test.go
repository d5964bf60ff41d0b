package web

import "testing"

func TestVisibleShowsWhatIsHidden(t *testing.T) {
	for text, want := range map[string]string{
		"1\u202f000 slots":    "1\u202f000 slots",
		"a\x1b[31m\nb\u202ec": "a\\x1b[31m\nb\\u202ec",
		"":                    "",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
