package web

import (
	"context"
	"net/http"
	"runtime/debug"
)

// policy is what a page may load and send: its own server's files, and nothing within
// the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect wraps a handler in what holds for each request.
func (s *Server) protect(h http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Log.Warn("a request from another site is refused", "origin", r.Header.Get("Origin"), "path", r.URL.Path)
		s.fail(w, r, caller{}, http.StatusForbidden, "another site sent this request: nothing is done")
	}))
	h = crossOrigin.Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // the value that net/http compares
				s.Log.Error("a request failed", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				s.fail(w, r, caller{}, http.StatusInternalServerError, "the request failed: see the log of allotd")
			}
		}()
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if s.Config.TLS() {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		who, err := s.identify(r)
		if err != nil {
			s.Log.Error("find out who sent a request", "error", err)
			s.fail(w, r, caller{}, http.StatusServiceUnavailable, "your account can't be looked up now: try again")
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey, who)))
	})
}

// callerOf returns who sent a request.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey).(caller)
	return c
}
