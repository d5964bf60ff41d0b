package yamlplain_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

// compare returns how a value as package config read it differs from what the YAML library
// read; "": it does not.
func compare(got *config.Node, want *yaml.Node) string {
	kinds := map[config.Kind]yaml.Kind{config.Scalar: yaml.ScalarNode, config.List: yaml.SequenceNode, config.Mapping: yaml.MappingNode}
	if want.Kind == yaml.AliasNode {
		want = want.Alias
	}
	null := want.Kind == yaml.ScalarNode && want.ShortTag() == "!!null"
	switch {
	case kinds[got.Kind] != want.Kind || len(got.Content) != len(want.Content):
		return fmt.Sprintf("line %d: %+v, want %+v", want.Line, got, want)
	case got.Line < want.Line && !null:
		return fmt.Sprintf("%q is in line %d, want %d", want.Value, got.Line, want.Line)
	case got.Kind == config.Scalar:
		return compareScalar(got, want, null)
	}
	for i := range got.Content {
		if i%2 == 0 && got.Kind == config.Mapping && got.Content[i].Text == want.Content[i].Value {
			continue // a key is its text alone
		}
		if diff := compare(got.Content[i], want.Content[i]); diff != "" {
			return diff
		}
	}
	return ""
}

// compareScalar compares what a value becomes in a section's fields.
func compareScalar(got *config.Node, want *yaml.Node, null bool) string {
	if !null && got.Text != want.Value {
		return fmt.Sprintf("%q, want %q", got.Text, want.Value)
	}
	var b struct {
		B bool
		I int64
		F float64
		S string
	}
	for name, into := range map[string]any{"b": &b.B, "i": &b.I, "f": &b.F, "s": &b.S} {
		n := &config.Node{Kind: config.Mapping, Line: 1, Content: []*config.Node{{Text: name, Line: 1}, got}}
		err := config.Fill("f", n, map[string]any{name: into})
		ok := want.Decode(into) == nil && (name != "i" || want.ShortTag() == "!!int")
		value := fmt.Sprint(b)
		if err == nil && !null && name != "s" {
			_ = config.Fill("f", n, map[string]any{name: into})
		}
		if !null && name != "s" && (err == nil) != ok || err == nil && ok && !null && value != fmt.Sprint(b) && b.F == b.F {
			return fmt.Sprintf("%q as %s: %v, %v; YAML: %t, %v", want.Value, name, b, err, ok, value)
		}
	}
	return ""
}

func library(text string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	return document.Content[0], nil
}

// check has package config read a text by itself, if it is plain, and converted, and
// compares both with what the YAML library reads.
func check(text string) (plain bool, diff string) {
	want, invalid := library(text)
	got, plain := config.Plain(text)
	switch {
	case plain && got == nil:
		if invalid == nil && want.ShortTag() != "!!null" {
			return true, "read as empty"
		}
		return true, ""
	case plain && invalid != nil:
		return true, fmt.Sprintf("read as %+v; YAML: %v", got, invalid)
	case plain:
		if diff := compare(got, want); diff != "" {
			return true, diff
		}
	}
	converted, err := yamlplain.Convert([]byte(text))
	if err != nil || invalid != nil {
		return plain, ""
	}
	if got, ok := config.Plain(string(converted)); ok && got != nil {
		diff = compare(got, want)
	} else if plain {
		diff = "plain, but not when converted"
	}
	if diff != "" {
		diff = fmt.Sprintf("converted to %q: %s", converted, diff)
	}
	return plain, diff
}

// These are plain: asub needs no other program to read them.
func TestPlain(t *testing.T) {
	template, err := os.ReadFile("../../pba/configfile/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "\n# nothing\n", string(template),
		"backend: lsf # ours\nlsf: {bin: /lsf/bin, envdir: \"\"}\n",
		"miniq:\n  nodes: [\"n1:4:16G\",\n    \"n2:4:16G:gpu=2,big\"]\n  ageing:\n\n    cap: 69\nqueues:\n- a\n- 'it''s'\n",
		"pba:\n  host_sets: {gpu: [n1, n2], big: []}\n  roles:\n    admins:\n      users: [\"a\\\"\\u00e4\"]\ndummies:\n  heavy:\n  - project: chipA\n    memory: 24G\n  - {project: b, memory: 1.5T}\n  -\n    project: c\n",
		"miniq: {nodes: [\"node1:4:16G\", \"node2:4:16G\", ]}\n", "a: {b: 1, }\nc: [ ]\nd: { }\n", "# ours\n---\na: 1\n", "---\n",
		"a: -1\nb: 0x1F\nc: yes\nd: ~\ne:\nf: 1_000\ng: .5\nh: Zürich\n",
	} {
		if plain, diff := check(text); !plain || diff != "" {
			t.Errorf("plain: %t, %s\n%s", plain, diff, text)
		}
	}
}

// These are more than plain YAML, or none; converted they keep values and lines.
func TestConvert(t *testing.T) {
	for _, text := range []string{
		"a: &x [1, 2]\nb: *x\n", "a: |\n  two\n  lines\nb: 1\n", "a: two\n  lines\n", "---\na: !!str 5\n", "a: >-\n  x\n\n\nb: !!int \"5\"\n", "? a\n: b\n",
		"a:\t1\n", "\"a b\": \"\\x41\\e\"\n", "a: 'two\n\n  lines'\nb: \U0001F600\n", "a: \"\\\n  b\"\n", "a: 2001-01-01\nb: <<\n", "&a a: *a\n",
	} {
		plain, diff := check(text)
		if plain || diff != "" {
			t.Errorf("%q: plain: %t, %s", text, plain, diff)
		}
		converted, err := yamlplain.Convert([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if _, ok := config.Plain(string(converted)); !ok {
			t.Errorf("%q is converted to %q", text, converted)
		}
	}
	for text, want := range map[string]string{
		"a: {": "line 1: did not find", "a: 1\n---\nb: 1\n": "there is more than one document in it", "a: &a\n  b: *a\n": "aliases make too much of it",
	} {
		if out, err := yamlplain.Convert([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want %q", text, out, err, want)
		}
	}
}

// Whatever package config reads by itself, the YAML library reads the same.
func TestPlainReadsAsYAML(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		"a", "b1", "a: ", "b:", ":", " ", "  ", "\n", "\n", "\n  ", "\n    ", "- ", "-", "[", "]", "{", "}", ", ", ",", "#", " # x", "\"", "'", "''", "\\", "\\n", "\\x41",
		"1", "-1", "0x1F", "017", "1_0", "1.5", ".5_5", "1e3", "true", "no", "Y", "~", "null", "|", ">", "&a", "*a", "!!str ", "%", "@", "?", "? ", "---", "...", "<<", "=", "é", "n1:4:16G", "/x.y", "\t",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(pieces, 0, 14).Draw(t, "text"), "")
		if _, diff := check(text); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}

func FuzzPlain(f *testing.F) {
	f.Add("pba: {every: 1s, never: {users: [a]}}\nbackend: x\n")
	f.Add("a:\n- b: 1\n  c: \"x\"\n-\n  - [d,\n  e]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, diff := check(text); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}
