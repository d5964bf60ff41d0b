package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
)

// policy is what a page may load and send: its own server's files, and nothing within
// the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protect wraps a handler in what holds for each request.
func (s *Server) protect(h http.Handler) (http.Handler, error) {
	crossOrigin := http.NewCrossOriginProtection()
	if s.Config.URL != "" { // a proxy may replace the host that the browser names
		if err := crossOrigin.AddTrustedOrigin(originOf(s.Config.URL)); err != nil {
			return nil, fmt.Errorf("web.url: %w", err)
		}
	}
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
		if s.encrypted() {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		who, err := s.identify(w, r)
		var own *statusError
		switch {
		case errors.As(err, &own):
			s.Log.Warn("a request is refused", "from", r.RemoteAddr, "error", err)
			s.fail(w, r, caller{}, own.status, own.text)
			return
		case err != nil:
			s.Log.Error("find out who sent a request", "error", err)
			s.fail(w, r, caller{}, http.StatusServiceUnavailable, "your account can't be looked up now: try again")
			return
		case !s.limiter.allow(who, r):
			header.Set("Retry-After", "5")
			s.fail(w, r, who, http.StatusTooManyRequests, "too many requests: wait a few seconds")
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey, who)))
	}), nil
}

// originOf is the origin of a URL, as browsers send it.
func originOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	return u.Scheme + "://" + u.Host
}

// callerOf returns who sent a request.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey).(caller)
	return c
}
