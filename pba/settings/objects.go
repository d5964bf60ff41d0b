package settings

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Objects are the config of the state objects that ahostd keeps.
type Objects struct {
	Listen  string        `yaml:"listen"`  // where they go between hosts; "": see Listens; off: they don't
	Address string        `yaml:"address"` // by which other hosts reach Listen, HOST or HOST:PORT; "": that of the connection to the bus
	Keep    unit.Duration `yaml:"keep"`    // after a job's last change
	Archive string        `yaml:"archive"` // a directory, into which they go then; "": they are removed
}

// ObjectsOff is the Listen of a host that neither takes nor gives objects.
const ObjectsOff = "off"

// Bounds of Objects.Keep.
const (
	leastKeep = time.Hour
	mostKeep  = 10 * 365 * 24 * time.Hour
)

func defaultObjects() Objects { return Objects{Keep: unit.Duration(720 * time.Hour)} }

func (o Objects) validate() error {
	if o.Listen != "" && o.Listen != ObjectsOff {
		if _, err := isLoopback(o.Listen, "0.0.0.0:8474"); err != nil {
			return err
		}
	}
	if host, port, ok := cutPort(o.Address); ok {
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return fmt.Errorf("address: %q: want a host, or HOST:PORT, such as h1.farm.example.org:8474", o.Address)
		}
	} else if o.Address != "" && !isHost(o.Address) {
		return fmt.Errorf("address: %q: want a host, or HOST:PORT, such as h1.farm.example.org:8474", o.Address)
	}
	if keep := time.Duration(o.Keep); keep < leastKeep || keep > mostKeep {
		return fmt.Errorf("keep: %v: want 1h to 10 years", o.Keep)
	}
	if o.Archive != "" && !filepath.IsAbs(o.Archive) {
		return fmt.Errorf("archive: %q is no absolute path", o.Archive)
	}
	return nil
}

// isHost reports whether a text can be a host's name or address.
func isHost(s string) bool {
	const most = 253
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != ':' {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// Listens returns where a host listens for objects; "": nowhere. others: the farm has hosts of
// other machines.
func (o Objects) Listens(others bool) string {
	switch {
	case o.Listen == ObjectsOff:
		return ""
	case o.Listen != "":
		return o.Listen
	case others:
		return ":8474"
	default:
		return "127.0.0.1:0"
	}
}
