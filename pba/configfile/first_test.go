package configfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

// TestTemplateHoldsTheDefaults compares the config file that pba init writes with
// what holds without one.
func TestTemplateHoldsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	paths := config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}
	without, err := LoadFrom(paths, yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	if written, err := Write(paths.Config, First("miniq", nil, nil)); err != nil || !written {
		t.Fatal(written, err)
	}
	with, err := LoadFrom(paths, yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without, with, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Zone{})); d != "" {
		t.Errorf("(-without a file +with the template):\n%s", d)
	}
	if written, err := Write(paths.Config, First("miniq", nil, nil)); err != nil || written {
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
		if _, err := Write(dir+"/config.yaml", First("slurm", x.queues, nil)); err != nil {
			t.Fatal(err)
		}
		c, err := LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}, yamlplain.Convert)
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
	if _, err := Write(dir+"/config.yaml", First("lsf", []string{"normal", "low"}, settings)); err != nil {
		t.Fatal(err)
	}
	c, err := LoadFrom(config.Paths{Config: dir + "/config.yaml", State: dir, Runtime: dir}, yamlplain.Convert)
	if err != nil || c.Backend != "lsf" || c.LSF.Bin != settings["bin"] || c.LSF.EnvDir != "/opt/lsf/conf" || c.Slurm.Bin != "" {
		t.Errorf("%+v, %+v, %v", c.LSF, c.Slurm, err)
	}
}
