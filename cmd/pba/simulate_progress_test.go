package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/settings"
)

func TestProgressLine(t *testing.T) {
	policies := []string{"fifo", "pba"}
	for want, got := range map[string]string{
		"[..............................]   0 %  fifo: 0 of 8 jobs": progressLine(policies, "fifo", 0, 8),
		"[######################........]  75 %  pba: 4 of 8 jobs":  progressLine(policies, "pba", 4, 8),
		"[##############################] 100 %  pba: 8 of 8 jobs":  progressLine(policies, "pba", 8, 8),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Only a terminal has a bar.
func TestProgressIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	bar := newProgress(&out, []string{"pba"})
	for i := range 3 {
		bar.next = bar.next.Add(-showEvery * 2)
		bar.show("pba", i, 3)
	}
	bar.end()
	if text := out.String(); strings.TrimSpace(text) != "" {
		t.Errorf("%q", text)
	}
}

// An interrupt is called one, and nothing is written.
func TestInterruptedSimulation(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "jobs.swf")
	if err := os.WriteFile(trace, []byte("1 0 -1 10 1 -1 -1 -1 -1 -1 1 4 1 1 -1 -1 -1 -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	p := process{stdout: &out, stderr: &errs, System: desk.System{
		Identify: func(configfile.Config) (desk.Caller, error) {
			return desk.Caller{Writes: true, Caller: settings.Caller{Owner: true}}, nil
		},
		Load: func() (configfile.Config, error) {
			return configfile.LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}, yamlplain.Convert)
		},
	}}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	page := filepath.Join(dir, "page.html")
	err := newApp(p).RunContext(ctx, []string{"pba", "simulate", "--trace", trace, "--farm", "1", "--guarantee", "user:4=1", "--html", page})
	var exit *shell.ExitError
	if !errors.As(err, &exit) || exit.Code != 130 || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(page); err == nil || out.Len() > 0 {
		t.Errorf("something was written: %q", out.String())
	}
}
