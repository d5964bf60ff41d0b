package esub

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// SnapshotName is the policy snapshot's file name in the state directory.
const SnapshotName = "policy.snapshot"

// Format of a snapshot, version 1. Integers are little-endian; a string is its
// length (u32) and its bytes; sum is FNV-1a, 64 bits.
//
//	0   magic "allotsnp"
//	8   u32 version, u32 length of header and settings
//	16  u64 size of the file
//	24  u64 sum of everything from byte 40: the snapshot's identity
//	32  u64 sum of the header's other bytes and the settings
//	40  u32 projects, u32 pools
//	48  settings (see appendSettings)
//	    index: per project u32 offset, u32 length of its record, u64 sum of
//	    its place in the index and the record; in order of the names
//	    records: name, group, i64 gid, steps, u32 first pool, u32 pools,
//	    u32 offset, u32 length and u64 sum of its pools, u8 flags
//	    pools: i64 id, user, i64 uid, step, i64 slots; by user, step, ID
//
// A search reads a few records and checks the sum of each that it reads: nothing is
// decoded or summed as a whole.
const (
	snapshotMagic   = "allotsnp"
	snapshotVersion = 1
	headerSize      = 48
	indexSize       = 16
	maxRecord       = 16 << 20 // bytes; a larger one is not pba's
)

// ErrCorrupt is a snapshot or generation file that is not as it was written.
var ErrCorrupt = errors.New("damaged")

func corrupt(what string) error { return fmt.Errorf("%w: %s", ErrCorrupt, what) }

// sum is FNV-1a over the parts; a change of any single byte always shows.
func sum(parts ...[]byte) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range parts {
		for _, b := range part {
			h = (h ^ uint64(b)) * 1099511628211
		}
	}
	return h
}

// Encode writes a policy as a snapshot (R2). The same policy gives the same bytes, in
// whatever order its projects, pools, steps and queues stand.
func Encode(p Policy) []byte {
	projects := slices.SortedFunc(slices.Values(p.Projects), func(a, b Project) int { return strings.Compare(a.Name, b.Name) })
	out := appendSettings(make([]byte, headerSize), p.Settings)
	head := len(out)
	out = append(out, make([]byte, indexSize*len(projects))...)
	pools := 0
	for i, project := range projects {
		sorted := sortPools(project.Pools)
		poolsAt := len(out)
		for _, pool := range sorted {
			out = appendPool(out, pool)
		}
		recordAt := len(out)
		out = appendProject(out, project, pools, len(sorted), poolsAt)
		pools += len(sorted)

		index := out[head+indexSize*i:]
		put32(index, uint32(recordAt))
		put32(index[4:], uint32(len(out)-recordAt))
		put64(index[8:], sumAt(i, out[recordAt:]))
	}
	copy(out, snapshotMagic)
	put32(out[8:], snapshotVersion)
	put32(out[12:], uint32(head))
	put64(out[16:], uint64(len(out)))
	put32(out[40:], uint32(len(projects)))
	put32(out[44:], uint32(pools))
	put64(out[24:], sum(out[40:]))
	put64(out[32:], headerSum(out[:head]))
	return out
}

func headerSum(head []byte) uint64 { return sum(head[:32], head[40:]) }

// sumAt also covers a record's place, so that a record never passes for another.
func sumAt(i int, record []byte) uint64 {
	return sum(binary.LittleEndian.AppendUint32(nil, uint32(i)), record)
}

func sortPools(pools []Pool) []Pool {
	return slices.SortedFunc(slices.Values(pools), func(a, b Pool) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Step, b.Step), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Slots, b.Slots), cmp.Compare(a.UID, b.UID))
	})
}

func appendSettings(b []byte, s Settings) []byte {
	var flags byte
	if s.Observe {
		flags |= 1
	}
	if s.SuspendFrees {
		flags |= 2
	}
	if s.TagNoRequeue {
		flags |= 4
	}
	b = append(b, flags, byte(s.OnFailure), byte(s.OnUntagged), byte(s.OnNoPool))
	b = append64(b, int64(s.NextInLine))
	b = append64(b, int64(s.StaleAfter))
	b = append64(b, s.MemoryUnit)
	b = appendString(b, s.LowQueue)
	b = appendString(b, s.DefaultQueue)
	b = appendStrings(b, s.Queues)
	b = appendHeavy(b, s.Heavy)
	b = append64(b, s.MostRank)
	b = append64(b, int64(s.HoldFixed))
	return append64(b, int64(s.CheckpointMax))
}

