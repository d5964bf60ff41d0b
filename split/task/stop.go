package task

import "time"

// signalTime is how long an item that ended by a signal waits for one that stops its task: the
// queue sends a job that it ends the same signal as the job's processes, in any order.
const signalTime = 200 * time.Millisecond

// signalled is what exit statuses of a signal are above.
const signalled = 128

// watchStop ends the items when the task is stopped, until the function that it returns is called.
func (e *execution) watchStop() (ended func()) {
	if e.until == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-done:
		case <-e.until:
			e.mu.Lock()
			e.haltBy(HaltNow)
			e.mu.Unlock()
		}
	}()
	return func() { close(done); <-gone }
}

// stopped reports whether the task is stopped.
func (e *execution) stopped() bool {
	select {
	case <-e.until: // nil blocks
		return true
	default:
		return false
	}
}

// awaitStop waits for a stop after an item that a signal ended.
func (e *execution) awaitStop(status int) {
	if e.until == nil || status <= signalled {
		return
	}
	timer := time.NewTimer(signalTime)
	defer timer.Stop()
	select {
	case <-e.until:
	case <-timer.C:
	}
}
