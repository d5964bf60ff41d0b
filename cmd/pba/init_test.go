package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// setupQueue is a queue that reports how it is set up.
type setupQueue struct {
	backends.Backend // what is not used here panics
	lows             []string
}

func (q *setupQueue) Close() error { return nil }

func (q *setupQueue) Abilities() backends.Abilities {
	return backends.Abilities{
		ForWrappers: backends.ForWrappers{Queues: func(context.Context) ([]backends.Queue, error) { return []backends.Queue{{Name: "normal"}}, nil }},
		ForFilter:   backends.ForFilter{FilterFacts: func(context.Context) (backends.FilterFacts, error) { return backends.FilterFacts{}, nil }},
		ForDoctor: backends.ForDoctor{Examine: func(_ context.Context, by backends.Installation) (backends.Examination, error) {
			q.lows = append(q.lows, by.Low)
			e := backends.Examination{Settings: map[string]string{"bin": "/lsf/bin"}}
			if by.Low != "" {
				e.Findings = []backends.Finding{{What: "there is no queue " + by.Low, Remedy: "make it"}}
			}
			if filepath.Base(by.Filter) != "esub" || !filepath.IsAbs(by.Filter) {
				e.Findings = append(e.Findings, backends.Finding{What: "the filter's path is missing", Remedy: "-"})
			}
			return e, nil
		}},
	}
}

// A queue that runs the filter as a program has no script; init does not examine a low
// queue that its config file won't name; what users' filters read is open.
func TestInitOnAQueueThatRunsTheFilter(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	q := &setupQueue{}
	c := configfile.Config{Backend: "lsf", Paths: config.Paths{Config: filepath.Join(dir, "config.yaml"), State: state, Runtime: state}}
	c.Filter.LowQueue = "low"
	var out bytes.Buffer
	init := func() {
		t.Helper()
		p := process{stdout: &out, stderr: &out, System: desk.System{
			Load: func() (configfile.Config, error) { return c, nil },
			Identify: func(configfile.Config) (desk.Caller, error) {
				return desk.Caller{Caller: settings.Caller{Owner: true}}, nil
			},
			Open:       func(context.Context, configfile.Config) (backends.Backend, error) { return q, nil },
			Executable: func() (string, error) { return "/usr/bin/pba", nil },
		}}
		if code := commands.Main(newApp(p), []string{"pba", "init"}); code != 0 {
			t.Fatal(code, out.String())
		}
	}
	init()
	if strings.Contains(out.String(), "What it needs") || strings.Contains(out.String(), "job_submit") || !slices.Equal(q.lows, []string{""}) {
		t.Errorf("%q: %s", q.lows, out.String())
	}
	info, err := os.Stat(state)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("users' filters can't read in %v, %v", info, err)
	}
	if got, err := configfile.LoadFrom(c.Paths, yamlplain.Convert); err != nil || got.LSF.Bin != "/lsf/bin" || got.Filter.LowQueue != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.Remove(filepath.Join(state, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	init() // the file is kept, and asks for a low queue
	for _, want := range []string{"there is no queue low", "/lsf/bin) is known from this shell's environment alone", "write `lsf: {bin: /lsf/bin}` into " + c.Paths.Config} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}
