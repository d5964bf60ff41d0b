// Package root is ahostd's root helper: a few verbs that read for an unprivileged ahostd what
// only root may read, one that limits jobs in their control groups (agent/limit), where the service may
// write these, and the client that asks for them.
//
// The two talk by messages of bounded size over a pair of sockets that has no name: only the
// process that the helper started has the other end. Nothing that the client sends is a path
// or a name, and each number is checked. Of an environment only the numbers of jobs come back,
// and of a process's io only the bytes of storage: the others show an observer how long a
// password was.
package root

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/supervise"
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
	// Networks sets the classes of networks, and answers why nothing can be counted by them.
	Networks Verb = 3
	// Network asks for what the jobs' control groups have sent and received.
	Network Verb = 4
	// Limits brings about limits of jobs, and lifts all others. It is to come again within
	// limit.LeaseTime.
	Limits Verb = 5
)

// A message is a head, and records of the same size. All numbers are little-endian.
//
//	request  version 1, verb 1, count 2, first 4
//	         a record of Claims and Bytes is PID 4, 0 4, start 8; of Networks bits 1, class 1, 0 2, IPv6 16
//	         Network has none: first is the group that the answer begins with
//	         of Limits queue 1, resource 1, rung 1, 0 1, index 4, job 8, value 8; there may be none
//	answer   the same head; first is of Network how many groups there are in all, else 0
//	         a record is as its verb says; of Networks it is a byte of text, of Limits a text that
//	         zeros follow, which says why the limit is not in force
const (
	version     = 1
	headSize    = 8
	processSize = 16
	claimsSize  = 40 // known, and twice the run, of Slurm: 4; then three jobs of 12: number 8, index 4
	bytesSize   = 24 // known 8, read 8, written 8
	networkSize = 20
	groupSize   = 8 + 2*8*measure.NetworkClasses // inode, sent, received
	maxGroups   = 256                            // in an answer
	limitSize   = 24
	whySize     = 120
	maxText     = 500
	maxRecords  = 1024
	maxLimits   = 340
	maxRequest  = headSize + max(measure.MaxNetworks*networkSize, maxRecords*processSize, maxLimits*limitSize)
	maxAnswer   = headSize + maxRecords*claimsSize
	maxPID      = 1 << 22 // PID_MAX_LIMIT of the kernel
)

var errMalformed = errors.New("malformed message")

// request is a message to the helper.
type request struct {
	verb      Verb
	processes []measure.ProcessID
	networks  map[netip.Prefix]measure.NetworkClass
	limits    []Limit
	first     uint32
}

// Limit is a limit of a job. Values are those of supervise.Limit.
type Limit struct {
	Queue    measure.Queue
	ID       backends.ID
	Resource supervise.Resource
	Rung     supervise.Rung
	Value    int64
}

// limitQueues are the queues whose jobs have control groups, by their numbers in messages.
var limitQueues = []measure.Queue{measure.Slurm, measure.LSF}

func encodeRequest(b []byte, r request) []byte {
	b = append(b, version, byte(r.verb))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.processes)+len(r.networks)+len(r.limits)))
	b = binary.LittleEndian.AppendUint32(b, r.first)
	for _, p := range slices.SortedFunc(maps.Keys(r.networks), netip.Prefix.Compare) {
		bits, address := p.Bits(), p.Addr().As16()
		if p.Addr().Is4() {
			bits += 96
		}
		b = append(b, byte(bits), byte(r.networks[p]), 0, 0)
		b = append(b, address[:]...)
	}
	for _, l := range r.limits {
		b = append(b, byte(slices.Index(limitQueues, l.Queue)), byte(l.Resource), byte(l.Rung), 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(l.ID.Index)))
		b = binary.LittleEndian.AppendUint64(b, uint64(l.ID.Job))
		b = binary.LittleEndian.AppendUint64(b, uint64(l.Value))
	}
	for _, p := range r.processes {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.PID))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, p.Start)
	}
	return b
}

