package watch

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/backends"
)

func beat(t *testing.T, n uint64) []byte {
	t.Helper()
	b := roster.Beat{Run: "r", Sequence: n, Boot: "b", Version: "v", Cores: 4}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func report(seconds int) []byte {
	key := measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1}, User: 1000}
	r := roster.Report{Elapsed: time.Duration(seconds) * time.Second, Jobs: []measure.Job{{Key: key, Source: measure.FromGroupV2, CPU: measure.Value{N: uint64(seconds) * 1e9, Known: true}}}}
	text, _ := r.Encode()
	return text
}

func TestHostFallsSilentAndIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := New(slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		var admitted atomic.Pointer[map[string]bool]
		admitted.Store(&map[string]bool{"h1": true})
		go w.Run(t.Context(), func() map[string]bool { return *admitted.Load() })
		all := func(*roster.Use) bool { return true }
		state := func() roster.State {
			h, _ := w.Host("h1")
			return h.State
		}
		w.Report("h1", report(1)) // before its heartbeat
		w.Beat("h1", beat(t, 1))
		w.Report("h1", report(5))
		time.Sleep(5 * time.Second)
		w.Beat("h1", beat(t, 2))
		w.Report("h1", report(10))
		if got := w.Uses(all); len(got) != 1 || got[0].Cores != (roster.Rate{PerSecond: 1, Known: true}) || len(w.UsesOn("h1", all)) != 1 || len(w.UsesOn("h2", all)) != 0 {
			t.Errorf("%+v", got)
		}
		time.Sleep(18 * time.Second)
		synctest.Wait()
		if state() != roster.Lost || len(w.Uses(all)) != 0 || len(w.History("h1", measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1}, User: 1000})) == 0 {
			t.Errorf("%s, %+v", state(), w.Uses(all))
		}
		admitted.Store(&map[string]bool{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.Report("h1", report(30))
		if hosts, leftOut := w.Hosts(); len(hosts) != 1 || hosts[0].State != roster.Gone || leftOut != 0 || len(w.Uses(all)) != 0 {
			t.Errorf("%+v, %+v", hosts, w.Uses(all))
		}
		for range 100 {
			w.Beat("h2", []byte("{}"))
			w.Report("h2", []byte("\x1b[31m"))
		}
		if n := strings.Count(log.String(), "refused"); n != 1 || strings.Contains(log.String(), "\x1b") || !strings.Contains(log.String(), "h1: lost: 3 heartbeats are missing") {
			t.Errorf("%d\n%s", n, log.String())
		}
	})
}
