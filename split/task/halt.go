package task

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"time"
)

// haltInterval is the interval between two looks at the file halt; over NFS it may show up
// later.
const haltInterval = 200 * time.Millisecond

// Count is how many items of a task have ended, and how many of them failed.
type Count struct{ Ended, Failed int64 }

const countSize = 16

// ReadCount returns the Count that a task which is at work has written; it is zero if there is none.
func ReadCount(dir string, n int64) (c Count) {
	b, err := os.ReadFile(File(dir, n, KindCount))
	if err != nil || len(b) != countSize {
		return Count{}
	}
	c.Ended, c.Failed = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	if c.Failed < 0 || c.Failed > c.Ended || c.Ended > MaxItems {
		return Count{}
	}
	return c
}

// watchHalt watches the file halt, and writes how many items have ended and failed, until
// the function that it returns is called. An order without Halt is not watched.
func (e *execution) watchHalt() (ended func()) {
	if e.order.Halt == "" {
		return func() {}
	}
	e.readHalt()
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		var written Count
		for {
			select {
			case <-done:
				return
			case <-time.After(haltInterval):
			}
			written = e.writeCount(written)
			e.readHalt()
		}
	}()
	return func() { close(done); <-gone }
}

func (e *execution) readHalt() {
	if text, err := os.ReadFile(filepath.Join(e.dir, FileHalt)); err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.haltBy(Halt(text))
	}
}

// writeCount writes the Count if it changed, and returns it. What fails is tried again.
func (e *execution) writeCount(written Count) Count {
	e.mu.Lock()
	now := Count{e.to.ended, e.to.failed}
	e.mu.Unlock()
	if now == written {
		return written
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(now.Ended))
	b = binary.LittleEndian.AppendUint64(b, uint64(now.Failed))
	f, err := os.OpenFile(File(e.dir, e.n, KindCount), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return written
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		written = now
	}
	_ = f.Close() // the next one is written anew
	return written
}

// haltBy halts the task; e.mu is held.
func (e *execution) haltBy(h Halt) {
	if h == HaltNow && e.halt != HaltNow {
		close(e.stop)
	}
	if e.halt != HaltNow {
		e.halt = HaltSoon
	}
	if h == HaltNow {
		e.halt = HaltNow
	}
}

func (e *execution) halted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.halt != ""
}
