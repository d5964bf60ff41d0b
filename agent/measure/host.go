package measure

import (
	"bytes"
	"cmp"
	"path/filepath"
	"strconv"
	"strings"
)

// Host is what this host is, and how busy it is.
type Host struct {
	Boot              string // the kernel's name for this boot; "": it has none
	Memory, Available Value  // bytes
	Stalled           Value  // ns since its boot in which all tasks waited for memory
	Load              *float64
}

// ReadHost reads it from a proc file system; "": /proc. The load is the mean of the last
// minute; nil: the kernel does not say.
func ReadHost(proc string) Host {
	proc = cmp.Or(proc, "/proc")
	var s files
	var h Host
	if text, err := s.readOnce(filepath.Join(proc, "sys/kernel/random/boot_id")); err == nil {
		h.Boot = string(bytes.TrimSpace(text))
	}
	if text, err := s.readOnce(filepath.Join(proc, "meminfo")); err == nil {
		h.Memory, h.Available = parseKB(text, "MemTotal"), parseKB(text, "MemAvailable")
	}
	if text, err := s.readOnce(filepath.Join(proc, "pressure/memory")); err == nil {
		_, h.Stalled = parsePressure(text)
	}
	if text, err := s.readOnce(filepath.Join(proc, "loadavg")); err == nil {
		h.Load = parseLoad(text)
	}
	return h
}

// parseLoad reads the load of the last minute.
func parseLoad(text []byte) *float64 {
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil || !(load >= 0) {
		return nil
	}
	return &load
}
