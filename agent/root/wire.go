// Package root is ahostd's root helper: a few verbs that read for an unprivileged ahostd what
// only root may read, and the client that asks for them.
//
// The two talk by messages of bounded size over a pair of sockets that has no name: only the
// process that the helper started has the other end. Nothing that the client sends is a path
// or a name, and each number is checked. Of an environment only the numbers of jobs come back,
// and of a process's io only the bytes of storage: the others show an observer how long a
// password was.
package root

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
)

// Verb is what is asked for.
type Verb uint8

// The verbs.
const (
	// Claims asks for the jobs that processes' environments name.
	Claims Verb = 1
	// Bytes asks for what processes have moved from and to storage.
	Bytes Verb = 2
)

// A message is a head, and records of the same size. All numbers are little-endian.
//
//	request  version 1, verb 1, count 2, 0 4; a record is PID 4, 0 4, start 8
//	answer   the same head; a record is as its verb says
const (
	version     = 1
	headSize    = 8
	processSize = 16
	claimsSize  = 40 // known 4, then three jobs of 12: number 8, index 4
	bytesSize   = 24 // known 8, read 8, written 8
	maxRecords  = 1024
	maxRequest  = headSize + maxRecords*processSize
	maxAnswer   = headSize + maxRecords*claimsSize
	maxPID      = 1 << 22 // PID_MAX_LIMIT of the kernel
)

var errMalformed = errors.New("malformed message")

// request is a message to the helper.
type request struct {
	verb      Verb
	processes []measure.ProcessID
}

func encodeRequest(b []byte, r request) []byte {
	b = append(b, version, byte(r.verb))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.processes)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, p := range r.processes {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.PID))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, p.Start)
	}
	return b
}

// decodeRequest reads what a hostile client may have sent.
func decodeRequest(b []byte) (r request, err error) {
	if len(b) < headSize || b[0] != version || binary.LittleEndian.Uint32(b[4:]) != 0 {
		return request{}, errMalformed
	}
	r.verb = Verb(b[1])
	if r.verb != Claims && r.verb != Bytes {
		return request{}, fmt.Errorf("%w: there is no verb %d", errMalformed, b[1])
	}
	n := int(binary.LittleEndian.Uint16(b[2:]))
	if n == 0 || n > maxRecords || len(b) != headSize+n*processSize {
		return request{}, fmt.Errorf("%w: %d bytes for %d processes", errMalformed, len(b), n)
	}
	for b = b[headSize:]; len(b) > 0; b = b[processSize:] {
		pid := binary.LittleEndian.Uint32(b)
		if pid == 0 || pid > maxPID || binary.LittleEndian.Uint32(b[4:]) != 0 {
			return request{}, fmt.Errorf("%w: process %d", errMalformed, pid)
		}
		r.processes = append(r.processes, measure.ProcessID{PID: int(pid), Start: binary.LittleEndian.Uint64(b[8:])})
	}
	return r, nil
}

func answerHead(b []byte, verb Verb, n int) []byte {
	b = append(b, version, byte(verb))
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// records returns the records of an answer to a request for n of them.
func records(b []byte, verb Verb, n, size int) ([]byte, error) {
	if len(b) != headSize+n*size || b[0] != version || Verb(b[1]) != verb || int(binary.LittleEndian.Uint16(b[2:])) != n {
		return nil, fmt.Errorf("%w: %d bytes for %d records of %d", errMalformed, len(b), n, size)
	}
	return b[headSize:], nil
}

func appendClaims(b []byte, c measure.RootClaims) []byte {
	b = binary.LittleEndian.AppendUint32(b, bit(c.Known))
	for _, id := range []backends.ID{c.Miniq, c.Slurm, c.LSF} {
		b = binary.LittleEndian.AppendUint64(b, uint64(id.Job))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(id.Index)))
	}
	return b
}

func decodeClaims(b []byte) (c measure.RootClaims) {
	c.Known = binary.LittleEndian.Uint32(b) == 1
	for i, id := range []*backends.ID{&c.Miniq, &c.Slurm, &c.LSF} {
		at := b[4+12*i:]
		job, index := int64(binary.LittleEndian.Uint64(at)), int(int32(binary.LittleEndian.Uint32(at[8:])))
		if job > 0 && index >= backends.ZeroIndex {
			*id = backends.ID{Job: job, Index: index}
		}
	}
	return c
}

func appendBytes(b []byte, m measure.RootBytes) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(bit(m.Known)))
	b = binary.LittleEndian.AppendUint64(b, m.Read)
	return binary.LittleEndian.AppendUint64(b, m.Written)
}

func decodeBytes(b []byte) measure.RootBytes {
	return measure.RootBytes{Known: binary.LittleEndian.Uint64(b) == 1, Read: binary.LittleEndian.Uint64(b[8:]), Written: binary.LittleEndian.Uint64(b[16:])}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
