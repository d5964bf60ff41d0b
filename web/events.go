package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// events has pages know when a cycle has published a view ("farm"), and when the plan was
// edited ("plan"). One goroutine looks, for all watchers.
type events struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	seen     atomic.Int64 // how often the state was read
}

// watcher is a stream of events to one page.
type watcher struct {
	user int
	news chan string // has room for one event of each kind
}

// Bounds of streams.
const (
	maxStreams       = 500
	maxStreamsOfUser = 30
	watchEvery       = time.Second
	streamWriteTime  = 10 * time.Second
	streamSign       = 20 * time.Second // a comment is sent so often: else a stream that is dead is not noticed
)

func eventNames() []string { return []string{"farm", "plan"} }

// join adds a watcher, unless there are too many.
func (e *events) join(user int) *watcher {
	e.mu.Lock()
	defer e.mu.Unlock()
	own := 0
	for w := range e.watchers {
		if w.user == user {
			own++
		}
	}
	if own >= maxStreamsOfUser || len(e.watchers) >= maxStreams {
		return nil
	}
	if e.watchers == nil {
		e.watchers = map[*watcher]bool{}
	}
	w := &watcher{user: user, news: make(chan string, len(eventNames()))}
	e.watchers[w] = true
	return w
}

func (e *events) leave(w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watchers, w)
}

func (e *events) watched() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.watchers) > 0
}

// send sends an event to all watchers; one that has not read the last ones misses it.
func (e *events) send(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		select {
		case w.news <- name:
		default:
		}
	}
}

// watch sends events until ctx ends.
func (e *events) watch(ctx context.Context, desks *desk.Service, log *slog.Logger) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	defer desks.Unwatch()
	var last desk.State
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !e.watched() {
			desks.Unwatch()
			continue
		}
		state, err := desks.State(ctx)
		if err != nil {
			log.Debug("watch the ledger", "error", err)
			continue
		}
		if last != (desk.State{}) {
			if !state.Viewed.Equal(last.Viewed) {
				e.send("farm")
			}
			if state.Revision != last.Revision {
				e.send("plan")
			}
		}
		last = state
		e.seen.Add(1)
	}
}

// stream sends events to a page until it is closed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	who := callerOf(r)
	if !who.known() {
		http.Error(w, "sign in first", http.StatusUnauthorized)
		return
	}
	watcher := s.events.join(who.UID)
	if watcher == nil {
		http.Error(w, "too many pages are open", http.StatusTooManyRequests)
		return
	}
	defer s.events.leave(watcher)
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) error {
		if err := control.SetWriteDeadline(time.Now().Add(streamWriteTime)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
		return control.Flush()
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) { // the limit of a request's body ends the stream, else
		return
	}
	sign := time.NewTicker(streamSign)
	defer sign.Stop()
	err := send(": connected\nretry: 5000\n\n")
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case name := <-watcher.news:
			if !s.valid(who) {
				return
			}
			err = send("event: " + name + "\ndata: 1\n\n")
		case <-sign.C:
			if !s.valid(who) {
				return
			}
			err = send(":\n\n")
		}
	}
}
