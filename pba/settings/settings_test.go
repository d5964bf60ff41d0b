package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	p := Default().Policy()
	if p.MaxRequeues != 3 || len(p.VictimOrder) != 3 || p.VictimOrder[0] != plan.ByOverSubscribed || p.VictimOrder[1] != plan.ByLost || p.UnpreemptableShare != 0.10 || !p.HoldTooWide {
		t.Errorf("policy %+v", p)
	}
}

func TestProjectsHaveTheirOwnThreshold(t *testing.T) {
	for _, text := range []string{"projects:\n  chipA:\n    pending_threshold: 0s\n", "projects: {chipA: {pending_threshold: 0s}}", "{projects: {chipA: {pending_threshold: 0s, standby: 4}}}"} {
		c := Default()
		if err := config.Parse("c.yaml", []byte("pba:\n  "+strings.ReplaceAll(text, "\n", "\n  ")+"\n"), map[string]any{"pba": &c}, yamlplain.Convert); err != nil {
			t.Fatal(err)
		}
		if p := c.Policy(); !p.Marks("chipA") || p.Marks("chipB") {
			t.Errorf("%q: %v", text, p.Thresholds)
		}
		if k := c.Policy().Standby["chipA"]; k != 4*strings.Count(text, "standby") {
			t.Errorf("%q: %d slots on standby", text, k)
		}
	}
}

func TestConfigRejectsInvalidValues(t *testing.T) {
	for text, want := range map[string]string{
		"every: 0s":                   "above zero",
		"every: -5s":                  "negative",
		"every: 20":                   "20s",
		"hold_limit: 30s":             "two cycles",
		"max_requeues: 10":            "from 0 to 9",
		"max_requeues: -1":            "from 0 to 9",
		"max_victims: 0":              "max_victims",
		"on_too_wide: hold":           "want wait or run",
		"horizon: -1":                 "horizon",
		"headroom: -1":                "headroom",
		"projects: {a: {standby: 1}}": "pending_threshold is missing",
		"projects: {a: {pending_threshold: 0s, standby: -1}}": "want a number of slots",
		"projects: {a: {pending_threshold: 1m, standby: 1}}":  "beside pending_threshold: 0s",
		"headroom: .nan":                              "headroom",
		"max_allocated: 0%":                           "nothing could ever",
		"max_allocated: 101%":                         "0% to 100%",
		"max_allocated: 0.85":                         "percentage",
		"unpreemptable: {max_share: -1%}":             "0% to 100%",
		"projects: {chipA: {}}":                       "chipA: pending_threshold is missing",
		"projects: {chipA: {pending_threshold: -1s}}": "negative",
		"projects: {chipA: {threshold: 0s}}":          "known: pending_threshold",
		"victim_order: [started_last]":                "known: most_over_subscribed",
		"victim_order: [most_pending, most_pending]":  "twice",
		"host_sets: {gpu: [n1, n2], big: [n3, n2]}":   "f:2: pba.host_sets: host n2 is in big and in gpu",
		"host_sets: {gpu: []}":                        "gpu: it names no hosts",
		"host_sets: {gpu: [\"\"]}":                    "gpu: a host without a name",
		"host_sets: {gpu: n1}":                        "host_sets.gpu: want a list",
		"host_sets: {g pu: [n1]}":                     `"g pu" can't be the name`,
		"host_sets: [n1]":                             "host_sets",
		"host_sets: {gpu: [n1], gpu: [n2]}":           "second time",
		"min_runtme: 5s":                              `f:2: unknown key "pba.min_runtme"`,
	} {
		c := Default()
		err := config.Parse("f", []byte("pba:\n  "+text+"\n"), map[string]any{"pba": &c}, yamlplain.Convert)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", text, err, want)
		}
	}
}

func TestHostSetsAreRead(t *testing.T) {
	c := Default()
	if err := config.Parse("f", []byte("pba: {host_sets: {gpu: [n2, n1], big: [n3]}}"), map[string]any{"pba": &c}, yamlplain.Convert); err != nil {
		t.Fatal(err)
	}
	want := []plan.HostSet{{Name: "big", Hosts: []string{"n3"}}, {Name: "gpu", Hosts: []string{"n2", "n1"}}}
	if d := cmp.Diff(want, c.Policy().HostSets); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"n1": "gpu", "n2": "gpu", "n3": "big"}, c.HostSets.ByHost()); d != "" {
		t.Error(d)
	}
}
