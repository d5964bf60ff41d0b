package plugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/test/await"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`{"figure": "read_bytes_total", "of": "scratch", "value": 1.5e9}

{"figure":"read_bytes_total","of":"home","value":0}
{"figure":"latency_seconds","value":-0.25}
`))
	want := []Figure{{"read_bytes_total", "scratch", 1.5e9}, {"read_bytes_total", "home", 0}, {"latency_seconds", "", -0.25}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, why := range map[string]string{
		"nfs is fine": "it is no figure in JSON",
		`{"figure":"a","value":1} {"figure":"b","value":1}`:               "more than one value",
		`{"figure":"a","value":1,"job":7}`:                                "unknown field",
		`{"figure":"a"}`:                                                  "value is missing",
		`{"figure":"a","value":"1"}`:                                      "it is no figure in JSON",
		`{"figure":"a","value":1e999}`:                                    "it is no figure in JSON",
		`{"figure":"a_total","value":-1}`:                                 "-1 is no such figure",
		`{"figure":"A","value":1}`:                                        "small letters",
		`{"figure":"a{x=\"y\"}","value":1}`:                               "small letters",
		`{"figure":"` + strings.Repeat("a", 65) + `","value":1}`:          "small letters",
		`{"figure":"a","of":"\u001b[31m","value":1}`:                      "characters of ASCII",
		`{"figure":"a","of":"` + strings.Repeat("a", 65) + `","value":1}`: "characters of ASCII",
		"{\"figure\":\"a\",\"value\":1}\n{\"figure\":\"a\",\"value\":2}":  "line 2",
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), why) || got != nil {
			t.Errorf("%s: %v, %v, want %s", text, got, err, why)
		}
	}
	var many strings.Builder
	for i := range maxFigures + 1 {
		many.WriteString(`{"figure":"a","of":"` + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + `","value":1}` + "\n")
	}
	if _, err := Parse([]byte(many.String())); err == nil || !strings.Contains(err.Error(), "more than 500 figures") {
		t.Errorf("%v", err)
	}
}

// script makes a plug-in.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMeasure(t *testing.T) {
	got, err := Measure(t.Context(), script(t, "ok", `test "$1" = measure && echo '{"figure":"a","value":1}'`))
	if err != nil || !slices.Equal(got, []Figure{{"a", "", 1}}) {
		t.Errorf("%v, %v", got, err)
	}
	for text, why := range map[string]string{
		`echo no server >&2; exit 3`: "exit status 3: no server",
		"yes":                        "it printed more than 65536 bytes",
		`echo '{"figure":"a","value":1}'; echo half`: "line 2",
	} {
		if got, err := Measure(t.Context(), script(t, "bad", text)); err == nil || !strings.Contains(err.Error(), why) || got != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if _, err := Measure(t.Context(), "/no/such/plugin"); err == nil {
		t.Error("a program that is missing measures")
	}
}

// A plug-in that fails has no figures, and stops no other.
func TestRunner(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := Start(ctx, []Program{{"fine", script(t, "fine", `echo '{"figure":"a","value":1}'`)}, {"broken", script(t, "broken", "exit 1")}}, slog.New(slog.DiscardHandler))
	var all []State
	if !await.Soon(func() bool {
		all = r.States()
		return all[0].Err == nil && !strings.Contains(all[1].Err.Error(), "not measured yet")
	}) {
		t.Fatalf("%+v", all)
	}
	if all[0].Name != "fine" || len(all[0].Figures) != 1 || all[1].Name != "broken" || all[1].Figures != nil {
		t.Errorf("%+v", all)
	}
	if (*Runner)(nil).States() != nil {
		t.Error("no runner has plug-ins")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"figure": "read_bytes_total", "of": "scratch", "value": 1.5e9}`)
	f.Add("{}\n[]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse([]byte(text))
		if err == nil && len(all) > maxFigures {
			t.Errorf("%d figures", len(all))
		}
		for _, x := range all {
			if !isName(x.Name) || len(x.Of) > maxOf || strings.ContainsAny(x.Of, "\n\x1b") {
				t.Errorf("%+v", x)
			}
		}
	})
}
