package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func metricsCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "metrics", Usage: "print metrics as Prometheus text, or write them to a file or serve them on a loopback port",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "write `FILE` (FILE.prom), whole or not at all, for node_exporter's textfile collector"},
			&cli.StringFlag{Name: "listen", Usage: "serve http://`ADDRESS`/metrics until interrupted; a loopback address, such as 127.0.0.1:9746"},
		},
		Action: func(c *cli.Context) error {
			out, address := c.String("out"), c.String("listen")
			switch {
			case c.IsSet("out") && c.IsSet("listen"):
				return shell.Usagef("--out and --listen exclude each other")
			case c.IsSet("listen"):
				return serveMetrics(c.Context, p, address, c.App.Writer)
			}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				m, err := d.Metrics(ctx)
				if err != nil {
					return err
				}
				if c.IsSet("out") {
					return d.ReplaceNamed("write metrics to a file", out, metricsText(m))
				}
				_, err = c.App.Writer.Write(metricsText(m))
				return err
			})
		},
	}
}

// metricSet is the metrics of the farm.
type metricSet struct{ exposition.Set }

// metricsText returns the metrics as text.
func metricsText(m *desk.Metrics) []byte {
	var e metricSet
	e.Gauge("allotment_queue_up", "Whether the queue could be asked.").Add(boolean(m.Now != nil))
	e.Gauge("allotment_info", "Version and mode; always 1.").Add(1, "version", shell.Version, "mode", string(m.Mode))
	if m.Now != nil {
		e.pools(m.Now.Pools)
		e.beyond(m)
		e.farm(&m.Now.Farm)
		e.unserved(m.Now.Unserved)
	}
	e.Gauge("allotment_paused", "Whether cycles do nothing (pba pause).").Add(boolean(m.Paused))
	e.Gauge("allotment_observe", "Whether cycles act on nothing (mode: observe).").Add(boolean(m.Mode == configfile.Observe))
	e.history(m)
	e.day(&m.Day)
	open := e.Gauge("allotment_open_requests", "Requests for slots that wait for an answer.")
	for _, name := range slices.Sorted(maps.Keys(m.Requests)) {
		open.Add(float64(m.Requests[name]), "project", name)
	}
	return e.Text()
}

func (e *metricSet) pools(pools []desk.PoolStatus) {
	labels := func(p *desk.PoolStatus) []string {
		return []string{"project", p.Project, "step", p.Step, "user", p.User, "hosts", p.Hosts}
	}
	guarantee := e.Gauge("allotment_pool_guarantee_slots", "Slots that are guaranteed to the pool now.")
	charged := e.Gauge("allotment_pool_charged_slots", "Slots of running jobs that are charged to the pool.")
	within := e.Gauge("allotment_pool_pending_within_slots", "Slots of waiting jobs that have room in the pool.")
	beyond := e.Gauge("allotment_pool_pending_beyond_slots", "Slots of entitled jobs that wait beyond the pool's room.")
	planned := e.Gauge("allotment_pool_planned_slots", "Slots of the pool's allocation.")
	below := e.Gauge("allotment_pool_below", "Whether the pool is below its guarantee while jobs of it wait.")
	promised := e.Gauge("allotment_pool_promised_jobs", "Jobs that are guaranteed to be done in the week (throughput SLA).")
	finished := e.Gauge("allotment_pool_finished_jobs", "Of them, those that are done.")
	undone := e.Gauge("allotment_pool_undone_jobs", "Of them, those that can't be done in the week any more.")
	for i := range pools {
		p := &pools[i]
		planned.Add(float64(p.Planned), labels(p)...)
		below.Add(boolean(p.Below), labels(p)...)
		if p.Jobs > 0 {
			promised.Add(float64(p.Jobs), labels(p)...)
			finished.Add(float64(p.Finished), labels(p)...)
			undone.Add(float64(p.Undone), labels(p)...)
		}
		guarantee.Add(float64(p.Guarantee), labels(p)...)
		charged.Add(float64(p.Charged), labels(p)...)
		within.Add(float64(p.Held), labels(p)...)
		beyond.Add(float64(p.Waiting), labels(p)...)
	}
}

func (e *metricSet) unserved(all []desk.Unserved) {
	jobs := e.Gauge("allotment_unserved_jobs", "Waiting jobs of pools that are not served, as a part of their requests is not understood, by reason.")
	for _, u := range all {
		jobs.Add(float64(u.Jobs), "reason", u.Reason)
	}
}

func (e *metricSet) beyond(m *desk.Metrics) {
	used := e.Gauge("allotment_beyond_pools_slots", "Running slots that no pool is charged for, by project and, where that has no allocation, step; by user for jobs that count under no project.")
	for _, b := range m.Beyond {
		used.Add(float64(b.Slots), "project", b.Project, "step", b.Step, "user", b.User)
	}
}

func (e *metricSet) farm(f *desk.FarmStatus) {
	farm := e.Gauge("allotment_farm_slots", "Slots of the managed farm by what they are.")
	for _, x := range []struct {
		of string
		n  int
	}{
		{"up", f.Slots},
		{"down", f.Down},
		{"running", f.Running},
		{"pba", f.PBA},
		{"normal", f.Normal},
		{"suspended", f.Suspended},
		{"guaranteed", f.Guaranteed},
		{"take_back", f.TakeBack},
		{"unmet", f.Unmet},
		{"unpreemptable", f.Unpreemptable},
		{"dummy", f.Dummies},
		{"kept", f.Kept},
	} {
		farm.Add(float64(x.n), "of", x.of)
	}
}

