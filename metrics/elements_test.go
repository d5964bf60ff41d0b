package metrics_test

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/metrics"
)

func TestParseFactors(t *testing.T) {
	for text, want := range map[string]metrics.Factors{
		"C=70,M=30":               {metrics.CPU: 70, metrics.Memory: 30},
		"c=1":                     {metrics.CPU: 1},
		" I=1, G=2.5 ,S=0,B=1e-3": {metrics.Interconnect: 1, metrics.GPU: 2.5, metrics.Bus: 0.001},
	} {
		if got, err := metrics.ParseFactors(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":         "want LETTER=NUMBER",
		"C":        `want LETTER=NUMBER, as in C=70,M=30: "C"`,
		"C=1,":     `want LETTER=NUMBER, as in C=70,M=30: ""`,
		"X=1":      `no element "X": there are I (interconnect)`,
		"CPU=1":    `no element "CPU"`,
		"=1":       `no element ""`,
		"C=1,c=2":  "C is given twice",
		"C=":       `want a number from 0 to 1000000: ""`,
		"C=x":      `want a number from 0 to 1000000: "x"`,
		"C=-1":     "want a number from 0",
		"C=NaN":    "want a number from 0",
		"C=Inf":    "want a number from 0",
		"C=1e7":    "want a number from 0",
		"C=1\x1b[": `"C=1\x1b["`,
		"C=0,M=0":  "at least one must be above 0",
	} {
		got, err := metrics.ParseFactors(text)
		if err == nil || !strings.Contains(err.Error(), want) || got != (metrics.Factors{}) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestProfile(t *testing.T) {
	for _, name := range metrics.Profiles() {
		f, err := metrics.Profile(name)
		sum := 0.0
		for _, v := range f {
			sum += v
		}
		if err != nil || sum != 100 {
			t.Errorf("%s: %v sums to %v, %v", name, f, sum, err)
		}
	}
	if _, err := metrics.Profile("fast"); err == nil || err.Error() != `no profile "fast": there are balanced, cpu, gpu, io` {
		t.Error(err)
	}
}

func TestElements(t *testing.T) {
	var letters, names []string
	for _, e := range metrics.Elements() {
		letters, names = append(letters, e.Letter()), append(names, e.String())
	}
	if got := strings.Join(letters, "") + " " + strings.Join(names, " "); got != "ICGSMB interconnect cpu gpu storage memory bus" {
		t.Error(got)
	}
}

func FuzzParseFactors(f *testing.F) {
	for _, text := range []string{"C=70,M=30", "i=1,G=2.5,s=0", "C=1,C=1", "C=1e-320", "C=0x1p-3", "=,=", "C=1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		factors, err := metrics.ParseFactors(text)
		if err != nil {
			return
		}
		if again, err := metrics.ParseFactors(factors.String()); err != nil || again != factors {
			t.Errorf("%q is %v, written as %q: %v, %v", text, factors, factors, again, err)
		}
	})
}
