package backends

import (
	"strings"
	"testing"
)

func TestCheckGroup(t *testing.T) {
	for _, path := range []string{"/a", "/chipA/nightly", "/größe/2026-W48", strings.Repeat("/a", 16), "/" + strings.Repeat("a", 511)} {
		if err := CheckGroup(path); err != nil {
			t.Error(err)
		}
	}
	for path, want := range map[string]string{
		"":                              "begins with /",
		"a/b":                           "begins with /",
		"/":                             "want a name after each /",
		"/a/":                           "want a name after each /",
		"//a":                           "want a name after each /",
		"/a//b":                         "want a name after each /",
		"/a/../b":                       "want a name after each /",
		"/a b":                          "letters, digits",
		"/a\x1b[31m":                    "letters, digits",
		"/a\nb":                         "letters, digits",
		"/$(reboot)":                    "letters, digits",
		"/a*":                           "letters, digits",
		"/\u202eab":                     "letters, digits",
		"/caf\xe9":                      "no text",
		strings.Repeat("/a", 17):        "16 groups deep",
		"/" + strings.Repeat("a", 512):  "longer than 512 bytes",
		"/a" + strings.Repeat("/", 900): "longer than 512 bytes",
	} {
		err := CheckGroup(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
}
