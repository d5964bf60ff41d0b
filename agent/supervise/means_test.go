package supervise

import (
	"strings"
	"testing"
)

// R47: what is said of a host is what works on all of its jobs, and what does not is named.
func TestMeans(t *testing.T) {
	group := Works{CPU: {Weight, Rate, Duty}, Disk: {Rate, Duty}, Network: {Duty}, Memory: {Freeze}}
	for want, jobs := range map[string][]Works{
		"on: CPU weight, rate, duty; disk rate, duty; network duty; memory freeze": {group},
		"on: CPU weight, duty; disk duty; network none; memory none":               {group, {CPU: {Duty, Weight}, Disk: {Weight, Duty}}, group},
		"on: CPU none; disk none; network none; memory none":                       {group, nil},
	} {
		m := Means{Mode: "on", Works: Common(jobs)}
		if got := m.String(); got != want || m.Validate() != nil || m.Lacks(Network) != strings.Contains(want, "network none") || m.Lacks(CPU) != strings.Contains(want, "CPU none") {
			t.Errorf("%q, want %q: %v, %v, %v", got, want, m.Validate(), m.Lacks(Network), m.Lacks(CPU))
		}
	}
	unseen := Means{Mode: "on", Unable: true}
	if unseen.String() != "on, without its root helper" || unseen.Kinds() != "no job was there yet" || unseen.Lacks(CPU) {
		t.Errorf("%s: %s, %v", &unseen, unseen.Kinds(), unseen.Lacks(CPU))
	}
	for want, m := range map[string]Means{
		`"": want 1 to 16 letters`:       {},
		`"on\x1b": want`:                 {Mode: "on\x1b"},
		`"aaaaaaaaaaaaaaaa": want`:       {Mode: strings.Repeat("a", 17)},
		"9 resources":                    {Mode: "on", Works: make([]MeansOf, 9)},
		"9 kinds of limits":              {Mode: "on", Works: []MeansOf{{"CPU", make([]string, 9)}}},
		`"<b>": want 1 to 16 letters`:    {Mode: "on", Works: []MeansOf{{"<b>", nil}}},
		`"é": want 1 to 16 letters`:      {Mode: "on", Works: []MeansOf{{"CPU", []string{"é"}}}},
		`"a weight": want 1 to 16 lette`: {Mode: "on", Works: []MeansOf{{"CPU", []string{"rate", "a weight"}}}},
	} {
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", m, err, want)
		}
	}
}
