package backends

import (
	"strings"
	"testing"
)

func TestSelection(t *testing.T) {
	h := Host{
		Name: "n1", Slots: 8, Memory: 16 << 30, Has: []Amount{{"gpu", 2}},
		Features: []string{"big", "model=EPYC_7742", "rack=r1"},
	}
	for text, want := range map[string]bool{
		"big": true, "fast": false, "gpu": true, "rack": true, "!fast": true, "! ! big": true,
		"gpu == 2": true, "gpu>2": false, "gpu>=2": true, "gpu!=2": false, "gpu<3": true, "gpu <= 1": false, "gpu == a": false,
		"ncpus == 8": true, "ncpus > 8": false, "maxmem >= 16G": true, "maxmem > 16384": false, "maxmem==16384MB": true, "maxmem < 1.5t": true,
		"hname == n1": true, "hname != 'n1'": false, `rack == "r1"`: true, "rack != r2": true, "rack > 1": false, "rack == 1": false,
		"other == x": false, "other != x": false, "other < 3": false, "big == 0": false, "big != 1": false,
		"model == EPYC_7742": true, "model == any": true, "type == any": true, "type == local": true, "type == X86_64": false,
		"defined(rack)": true, "defined( swp )": false, "!defined(swp)": true,
		"fast || big && rack == r1": true, "(fast || big) && rack == r2": false, "fast && big || gpu": true,
		"!(fast || big)": false, "!fast && !(rack == r2)": true, "((big))": true,
	} {
		s, err := ParseSelection(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		again, err := ParseSelection(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%s is written as %s, read as %v, %v", text, s, again, err)
			continue
		}
		if got := s.Holds(&h); got != want || again.Holds(&h) != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if s, _ := ParseSelection("maxmem > 1"); s.Holds(&Host{}) {
		t.Error("memory that is not managed is compared")
	}
}

func TestSelectionIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "ends too early: want the name",
		"a &&":                          "ends too early: want the name",
		"a b":                           `"b": want && or ||`,
		"a = 1":                         "a comparison is written ==",
		"a & b":                         `"&": want && or ||`,
		"(a":                            "ends too early: want && or ||, or )",
		"a)":                            `")": want && or ||`,
		"2 > a":                         `"2": want the name`,
		"ncpus > many":                  "ncpus > many: want a number",
		"ncpus == many":                 "want a number",
		"maxmem > 4X":                   "want a number",
		"rack < r2":                     "want a number",
		"hname > 3":                     "hname >: want == or !=",
		"a == 'x":                       "want a number or a value",
		"a == '\x1b[2J'":                "want a number or a value",
		"a ==":                          "ends too early: want a number or a value",
		"f(x)":                          "f(: want",
		"defined(":                      "want the name",
		"defined(x":                     "want )",
		"a + 1 > 2":                     `"+": want && or ||`,
		strings.Repeat("a", 1025):       "at most 1024 are read",
		strings.Repeat("!", 17):         "more than 16 parentheses",
		strings.Repeat("(", 17):         "more than 16 parentheses",
		"a" + strings.Repeat("&&a", 64): "more than 64 names",
		"\xff":                          "want the name",
	} {
		if s, err := ParseSelection(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, s, err, want)
		}
	}
}

func TestSelectionParts(t *testing.T) {
	s, err := ParseSelection("big && (a || b) && type == any && (fast && ncpus > 2)")
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, part := range s.All() {
		parts = append(parts, part.String())
	}
	if got := strings.Join(parts, "; "); got != "big; a || b; fast; ncpus > 2" {
		t.Error(got)
	}
	if got := strings.Join(s.Names(), " "); got != "a b big fast" {
		t.Error(got)
	}
	if got := s.All()[1].Any(); strings.Join(got, " ") != "a b" || s.Any() != nil || s.All()[0].Feature() != "big" || s.Feature() != "" {
		t.Error(got)
	}
	if !s.Mentions([]string{"ncpus"}) || s.Mentions([]string{"mem"}) {
		t.Error("Mentions")
	}
}
