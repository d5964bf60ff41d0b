package main

import (
	"errors"
	"os/user"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	if written, err := writeConfig(paths.Config); err != nil || !written {
		t.Fatal(written, err)
	}
	with, err := shell.LoadFrom(paths)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without, with, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(shell.Zone{})); d != "" {
		t.Errorf("(-without a file +with the template):\n%s", d)
	}
	if written, err := writeConfig(paths.Config); err != nil || written {
		t.Errorf("an existing file was written again: %v %v", written, err)
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
