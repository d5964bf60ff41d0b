package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Web is the config file's section web: the management page.
type Web struct {
	Listen      string   `yaml:"listen"`      // ADDRESS:PORT; "": the socket alone
	Socket      string   `yaml:"socket"`      // "": allotd.sock in the runtime directory
	Certificate string   `yaml:"certificate"` // file; "": no TLS
	Key         string   `yaml:"key"`
	URL         string   `yaml:"url"` // by which browsers reach the page; "": made of Listen
	Proxy       WebProxy `yaml:"proxy"`

	SessionIdle unit.Duration `yaml:"session_idle"` // a session that is not used ends then
	SessionMax  unit.Duration `yaml:"session_max"`  // any session ends then
}

// WebProxy is a site's proxy that signs users in.
type WebProxy struct {
	Header     string `yaml:"header"`      // in which it names the user; "": there is none
	User       string `yaml:"user"`        // it runs as this one, and connects to the socket
	SecretFile string `yaml:"secret_file"` // it sends what is in this file, over TCP
}

// DefaultWeb is the section of a config file without it.
func DefaultWeb() Web {
	const hour = 3600 * 1e9
	return Web{Listen: "127.0.0.1:8470", SessionIdle: 8 * hour, SessionMax: 7 * 24 * hour}
}

// TLS reports whether browsers' connections are encrypted here.
func (w Web) TLS() bool { return w.Certificate != "" }

// SocketIn returns the socket's path, for a runtime directory.
func (w Web) SocketIn(runtime string) string {
	if w.Socket != "" {
		return w.Socket
	}
	return filepath.Join(runtime, "allotd.sock")
}

// Validate says what is wrong with the section, if anything.
func (w Web) Validate() error {
	for _, file := range []struct{ key, path string }{
		{"socket", w.Socket}, {"certificate", w.Certificate}, {"key", w.Key}, {"proxy.secret_file", w.Proxy.SecretFile},
	} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			return fmt.Errorf("%s: %q is no absolute path", file.key, file.path)
		}
	}
	switch p := w.Proxy; {
	case (w.Certificate == "") != (w.Key == ""):
		return errors.New("certificate and key go together: name both files, or none")
	case p.Header == "" && (p.User != "" || p.SecretFile != ""):
		return errors.New("proxy: header is missing: name the one in which the proxy sends the user, such as X-Remote-User")
	case p.Header != "" && p.User == "" && p.SecretFile == "":
		return errors.New("proxy: any client could send the header: name the user that the proxy runs as (user), for the socket, or a file with a secret that it sends (secret_file)")
	case p.Header != "" && !isHeader(p.Header):
		return fmt.Errorf("proxy.header: %q is no name of a header", p.Header)
	case w.SessionIdle <= 0 || w.SessionMax <= 0:
		return errors.New("session_idle and session_max must be more than 0s")
	case w.URL != "" && !strings.HasPrefix(w.URL, "http://") && !strings.HasPrefix(w.URL, "https://"):
		return fmt.Errorf("url: %q: want one that begins with http:// or https://", w.URL)
	}
	return w.validateListen()
}

// validateListen refuses an address that other machines reach in clear text.
func (w Web) validateListen() error {
	if w.Listen == "" {
		return nil
	}
	loopback, err := isLoopback(w.Listen, "127.0.0.1:8470")
	if err != nil || loopback || w.TLS() || w.Proxy.SecretFile != "" {
		return err
	}
	return fmt.Errorf("listen: %s can be reached from other machines, in clear text: name a certificate and its key, or the site's proxy with a secret (proxy.header, proxy.secret_file), or listen on 127.0.0.1", w.Listen)
}

// isLoopback reports whether only this machine reaches an address, ADDRESS:PORT.
func isLoopback(listen, example string) (bool, error) {
	host, port, ok := cutPort(listen)
	if n, err := strconv.ParseUint(port, 10, 16); !ok || err != nil && port != "0" || n > 65535 {
		return false, fmt.Errorf("listen: %q: want ADDRESS:PORT, such as %s", listen, example)
	}
	address, err := netip.ParseAddr(host)
	if host == "" {
		address, err = netip.IPv6Unspecified(), nil
	}
	if err != nil && host != "localhost" {
		return false, fmt.Errorf("listen: %q is no IP address: want ADDRESS:PORT, such as %s", host, example)
	}
	return host == "localhost" || address.Unmap().IsLoopback(), nil
}

// cutPort splits an address at its last colon. An IPv6 address is in brackets.
func cutPort(listen string) (host, port string, ok bool) {
	i := strings.LastIndexByte(listen, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = listen[:i], listen[i+1:]
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		return strings.TrimSuffix(inner, "]"), port, strings.HasSuffix(inner, "]")
	}
	return host, port, !strings.Contains(host, ":")
}

func isHeader(name string) bool {
	for _, c := range name {
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
