package main

import (
	"context"
	"log/slog"
	"os"
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
