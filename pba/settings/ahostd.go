package settings

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Ahostd is the config file's section ahostd: what measures jobs on their hosts.
type Ahostd struct {
	Every     unit.Duration `yaml:"every"`     // from one sample to the next
	Socket    string        `yaml:"socket"`    // "": ahostd.sock in the runtime directory
	Listen    string        `yaml:"listen"`    // ADDRESS:PORT of this machine alone; "": the socket alone
	Enrolment string        `yaml:"enrolment"` // a file with what it joins a farm by; "": enrolment beside the config file
}

// DefaultAhostd is the section of a config file without it.
func DefaultAhostd() Ahostd { return Ahostd{Every: unit.Duration(5 * time.Second)} }

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
	if a.Listen == "" {
		return nil
	}
	loopback, err := isLoopback(a.Listen, "127.0.0.1:8471")
	if err == nil && !loopback {
		err = fmt.Errorf("listen: %s can be reached from other machines, in clear text: listen on 127.0.0.1, and let an agent of Prometheus on this host, or a proxy with TLS, pass it on", a.Listen)
	}
	return err
}

// SocketIn returns the socket's path, for a runtime directory.
func (a Ahostd) SocketIn(runtime string) string {
	if a.Socket != "" {
		return a.Socket
	}
	return filepath.Join(runtime, "ahostd.sock")
}
