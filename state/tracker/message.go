// Package tracker knows which host holds the state object of each job, and nothing else of it.
//
// Hosts announce what they hold: what has changed with each heartbeat, and their whole list in
// pages, one after the other, for ever. So a message that is lost, late or repeated mends itself,
// and a tracker that has lost everything knows it again after one round. The hosts' lists are
// the truth.
//
// Of the hosts that hold a job's object one is its holder: the one with the highest sequence,
// of an equal run on several hosts the first by name. The tracker orders the others to push
// theirs to it. So a job's next run asks for nothing: its host announces it, and what earlier
// runs left on other hosts follows.
//
// The package is pure: messages go in, orders come out. It knows no clock, file or connection.
package tracker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/allotment-hpc/allotment/state"
)

// Kinds of messages on the bus: a host's announcements, of what has changed and of a page of
// its list; allotd's orders.
const (
	ChangesKind = "state"
	PageKind    = "objects"
	OrdersKind  = "orders"
)

// Bounds of messages.
const (
	MaxMessage = 200 << 10 // bytes
	MaxEntries = 3000      // of an announcement: each takes at most 64 bytes
	MaxOrders  = 500       // of a message: each takes at most 400 bytes
)

// Announcement is what a host says of the objects that it holds.
type Announcement struct {
	Epoch  uint64 // rises with each start of the agent: Unix time in seconds
	Number uint64 // rises with each announcement of an epoch, whatever its kind

	Address     string // HOST:PORT where it takes and gives objects; "": it does not
	Fingerprint string // of its certificate there: SHA-256, in hexadecimal digits

	Entries []Entry

	// Of a page: it lists all objects after one job up to another, in the order of Compare. Of
	// the first page After is empty, of the last Through.
	Page           bool
	After, Through string
}

// Entry is one object of a host.
type Entry struct {
	Job state.Job
	state.Sequence
	Live    bool // its run is there, and has not ended
	Gone    bool // the host no longer holds it
	Claimed bool // only an environment names the job, which any user can write
}

// message is an Announcement as JSON.
type message struct {
	Epoch       uint64  `json:"e"`
	Number      uint64  `json:"n"`
	Address     string  `json:"a,omitempty"`
	Fingerprint string  `json:"f,omitempty"`
	Page        bool    `json:"p,omitempty"`
	After       string  `json:"after,omitempty"`
	Through     string  `json:"through,omitempty"`
	Entries     []entry `json:"l,omitempty"`
}

type entry struct {
	Job  string `json:"j"`
	Run  int    `json:"r,omitempty"`
	N    uint64 `json:"n,omitempty"`
	Live bool   `json:"v,omitempty"`
	Gone bool   `json:"g,omitempty"`

	Claimed bool `json:"c,omitempty"`
}

// Encode returns the message. The caller keeps its bounds.
func (a *Announcement) Encode() ([]byte, error) {
	m := message{Epoch: a.Epoch, Number: a.Number, Address: a.Address, Fingerprint: a.Fingerprint, Page: a.Page, After: a.After, Through: a.Through}
	for _, e := range a.Entries {
		m.Entries = append(m.Entries, entry{e.Job.String(), e.Run, e.N, e.Live, e.Gone, e.Claimed})
	}
	data, err := json.Marshal(m)
	if err == nil && (len(data) > MaxMessage || len(a.Entries) > MaxEntries) {
		err = fmt.Errorf("an announcement of %d objects takes %d bytes: at most %d and %d", len(a.Entries), len(data), MaxEntries, MaxMessage)
	}
	return data, err
}

