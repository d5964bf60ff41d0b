package qualify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is how fast blocks are copied by all cores together.
type Memory struct {
	Bandwidth float64 `json:"bandwidth_mbytes"` // million bytes copied a second; each is read once and written once
	Block     uint64  `json:"block_bytes"`      // the memory that was copied from and to
	Size      uint64  `json:"size_bytes"`       // what the job may use
}

// Bus is one large copy.
type Bus struct {
	Copy  float64 `json:"copy_mbytes"` // million bytes copied a second
	Block uint64  `json:"block_bytes"`
}

// The block is twice as large as the largest cache, within these bounds, and at most an
// eighth of what is free.
const (
	minBlock  = 1 << 20
	baseBlock = 128 << 20
	maxBlock  = 512 << 20
	freePart  = 8
	stride    = 256 << 10 // copied between two reads of the clock
)

func blockSize(cache, free uint64) uint64 {
	size := min(max(2*cache, baseBlock), maxBlock, free/freePart)
	return max(size-size%minBlock, minBlock)
}

// measureMemory fills in Memory and Bus.
func (r *Result) measureMemory(ctx context.Context, workers int) error {
	b, err := newBlock(blockSize(r.Machine.Cache, r.Machine.free))
	if err != nil {
		return fmt.Errorf("measure the memory: allocate a block: %w", err)
	}
	defer b.free()
	pairs := make([]pair, workers)
	touched := inParallel(workers, func(i int) uint64 {
		pairs[i] = b.part(i, workers).touch(ctx, time.Now().Add(touchTime))
		return 2 * uint64(len(pairs[i].from))
	})
	began := time.Now()
	bytes := inParallel(workers, func(i int) uint64 { return copyAll(ctx, began.Add(memoryTime), pairs[i:i+1]) })
	r.Memory = Memory{Bandwidth: perSecond(float64(bytes), time.Since(began)), Block: touched, Size: r.Machine.usable()}
	began = time.Now()
	bytes = copyAll(ctx, began.Add(busTime), pairs)
	r.Bus = Bus{Copy: perSecond(float64(bytes), time.Since(began)), Block: touched}
	return nil
}

// inParallel runs f for each worker, side by side, and returns the sum.
func inParallel(workers int, f func(int) uint64) uint64 {
	counts := make([]uint64, workers)
	var done sync.WaitGroup
	for i := range counts {
		done.Go(func() { counts[i] = f(i) })
	}
	done.Wait()
	sum := uint64(0)
	for _, n := range counts {
		sum += n
	}
	return sum
}

// block is memory past Go's collector, which would end the program where a resource
// limit leaves too little.
type block []byte

// newBlock maps so much memory; it halves the size while the kernel has not enough.
func newBlock(size uint64) (block, error) {
	for {
		b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil || !errors.Is(err, unix.ENOMEM) || size <= minBlock {
			return b, err
		}
		size /= 2
	}
}

func (b block) free() { _ = unix.Munmap(b) }

// part returns a worker's part of the block.
func (b block) part(i, workers int) block {
	size := len(b) / workers
	return b[i*size : (i+1)*size]
}

// pair is the source and the destination of a copy.
type pair struct{ from, to []byte }

// touch makes the kernel hand out the memory, and returns as much of it as was touched in
// time.
func (b block) touch(ctx context.Context, until time.Time) pair {
	page := unix.Getpagesize()
	n := 0
	for n < len(b) && (n == 0 || timeLeft(ctx, until)) {
		end := min(n+stride, len(b))
		for ; n < end; n += page {
			b[n] = 1
		}
		n = end
	}
	return pair{b[:n/2], b[n/2 : n/2*2]}
}

// copyAll copies pairs one after the other, again and again until the time is up, and
// counts the bytes.
func copyAll(ctx context.Context, until time.Time, pairs []pair) uint64 {
	bytes := uint64(0)
	for {
		for _, p := range pairs {
			for at := 0; at < len(p.from); at += stride {
				bytes += uint64(copy(p.to[at:], p.from[at:min(at+stride, len(p.from))]))
				if !timeLeft(ctx, until) {
					return bytes
				}
			}
		}
	}
}
