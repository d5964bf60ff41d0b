package miniq

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/allotment-hpc/allotment/backends"
)

// Bounds of one request beside MaxFrame. What is decoded can be much larger than
// its text: {} is a whole job.
const (
	MaxSpecs   = 1 << 14 // jobs in one submission, dummy jobs too; an array is one
	MaxObjects = 1 << 20 // JSON objects of any kind
	MaxIDs     = 1 << 20 // jobs that are named
	MaxHosts   = 1 << 12 // hosts that are named
)

// ReadRequest reads one request from an untrusted client. io.EOF means that none
// follows. Before it decodes the request, it asks room for as many bytes as it will
// take when decoded (estimateSize); nil: no bound.
//
// A request that a bufio.Reader holds whole is not copied. last is nil, or what earlier
// requests have left there.
func ReadRequest(r io.Reader, room func(size int64) error, last *LastEnvironment) (*Request, error) {
	body, err := []byte(nil), error(nil)
	if b, ok := r.(*bufio.Reader); ok && HasFrame(b) {
		n, _ := PeekLength(b)
		all, _ := b.Peek(frameHead + n)
		body = all[frameHead:]
		defer func() { _, _ = b.Discard(len(all)) }()
	} else {
		body, err = readBody(r)
	}
	if err == nil && room != nil {
		err = room(estimateSize(body))
	}
	if err != nil {
		return nil, err
	}
	return DecodeRequest(body, last)
}

// estimateSize estimates how many bytes a request takes when it is decoded and while it
// is answered, beside its text: much more than that, where {} is a job.
func estimateSize(body []byte) int64 {
	const object, element = 1 << 10, 128
	body, _, _ = bytes.Cut(body, []byte{0})
	return int64(object*bytes.Count(body, []byte{'{'}) + element*bytes.Count(body, []byte{','}))
}

// DecodeRequest reads a request. It keeps nothing of body.
func DecodeRequest(body []byte, last *LastEnvironment) (*Request, error) {
	body, behind, _ := bytes.Cut(body, []byte{0})
	if n := bytes.Count(body, []byte{'{'}); n > MaxSpecs { // counts those in texts, too; checkCounts does not
		if err := checkCounts(body); err != nil {
			return nil, err
		}
	}
	req := new(Request)
	if err := json.Unmarshal(body, req); err != nil {
		return nil, fmt.Errorf("decode a message: %w", err)
	}
	if err := req.parseVariables(behind, last); err != nil {
		return nil, err
	}
	if len(req.Dummies) > MaxSpecs {
		return nil, fmt.Errorf("%w: %d dummy jobs, at most %d are taken at a time", ErrTooLong, len(req.Dummies), MaxSpecs)
	}
	if len(req.Hosts) > MaxHosts {
		return nil, fmt.Errorf("%w: it names %d hosts, at most %d are taken", ErrTooLong, len(req.Hosts), MaxHosts)
	}
	if len(req.IDs) > MaxIDs {
		return nil, fmt.Errorf("%w: it names %d jobs, at most %d are taken", ErrTooLong, len(req.IDs), MaxIDs)
	}
	return req, nil
}

func checkCounts(body []byte) error {
	var counts struct {
		Specs counter `json:"specs"`
	}
	if n := objects(body); n > MaxObjects {
		return fmt.Errorf("%w: %d JSON objects, at most %d are taken", ErrTooLong, n, MaxObjects)
	}
	if err := json.Unmarshal(body, &counts); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	if counts.Specs > MaxSpecs {
		return fmt.Errorf("%w: %d jobs, at most %d are taken at a time", ErrTooLong, counts.Specs, MaxSpecs)
	}
	return nil
}

// objects counts the objects in a text that may be JSON.
func objects(text []byte) int {
	n := 0
	eachMark(text, func(c byte, _ int) {
		if c == '{' {
			n++
		}
	})
	return n
}

// counter is how many elements an array has, about: one more than it has commas
// that are its own.
type counter int

func (n *counter) UnmarshalJSON(text []byte) error {
	*n = 1
	eachMark(text, func(c byte, depth int) {
		if c == ',' && depth == 1 {
			*n++
		}
	})
	return nil
}

// eachMark hands each brace, bracket and comma that is in no string to each, with
// how deep it lies.
func eachMark(text []byte, each func(c byte, depth int)) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			each(c, depth)
			depth++
		case '}', ']':
			depth--
		case ',':
			each(c, depth)
		}
	}
}

// Named returns the IDs in a request, each as often as it is named.
func (r *Request) Named() iter.Seq[backends.ID] {
	return func(yield func(backends.ID) bool) {
		for _, id := range r.IDs {
			if !yield(id) {
				return
			}
		}
		for i := range r.Acts {
			if !yield(r.Acts[i].ID) {
				return
			}
		}
		for i := range r.Rankings {
			if !yield(r.Rankings[i].ID) {
				return
			}
		}
		for i := range r.Pins {
			if !yield(r.Pins[i].ID) {
				return
			}
		}
		for i := range r.Holds {
			if !yield(r.Holds[i].ID) {
				return
			}
		}
		for i := range r.Reservations {
			if !yield(r.Reservations[i].ID) {
				return
			}
		}
	}
}
