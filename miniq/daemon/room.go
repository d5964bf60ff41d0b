package daemon

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Room for what is large: the bytes of long requests while they come in, the
// jobs of long lists while they go out. What is small needs none, so that a
// client that submits or lists a few jobs never waits for it.
const (
	largeRequest = 64 << 10 // bytes
	requestRoom  = 64 << 20 // bytes
	decodedRoom  = 96 << 20 // bytes that decoded requests take (miniq.ReadRequest)
	listRoom     = 200_000  // jobs, about half a kilobyte each
	waitRoom     = 1 << 20  // IDs

	// A client that holds room for which others wait has to take or give so
	// many bytes in a second, after so long; else it is disconnected.
	slowest   = 1 << 20
	slowGrace = 2 * time.Second
	slowCheck = 250 * time.Millisecond
)

// pace is how fast a client takes or gives what it holds room for.
type pace struct {
	began atomic.Int64 // Unix time in nanoseconds; 0: it holds none
	moved atomic.Int64 // bytes since
}

func (p *pace) start() {
	p.moved.Store(0)
	p.began.Store(time.Now().UnixNano())
}

func (p *pace) stop() { p.began.Store(0) }

// reader counts what is read.
func (p *pace) reader(r io.Reader) io.Reader { return &paced{r, p} }

type paced struct {
	io.Reader
	pace *pace
}

func (r *paced) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.pace.moved.Add(int64(n))
	return n, err
}

// late reports whether a client is slower than it may be while others wait.
func (p *pace) late(now time.Time) bool {
	began := p.began.Load()
	if began == 0 {
		return false
	}
	due := time.Duration(float64(p.moved.Load()) / slowest * float64(time.Second))
	return now.Sub(time.Unix(0, began)) > slowGrace+due
}

// room is shared by its holders. What doesn't fit waits; what fits is granted in
// order. A user with some of it gets no more than half of it in all. Whatever its
// size, something fits into a room that is empty.
type room struct {
	size int64

	mu      sync.Mutex
	held    int64
	users   map[int]int64
	holders map[*holder]bool
	waiting []*holder
	timer   *time.Timer
}

// holder has, or waits for, some room.
type holder struct {
	uid     int
	n       int64
	granted chan struct{}
	cutLate func(now time.Time) // disconnects slow clients that keep it from being released
}

func newRoom(size int64) *room {
	return &room{size: size, users: map[int]int64{}, holders: map[*holder]bool{}}
}

// acquire waits for room; false: over was closed first.
func (r *room) acquire(h *holder, over <-chan struct{}) bool {
	h.granted = make(chan struct{})
	r.mu.Lock()
	r.waiting = append(r.waiting, h)
	r.grant()
	if len(r.waiting) > 0 && r.timer == nil {
		r.timer = time.AfterFunc(slowCheck, r.cutSlowHolders)
	}
	r.mu.Unlock()
	select {
	case <-h.granted:
		return true
	case <-over:
		return false // nothing is granted or released any more
	}
}

// release returns it, and grants it to those that wait.
func (r *room) release(h *holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holders, h)
	r.held -= h.n
	if r.users[h.uid] -= h.n; r.users[h.uid] == 0 {
		delete(r.users, h.uid)
	}
	r.grant()
}

func (r *room) grant() {
	left := r.waiting[:0]
	for _, h := range r.waiting {
		if !r.fits(h) {
			left = append(left, h)
			continue
		}
		r.held += h.n
		r.users[h.uid] += h.n
		r.holders[h] = true
		close(h.granted)
	}
	clear(r.waiting[len(left):])
	r.waiting = left
}

func (r *room) fits(h *holder) bool {
	own := r.users[h.uid]
	return r.held == 0 || r.held+h.n <= r.size && (own == 0 || own+h.n <= r.size/2)
}

// cutSlowHolders disconnects slow clients, as long as others wait.
func (r *room) cutSlowHolders() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if len(r.waiting) == 0 {
		return
	}
	now := time.Now()
	for h := range r.holders {
		h.cutLate(now)
	}
	r.timer = time.AfterFunc(slowCheck, r.cutSlowHolders)
}
