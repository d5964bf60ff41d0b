package metrics_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/metrics"
)

// roundTrip returns the Balance as it is after it was written and read.
func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, b *metrics.Balance,
) *metrics.Balance {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatalf("%v", err)
	}
	read := new(metrics.Balance)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !reflect.DeepEqual(read, b) {
		t.Fatalf("%s is read as another", text)
	}
	return read
}

// With any responses, rounds have waiting items and present hosts only, the state is
// stored without loss, and an end is reached.
func TestLawsOfBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := metrics.Options{
			Rule:       rapid.SampledFrom([]metrics.Rule{metrics.Rate, metrics.Step, metrics.Equal, metrics.Half}).Draw(t, "rule"),
			RoundItems: rapid.SampledFrom([]int{0, 1, 10, 1000}).Draw(t, "round"),
			RoundTime:  time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "time")),
		}
		b := metrics.New(options)
		present := make(map[string]bool)
		join := func() {
			h := name(rapid.IntRange(0, 4).Draw(t, "joins"))
			var m metrics.Measures
			for e := range m {
				m[e] = rapid.OneOf(rapid.Just(0.0), rapid.Float64()).Draw(t, "measure")
			}
			b.Join(h, m, rapid.IntRange(-1, 8).Draw(t, "slots"))
			present[h] = true
		}
		round := func(waiting int, more bool) int {
			var back []metrics.Response
			all := 0
			seen := make(map[string]bool)
			for _, task := range b.Next(waiting, more) {
				if !present[task.Host] || seen[task.Host] || task.Items < 1 {
					t.Fatalf("%+v", task)
				}
				seen[task.Host] = true
				all += task.Items
				if rapid.IntRange(0, 9).Draw(t, "fails") > 0 {
					took := rapid.OneOf(rapid.Int64Range(0, 1e12), rapid.Int64()).Draw(t, "took")
					back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(took)})
				}
			}
			if all > max(waiting, 0) || (all == 0) != (len(present) == 0 || waiting <= 0) {
				t.Fatalf("a round of %d of %d for %d hosts", all, waiting, len(present))
			}
			if v := b.Done(back); v.Gap < 0 || v.Gap > 1 {
				t.Fatalf("%+v", v)
			}
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) { join() },
			"leave": func(t *rapid.T) {
				h := name(rapid.IntRange(0, 4).Draw(t, "leaves"))
				b.Leave(h)
				delete(present, h)
			},
			"round": func(t *rapid.T) {
				round(rapid.IntRange(-1, 1e6).Draw(t, "waiting"), rapid.Bool().Draw(t, "more"))
			},
			"": func(t *rapid.T) {
				sum := 0.0
				for _, s := range b.Shares() {
					sum += s.Percent
				}
				if len(b.Shares()) != len(present) || len(present) > 0 && (sum < 99.999 || sum > 100.001) {
					t.Fatalf("%v", b.Shares())
				}
				b = roundTrip(t, b)
			},
		})
		join()
		left := 100
		for rounds := 0; left > 0; rounds++ {
			if left -= round(left, false); rounds > 100 {
				t.Fatalf("%d are left", left)
			}
		}
	})
}

func TestInvalidState(t *testing.T) {
	good, err := json.Marshal(cpus(metrics.Options{}, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, with, want string }{
		{`"rule":"rate"`, `"rule":"rat"`, `no rule "rat": there are rate, step, equal`},
		{`"factors":[0,100,`, `"factors":[0,0,`, "influence factors"},
		{`"factors":[0,100,`, `"factors":[0,-1,`, "influence factors"},
		{`"threshold":0.05`, `"threshold":0`, "threshold"},
		{`"step":5`, `"step":-5`, "step"},
		{`"round_time":30000000000`, `"round_time":0`, "round size"},
		{`"round_time":`, `"round_items":-1,"round_time":`, "round size"},
		{`"host":"b"`, `"host":"a"`, "a host is listed twice"},
		{`"hosts":[`, `"hosts":[null,`, "or is null"},
		{`"slots":1`, `"slots":0`, `host "a" has 0 slots`},
		{`"measures":[0,1,`, `"measures":[0,1e200,`, `host "a": a number is out of range`},
		{`"slots":1`, `"slots":1,"rate":-1`, `host "a": a number is out of range`},
		{`"slots":1`, `"slots":1,"speed":1`, `unknown field "speed"`},
		{`"hosts":[`, `"hosts":[7,`, "cannot unmarshal number"},
	} {
		bad := strings.Replace(string(good), c.old, c.with, 1)
		b := cpus(metrics.Options{}, 1, 2)
		err := json.Unmarshal([]byte(bad), b)
		if bad == string(good) || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", bad, err, c.want)
		}
		if is, err := json.Marshal(b); err != nil || !bytes.Equal(is, good) {
			t.Errorf("%s: after the error it is %s, %v", bad, is, err)
		}
	}
}

func TestParseRule(t *testing.T) {
	for _, r := range []metrics.Rule{metrics.Rate, metrics.Step, metrics.Equal} {
		if got, err := metrics.ParseRule(string(r)); got != r || err != nil {
			t.Error(got, err)
		}
	}
	if _, err := metrics.ParseRule(""); err == nil {
		t.Error("no rule is a rule")
	}
}

func FuzzBalance(f *testing.F) {
	for _, o := range []metrics.Options{{}, {Rule: metrics.Step, RoundItems: 100}, {Rule: metrics.Equal}} {
		b := cpus(o, 1, 2, 4)
		b.Done(responses(1, 2, 3))
		b.Leave("b")
		text, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b := new(metrics.Balance)
		if json.Unmarshal(text, b) != nil {
			return
		}
		b = roundTrip(t, b)
		for range 3 {
			var back []metrics.Response
			all := 0
			for n, task := range b.Next(1e6, false) {
				if task.Items < 1 {
					t.Errorf("%+v", task)
				}
				all += task.Items
				back = append(back, metrics.Response{Host: task.Host, Items: task.Items, Took: time.Duration(n+1) * time.Second})
			}
			if all > 1e6 || all == 0 && len(b.Shares()) > 0 {
				t.Errorf("a round of %d", all)
			}
			b.Done(back)
			b = roundTrip(t, b)
		}
	})
}
