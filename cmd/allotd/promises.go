package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// promiseEvery is how often hosts hear what their jobs were promised: they may have missed it, and cycles
// may be as frequent.
const promiseEvery = 5 * time.Second

// promise has hosts know what their jobs were promised, by the last cycle, until the context ends.
func promise(ctx context.Context, desks *desk.Service, hub *bus.Hub, log *slog.Logger) {
	ticker := time.NewTicker(promiseEvery)
	defer ticker.Stop()
	said := ""
	for {
		err := promiseOnce(ctx, desks, hub)
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

func promiseOnce(ctx context.Context, desks *desk.Service, hub *bus.Hub) error {
	d, err := desks.Open(ctx, desk.Visitor{UID: os.Getuid()})
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.Promises(ctx)
	if err != nil {
		return err
	}
	for host := range hub.Admitted() {
		p := all[host]
		if p == nil {
			continue
		}
		message, _, err := p.Encode()
		if err == nil {
			err = hub.Send(host, supervise.PromisesKind, message)
		}
		if err != nil {
			return err
		}
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
