// Package bus carries messages between the agents of hosts and allotd, over NATS. It is the
// only package that knows NATS.
//
// allotd opens a Hub: it holds the farm's keys, runs the server, or is a client of the site's
// own, and says which hosts are admitted. The agent of a host opens a Link: it makes the host's
// key, joins, and returns by itself whenever the connection is lost.
//
//	hub.Receive("beat", func(m bus.Message) { … m.Host, m.Payload … })
//	hub.Send("n1", "limits", payload)
//
//	link.Publish("beat", payload) // never blocks; what could not be sent is replaced by what is newer
//	link.Receive("limits", func(payload []byte) { … })
//
// A host publishes below allotment.host.NAME and hears allotment.to.NAME, and nothing else: the
// server holds each to that by the host's own key, so that Message.Host is true whatever a host
// sends.
package bus

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MaxPayload is how many bytes a message may have. The server closes the connection of a host
// that sends more.
const MaxPayload = 256 << 10

// Message is what a host sent.
type Message struct {
	Host    string // whose key the connection has; of letters, digits, and the marks . - _
	Kind    string // what the sender called it
	Payload []byte // at most MaxPayload bytes, of any content; the receiver's own
}

// Subjects are these and the host's token; then follows the kind.
const (
	fromHosts = "allotment.host."
	toHosts   = "allotment.to."
)

// maxName bounds a host's name, as the kernel does.
const maxName = 64

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	kindPattern = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
)

// token returns a host's name as one token of a subject: a dot, which parts tokens, is a colon,
// which no name has.
func token(host string) (string, error) {
	if len(host) > maxName || !namePattern.MatchString(host) {
		return "", fmt.Errorf("%.80q is no name of a host: want letters, digits, and the marks . - _, at most %d", host, maxName)
	}
	return strings.ReplaceAll(host, ".", ":"), nil
}

// sender returns the host and the kind that a subject names.
func sender(subject string) (host, kind string, ok bool) {
	rest, ours := strings.CutPrefix(subject, fromHosts)
	name, kind, cut := strings.Cut(rest, ".")
	host = strings.ReplaceAll(name, ":", ".")
	back, err := token(host)
	return host, kind, ours && cut && err == nil && back == name && validKind(kind)
}

// validKind reports whether a kind is one or more tokens of a subject.
func validKind(kind string) bool { return len(kind) <= 64 && kindPattern.MatchString(kind) }

// checkMessage is an error for what can't be sent.
func checkMessage(kind string, payload []byte) error {
	switch {
	case !validKind(kind):
		return fmt.Errorf("%.80q is no kind of message", kind)
	case len(payload) > MaxPayload:
		return fmt.Errorf("a message %s of %d bytes: at most %d can be sent", kind, len(payload), MaxPayload)
	}
	return nil
}

// ErrNotConnected is returned for what can't be sent now. Sending it again later may succeed.
var ErrNotConnected = errors.New("the bus is not connected")
