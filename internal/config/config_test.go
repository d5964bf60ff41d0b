package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

type section struct {
	Every   config.Duration `yaml:"every"`
	Timeout time.Duration   `yaml:"timeout"`
	Memory  config.Size     `yaml:"memory"`
	Share   config.Share    `yaml:"max_share"`
	Retries int             `yaml:"retries"`
	Factor  float64         `yaml:"headroom"`
	On      bool            `yaml:"on"`
	Order   []string        `yaml:"order"`
	Never   struct {
		Users []string `yaml:"users"`
	} `yaml:"never"`
	Weights map[string]float64 `yaml:"weights"`
	private int                //nolint:unused // a key of this name must not fill it
}

func (s section) Validate() error {
	if s.Retries < 0 {
		return errors.New("retries is negative: want 0 or more")
	}
	return nil
}

func defaults() section {
	return section{Every: config.Duration(20 * time.Second), Order: []string{"a"}}
}

func TestParseFillsSectionsAndKeepsDefaults(t *testing.T) {
	const text = `
backend: miniq
hosts: [n1, 010]
pba:
  timeout: 1m30s
  memory: 16G
  max_share: 85%
  retries: 3
  headroom: 1.5
  on: true
  never: {users: [root]}
  weights: {cpu: 1, io: 0.5}
other: {anything: [at, all]}
empty:
`
	got, backend, hosts, empty := defaults(), "", []string(nil), 7
	err := config.Parse("c.yaml", []byte(text), map[string]any{"backend": &backend, "hosts": &hosts, "pba": &got, "other": new(any), "empty": &empty}, yamlplain.Convert)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Timeout, want.Memory, want.Share, want.Retries, want.Factor, want.On = 90*time.Second, 16<<30, 0.85, 3, 1.5, true
	want.Never.Users, want.Weights = []string{"root"}, map[string]float64{"cpu": 1, "io": 0.5}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(section{})); diff != "" {
		t.Error(diff)
	}
	if backend != "miniq" || !cmp.Equal(hosts, []string{"n1", "010"}) || empty != 7 {
		t.Errorf("got %q, %q, %d", backend, hosts, empty)
	}
}

func TestParseNamesFileLineAndWhatIsKnown(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"unknown top-level key": {"backend: x\nbackand: y\n", `c.yaml:2: unknown key "backand" (known: backend, pba)`},
		"unknown key":           {"pba:\n  evry: 1s\n", `c.yaml:2: unknown key "pba.evry" (known: every, timeout, `},
		"private field":         {"pba: {private: 1}", `unknown key "pba.private"`},
		"unknown key below":     {"pba:\n  never:\n    usrs: []\n", `c.yaml:3: unknown key "pba.never.usrs" (known: users)`},
		"twice":                 {"pba: {}\nbackend: a\npba: {}\n", `c.yaml:3: key "pba" is given a second time (first in line 1)`},
		"twice below":           {"pba:\n  every: 1s\n  every: 1s\n", `c.yaml:3: key "pba.every" is given a second time`},
		"duration":              {"pba:\n  every: 20\n", `c.yaml:2: pba.every: "20" is not a duration; write it like 20s`},
		"negative duration":     {"pba:\n  timeout: -1s\n", `c.yaml:2: pba.timeout: "-1s" is negative`},
		"size":                  {"pba: {memory: 16}", `c.yaml:1: pba.memory: "16" is not a size`},
		"share":                 {"pba: {max_share: 0.5}", `c.yaml:1: pba.max_share: "0.5" is not a share`},
		"number":                {"pba: {retries: many}", `c.yaml:1: pba.retries: "many" is not a whole number`},
		"float for a number":    {"pba: {retries: 1.5}", `c.yaml:1: pba.retries: "1.5" is not a whole number`},
		"bool":                  {"pba: {on: maybe}", `c.yaml:1: pba.on: "maybe" is not a boolean`},
		"scalar for section":    {"pba: 3", "c.yaml:1: pba: want `key: value` lines (known: every"},
		"scalar for list":       {"pba: {order: a}", `c.yaml:1: pba.order: want a list`},
		"list for scalar":       {"backend: [a]", `c.yaml:1: backend: want one value`},
		"list for duration":     {"pba: {every: [1s]}", `c.yaml:1: pba.every: want one value`},
		"text at the top":       {"text\n", "c.yaml:1: want `key: value` lines (known: backend, pba)"},
		"list at the top":       {"- a\n", "c.yaml:1: want `key: value` lines (known: backend, pba)"},
		"validation":            {"backend: a\npba:\n  retries: -1\n", `c.yaml:3: pba: retries is negative`},
		"no YAML":               {"pba: {", `c.yaml: line 1: did not find`},
		"two documents":         {"backend: a\n---\nbackend: b\n", `c.yaml: there is more than one document`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, backend := defaults(), ""
			err := config.Parse("c.yaml", []byte(test.text), map[string]any{"backend": &backend, "pba": &s}, yamlplain.Convert)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestParseAcceptsEmptyFiles(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n"} {
		if err := config.Parse("c.yaml", []byte(text), nil, yamlplain.Convert); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// An alias that contains itself would be walked for ever.
func TestParseEndsOnRecursiveAliases(t *testing.T) {
	var weights map[string]map[string]section
	err := config.Parse("c.yaml", []byte("pba: &a\n  never: *a\n"), map[string]any{"pba": &section{}, "w": &weights}, yamlplain.Convert)
	if err == nil {
		t.Error("want an error")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	backend := "miniq"
	sections := map[string]any{"backend": &backend}
	if err := config.Load(path, sections, yamlplain.Convert); err != nil || backend != "miniq" {
		t.Fatalf("a missing file: %v, %q", err, backend)
	}
	if err := os.WriteFile(path, []byte("backend: lsf\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := config.Load(path, sections, yamlplain.Convert); err != nil || backend != "lsf" {
		t.Fatalf("a good file: %v, %q", err, backend)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := config.Load(path, sections, yamlplain.Convert); !errors.Is(err, trusted.ErrNotTrusted) {
		t.Errorf("a file that everybody can write: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("pba: {every: 1s, never: {users: [a]}}\nbackend: x\n")
	f.Add("pba: &a\n  never: *a\n")
	f.Add("a: {b: [c, {d: !!float .nan}]}")
	f.Fuzz(func(t *testing.T, text string) {
		s, backend := defaults(), ""
		_ = config.Parse("c.yaml", []byte(text), map[string]any{"backend": &backend, "pba": &s}, yamlplain.Convert)
	})
}
