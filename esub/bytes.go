package esub

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/dummy"
)

func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

func append32(b []byte, v int) []byte   { return binary.LittleEndian.AppendUint32(b, uint32(v)) }
func append64(b []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(v)) }

func appendString(b []byte, s string) []byte { return append(append32(b, len(s)), s...) }

// appendStrings writes a set: sorted, each once.
func appendStrings(b []byte, set []string) []byte {
	set = slices.Compact(slices.Sorted(slices.Values(set)))
	b = append32(b, len(set))
	for _, s := range set {
		b = appendString(b, s)
	}
	return b
}

// decoder consumes values from the front of b. After the first one that isn't there
// it is bad and returns zero values.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) consume(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) byte() byte {
	if b := d.consume(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) int32() int {
	if b := d.consume(4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.consume(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) string() string { return string(d.consume(d.int32())) }

func (d *decoder) strings() []string {
	n := d.int32()
	var all []string
	for range n {
		if d.bad {
			return nil
		}
		all = append(all, d.string())
	}
	return all
}

func (d *decoder) heavy() Heavy {
	h := Heavy{Hold: time.Duration(d.int64()), Share: d.int64()}
	for range d.int32() {
		if d.bad {
			return Heavy{}
		}
		h.Rules = append(h.Rules, dummy.Rule{Project: d.string(), Step: d.string(), Queue: d.string(), Memory: d.int64()})
	}
	return h
}
