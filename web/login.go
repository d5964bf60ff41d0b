package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// Routes by which users sign in and out. Those of links are for pba, on the socket.
const (
	loginPath  = "/login"
	logoutPath = "/logout"
)

// cookieName is the name of the session's cookie. With TLS the browser takes it only from
// this host itself, encrypted, for all paths.
func (s *Server) cookieName() string {
	if s.encrypted() {
		return "__Host-allotment"
	}
	return "allotment"
}

// encrypted reports whether browsers reach the page by https, here or at a proxy.
func (s *Server) encrypted() bool {
	return s.Config.TLS() || strings.HasPrefix(s.Config.URL, "https://")
}

func (s *Server) setCookie(w http.ResponseWriter, k secret) {
	c := &http.Cookie{Name: s.cookieName(), Value: string(k), Path: "/", HttpOnly: true, Secure: s.encrypted(), SameSite: http.SameSiteStrictMode}
	if k == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// makeLink answers pba login: it makes a link for the user that the kernel names.
func (s *Server) makeLink(w http.ResponseWriter, r *http.Request) {
	who := callerOf(r)
	if who.by != bySocket {
		http.Error(w, "only pba login gets a link, on the socket", http.StatusForbidden)
		return
	}
	if who.Name == "" {
		http.Error(w, "your user ID has no account", http.StatusForbidden)
		return
	}
	base := s.address()
	if base == "" {
		http.Error(w, "the page has no address: set web.listen, or web.url, in the config", http.StatusServiceUnavailable)
		return
	}
	k, ok := s.sessions.newLink(who.Visitor)
	if !ok {
		http.Error(w, "too many links are open: wait a minute", http.StatusTooManyRequests)
		return
	}
	s.Log.Info("made a link", "user", who.Name)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(desk.Link{URL: base + loginPath + "?token=" + string(k), Expires: s.Now().Add(linkTime)}) // the client may be gone
}

// login uses up a link. One that another site leads to is refused: it might sign a user in
// as another one. A browser that only prepares a page does not use it up.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	site, purpose := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose")
	if site != "" && site != "none" || purpose != "" {
		s.fail(w, r, callerOf(r), http.StatusForbidden, "another page led here: type the link into the browser's address line")
		return
	}
	if old := callerOf(r); old.session != nil {
		s.sessions.end(old.session)
	}
	k, user, ok := s.sessions.begin(secret(r.URL.Query().Get("token")))
	if !ok {
		s.Log.Warn("a link that is used up, too old or made up was refused", "from", r.RemoteAddr)
		s.fail(w, r, caller{}, http.StatusForbidden, "this link was used before, or is older than a minute: type pba login again")
		return
	}
	s.Log.Info("signed in", "user", user.Name, "from", r.RemoteAddr)
	s.setCookie(w, k)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// logout ends the browser's session, or on the socket all of the user's.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	who := callerOf(r)
	switch {
	case who.by == bySocket:
		n := s.sessions.endAll(who.UID)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(desk.SignedOut{Sessions: n}) // the client may be gone
		return
	case who.session != nil && r.FormValue("all") != "":
		s.sessions.endAll(who.UID)
	case who.session != nil:
		s.sessions.end(who.session)
	}
	s.Log.Info("signed out", "user", who.Name)
	s.setCookie(w, "")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// fromCookie returns the user of a request's session.
func (s *Server) fromCookie(w http.ResponseWriter, r *http.Request) (caller, error) {
	cookies := r.CookiesNamed(s.cookieName())
	if len(cookies) != 1 {
		return caller{}, nil
	}
	found, next := s.sessions.find(secret(cookies[0].Value))
	if found == nil {
		s.setCookie(w, "")
		return caller{}, nil
	}
	v, err := s.accounts.named(found.user.Name)
	if errors.Is(err, desk.ErrNoAccount) || err == nil && v.UID != found.user.UID {
		s.sessions.end(found)
		return caller{}, nil
	}
	if err != nil {
		return caller{}, err
	}
	if next != "" {
		s.setCookie(w, next)
	}
	return caller{Visitor: v, by: bySession, session: found}, nil
}

// valid reports whether a caller may still be shown what happens.
func (s *Server) valid(c caller) bool {
	return c.session == nil || s.sessions.alive(c.session)
}

// address is where browsers reach the page; "": nowhere.
func (s *Server) address() string {
	if s.Config.URL != "" {
		return strings.TrimSuffix(s.Config.URL, "/")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listens
}
