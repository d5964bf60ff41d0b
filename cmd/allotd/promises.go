package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// promiseEvery is how often it is looked whether hosts are to hear something else: cycles may be as frequent. What is
// the same is repeated each promiseAgain: a host may have missed it, or its agent have begun anew.
const (
	promiseEvery = 5 * time.Second
	promiseAgain = 15 * time.Second
)

// promised is what a host heard last.
type promised struct {
	message [sha256.Size]byte // its digest
	at      time.Time
}

// promise has hosts know what their jobs were promised, by the last cycle, until the context ends.
func promise(ctx context.Context, desks *desk.Service, hub *bus.Hub, log *slog.Logger) {
	ticker := time.NewTicker(promiseEvery)
	defer ticker.Stop()
	said, heard := "", map[string]promised{}
	for {
		err := promiseOnce(ctx, desks, hub, heard, time.Now())
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.Warn("hosts do not hear what their jobs were promised", "error", err)
		}
		if err == nil {
			said = ""
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func promiseOnce(ctx context.Context, desks *desk.Service, hub *bus.Hub, heard map[string]promised, now time.Time) error {
	d, err := desks.Open(ctx, desk.Visitor{UID: os.Getuid()})
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.Promises(ctx)
	if err != nil {
		return err
	}
	admitted := hub.Admitted()
	maps.DeleteFunc(heard, func(host string, _ promised) bool { return !admitted[host] })
	for host := range admitted {
		p := all[host]
		if p == nil {
			continue
		}
		message, _, err := p.Encode()
		is := sha256.Sum256(message)
		if last := heard[host]; err == nil && last.message == is && now.Sub(last.at) < promiseAgain {
			continue
		}
		if err == nil {
			err = hub.Send(host, supervise.PromisesKind, message)
		}
		if err != nil {
			return err
		}
		heard[host] = promised{is, now}
	}
	return nil
}

// hearPleas records what hosts that lack memory ask for, until the context ends: the next cycle decides. Of each host
// the last message counts, and they are recorded together.
func hearPleas(ctx context.Context, desks *desk.Service, hub *bus.Hub, log *slog.Logger) {
	var mu sync.Mutex
	heard, wake := map[string]*supervise.Pleas{}, make(chan struct{}, 1)
	hub.Receive(supervise.PleasKind, func(m bus.Message) {
		p, err := supervise.ParsePleas(m.Payload)
		if err != nil {
			log.Warn("what a host asks for is not known", "host", m.Host, "error", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		heard[m.Host] = p // of hosts that are admitted, and so bounded
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	go func() {
		for {
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
			mu.Lock()
			all := heard
			heard = map[string]*supervise.Pleas{}
			mu.Unlock()
			if err := plead(ctx, desks, all); err != nil && ctx.Err() == nil {
				log.Warn("what hosts ask for is not recorded: they repeat it", "error", err)
			}
		}
	}()
}

func plead(ctx context.Context, desks *desk.Service, all map[string]*supervise.Pleas) error {
	d, err := desks.Open(ctx, desk.Visitor{UID: os.Getuid()})
	if err != nil {
		return err
	}
	defer d.Close()
	for host, p := range all {
		if err := d.Plead(ctx, host, p); err != nil {
			return err
		}
	}
	return nil
}
