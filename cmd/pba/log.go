package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// cycleLog is the log of a repeated rebalance, which a service or cron runs.
type cycleLog struct {
	*slog.Logger
	warned map[string]bool // warnings of the last cycle: each is logged once, while it lasts
	note   string          // of the last cycle
}

// newCycleLog logs only warnings under --for, since cron mails every line.
func newCycleLog(l configfile.Log, w io.Writer, o rebalanceOptions) *cycleLog {
	level := slog.LevelInfo
	if o.runFor > 0 {
		level = slog.LevelWarn
	}
	return &cycleLog{Logger: l.Logger(w, level)}
}

// failed logs a cycle that could not run, and will be tried again.
func (j *cycleLog) failed(err error) {
	j.Warn("no cycle", "error", err.Error())
}

// cycle logs what a cycle did: each act and what the planner warns of at the level
// info, what the queue refused as a warning.
func (j *cycleLog) cycle(shown *desk.Cycle) {
	if shown.Note != "" && shown.Note != j.note {
		j.Info("cycle", "note", shown.Note)
	}
	j.note = shown.Note
	warned := map[string]bool{}
	for _, w := range shown.Warnings {
		warned[w] = true
		switch {
		case w == shown.ClockSet:
			j.Warn("clock", "warning", w)
		case !j.warned[w]:
			j.Info("farm", "warning", w) // pba doctor and pba metrics show it while it lasts
		}
	}
	j.warned = warned
	acts := 0
	for _, a := range shown.Actions {
		level := slog.LevelInfo
		switch {
		case a.Outcome == "":
			level = slog.LevelDebug // observe mode
		case a.Failed():
			level = slog.LevelWarn
			acts++
		default:
			acts++
		}
		attributes := []slog.Attr{slog.String("verb", a.Verb), slog.String("job", a.Job)}
		for _, x := range []struct{ key, value string }{{"for", otherThan(a.Job, a.For)}, {"host", a.Host}, {"outcome", a.Outcome}, {"error", a.Error}, {"reason", a.Reason}} {
			if x.value != "" {
				attributes = append(attributes, slog.String(x.key, x.value))
			}
		}
		j.LogAttrs(context.Background(), level, "act", attributes...)
	}
	j.Debug("cycle", "mode", shown.Mode, "actions", len(shown.Actions), "acts", acts, "skipped", len(shown.Skipped), "took", shown.Took.Round(time.Millisecond))
}
