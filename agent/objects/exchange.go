package objects

import (
	"context"
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// exchange is what the farm's bus said, and what is said there. It is pure.
type exchange struct {
	epoch, number        uint64
	address, fingerprint string // of this host's own server of objects; "": it has none
	reader               string // the fingerprint of allotd's certificate

	expected map[grant]time.Time // until when
	moved    map[state.Job]moved
	refused  map[grant]time.Time // until when it is not tried again
	began    time.Time           // the round of pages
	between  bool                // rounds
}

// grant is a job and the peer that it concerns.
type grant struct {
	job         state.Job
	fingerprint string
}

type moved struct {
	to transfer.Peer
	at time.Time
}

// Bounds of an exchange.
const (
	expectTime  = 10 * time.Minute
	movedTime   = 10 * time.Minute
	refusedTime = 10 * time.Minute
	roundEvery  = 30 * time.Second // from one beginning of the list to the next, at least
	maxGrants   = 20_000
)

func (x *exchange) init(now time.Time) {
	x.epoch = uint64(now.Unix())
	x.expected, x.moved, x.refused = map[grant]time.Time{}, map[state.Job]moved{}, map[grant]time.Time{}
	x.between = true
}

func (x *exchange) pageDue(now time.Time) bool { return !x.between || now.Sub(x.began) >= roundEvery }

// paged notes that a page was sent.
func (x *exchange) paged(now time.Time, last bool) {
	if x.between {
		x.began = now
	}
	x.between = last
}

// hear takes orders, and returns those to send objects.
func (x *exchange) hear(reader string, orders []tracker.Order, now time.Time) (sends []tracker.Order) {
	x.reader = reader
	x.expire(now)
	for _, o := range orders {
		g := grant{o.Job, o.Fingerprint}
		switch {
		case o.Send && now.Before(x.refused[g]):
		case o.Send:
			sends = append(sends, o)
		case len(x.expected) < maxGrants:
			x.expected[g] = now.Add(expectTime)
		}
	}
	return sends
}

func (x *exchange) expire(now time.Time) {
	for _, grants := range []map[grant]time.Time{x.expected, x.refused} {
		for g, until := range grants {
			if !now.Before(until) {
				delete(grants, g)
			}
		}
	}
	for job, m := range x.moved {
		if now.Sub(m.at) >= movedTime || len(x.moved) > maxGrants {
			delete(x.moved, job)
		}
	}
}

// transfers pushes objects to other hosts, one after the other.
type transfers struct {
	client *transfer.Client
	queue  chan tracker.Order
}

// maxQueued bounds the orders that wait. allotd repeats those that are dropped.
const maxQueued = 1000

// Exchange has the keeper take and push objects, at an address and with an identity, until the
// context ends.
func (k *Keeper) Exchange(ctx context.Context, i *transfer.Identity) {
	k.mu.Lock()
	k.bus.fingerprint = i.Fingerprint()
	k.link = transfers{client: transfer.NewClient(i), queue: make(chan tracker.Order, maxQueued)}
	link := k.link
	k.mu.Unlock()
	for range 2 {
		go func() {
			for {
				select {
				case o := <-link.queue:
					k.push(ctx, link.client, o)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
}

// Serves notes the address by which other hosts reach this one's server; "": by none.
func (k *Keeper) Serves(address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bus.address = address
}

// Hear takes a message of orders from allotd.
func (k *Keeper) Hear(message []byte, now time.Time) {
	reader, orders, err := tracker.ParseOrders(message)
	if err != nil {
		k.o.Log.Warn("orders from allotd are not understood", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.bus.hear(reader, orders, now) {
		k.know(o.Job)
		if k.link.queue == nil || o.Host == k.o.Host || !k.table.Push(o.Job, now) {
			continue
		}
		select {
		case k.link.queue <- o:
		default: // allotd repeats it
		}
	}
}

// push sends an object to its job's holder.
func (k *Keeper) push(ctx context.Context, client *transfer.Client, o tracker.Order) {
	object, at, err := k.Object(ctx, o.Job)
	to := transfer.Peer{Host: o.Host, Address: o.Address, Fingerprint: o.Fingerprint}
	if err == nil {
		err = client.Push(ctx, to, o.Job, object, at)
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case errors.Is(err, transfer.ErrRefused):
		if len(k.bus.refused) < maxGrants {
			k.bus.refused[grant{o.Job, o.Fingerprint}] = now.Add(refusedTime)
		}
		k.o.Log.Warn("a state object stays here", "job", o.Job.String(), "error", err)
	case err != nil:
		k.o.Log.Info("a state object is not pushed yet", "job", o.Job.String(), "error", err)
	default:
		act, gone := k.table.Left(o.Job, at, now)
		if !gone {
			return
		}
		k.bus.moved[o.Job] = moved{to, now}
		k.writers[act.Job.Queue].Remove(act.Job.ID) // it is not archived: its holder has it
		k.table.Forget(act.Job)
	}
}

// Knows reports whether a peer with this certificate may ask for anything now.
func (k *Keeper) Knows(fingerprint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fingerprint == k.bus.reader {
		return fingerprint != ""
	}
	now := time.Now()
	for g, until := range k.bus.expected {
		if g.fingerprint == fingerprint && now.Before(until) {
			return true
		}
	}
	return false
}

// MayRead reports whether a peer may read a job's object: allotd may.
func (k *Keeper) MayRead(fingerprint string, _ state.Job) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fingerprint != "" && fingerprint == k.bus.reader
}

// MayPush reports whether a peer may push a job's object: allotd has named it of late.
func (k *Keeper) MayPush(fingerprint string, job state.Job) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.bus.expected[grant{job, fingerprint}])
}

// Moved returns where an object went of late.
func (k *Keeper) Moved(job state.Job) (transfer.Peer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, ok := k.bus.moved[job]
	return m.to, ok && time.Since(m.at) < movedTime
}
