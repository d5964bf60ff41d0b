package backends

import (
	"context"
	"sync"
)

// News ends waits for changes of a queue. Its zero value is ready.
type News struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next change
}

// Tell notes a change.
func (n *News) Tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Changes returns a function that waits until something has changed since its last call.
func (n *News) Changes() func(context.Context) error {
	next := n.await()
	return func(ctx context.Context) error {
		select {
		case <-next:
			next = n.await()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *News) await() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}
