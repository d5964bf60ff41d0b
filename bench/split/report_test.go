package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func TestParseReport(t *testing.T) {
	rounds, err := parseReport([]byte(`{"name": "split", "rounds": [
		{"round": 1, "began": "1970-01-01T00:00:01Z", "ended": "1970-01-01T00:00:02.5Z", "gap": 0.5, "under": false, "tasks": [{"host": "node1", "items": 3}, {"host": "node2", "items": 4}]},
		{"round": 2, "began": "1970-01-01T00:00:02.5Z", "ended": "1970-01-01T00:00:03Z", "gap": 0.01, "under": true, "tasks": [{"host": "node1", "items": 5}]}]}`))
	want := []round{
		{began: at(1).UTC(), ended: at(2.5).UTC(), items: 7, gap: 0.5},
		{began: at(2.5).UTC(), ended: at(3).UTC(), items: 5, gap: 0.01, under: true},
	}
	if err != nil || !slices.Equal(rounds, want) {
		t.Errorf("%v, %v; want %v", rounds, err, want)
	}
	for _, text := range []string{``, `{}`, `{"rounds": []}`} {
		if _, err := parseReport([]byte(text)); err == nil {
			t.Errorf("%q is a report", text)
		}
	}
}

func TestParseQualification(t *testing.T) {
	text := ""
	for i, c := range []float64{240, 10, 80, 30} { // asplit's order of hosts does not matter
		n := []int{4, 1, 3, 2}[i]
		text += fmt.Sprintf(`{"host": "node%d", "measures": {"cpu": %v, "memory": 7}},`, n, c)
	}
	found, err := parseQualification([]byte(`{"hosts": [` + text[:len(text)-1] + `]}`))
	if err != nil || !slices.Equal(found, []float64{10, 30, 80, 240}) {
		t.Fatalf("%v, %v", found, err)
	}
	if got, want := ratios(found), "0.42:1.25:3.33:10.00"; got != want {
		t.Errorf("as ratios %s, want %s", got, want)
	}
	if got, want := maxShareError(found), 1-10.0/360*15; math.Abs(got-want) > 1e-9 {
		t.Errorf("off by %v, want %v", got, want)
	}
	if _, err := parseQualification([]byte(`{"hosts": [{"host": "node1", "measures": {"cpu": 1}}]}`)); err == nil {
		t.Error("three hosts are missing")
	}
}

func verdicts(b *bench) (all []string) {
	for _, l := range b.budgets() {
		all = append(all, l.verdict())
	}
	return all
}

func TestBudgetsAreJudged(t *testing.T) {
	const items = 750 // 2 s
	timed := func(name string, seconds float64) run {
		return run{name: name, items: items, took: time.Duration(seconds * float64(time.Second))}
	}
	own := timed(rate, 2.1)
	own.rounds = []round{{}, {}, {began: at(1), ended: at(2.1), items: 375}}
	lots := timed(parallelName+", lots of 50", 2.05)
	b := &bench{found: []float64{1, 2, 4, 8}, runs: []run{own, timed(equal, 7.5), timed(step, 2.2), timed(parallelName+", lots of 1", 4), lots}}
	if got, want := verdicts(b), []string{"missed", "met", "met", "met", "met"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	b.runs[0].rounds[2].ended = at(2.05)
	b.runs[2].took, b.runs[4].took = 2*time.Second, 2*time.Second
	b.found = []float64{1, 2, 4, 12}
	if got, want := verdicts(b), []string{"met", "met", "missed", "missed", "missed"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := verdicts(&bench{}), slices.Repeat([]string{"not judged"}, 5); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCheckSide(t *testing.T) {
	for _, x := range []struct {
		results string
		ordered bool
		good    bool
	}{{"1\n2\n3\n", true, true}, {"1\n3\n2\n", true, false}, {"1\n3\n2\n", false, true}, {"1\n2\n", false, false}, {"1\n2\n2\n", false, false}, {"1\n2\n3\n3\n", false, false}} {
		if err := checkSide(x.results, 3, x.ordered); (err == nil) != x.good {
			t.Errorf("%q, ordered %v: %v", x.results, x.ordered, err)
		}
	}
}
