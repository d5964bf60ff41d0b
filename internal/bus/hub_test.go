package bus

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenFails: what can't be opened is an error that names it, and leaves nothing open.
func TestOpenFails(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, change := range map[string]func(*HubOptions) error{
		"see bus.enrol in the config":  func(o *HubOptions) error { o.Enrol = taken.Addr().String(); return nil },
		"see the log, and bus.listen":  func(o *HubOptions) error { o.Listen = taken.Addr().String(); return nil },
		"read bus.ca: open /nowhere":   func(o *HubOptions) error { o.CA = "/nowhere"; return nil },
		"others can write it":          func(o *HubOptions) error { return errors.Join(os.Mkdir(o.Dir, 0o700), os.Chmod(o.Dir, 0o777)) },
		"others can read ":             func(o *HubOptions) error { return spoil(o.Dir, authorityName, "{}", 0o644) },
		"read the keys of the bus, ":   func(o *HubOptions) error { return spoil(o.Dir, authorityName, "{}", 0o600) },
		"read the hosts of the bus, ":  func(o *HubOptions) error { return spoil(o.Dir, registryName, `{"hosts":`, 0o600) },
		"hosts or revoked is missing":  func(o *HubOptions) error { return spoil(o.Dir, registryName, `{"hosts":null}`, 0o600) },
		"/dev/null has no certificate": func(o *HubOptions) error { o.CA = "/dev/null"; return nil },
		"make the directory of the bu": func(o *HubOptions) error { return os.WriteFile(o.Dir, nil, 0o600) },
	} {
		o := HubOptions{Dir: hubDir(t), Machine: "farm", Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}
		if err := change(&o); err != nil {
			t.Fatal(err)
		}
		if h, err := OpenHub(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
			if err == nil {
				h.Close()
			}
		}
	}
}

func spoil(dir, name, text string, mode fs.FileMode) error {
	path := filepath.Join(dir, name)
	return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode))
}

// TestHostKeyIsPrivate: a key that others can read is refused, and not replaced.
func TestHostKeyIsPrivate(t *testing.T) {
	dir := hubDir(t)
	if _, err := NewLink(LinkOptions{Dir: dir, Host: "n1"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus-n1.seed")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewLink(LinkOptions{Dir: dir, Host: "n1"}); err == nil || !strings.Contains(err.Error(), "others can read") {
		t.Errorf("mode 644: %v", err)
	}
	for _, host := range []string{"", ".", "../x", "n1 x", "n1.", "ñ", strings.Repeat("n", 65)} {
		if _, err := NewLink(LinkOptions{Dir: dir, Host: host}); err == nil {
			t.Errorf("%q is a host's name", host)
		}
	}
}
