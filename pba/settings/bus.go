package settings

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// Bus is the config file's section bus: how hosts and allotd talk.
type Bus struct {
	Listen   string   `yaml:"listen"`   // ADDRESS:PORT of allotd's own server; "": there is no bus
	Servers  []string `yaml:"servers"`  // the site's own, instead
	CA       string   `yaml:"ca"`       // a file with the authority of Servers; "": the system's
	Enrol    string   `yaml:"enrol"`    // ADDRESS:PORT where hosts of other machines join; "": none do
	Announce []string `yaml:"announce"` // interfaces on whose networks allotd announces Enrol; none: it does not
	Address  string   `yaml:"address"`  // HOST:PORT by which they reach it; "": of this machine's name and Enrol
}

// Others returns whether hosts of other machines can join here, and by which host they reach this
// one; "": by its name.
func (b Bus) Others() (host string, ok bool) {
	here, err := isLoopback(b.Enrol, "0.0.0.0:8472")
	if b.Enrol == "" || err != nil || here {
		return "", false
	}
	host, _, _ = cutPort(b.Address)
	return host, true
}

// DefaultBus is the section of a config file without it.
func DefaultBus() Bus { return Bus{Listen: "127.0.0.1:0"} }

// On reports whether allotd has a bus.
func (b Bus) On() bool { return b.Listen != "" || len(b.Servers) > 0 }

// Validate says what is wrong with the section, if anything.
func (b Bus) Validate() error {
	if b.CA != "" && !filepath.IsAbs(b.CA) {
		return fmt.Errorf("ca: %q is no absolute path", b.CA)
	}
	local, err := b.listensHere()
	if err != nil {
		return err
	}
	if len(b.Servers) > maxServers {
		return fmt.Errorf("servers: %d of them: at most %d", len(b.Servers), maxServers)
	}
	for _, s := range b.Servers {
		if err := checkServer(s); err != nil {
			return fmt.Errorf("servers: %q: %w", s, err)
		}
	}
	if b.Address != "" {
		if _, port, ok := cutPort(b.Address); !ok || port == "" || port == "0" {
			return fmt.Errorf("address: %q: want HOST:PORT, such as farm.example.org:8472", b.Address)
		}
	}
	if err := b.validateAnnounce(); err != nil || b.Enrol == "" {
		return err
	}
	here, err := isLoopback(b.Enrol, "0.0.0.0:8472")
	switch {
	case err != nil:
		return fmt.Errorf("enrol: %s", strings.TrimPrefix(err.Error(), "listen: "))
	case !b.On():
		return errors.New("enrol: there is no bus to join: set listen too, such as 0.0.0.0:8473, or servers")
	case !here && local && len(b.Servers) == 0:
		return fmt.Errorf("enrol: hosts of other machines can't reach listen (%s): set it too, such as 0.0.0.0:8473", b.Listen)
	}
	return nil
}

// listensHere reports whether allotd's own server is reached by this machine alone.
func (b Bus) listensHere() (bool, error) {
	if b.Listen == "" {
		return true, nil
	}
	return isLoopback(b.Listen, "0.0.0.0:8473")
}

const maxServers = 32

// checkServer refuses a server to which connections would go in clear text.
func checkServer(server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Port() == "" || u.User != nil || u.Scheme != "tls" && u.Scheme != "nats" {
		return errors.New("want tls://HOST:PORT")
	}
	if u.Scheme == "tls" {
		return nil
	}
	if here, err := isLoopback(u.Host, ""); err != nil || !here {
		return errors.New("connections would go in clear text: want tls://HOST:PORT")
	}
	return nil
}

// validateAnnounce refuses what names no interface, and an announcement of nothing.
func (b Bus) validateAnnounce() error {
	const most, longest = 16, 15 // IFNAMSIZ of the kernel
	if len(b.Announce) > 0 && b.Enrol == "" {
		return errors.New("announce: there is nothing to find: set enrol too, such as 0.0.0.0:8472")
	}
	if len(b.Announce) > most {
		return fmt.Errorf("announce: %d interfaces: at most %d", len(b.Announce), most)
	}
	for _, name := range b.Announce {
		if name == "" || len(name) > longest || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
			return fmt.Errorf("announce: %.40q is no name of a network interface, such as eth0", name)
		}
	}
	return nil
}
