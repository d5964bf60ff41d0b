package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// TestTemplateHoldsTheDefaults compares the config file that pba init writes with
// what holds without one.
func TestTemplateHoldsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	paths := config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}
	without, err := configfile.LoadFrom(paths)
	if err != nil {
		t.Fatal(err)
	}
	if written, err := writeConfig(paths.Config, firstConfig("miniq", nil, nil)); err != nil || !written {
		t.Fatal(written, err)
	}
	with, err := configfile.LoadFrom(paths)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without, with, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(configfile.Zone{})); d != "" {
		t.Errorf("(-without a file +with the template):\n%s", d)
	}
	if written, err := writeConfig(paths.Config, firstConfig("miniq", nil, nil)); err != nil || written {
		t.Errorf("an existing file was written again: %v %v", written, err)
	}
}

// TestFirstConfig: what init writes for another queue names it, and no queue that is
// not there.
func TestFirstConfig(t *testing.T) {
	for name, x := range map[string]struct {
		queues []string
		low    string
	}{
		"unknown queues": {nil, "low"},
		"no low one":     {[]string{"main"}, ""},
		"a low one":      {[]string{"main", "low"}, "low"},
	} {
		dir := t.TempDir()
		if _, err := writeConfig(dir+"/config.yaml", firstConfig("slurm", x.queues, nil)); err != nil {
			t.Fatal(err)
		}
		c, err := configfile.LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir})
		if err != nil || c.Backend != "slurm" || c.Filter.LowQueue != x.low {
			t.Errorf("%s: backend %q, low_queue %q, %v", name, c.Backend, c.Filter.LowQueue, err)
		}
	}
}

// What is known from the environment alone stands in the file that init writes, in
// the queue's own section.
func TestFirstConfigHasSettings(t *testing.T) {
	dir := t.TempDir()
	settings := map[string]string{"bin": `/opt/l "s" f/bin`, "envdir": "/opt/lsf/conf"}
	if _, err := writeConfig(dir+"/config.yaml", firstConfig("lsf", []string{"normal", "low"}, settings)); err != nil {
		t.Fatal(err)
	}
	c, err := configfile.LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir})
	if err != nil || c.Backend != "lsf" || c.LSF.Bin != settings["bin"] || c.LSF.EnvDir != "/opt/lsf/conf" || c.Slurm.Bin != "" {
		t.Errorf("%+v, %+v, %v", c.LSF, c.Slurm, err)
	}
}

// setUp is a queue that says how it is set up.
type setUp struct {
	backends.Backend // what is not used here panics
	lows             []string
}

func (q *setUp) Close() error { return nil }

func (q *setUp) Abilities() backends.Abilities {
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
				e.Findings = append(e.Findings, backends.Finding{What: "where the filter is was not told", Remedy: "-"})
			}
			return e, nil
		}},
	}
}

// A queue that runs the filter as a program has no script; nobody is told of a low
// queue that init does not name; what users' filters read is open.
func TestInitOnAQueueThatRunsTheFilter(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	q := &setUp{}
	p := process{
		open:       func(context.Context, configfile.Config) (backends.Backend, error) { return q, nil },
		executable: func() (string, error) { return "/usr/bin/pba", nil },
	}
	c := configfile.Config{Backend: "lsf", Paths: config.Paths{Config: filepath.Join(dir, "config.yaml"), State: state, Runtime: state}}
	c.Filter.LowQueue = "low"
	var out bytes.Buffer
	if err := initialize(t.Context(), p, c, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "What it needs") || strings.Contains(out.String(), "job_submit") || !slices.Equal(q.lows, []string{""}) {
		t.Errorf("%q: %s", q.lows, out.String())
	}
	info, err := os.Stat(state)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("users' filters can't read in %v, %v", info, err)
	}
	if got, err := configfile.LoadFrom(c.Paths); err != nil || got.LSF.Bin != "/lsf/bin" || got.Filter.LowQueue != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.Remove(ledgerPath(c)); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := initialize(t.Context(), p, c, &out); err != nil { // the file is kept, and asks for a low queue
		t.Fatal(err)
	}
	for _, want := range []string{"there is no queue low", "/lsf/bin) is known from this shell's environment alone", "write `lsf: {bin: /lsf/bin}` into " + c.Paths.Config} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no word of %q: %s", want, out.String())
		}
	}
}

// someGroups are a group that this user is in, and one that he is not in.
func someGroups() (mine, other string, err error) {
	u, err := user.Current()
	if err != nil {
		return "", "", err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return "", "", err
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		return "", "", err
	}
	for gid := 1; gid < 1000; gid++ {
		id := strconv.Itoa(gid)
		if o, err := user.LookupGroupId(id); err == nil && !slices.Contains(ids, id) {
			return g.Name, o.Name, nil
		}
	}
	return "", "", errors.New("this user is in every group")
}

func TestCronQuoting(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/pba":  "/usr/bin/pba",
		"/my dir/pba":   "'/my dir/pba'",
		"/50%/it's/pba": `'/50\%/it'\''s/pba'`,
	} {
		if got := quote(path); got != want {
			t.Errorf("quote(%q) = %s, want %s", path, got, want)
		}
	}
}
