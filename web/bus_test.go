package web

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/internal/bus"
)

// ask posts a question about hosts, as allotd's commands do.
func (s *site) ask(user, path, question string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.do(user, httptest.NewRequest(http.MethodPost, path, strings.NewReader(question)))
}

// TestOnlyAdminsAdmitHosts: on the socket alone, and no other user's agent joins there.
func TestOnlyAdminsAdmitHosts(t *testing.T) {
	s := newSite(t)
	s.want(s.ask(operator, "/bus/hosts", "{}"), http.StatusUnprocessableEntity, "allotd has no bus: set bus.listen")
	s.NoBus = errors.New("the port is taken")
	s.want(s.ask(operator, "/bus/hosts", "{}"), http.StatusUnprocessableEntity, "allotd has no bus: the port is taken")
	s.want(s.ask(operator, bus.JoinPath, "{}"), http.StatusNotFound, "allotd has no bus")
	defer syscall.Umask(syscall.Umask(0o022))
	hub, err := bus.OpenHub(t.Context(), bus.HubOptions{Dir: filepath.Join(t.TempDir(), "bus"), Machine: "farm", Listen: "127.0.0.1:0", Enrol: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(hub.Close)
	s.Bus = hub
	for _, path := range []string{"hosts", "approve", "withdraw", "secrets", "enrol", "withdraw-secret", "site"} {
		for _, user := range []string{anna, dora} {
			s.want(s.ask(user, "/bus/"+path, `{"host":"n1","secret":true}`), http.StatusForbidden, "only an admin may")
		}
		s.want(s.ask("", "/bus/"+path, `{"secret":true}`), http.StatusForbidden, "on the socket")
		b := s.browser()
		s.want(b.open(s.link(operator)), http.StatusSeeOther)
		s.want(b.send(http.MethodPost, "/bus/"+path, nil, nil), http.StatusForbidden, "on the socket")
	}
	if len(hub.Secrets()) > 0 {
		t.Error("a secret was made")
	}
	s.want(s.ask(operator, "/bus/enrol", `{"secret":true}`), http.StatusOK, "127.0.0.1:", "sha256:")
	s.want(s.ask(operator, "/bus/secrets", `{}`), http.StatusOK, `"id":`)
	s.want(s.ask(operator, "/bus/approve", `{"host":"n1"}`), http.StatusUnprocessableEntity, `no host "n1" waits`)
	s.want(s.ask(operator, "/bus/approve", `{`), http.StatusBadRequest)

	link, err := bus.NewLink(bus.LinkOptions{Dir: t.TempDir(), Host: "farm"})
	must(t, err)
	join := `{"host":"farm","key":"` + link.Key() + `"}`
	s.want(s.ask(dora, bus.JoinPath, join), http.StatusForbidden, "only an ahostd of root")
	s.want(s.ask("", bus.JoinPath, join), http.StatusForbidden, "only an ahostd of root")
	if hosts, waiting := hub.Hosts(); len(hosts)+len(waiting) > 0 {
		t.Errorf("another user's agent asked: %v, %v", hosts, waiting)
	}
	s.want(s.ask(operator, bus.JoinPath, join), http.StatusOK, `"identity":`)
}

// TestIsAgent: the service's user has no name where libnss-systemd is missing.
func TestIsAgent(t *testing.T) {
	const uid = 64246
	dir := t.TempDir()
	owner := os.Getuid()
	if owner == 0 {
		owner = uid
		must(t, os.Chown(dir, owner, -1))
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for _, c := range []struct {
		uid       int
		name, dir string
		want      bool
	}{
		{0, "root", "/nonexistent", true},
		{uid, "allotment-ahostd", "/nonexistent", true},
		{owner, "", dir, true},
		{owner, "", link, false},
		{owner, "", "/nonexistent", false},
		{owner + 1, "dora", dir, false},
	} {
		if got := isAgent(c.uid, c.name, c.dir); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
