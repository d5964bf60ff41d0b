package settings

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Ahostd is the config file's section ahostd: what measures jobs on their hosts.
type Ahostd struct {
	Every     unit.Duration `yaml:"every"`     // from one sample to the next
	Socket    string        `yaml:"socket"`    // "": ahostd.sock in the runtime directory
	Listen    string        `yaml:"listen"`    // ADDRESS:PORT of this machine alone; "": the socket alone
	Enrolment string        `yaml:"enrolment"` // a file with what it joins a farm by; "": enrolment beside the config file
	Plugins   []string      `yaml:"plugins"`   // programs that measure what is the site's own

	Networks Networks `yaml:"networks"` // by which traffic is counted; none: it is not
	Objects  Objects  `yaml:"objects"`  // the state objects of jobs
}

// Networks are the site's, such as 10.1.0.0/16 or fd00:1::/32. Of several that an address is in
// the narrowest counts.
type Networks struct {
	Racks []string `yaml:"racks"` // each is of one rack: that in which a host has an address is its own
	Site  []string `yaml:"site"`  // others of the site
}

// Prefixes returns the networks, each once.
func (n Networks) Prefixes() (racks, site []netip.Prefix, err error) {
	const most = 1000
	if len(n.Racks)+len(n.Site) > most {
		return nil, nil, fmt.Errorf("%d networks: at most %d", len(n.Racks)+len(n.Site), most)
	}
	seen := map[netip.Prefix]bool{}
	for i, list := range [][]string{n.Racks, n.Site} {
		for _, text := range list {
			p, err := netip.ParsePrefix(text)
			switch {
			case err != nil || p.Addr().Is4In6():
				return nil, nil, fmt.Errorf("%q is no network, such as 10.1.0.0/16 or fd00:1::/32", text)
			case p != p.Masked():
				return nil, nil, fmt.Errorf("%q is an address in a network: want %v", text, p.Masked())
			case seen[p]:
				return nil, nil, fmt.Errorf("%v stands here twice", p)
			}
			seen[p] = true
			if i == 0 {
				racks = append(racks, p)
			} else {
				site = append(site, p)
			}
		}
	}
	return racks, site, nil
}

// DefaultAhostd is the section of a config file without it.
func DefaultAhostd() Ahostd {
	return Ahostd{Every: unit.Duration(5 * time.Second), Objects: defaultObjects()}
}

// Validate says what is wrong with the section, if anything.
func (a Ahostd) Validate() error {
	if every := time.Duration(a.Every); every < time.Second || every > time.Minute {
		return fmt.Errorf("every: %v: want 1s to 1m", a.Every)
	}
	if a.Socket != "" && !filepath.IsAbs(a.Socket) {
		return fmt.Errorf("socket: %q is no absolute path", a.Socket)
	}
	if a.Enrolment != "" && !filepath.IsAbs(a.Enrolment) {
		return fmt.Errorf("enrolment: %q is no absolute path", a.Enrolment)
	}
	if err := checkPlugins(a.Plugins); err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	if _, _, err := a.Networks.Prefixes(); err != nil {
		return fmt.Errorf("networks: %w", err)
	}
	if err := a.Objects.validate(); err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	if a.Listen == "" {
		return nil
	}
	loopback, err := isLoopback(a.Listen, "127.0.0.1:8471")
	if err == nil && !loopback {
		err = fmt.Errorf("listen: %s can be reached from other machines, in clear text: listen on 127.0.0.1, and let an agent of Prometheus on this host, or a proxy with TLS, pass it on", a.Listen)
	}
	return err
}

// maxPlugins bounds the plug-ins of a host.
const maxPlugins = 16

// PluginName returns the name of a plug-in: that of its file, without an extension. It is empty
// for one that would be no name in metrics.
func PluginName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if len(name) > 64 || strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	}) {
		return ""
	}
	return name
}

func checkPlugins(paths []string) error {
	if len(paths) > maxPlugins {
		return fmt.Errorf("%d of them: at most %d", len(paths), maxPlugins)
	}
	seen := map[string]string{}
	for _, path := range paths {
		name := PluginName(path)
		switch {
		case !filepath.IsAbs(path):
			return fmt.Errorf("%q is no absolute path", path)
		case name == "":
			return fmt.Errorf("%q: a plug-in's file is named by letters, digits, - and _", path)
		case seen[name] != "":
			return fmt.Errorf("%q and %q have one name in the metrics", seen[name], path)
		}
		seen[name] = path
	}
	return nil
}

// SocketIn returns the socket's path, for a runtime directory.
func (a Ahostd) SocketIn(runtime string) string {
	if a.Socket != "" {
		return a.Socket
	}
	return filepath.Join(runtime, "ahostd.sock")
}