// history adds what the ledger knows of cycles and reclaims.
func (e *metricSet) history(m *desk.Metrics) {
	ended := e.Counter("allotment_reclaims_total", "Reclaims by how they ended.")
	requested := e.Counter("allotment_reclaimed_requested_slots_total", "Slots that ended reclaims asked for.")
	evicted := e.Counter("allotment_reclaimed_evicted_slots_total", "Slots of victims that ended reclaims took.")
	for _, x := range m.Ended {
		ended.Add(float64(x.Reclaims), "end", string(x.End))
		requested.Add(float64(x.Requested), "end", string(x.End))
		evicted.Add(float64(x.Lost), "end", string(x.End))
	}
	e.Gauge("allotment_reclaims_open", "Reclaims that have not ended yet.").Add(float64(m.Open))
	e.Gauge("allotment_cycle_interval_seconds", "Time in which a cycle is due (pba.every).").Add(m.Every.Seconds())
	last := m.LastCycle
	if last == nil {
		return
	}
	e.Counter("allotment_cycles_total", "Cycles that were recorded.").Add(float64(last.ID))
	e.Gauge("allotment_last_cycle_timestamp_seconds", "When the last recorded cycle began.").Add(unixSeconds(last.Started))
	e.Gauge("allotment_last_cycle_actions", "Actions that the last recorded cycle planned.").Add(float64(last.Actions))
	e.Gauge("allotment_last_cycle_skipped", "What the last recorded cycle left out.").Add(float64(last.Skipped))
	if !last.Finished.IsZero() {
		e.Gauge("allotment_last_cycle_duration_seconds", "How long the last recorded cycle took.").Add(last.Finished.Sub(last.Started).Seconds())
	}
	if !last.Finished.IsZero() && !last.Planned.IsZero() {
		part := e.Gauge("allotment_last_cycle_part_seconds", "Of that, the time to read the queue, to plan, and to act and record.")
		part.Add(last.Read.Sub(last.Started).Seconds(), "part", "read")
		part.Add(last.Planned.Sub(last.Read).Seconds(), "part", "plan")
		part.Add(last.Finished.Sub(last.Planned).Seconds(), "part", "act")
	}
}

// day adds what was promised and what it cost in the last 24 hours.
func (e *metricSet) day(d *desk.Day) {
	within := e.Gauge("allotment_promise_seconds", "Time in which the project is promised its slots, but for the time to free them: its threshold and two cycles.")
	served := e.Gauge("allotment_served_reclaims_day", "Reclaims of the last 24 hours whose beneficiary started.")
	kept := e.Gauge("allotment_kept_reclaims_day", "Of them, those that took no longer than promised.")
	wait := e.Gauge("allotment_served_wait_seconds_day", "How long their beneficiaries waited within the allocation.")
	for _, p := range d.Promises {
		within.Add(p.Within.Seconds(), "project", p.Project)
		served.Add(float64(p.Kept.Reclaims), "project", p.Project)
		kept.Add(float64(p.Kept.Kept), "project", p.Project)
		if p.Wait != nil {
			wait.Add(p.Wait.Median, "project", p.Project, "of", "median")
			wait.Add(p.Wait.P95, "project", p.Project, "of", "p95")
			wait.Add(p.Wait.Max, "project", p.Project, "of", "max")
		}
	}
	victims := e.Gauge("allotment_victims_day", "Jobs that lost their slots in the last 24 hours, by their user and by the project that got the slots.")
	slots := e.Gauge("allotment_victim_slots_day", "Slots of these jobs.")
	lost := e.Gauge("allotment_lost_slot_seconds_day", "Work that these jobs lost.")
	for _, l := range d.Losses {
		account := []string{"project", l.Project, "user", l.User, "to", l.To}
		victims.Add(float64(l.Requeued), append(account, "mode", "requeue")...)
		victims.Add(float64(l.Suspended), append(account, "mode", "suspend")...)
		slots.Add(float64(l.Slots), account...)
		lost.Add(l.Lost*3600, account...)
	}
}

func boolean(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// loopback refuses every address but this machine's own: users' data is not public,
// and there is no authentication here.
func loopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return shell.Usagef("--listen %q: want an address and a port, such as 127.0.0.1:9746", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return shell.Usagef("--listen %q: only this machine's own addresses are served (127.0.0.1, ::1); use a proxy with authentication to reach them from elsewhere", address)
	}
	return nil
}

// serveMetrics answers one request at a time, each by reading the state anew.
func serveMetrics(ctx context.Context, p process, address string, out io.Writer) error {
	if err := loopback(address); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve the metrics: %w", err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return errors.Join(shell.Usagef("--listen %q resolves to %v, which other machines can reach", address, listener.Addr()), listener.Close())
	}
	server := &http.Server{
		Handler:           metricsHandler(p),
		ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 3 * time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	fmt.Fprintf(out, "http://%s/metrics\n", listener.Addr())
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the metrics: %w", err)
	}
	return nil
}

func metricsHandler(p process) http.Handler {
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var text []byte
		err := p.openDesk(r.Context(), false, func(ctx context.Context, d *desk.Desk) error {
			m, err := d.Metrics(ctx)
			if err == nil {
				text = metricsText(m)
			}
			return err
		})
		if err != nil {
			fmt.Fprintf(p.stderr, "pba: %s\n", shell.OneLine(err.Error()))
			http.Error(w, "the metrics can't be collected: see the log of pba metrics", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", exposition.Type)
		_, _ = io.Copy(w, bytes.NewReader(text)) // the client may be gone
	})
	return mux
}
