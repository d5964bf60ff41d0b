package miniq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A frame is a length (4 bytes, big endian) and so many bytes of JSON.

// frameHead is the size of the length, in bytes.
const frameHead = 4

// MaxFrame is the longest frame that is accepted, in bytes. Longer requests and
// answers are split.
const MaxFrame = 32 << 20

// ErrTooLong is wrapped where a frame is longer than MaxFrame.
var ErrTooLong = errors.New("message too long")

// WriteFrame writes v as one frame, in one write.
func WriteFrame(w io.Writer, v any) error {
	frame, err := AppendFrame(nil, v)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// AppendFrame appends v as a frame to b.
func AppendFrame(b []byte, v any) ([]byte, error) { return appendFrame(b, v, nil) }

// AppendParts appends v as a frame, with data behind its JSON, after a NUL byte.
func AppendParts(b []byte, v any, data []byte) ([]byte, error) {
	return appendFrame(b, v, append([]byte{0}, data...))
}

// appendFrame appends v as a frame, with behind after its JSON.
func appendFrame(b []byte, v any, behind []byte) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return frameOf(b, body, behind)
}

// frameOf appends a frame of JSON and what stands behind it.
func frameOf(b, body, behind []byte) ([]byte, error) {
	n := len(body) + len(behind)
	if n > MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLong, n, MaxFrame)
	}
	b = binary.BigEndian.AppendUint32(slices.Grow(b, frameHead+n), uint32(n))
	return append(append(b, body...), behind...), nil
}

// ReadFrame reads one frame into v. io.EOF means that none follows.
func ReadFrame(r io.Reader, v any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	return decode(body, v)
}

// ReadParts reads one frame into v, and what stands behind its JSON; nil: nothing
// does.
func ReadParts(r io.Reader, v any) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	body, data, _ := bytes.Cut(body, []byte{0})
	return data, decode(body, v)
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	return nil
}

// firstRead bounds what a length alone makes readBody allocate, in bytes.
const firstRead = 64 << 10

func readBody(r io.Reader) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := length(head[:])
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, min(n, firstRead))
	for len(body) < n {
		part := min(n-len(body), max(len(body), firstRead))
		body = slices.Grow(body, part)[:len(body)+part]
		if _, err := io.ReadFull(r, body[len(body)-part:]); err != nil {
			return nil, fmt.Errorf("read a message: %w", noEOF(err))
		}
	}
	return body, nil
}

func length(head []byte) (int, error) {
	n := int(binary.BigEndian.Uint32(head))
	if n > MaxFrame {
		return 0, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLong, n, MaxFrame)
	}
	return n, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// PeekLength returns the length of the next frame, and takes nothing of it.
func PeekLength(r *bufio.Reader) (int, error) {
	head, err := r.Peek(frameHead)
	if err != nil {
		return 0, fmt.Errorf("read a message: %w", noEOF(err))
	}
	return length(head)
}

// HasFrame reports whether a reader holds all of the next frame: nothing is waited for.
func HasFrame(r *bufio.Reader) bool {
	if r.Buffered() < frameHead {
		return false
	}
	n, err := PeekLength(r)
	return err == nil && r.Buffered()-frameHead >= n
}
