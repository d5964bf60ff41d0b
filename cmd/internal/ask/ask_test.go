package ask

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// JSON says what is wrong in one clear line.
func TestJSON(t *testing.T) {
	dir, err := os.MkdirTemp("", "ask-") // t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	var answer struct{ X int }
	if err := JSON(t.Context(), socket, "/agents", nil, &answer); err == nil || err.Error() != "ask allotd at "+socket+": connect: no such file or directory: no allotd runs on this machine (systemctl start allotment-allotd)" {
		t.Error(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path + "?" + r.URL.RawQuery {
		case "/api/v1/good?job=1%2C2":
			fmt.Fprint(w, `{"x":7}`)
		case "/api/v1/problem?":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"detail":"allotd has no bus\u001b[31m"}`)
		case "/api/v1/long?":
			_, _ = w.Write(make([]byte, maxAnswer+1))
		case "/api/v1/text?":
			fmt.Fprint(w, "hello")
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	if err := JSON(t.Context(), socket, "/good", url.Values{"job": {"1,2"}}, &answer); err != nil || answer.X != 7 {
		t.Error(err, answer)
	}
	if err := JSON(t.Context(), socket, "/problem", nil, &answer); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNone) {
		t.Errorf("what is not there: %v", err)
	}
	if err := JSON(t.Context(), socket, "/x", nil, &answer); errors.Is(err, ErrNotFound) {
		t.Errorf("another refusal: %v", err)
	}
	if err := JSON(t.Context(), socket+"x", "/good", nil, &answer); !errors.Is(err, ErrNone) {
		t.Errorf("no socket: %v", err)
	}
	for route, want := range map[string]string{"/problem": `allotd has no bus\x1b[31m`, "/long": "more than 64M", "/text": "read its answer: invalid character", "/x": "418 I'm a teapot"} {
		if err := JSON(t.Context(), socket, route, nil, &answer); err == nil || !strings.HasPrefix(err.Error(), "ask allotd at "+socket+": "+want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", route, err)
		}
	}
}
