package main

import (
	"errors"
	"os/user"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/config"
)

// TestTemplateHoldsTheDefaults compares the config file that pba init writes with
// what holds without one.
func TestTemplateHoldsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	paths := config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}
	without, err := shell.LoadFrom(paths)
	if err != nil {
		t.Fatal(err)
	}
	if written, err := writeConfig(paths.Config, firstConfig("miniq", nil)); err != nil || !written {
		t.Fatal(written, err)
	}
	with, err := shell.LoadFrom(paths)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without, with, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(shell.Zone{})); d != "" {
		t.Errorf("(-without a file +with the template):\n%s", d)
	}
	if written, err := writeConfig(paths.Config, firstConfig("miniq", nil)); err != nil || written {
		t.Errorf("an existing file was written again: %v %v", written, err)
	}
}

// TestFirstConfig: what init writes for another queue names it, and no queue that is
// not there.
func TestFirstConfig(t *testing.T) {
	for name, x := range map[string]struct {
		queues []backends.Queue
		low    string
	}{
		"unknown queues": {nil, "low"},
		"no low one":     {[]backends.Queue{{Name: "main"}}, ""},
		"a low one":      {[]backends.Queue{{Name: "main"}, {Name: "low"}}, "low"},
	} {
		dir := t.TempDir()
		if _, err := writeConfig(dir+"/config.yaml", firstConfig("slurm", x.queues)); err != nil {
			t.Fatal(err)
		}
		c, err := shell.LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir})
		if err != nil || c.Backend != "slurm" || c.Filter.LowQueue != x.low {
			t.Errorf("%s: backend %q, low_queue %q, %v", name, c.Backend, c.Filter.LowQueue, err)
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
