package try

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/printable"
)

func TestVariants(t *testing.T) {
	threads, err := Parse("threads=4,8")
	if err != nil {
		t.Fatal(err)
	}
	mode, err := Parse("_m0de=a b,c=d,")
	if err == nil {
		t.Errorf("an empty value is accepted: %+v", mode)
	}
	if mode, err = Parse("_m0de=a b,c=d,é"); err != nil {
		t.Fatal(err)
	}
	all := []Variable{threads, mode}
	if err := Check(all); err != nil {
		t.Fatal(err)
	}
	want := "[threads=4 _m0de=a b] [threads=4 _m0de=c=d] [threads=4 _m0de=é] [threads=8 _m0de=a b] [threads=8 _m0de=c=d] [threads=8 _m0de=é]"
	if got := fmt.Sprint(Variants(all)); got != "["+want+"]" {
		t.Errorf("got %s", got)
	}
}

// Each error names what is wrong, where, and what to do, and is printable.
func TestBadVariables(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "want a variable and its values",
		"threads":                              "want a variable and its values",
		"=1,2":                                 `"" is no name`,
		"1a=1,2":                               `"1a" is no name`,
		"a-b=1,2":                              `"a-b" is no name`,
		"é=1,2":                                `"é" is no name`,
		"a\x1b[31m=1,2":                        `"a\x1b[31m" is no name`,
		strings.Repeat("a", 65) + "=1,2":       "is no name",
		"PATH=/a,/b":                           "PATH is set by the system",
		"LD_PRELOAD=a,b":                       "LD_PRELOAD is set by",
		"ALLOTMENT_PERIOD=1,2":                 "ALLOTMENT_PERIOD is set by",
		"HOME=a,b":                             "choose another name",
		"threads=":                             "value 1 of threads: it is empty",
		"threads=4,,8":                         "value 2 of threads: it is empty",
		"threads=4,8,4":                        `value 3 of threads: "4" stands twice`,
		"threads=4":                            "threads has one value",
		"threads=4,\x1b[31m8":                  `value 2 of threads: "\x1b[31m8" has characters`,
		"threads=4,8\n":                        "has characters that",
		"threads=4,a\u202eb":                   "has characters that",
		"threads=4,\xff":                       "has characters that",
		"threads=4,\x00":                       "has characters that",
		"a=" + strings.Repeat("x", 201) + ",1": "value 1 of a: it is longer than 200 bytes",
		"a=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17": "a has 17 values: 16 at most",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == '\u202e' }) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	v := func(name string, n int) Variable {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprint(i)
		}
		return Variable{Name: name, Values: values}
	}
	for want, all := range map[string][]Variable{
		"a stands twice":                       {v("a", 2), v("a", 3)},
		"4 variables: 3 at most":               {v("a", 2), v("b", 2), v("c", 2), v("d", 2)},
		"3 values of c: more than 16 settings": {v("a", 2), v("b", 3), v("c", 3)},
		`"" is no name`:                        {{}},
	} {
		if err := Check(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", all, err, want)
		}
	}
	if err := Check([]Variable{v("a", 4), v("b", 4)}); err != nil || len(Variants([]Variable{v("a", 4), v("b", 4)})) != MaxVariants {
		t.Errorf("16 settings: %v", err)
	}
	if !slices.Equal(Variants(nil)[0], nil) {
		t.Error("no variable has a variant")
	}
}

// What is accepted is within the bounds, and can be set and shown.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"threads=4,8", "a=", "=", "a=b=c,d", "PATH=1,2", "a=\xff,1", "_=1,1", "a=1,\u202e"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x00\x1b\n\u202e") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		all := Variants([]Variable{v})
		if len(all) < 2 || len(all) > MaxVariants || v.Name+"="+strings.Join(v.Values, ",") != text {
			t.Fatalf("%q: %q", text, all)
		}
		for _, setting := range all {
			if len(setting) != 1 || len(setting[0]) > maxName+1+MaxValue || printable.Text(setting[0]) != setting[0] {
				t.Errorf("%q", setting)
			}
		}
	})
}
