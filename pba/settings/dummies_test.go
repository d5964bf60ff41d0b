package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

func TestDummiesAreOffUnlessAskedFor(t *testing.T) {
	d := DefaultDummies()
	if err := d.Validate(); err != nil || dummy.Mode(d.Mode) != dummy.Off {
		t.Errorf("%v, %+v", err, d)
	}
}

func TestDummiesAreReadWhole(t *testing.T) { // R28
	const text = `
dummies:
  mode: surround
  max_gathering: 10%
  gather_timeout: 30m
  light_fraction: 50%
  limit: 2h
  heavy:
    - {project: chipA, step: sim, memory: 24G}
    - {queue: big, memory: 8G}
`
	d := DefaultDummies()
	if err := config.Parse("f", []byte(text), map[string]any{"dummies": &d}, yamlplain.Convert); err != nil {
		t.Fatal(err)
	}
	want := dummy.Policy{
		Mode: dummy.Surround, MaxGathering: 0.1, GatherTimeout: 30 * time.Minute, LightFraction: 0.5, Limit: 2 * time.Hour,
		Rules: []dummy.Rule{{Project: "chipA", Step: "sim", Memory: 24 << 30}, {Queue: "big", Memory: 8 << 30}},
	}
	if diff := cmp.Diff(want, d.Policy()); diff != "" {
		t.Error(diff)
	}
	if err := config.Parse("f", []byte("dummies: {mode: off}"), map[string]any{"dummies": &d}, yamlplain.Convert); err != nil || dummy.Mode(d.Mode) != dummy.Off {
		t.Errorf("mode %q, %v", d.Mode, err)
	}
}

func TestDummiesRejectInvalidValues(t *testing.T) {
	for text, want := range map[string]string{
		"mode: on":                       "known: off, reserve, surround",
		`mode: ""`:                       "known: off, reserve, surround",
		"gather_timeout: 0s":             "above zero",
		"limit: 10s":                     "1m or more",
		"max_gathering: 101%":            "0% to 100%",
		"light_fraction: 0.25":           "percentage",
		"heavy: [{project: chipA}]":      "dummies.heavy[0]: memory: want",
		"heavy: [{memory: 24}]":          "not a size",
		"heavy: [{user: a, memory: 1G}]": `unknown key "dummies.heavy[0].user"`,
	} {
		d := DefaultDummies()
		err := config.Parse("f", []byte("dummies:\n  "+text+"\n"), map[string]any{"dummies": &d}, yamlplain.Convert)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", text, err, want)
		}
	}
}
