package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// page is a page, with its place in the menu.
type page struct {
	path   string // that the menu leads to; "": it is not in the menu
	name   string // in the menu
	routes map[string]handler
}

// handler answers one kind of request, such as "POST /requests/{id}/grant". Its error is
// shown by its kind (see statusOf). routes have patterns of http.ServeMux.
type handler func(q *request) error

// request is a request by a user who is known.
type request struct {
	*http.Request
	desk   *desk.Desk // the user's own, open
	w      http.ResponseWriter
	who    caller
	page   page
	server *Server
}

// handle opens a desk for who sent a request, and has the handler answer it.
func (s *Server) handle(p page, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r)
		if !who.known() {
			s.fail(w, r, who, http.StatusUnauthorized, "type pba login on a machine of the farm, and open the link that it prints")
			return
		}
		d, err := s.Desks.Open(r.Context(), who.Visitor)
		if err == nil {
			defer d.Close()
			err = h(&request{Request: r, desk: d, w: w, who: who, page: p, server: s})
		}
		if err != nil {
			s.failed(w, r, who, err)
		}
	})
}

// show answers with a page made of a template, its title and its data.
func (q *request) show(template, title string, data any) error {
	return q.showAs(http.StatusOK, template, title, data)
}

// showAs is show with another status.
func (q *request) showAs(status int, template, title string, data any) error {
	return q.server.templates.write(q.w, q.Request, status, template, frame{
		Title: title, Menu: menu(q.page.path), User: q.who.Name, Session: q.who.session != nil, Version: q.server.Version, Data: data,
	})
}

// form returns what a form sent, bounded.
func (q *request) form() (url.Values, error) {
	err := q.ParseForm()
	if err == nil && strings.HasPrefix(q.Header.Get("Content-Type"), "multipart/") {
		err = q.ParseMultipartForm(maxBody)
	}
	var large *http.MaxBytesError
	if err != nil && !errors.As(err, &large) {
		err = &statusError{http.StatusBadRequest, "the form can't be read: " + err.Error()}
	}
	return q.PostForm, err
}

// see answers that the change was made, and where its effect is to be seen.
func (q *request) see(path string) error {
	http.Redirect(q.w, q.Request, path, http.StatusSeeOther)
	return nil
}

// statusError is an error that only the request is to blame for.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func notFound(*request) error { return &statusError{http.StatusNotFound, "there is no such page"} }

// statusOf is how an error of a desk is answered.
func statusOf(method string, err error) int {
	var own *statusError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, desk.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, desk.ErrChanged):
		return http.StatusPreconditionFailed
	case desk.Unknown(err):
		return http.StatusNotFound
	case desk.Temporary(err):
		return http.StatusServiceUnavailable
	case errors.Is(err, desk.ErrInvalid):
		return http.StatusBadRequest
	case method == http.MethodGet || method == http.MethodHead:
		return http.StatusInternalServerError
	}
	return http.StatusUnprocessableEntity // a change that the plan does not allow
}

func (s *Server) failed(w http.ResponseWriter, r *http.Request, who caller, err error) {
	if r.Context().Err() != nil {
		return // the browser has left, and nothing more was done for it
	}
	status := statusOf(r.Method, err)
	if status >= http.StatusInternalServerError {
		s.Log.Error("a request failed", "user", who.Name, "method", r.Method, "path", r.URL.Path, "error", err)
	}
	s.fail(w, r, who, status, err.Error())
}

// wrong is what the page of an error shows.
type wrong struct {
	Text  string
	Again string // the address that is read again after the next cycle; "": none
}

// fail answers with a page that says what is wrong.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, who caller, status int, text string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		problem(w, status, text)
		return
	}
	data := wrong{Text: text}
	if r.Method == http.MethodGet && status == http.StatusServiceUnavailable && who.known() {
		data.Again = r.URL.RequestURI()
	}
	f := frame{Title: http.StatusText(status), User: who.Name, Session: who.session != nil, Version: s.Version, Data: data}
	if who.known() {
		f.Menu = menu("")
	}
	if err := s.templates.write(w, r, status, "error", f); err != nil {
		s.Log.Error("show an error", "path", r.URL.Path, "error", err)
	}
}