// ParseAnnouncement reads a message, which a hostile host may have sent.
func ParseAnnouncement(data []byte) (*Announcement, error) {
	var m message
	if err := decode(data, &m); err != nil {
		return nil, err
	}
	if len(m.Entries) > MaxEntries {
		return nil, fmt.Errorf("%d objects: at most %d", len(m.Entries), MaxEntries)
	}
	a := &Announcement{Epoch: m.Epoch, Number: m.Number, Address: m.Address, Fingerprint: m.Fingerprint, Page: m.Page, After: m.After, Through: m.Through}
	if err := checkPlace(a.Address, a.Fingerprint); err != nil {
		return nil, err
	}
	for _, name := range []string{a.After, a.Through} {
		if name == "" {
			continue
		}
		if _, err := state.ParseJob(name); err != nil {
			return nil, err
		}
	}
	for _, e := range m.Entries {
		job, err := state.ParseJob(e.Job)
		if err != nil {
			return nil, err
		}
		s := state.Sequence{Run: e.Run, N: e.N}
		if err := s.Check(); err != nil {
			return nil, err
		}
		a.Entries = append(a.Entries, Entry{job, s, e.Live, e.Gone, e.Claimed})
	}
	return a, nil
}

// checkPlace checks an address, and the fingerprint that goes with it.
func checkPlace(address, fingerprint string) error {
	if address == "" && fingerprint == "" {
		return nil
	}
	const digits = "0123456789abcdef"
	switch {
	case len(address) > maxAddress || !strings.Contains(address, ":") || strings.ContainsFunc(address, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == '@' }):
		return errors.New("it names no address, HOST:PORT")
	case len(fingerprint) != 64 || strings.Trim(fingerprint, digits) != "":
		return errors.New("it names no fingerprint: want 64 hexadecimal digits")
	}
	return nil
}

const maxAddress = 300 // bytes

// Order is what a host is to do. Exactly one of Send and Expect is true.
type Order struct {
	Job    state.Job
	Send   bool // push the object to Host
	Expect bool // take the object from Host, if it comes within a few minutes

	Host        string // the other one
	Address     string // of Send: HOST:PORT
	Fingerprint string // of the other's certificate
}

type order struct {
	Job         string `json:"j"`
	Send        bool   `json:"s,omitempty"`
	Host        string `json:"h"`
	Address     string `json:"a,omitempty"`
	Fingerprint string `json:"f"`
}

// orders is a message of orders. Reader is the fingerprint of allotd's own certificate, which
// reads objects.
type orders struct {
	Reader string  `json:"reader,omitempty"`
	Orders []order `json:"orders,omitempty"`
}

// EncodeOrders returns messages that hold all of the orders for one host: at least one, which
// has the fingerprint of allotd's certificate.
func EncodeOrders(reader string, all []Order) ([][]byte, error) {
	var messages [][]byte
	for first := true; first || len(all) > 0; first = false {
		m := orders{Reader: reader}
		n := min(len(all), MaxOrders)
		for _, o := range all[:n] {
			m.Orders = append(m.Orders, order{o.Job.String(), o.Send, o.Host, o.Address, o.Fingerprint})
		}
		all = all[n:]
		data, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, data)
	}
	return messages, nil
}

// ParseOrders reads a message of orders.
func ParseOrders(data []byte) (reader string, all []Order, err error) {
	var m orders
	if err := decode(data, &m); err != nil {
		return "", nil, err
	}
	if len(m.Orders) > MaxOrders {
		return "", nil, fmt.Errorf("%d orders: at most %d", len(m.Orders), MaxOrders)
	}
	for _, o := range m.Orders {
		job, err := state.ParseJob(o.Job)
		if err != nil {
			return "", nil, err
		}
		address := o.Address
		if !o.Send {
			address = "-:0" // it has none
		}
		if err := checkPlace(address, o.Fingerprint); err != nil || o.Fingerprint == "" || o.Host == "" || len(o.Host) > 255 {
			return "", nil, errors.Join(err, errors.New("an order names no host"))
		}
		all = append(all, Order{Job: job, Send: o.Send, Expect: !o.Send, Host: o.Host, Address: o.Address, Fingerprint: o.Fingerprint})
	}
	return m.Reader, all, nil
}

func decode(data []byte, into any) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("%d bytes: at most %d", len(data), MaxMessage)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return errors.New("it is no message of this kind") // the error has the sender's text in it
	}
	return nil
}