func appendHeavy(b []byte, h Heavy) []byte {
	b = append64(b, int64(h.Hold))
	b = append64(b, h.Share)
	b = append32(b, len(h.Rules))
	for _, r := range h.Rules {
		b = appendString(b, r.Project)
		b = appendString(b, r.Step)
		b = appendString(b, r.Queue)
		b = append64(b, r.Memory)
	}
	return b
}

func appendProject(b []byte, p Project, firstPool, pools, poolsAt int) []byte {
	poolBytes := b[poolsAt:]
	b = appendString(b, p.Name)
	b = appendString(b, p.Group)
	b = append64(b, p.GID)
	b = appendStrings(b, p.Steps)
	b = append32(b, firstPool)
	b = append32(b, pools)
	b = append32(b, poolsAt)
	b = append32(b, len(poolBytes))
	b = append64(b, int64(sum(poolBytes)))
	if p.Mark {
		return append(b, projectMarks)
	}
	return append(b, 0)
}

// projectMarks is the flag of a project whose submissions are marked.
const projectMarks = 1

func appendPool(b []byte, p Pool) []byte {
	b = append64(b, p.ID)
	b = appendString(b, p.User)
	b = append64(b, p.UID)
	b = appendString(b, p.Step)
	return append64(b, int64(p.Slots))
}

// Reader searches a snapshot where it lies.
type Reader struct {
	src      io.ReaderAt
	size     int64
	head     int64 // where the index begins
	projects int
	pools    int
	identity uint64
	settings Settings
}

// Open reads a snapshot's header and settings from src, which is size bytes
// long. It reads nothing else.
func Open(src io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{src: src, size: size}
	fixed, err := r.read(0, headerSize)
	if err != nil {
		return nil, err
	}
	if string(fixed[:8]) != snapshotMagic {
		return nil, corrupt("it is no policy snapshot")
	}
	if v := binary.LittleEndian.Uint32(fixed[8:]); v != snapshotVersion {
		return nil, fmt.Errorf("it has format %d and this filter knows %d: install pba and esub of one version", v, snapshotVersion)
	}
	length := binary.LittleEndian.Uint32(fixed[12:])
	if got := binary.LittleEndian.Uint64(fixed[16:]); got != uint64(size) {
		return nil, corrupt(fmt.Sprintf("%d bytes instead of %d", size, got))
	}
	if length < headerSize || length > maxRecord {
		return nil, corrupt("impossible header")
	}
	head, err := r.read(0, int64(length))
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(head[32:]) != headerSum(head) {
		return nil, corrupt("the header's checksum is wrong")
	}
	r.head = int64(length)
	r.identity = binary.LittleEndian.Uint64(head[24:])
	r.projects = int(binary.LittleEndian.Uint32(head[40:]))
	r.pools = int(binary.LittleEndian.Uint32(head[44:]))
	if r.head+int64(r.projects)*indexSize > size || int64(r.pools) > size {
		return nil, corrupt("impossible header")
	}
	return r, r.decodeSettings(head[headerSize:])
}

// Settings are those of the snapshot's policy.
func (r *Reader) Settings() Settings { return r.settings }

// Identity differs between snapshots of different content; a generation file names the
// one that it belongs to.
func (r *Reader) Identity() uint64 { return r.identity }

// Projects returns the number of projects.
func (r *Reader) Projects() int { return r.projects }

// At is the i-th project, in the order of the names, without its pools.
func (r *Reader) At(i int) (Project, error) {
	record, err := r.record(i)
	if err != nil {
		return Project{}, err
	}
	c := decoder{b: record}
	p := Project{Name: c.string(), Group: c.string(), GID: c.int64(), Steps: c.strings()}
	if c.bad {
		return Project{}, corrupt("a project's record makes no sense")
	}
	return p, nil
}

