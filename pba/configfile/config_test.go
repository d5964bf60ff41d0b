package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// inHome makes a home with a config file and points the environment to it.
func inHome(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("ALLOTMENT_HOME", dir)
	t.Setenv("ALLOTMENT_CONFIG", "")
	t.Setenv("ALLOTMENT_BACKEND", "")
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadWithoutAFileGivesDefaults(t *testing.T) {
	t.Setenv("ALLOTMENT_HOME", t.TempDir())
	c, err := Load(yamlplain.Convert)
	if err != nil || c.Backend != "miniq" || c.Mode != Live || c.Timezone.Location() != time.Local {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestLoadReadsTheWholeFile(t *testing.T) {
	inHome(t, "backend: slurm\nmode: observe\ntimezone: Europe/Berlin\nqueues: [batch]\nhosts: [n1, n2]\n")
	c, err := Load(yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	if c.Backend != "slurm" || c.Mode != Observe || c.Timezone.Location().String() != "Europe/Berlin" ||
		!cmp.Equal(c.Queues, []string{"batch"}) || !cmp.Equal(c.Hosts, []string{"n1", "n2"}) {
		t.Errorf("got %+v", c)
	}
	t.Setenv("ALLOTMENT_BACKEND", "lsf")
	if c, err := Load(yamlplain.Convert); err != nil || c.Backend != "lsf" {
		t.Errorf("ALLOTMENT_BACKEND: got %q, %v", c.Backend, err)
	}
}

func TestLoadNamesFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"limits: {mode: yes}\n":                        `config.yaml:1: limits.mode: "yes" is no mode (known: off, observe, on)`,
		"limits:\n  mode: observe\n  slot: {cpu: 0}\n": `config.yaml:2: limits: slot: jobs within a guarantee are promised nothing`,
		"limits:\n  projects:\n    chipA: {gpu: 1}\n":  `config.yaml:3: unknown key "limits.projects.chipA.gpu" (known: cpu, disk, network)`,
		"limits:\n  most: {cpu: 1, net: 1M}\n":         `config.yaml:2: unknown key "limits.most.net" (known: cpu, disk, network)`,
		"limits: {projects: {chipA: {cpu: -1}}}\n":     `config.yaml:1: limits: projects.chipA.cpu: -1: want 0 to 1000 cores`,
		"mode: live\ntimezome: UTC\n":                  `config.yaml:2: unknown key "timezome" (known: ahostd, backend, `,
		"mode: dry\n":                                  `config.yaml:1: mode: "dry" is no mode (known: live, observe)`,
		"timezone: Mars/Base\n":                        `config.yaml:1: timezone: "Mars/Base" is no time zone`,
		"filter:\n  on_failur: low\n":                  `config.yaml:2: unknown key "filter.on_failur" (known: on_failure, `,
		"dummies: {mode: reserve, limit: 3m}\n":        `config.yaml: dummies.limit: 3m is less than ten cycles (pba.every: 20s)`,
	} {
		inHome(t, text)
		if _, err := Load(yamlplain.Convert); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// R48: of what limits.most and limits.projects name, the rest is limits.slot's.
func TestLimitsOfProjectsAreRead(t *testing.T) {
	inHome(t, "limits: {mode: observe, slot: {disk: 50M}, most: {disk: 300M}, projects: {chipA: {cpu: 2, disk: 200M}, chipB: {network: 0}}}\n")
	c, err := Load(yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Limits.MostOfSlot(), (settings.Promised{CPU: 1, Disk: 300 << 20}); got != want {
		t.Errorf("most: %+v, want %+v", got, want)
	}
	for project, want := range map[string]settings.Promised{"chipA": {CPU: 2, Disk: 200 << 20}, "chipB": {CPU: 1, Disk: 50 << 20}} {
		if got := c.Limits.SlotOf(project); got != want {
			t.Errorf("%s: %+v, want %+v", project, got, want)
		}
	}
}

// R10: a pending job's age grows by one a cycle.
func TestJobsAgeOnceACycle(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                 20 * time.Second,
		"pba: {every: 7s}": 7 * time.Second,
		"pba: {every: 7s}\nminiq: {ageing: {interval: 3s}}": 3 * time.Second,
	} {
		inHome(t, text)
		c, err := Load(yamlplain.Convert)
		if err != nil || time.Duration(c.Miniq.Ageing.Interval) != want {
			t.Errorf("%q: got %v, %v, want %v", text, c.Miniq.Ageing.Interval, err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	inHome(t, "")
	c, err := Load(yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	c.Backend = "moab"
	if _, err := Open(t.Context(), c); err == nil || err.Error() != `backend "moab" is not known; known: miniq, slurm, lsf` {
		t.Errorf("got %v", err)
	}
}
