package esub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
)

// GenerationName is the generation file's name, beside the snapshot.
const GenerationName = "policy.generation"

// Standing is what changes from cycle to cycle: the engine writes it each time
// as a sign of life.
type Standing struct {
	At                 time.Time      // now, by the engine's clock; zero: it has never run
	Observe            bool           // observe mode, or the engine is paused
	LowerUnpreemptable bool           // normal jobs that can't be preempted hold their share of the farm (R22)
	FixedShare         int            // slots that such jobs may hold of the farm
	Below              map[int64]bool // pools below their guarantee, by allocation ID (R12)
}

// Format of a generation file: magic "allotgen", u32 version, u32 flags, i64
// time (Unix, nanoseconds; 0: never), u64 identity of its snapshot, u32 slots that jobs that
// can't be preempted may hold, u32 pools, one bit per pool in the snapshot's order, u64 sum of all before it.
const (
	generationMagic   = "allotgen"
	generationVersion = 2
	generationHeader  = 40
	// MaxGeneration is the most bytes that a generation file has.
	MaxGeneration = 1 << 20
)

// EncodeGeneration writes the generation file of a snapshot. To put both in place,
// prepare both as temporary files, then rename the snapshot and at once the generation:
// a filter that sees one without the other reads again.
func EncodeGeneration(snapshot []byte, s Standing) ([]byte, error) {
	r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		return nil, fmt.Errorf("policy snapshot: %w", err)
	}
	bits := make([]byte, (r.pools+7)/8)
	for i := range r.projects {
		record, err := r.record(i)
		if err != nil {
			return nil, fmt.Errorf("policy snapshot: %w", err)
		}
		p, first, err := r.project(record)
		if err != nil {
			return nil, fmt.Errorf("policy snapshot: %w", err)
		}
		for k, pool := range p.Pools {
			if s.Below[pool.ID] {
				bits[(first+k)/8] |= 1 << ((first + k) % 8)
			}
		}
	}
	var flags int
	if s.Observe {
		flags |= 1
	}
	if s.LowerUnpreemptable {
		flags |= 2
	}
	b := append([]byte(nil), generationMagic...)
	b = append32(b, generationVersion)
	b = append32(b, flags)
	b = append64(b, unixtime.Of(s.At))
	b = append64(b, int64(r.identity))
	b = append32(b, s.FixedShare)
	b = append32(b, r.pools)
	b = append(b, bits...)
	return append64(b, int64(sum(b))), nil
}

// Generation is a generation file that was read. The zero Generation belongs to
// no snapshot.
type Generation struct {
	At                 time.Time
	Snapshot           uint64 // identity of the snapshot that it belongs to
	Observe            bool
	LowerUnpreemptable bool
	FixedShare         int
	pools              int
	below              []byte
}

// OpenGeneration reads a generation file.
func OpenGeneration(b []byte) (Generation, error) {
	if len(b) < generationHeader+8 || string(b[:8]) != generationMagic {
		return Generation{}, corrupt("it is no generation file")
	}
	body, tail := b[:len(b)-8], b[len(b)-8:]
	if v := binary.LittleEndian.Uint32(b[8:]); v != generationVersion {
		return Generation{}, fmt.Errorf("it has format %d and this filter knows %d: install pba and esub of one version", v, generationVersion)
	}
	if binary.LittleEndian.Uint64(tail) != sum(body) {
		return Generation{}, corrupt("the checksum is wrong")
	}
	c := decoder{b: body[12:]}
	flags := c.int32()
	g := Generation{
		At:       unixtime.Time(c.int64()),
		Snapshot: uint64(c.int64()),
		Observe:  flags&1 != 0, LowerUnpreemptable: flags&2 != 0,
		FixedShare: c.int32(),
		pools:      c.int32(),
	}
	if g.below = c.b; len(g.below) != (g.pools+7)/8 {
		return Generation{}, corrupt("it is cut off")
	}
	return g, nil
}

// Below reports whether the pool at a place of the snapshot is below its guarantee.
func (g *Generation) Below(pool int) bool {
	return pool >= 0 && pool < g.pools && g.below[pool/8]&(1<<(pool%8)) != 0
}