// decodeRequest reads what a hostile client may have sent.
func decodeRequest(b []byte) (r request, err error) {
	if len(b) < headSize || b[0] != version {
		return request{}, errMalformed
	}
	n := int(binary.LittleEndian.Uint16(b[2:]))
	r = request{verb: Verb(b[1]), first: binary.LittleEndian.Uint32(b[4:])}
	if r.first > 0 && r.verb != Network {
		return request{}, errMalformed
	}
	switch r.verb {
	case Claims, Bytes:
	case Networks:
		r.networks, err = decodeNetworks(b[headSize:], n)
		return r, err
	case Limits:
		r.limits, err = decodeLimits(b[headSize:], n)
		return r, err
	case Network:
		if n != 0 || len(b) != headSize {
			return request{}, fmt.Errorf("%w: %d bytes for nothing", errMalformed, len(b))
		}
		return r, nil
	default:
		return request{}, fmt.Errorf("%w: there is no verb %d", errMalformed, b[1])
	}
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

// decodeLimits reads n limits. Whether there is such a job, and such a limit, is seen when it is set.
func decodeLimits(b []byte, n int) (all []Limit, err error) {
	if n > maxLimits || len(b) != n*limitSize {
		return nil, fmt.Errorf("%w: %d bytes for %d limits", errMalformed, len(b), n)
	}
	for ; len(b) > 0; b = b[limitSize:] {
		l := Limit{
			Resource: supervise.Resource(b[1]), Rung: supervise.Rung(b[2]),
			ID:    backends.ID{Job: int64(binary.LittleEndian.Uint64(b[8:])), Index: int(int32(binary.LittleEndian.Uint32(b[4:])))},
			Value: int64(binary.LittleEndian.Uint64(b[16:])),
		}
		if int(b[0]) >= len(limitQueues) || b[3] != 0 || l.ID.Job < 1 || l.ID.Index < backends.ZeroIndex || l.Value < 0 ||
			l.Resource > supervise.Memory || l.Rung < supervise.Weight || l.Rung > supervise.Freeze {
			return nil, fmt.Errorf("%w: limit %+v of queue %d", errMalformed, l, b[0])
		}
		l.Queue = limitQueues[b[0]]
		all = append(all, l)
	}
	return all, nil
}

// decodeNetworks reads n networks, each once.
func decodeNetworks(b []byte, n int) (map[netip.Prefix]measure.NetworkClass, error) {
	if n > measure.MaxNetworks || len(b) != n*networkSize {
		return nil, fmt.Errorf("%w: %d bytes for %d networks", errMalformed, len(b), n)
	}
	all := map[netip.Prefix]measure.NetworkClass{}
	for ; len(b) > 0; b = b[networkSize:] {
		class := measure.NetworkClass(b[1])
		address := netip.AddrFrom16([16]byte(b[4:networkSize]))
		bits := int(b[0])
		if address.Is4In6() && bits >= 96 {
			address, bits = address.Unmap(), bits-96
		}
		p := netip.PrefixFrom(address, bits)
		if _, twice := all[p]; twice || !p.IsValid() || p != p.Masked() || b[2] != 0 || b[3] != 0 || class != measure.Rack && class != measure.Site {
			return nil, fmt.Errorf("%w: network %v of class %d", errMalformed, p, b[1])
		}
		all[p] = class
	}
	return all, nil
}

func answerHead(b []byte, verb Verb, n int, first uint32) []byte {
	b = append(b, version, byte(verb))
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	return binary.LittleEndian.AppendUint32(b, first)
}

func appendGroup(b []byte, inode uint64, n measure.Network) []byte {
	b = binary.LittleEndian.AppendUint64(b, inode)
	for _, counts := range [][measure.NetworkClasses]uint64{n.Sent, n.Received} {
		for _, count := range counts {
			b = binary.LittleEndian.AppendUint64(b, count)
		}
	}
	return b
}

func decodeGroup(b []byte) (inode uint64, n measure.Network) {
	n.Known = true
	for i := range measure.NetworkClasses {
		n.Sent[i] = binary.LittleEndian.Uint64(b[8+8*i:])
		n.Received[i] = binary.LittleEndian.Uint64(b[8+8*(measure.NetworkClasses+i):])
	}
	return binary.LittleEndian.Uint64(b), n
}

// records returns the records of an answer to a request for n of them.
func records(b []byte, verb Verb, n, size int) ([]byte, error) {
	if len(b) != headSize+n*size || b[0] != version || Verb(b[1]) != verb || int(binary.LittleEndian.Uint16(b[2:])) != n {
		return nil, fmt.Errorf("%w: %d bytes for %d records of %d", errMalformed, len(b), n, size)
	}
	return b[headSize:], nil
}

func appendWhy(b []byte, err error) []byte {
	text := ""
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\x00", "")
	}
	return append(b, append([]byte(text), make([]byte, whySize)...)[:whySize]...)
}

func decodeWhy(b []byte) string {
	text, _, _ := bytes.Cut(b[:whySize], []byte{0})
	return string(text)
}

func appendClaims(b []byte, c measure.RootClaims) []byte {
	b = binary.LittleEndian.AppendUint32(b, bit(c.Known)|uint32(c.Run)<<1)
	for _, id := range []backends.ID{c.Miniq, c.Slurm, c.LSF} {
		b = binary.LittleEndian.AppendUint64(b, uint64(id.Job))
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(id.Index)))
	}
	return b
}

func decodeClaims(b []byte) (c measure.RootClaims) {
	known := binary.LittleEndian.Uint32(b)
	c.Known = known&1 == 1
	if run := known >> 1; run <= measure.MaxRun { // a helper of an earlier version sends 0: not known
		c.Run = int(run)
	}
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