// Find looks a project up by its name. first is the place of its first pool in
// a Generation; the others follow in the order of Pools.
func (r *Reader) Find(name string) (p Project, first int, ok bool, err error) {
	low, high := 0, r.projects
	for low < high {
		middle := int(uint(low+high) >> 1)
		record, err := r.record(middle)
		if err != nil {
			return Project{}, 0, false, err
		}
		c := decoder{b: record}
		switch strings.Compare(c.string(), name) {
		case -1:
			low = middle + 1
		case 1:
			high = middle
		default:
			p, first, err = r.project(record)
			return p, first, err == nil, err
		}
	}
	return Project{}, 0, false, nil
}

// Verify checks all of the snapshot, as the filter never does.
func (r *Reader) Verify() error {
	h := sum()
	for at := int64(40); at < r.size; {
		part, err := r.read(at, min(1<<16, r.size-at))
		if err != nil {
			return err
		}
		for _, b := range part {
			h = (h ^ uint64(b)) * 1099511628211
		}
		at += int64(len(part))
	}
	if h != r.identity {
		return corrupt("the checksum is wrong")
	}
	return nil
}

func (r *Reader) read(at, length int64) ([]byte, error) {
	if at < 0 || length < 0 || length > maxRecord || at+length > r.size {
		return nil, corrupt("it is cut off")
	}
	b := make([]byte, length)
	if n, err := r.src.ReadAt(b, at); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = corrupt("it is cut off")
		}
		return nil, err
	}
	return b, nil
}

func (r *Reader) record(i int) ([]byte, error) {
	index, err := r.read(r.head+int64(i)*indexSize, indexSize)
	if err != nil {
		return nil, err
	}
	record, err := r.read(int64(binary.LittleEndian.Uint32(index)), int64(binary.LittleEndian.Uint32(index[4:])))
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(index[8:]) != sumAt(i, record) {
		return nil, corrupt("a project's checksum is wrong")
	}
	return record, nil
}

func (r *Reader) project(record []byte) (p Project, first int, err error) {
	c := decoder{b: record}
	p = Project{Name: c.string(), Group: c.string(), GID: c.int64(), Steps: c.strings()}
	first, pools := c.int32(), c.int32()
	at, length, want := c.int32(), c.int32(), uint64(c.int64())
	if len(c.b) > 0 { // older snapshots have no flags
		p.Mark = c.byte()&projectMarks != 0
	}
	if c.bad || first+pools > r.pools {
		return Project{}, 0, corrupt("a project's record makes no sense")
	}
	data, err := r.read(int64(at), int64(length))
	if err != nil {
		return Project{}, 0, err
	}
	if sum(data) != want {
		return Project{}, 0, corrupt("the checksum of a project's pools is wrong")
	}
	c = decoder{b: data}
	for range pools {
		if c.bad {
			return Project{}, 0, corrupt("a project's pools make no sense")
		}
		p.Pools = append(p.Pools, Pool{ID: c.int64(), User: c.string(), UID: c.int64(), Step: c.string(), Slots: int(c.int64())})
	}
	if c.bad {
		return Project{}, 0, corrupt("a project's pools make no sense")
	}
	return p, first, nil
}

func (r *Reader) decodeSettings(b []byte) error {
	c := decoder{b: b}
	flags := c.byte()
	r.settings = Settings{
		Config:  Config{OnFailure: Answer(c.byte()), OnUntagged: Answer(c.byte()), OnNoPool: Answer(c.byte())},
		Observe: flags&1 != 0, SuspendFrees: flags&2 != 0, TagNoRequeue: flags&4 != 0,
	}
	s := &r.settings
	s.NextInLine = backends.Priority(c.int64())
	s.StaleAfter = unit.Duration(c.int64())
	s.MemoryUnit = c.int64()
	s.LowQueue, s.DefaultQueue, s.Queues = c.string(), c.string(), c.strings()
	if len(c.b) > 0 { // older snapshots end here: no job is held then
		s.Heavy = c.heavy()
	}
	if len(c.b) > 0 { // or here
		s.MostRank = c.int64()
	}
	if len(c.b) > 0 {
		s.HoldFixed = time.Duration(c.int64())
	}
	if len(c.b) > 0 {
		s.CheckpointMax = time.Duration(c.int64())
	}
	if c.bad {
		return corrupt("the settings make no sense")
	}
	return nil
}
