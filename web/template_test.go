package web

import (
	"net/http"
	"testing"
	"time"
)

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

// TestTimesAreInTheConfigsZone, whatever the process's is.
func TestTimesAreInTheConfigsZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	s := newSite(t)
	s.templates, err = parseTemplates(berlin)
	must(t, err)
	s.want(s.get(carl, "/jobs/1"), http.StatusOK, "<td>2026-11-24 12:00:00</td>") // it was submitted at 11:00 UTC
}
