package web

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// leastCompressed is the size in bytes from which an answer is compressed.
const leastCompressed = 1400

// compressible reports whether a request's browser takes gzip.
func compressible(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		quality, has := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		q, err := strconv.ParseFloat(quality, 64)
		return !has || err == nil && q > 0
	}
	return false
}

// sendBody sends an answer's body, compressed where that is worth it and the browser takes it.
// A page has no secret that what else is on it could be measured against.
func sendBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	header := w.Header()
	header.Add("Vary", "Accept-Encoding")
	if len(body) < leastCompressed || !compressible(r) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the browser may be gone
		return
	}
	header.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	_, _ = z.Write(body)
	_ = z.Close()
}
