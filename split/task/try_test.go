package task

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Each item has the setting that its order says, and the next one when it is executed again; a variable that was
// set before has the new value alone.
func TestSettings(t *testing.T) {
	t.Setenv("threads", "old")
	for name, x := range map[string]struct {
		order Order
		want  string
	}{
		"by item": {
			Order{Try: [][]string{{"threads=4", "mode=a b"}, {"threads=8", "mode=c"}}, Tries: []int{1, 0, 1}},
			`0+1 0 "8 c 1\n" ""` + "\n" + `1+1 0 "4 a b 1\n" ""` + "\n" + `2+1 0 "8 c 1\n" ""` + "\n",
		},
		"all have one": {
			Order{Try: [][]string{{"threads=$(id)", "mode=;"}}},
			`0+1 0 "$(id) ; 1\n" ""` + "\n" + `1+1 0 "$(id) ; 1\n" ""` + "\n" + `2+1 0 "$(id) ; 1\n" ""` + "\n",
		},
		"again with the next": {
			Order{Try: [][]string{{"threads=4", "mode=a"}, {"threads=no", "mode=b"}}, Tries: []int{0, 1, 1}, Retries: 1},
			`0+1 0 "4 a 1\n" ""` + "\n" + `1+1 0 "4 a 1\n" ""` + "\n" + `2+1 0 "4 a 1\n" ""` + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := x.order
			o.Argv = []string{"sh", "-c", `[ "$threads" != no ] && echo "$threads $mode $(env | grep -c ^threads=)"`, "sh", "{}"}
			o.Mode, o.First, o.Count, o.Slots, o.Numbers = Each, 1, 3, 2, true
			dir := directory(t, o, "")
			if err := Run(dir, 1); err != nil {
				t.Fatal(err)
			}
			if got := results(t, dir, o); got != x.want {
				t.Errorf("got\n%swant\n%s", got, x.want)
			}
		})
	}
}

func TestTried(t *testing.T) {
	from := []string{"a=1", "ab=2", "b=3"}
	if got := Tried(from, []string{"b=4", "a="}); !slices.Equal(got, []string{"ab=2", "b=4", "a="}) || from[0] != "a=1" {
		t.Errorf("got %q of %q", got, from)
	}
}

func TestBadSettings(t *testing.T) {
	good := Order{Argv: []string{"true"}, Mode: Each, First: 1, Count: 2, Slots: 1, Try: [][]string{{"a=1"}, {"a=2"}}, Tries: []int{0, 1}}
	for name, change := range map[string]func(*Order){
		"": func(*Order) {}, "no settings": func(o *Order) { o.Try = nil }, "a place that is none": func(o *Order) { o.Tries = []int{0, 2} },
		"below 0": func(o *Order) { o.Tries = []int{-1, 0} }, "too few": func(o *Order) { o.Tries = []int{0} },
		"no name": func(o *Order) { o.Try[0] = []string{"=1"} }, "no value": func(o *Order) { o.Try[0] = []string{"a"} },
		"NUL": func(o *Order) { o.Try[0] = []string{"a=\x00"} }, "a whole task": func(o *Order) { o.Mode = Whole },
	} {
		o := good
		o.Try = [][]string{{"a=1"}, {"a=2"}}
		change(&o)
		text, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = ReadOrder(bytes.NewReader(text))
		if (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), "settings are invalid") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
