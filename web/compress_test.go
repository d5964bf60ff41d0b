package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestPagesAreCompressed(t *testing.T) {
	s := newSite(t)
	for encodings, want := range map[string]string{"gzip, br": "gzip", "br, gzip;q=0.5": "gzip", "gzip;q=0": "", "br": "", "": ""} {
		r := httpRequest("/farm")
		r.Header.Set("Accept-Encoding", encodings)
		w := s.do(dora, r)
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("%q: %q, want %q", encodings, got, want)
		}
		if want == "" {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		must(t, err)
		page, err := io.ReadAll(z)
		must(t, err)
		if w.Code != http.StatusOK || !strings.Contains(string(page), "</html>") {
			t.Errorf("%d %s", w.Code, page)
		}
	}
}
