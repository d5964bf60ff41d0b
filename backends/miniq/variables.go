package miniq

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Spec is a backends.Spec on the wire, with its texts escaped.
type Spec struct {
	backends.Spec
	Env Variables // in the place of Spec.Env
}

// WireSpec is a Spec of a backends.Spec whose texts are escaped.
func WireSpec(s backends.Spec) Spec { return Spec{Spec: s, Env: s.Env} }

// Backend is the backends.Spec; its texts are still escaped.
func (s *Spec) Backend() backends.Spec {
	spec := s.Spec
	spec.Env = s.Env
	return spec
}

// Variables is an environment that is one text on the wire: each variable after
// its length in bytes and a colon. A job is submitted with dozens, and a list of
// texts is what takes JSON longest.
type Variables []string

// MarshalText writes the one text.
func (v Variables) MarshalText() ([]byte, error) {
	const head = 5
	size := 0
	for _, e := range v {
		size += head + len(e)
	}
	b := make([]byte, 0, size)
	for _, e := range v {
		b = strconv.AppendInt(b, int64(len(e)), 10)
		b = append(append(b, ':'), e...)
	}
	return b, nil
}

var errVariables = errors.New("an environment is no list of LENGTH:TEXT")

// UnmarshalText reads what MarshalText writes.
func (v *Variables) UnmarshalText(text []byte) error {
	*v = make(Variables, 0, bytes.Count(text, []byte{'='})+1)
	for rest := string(text); rest != ""; {
		head, tail, ok := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(head, 10, 31)
		if !ok || err != nil || n == 0 || n > uint64(len(tail)) {
			return errVariables
		}
		*v, rest = append(*v, tail[:n]), tail[n:]
	}
	return nil
}
