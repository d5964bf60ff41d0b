package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/diary"
)

// asPlanned returns what each job writes in a demo without faults, in milliseconds, when
// the slots are preempted at a time.
func asPlanned(preempted int) map[string]string {
	all := map[string]string{}
	run := func(from, to, host, requeues int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "start %d 7 n%d %d\n", from, host, requeues)
		for at := from + 100; at < to; at += 100 {
			fmt.Fprintf(&b, "at %d\n", at)
		}
		return b.String()
	}
	whole := func(from, to, host, requeues int) string {
		return run(from, to, host, requeues) + fmt.Sprintf("end %d\n", to)
	}
	for i := range jobsOfB {
		name, host := fmt.Sprintf("b%d", i+1), i%16/4+1
		switch {
		case i < 10:
			all[name] = whole(0, 25_000, host, 0)
		case i == indexOfSaver:
			again, steps := preempted+8_200, preempted/100-1
			start, rest, _ := strings.Cut(whole(again, again+25_000-100*steps, host, 1), "\n")
			all[name] = run(0, preempted, host, 0) + fmt.Sprintf("saved %d %d\n%s\nfrom %d %d\n%s", preempted-50, steps, start, again, steps, rest)
		case i < indexOfSaver:
			all[name] = run(0, preempted, host, 0) + whole(preempted+8_200, preempted+33_200, host, 1)
		case i == indexOfStopped:
			stopped := run(0, preempted, host, 0)
			_, resumed, _ := strings.Cut(whole(preempted+8_200, 25_000, host, 0), "\nat ")
			all[name] = stopped + "on " + resumed
		default:
			all[name] = whole(25_100, 50_100, (i-16)/4+1, 0)
		}
	}
	for i := range jobsOfA {
		all[fmt.Sprintf("a%d", i+1)] = whole(preempted+100, preempted+8_100, (i+10)/4+1, 0)
	}
	return all
}

// readJobs reads diaries. Those of A were submitted when 2 s had passed.
func readJobs(t *testing.T, all map[string]string) (a, b []*job) {
	t.Helper()
	dir := t.TempDir()
	one := func(name string) *job {
		var text strings.Builder
		for line := range strings.Lines(all[name]) {
			verb, rest, _ := strings.Cut(line, " ")
			digits := strings.TrimLeft(rest, "0123456789")
			fmt.Fprintf(&text, "%s %s000000%s", verb, rest[:len(rest)-len(digits)], digits)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		j := &job{Diary: diary.New(name, path), submitted: time.UnixMilli(2000)}
		if err := j.Update(); err != nil {
			t.Fatal(err)
		}
		return j
	}
	for i := range jobsOfA {
		a = append(a, one(fmt.Sprintf("a%d", i+1)))
	}
	for i := range jobsOfB {
		b = append(b, one(fmt.Sprintf("b%d", i+1)))
	}
	return a, b
}

// TestJudge breaks one property at a time: its check fails.
func TestJudge(t *testing.T) {
	const inTime, before, need, suspended, saved, once, numbered, filled = "A's 6 jobs ran within", "they ran before", "evictions", "b16", "b15", "each of the", "each run", "no host"
	later := func(text string, by int) string {
		var b strings.Builder
		for line := range strings.Lines(text) {
			var verb, rest string
			var at int
			_, _ = fmt.Sscan(line, &verb, &at)
			if _, after, ok := strings.Cut(line[len(verb)+1:], " "); ok {
				rest = " " + strings.TrimSpace(after)
			}
			fmt.Fprintf(&b, "%s %d%s\n", verb, at+by, rest)
		}
		return b.String()
	}
	cut := func(text, from string) string { head, _, _ := strings.Cut(text, from); return head }
	for name, c := range map[string]struct {
		change func(all map[string]string)
		fails  []string
		cycle  time.Duration // how long the longest was
	}{
		"as planned":         {func(map[string]string) {}, nil, 0},
		"preempted too late": {func(all map[string]string) { maps.Copy(all, asPlanned(8_000)) }, []string{inTime}, cycle},
		"preempted late, in cycles of a busy machine": {func(all map[string]string) { maps.Copy(all, asPlanned(8_000)) }, nil, 2 * cycle},
		"too late for a busy machine":                 {func(all map[string]string) { maps.Copy(all, asPlanned(10_000)) }, []string{inTime}, 2 * cycle},
		"a cycle longer than the limit":               {func(map[string]string) {}, []string{inTime}, longestCycle + 1},
		"A waits until B ends": {func(all map[string]string) {
			all["a1"] = later(all["a1"], 30_000)
		}, []string{before}, 0},
		"one too many is evicted": {func(all map[string]string) {
			all["b10"] = strings.ReplaceAll(all["b11"], "n3", "n5")
		}, []string{need}, 0},
		"a job of A is evicted": {func(all map[string]string) {
			all["a1"] = cut(all["a1"], "at 7000") + "start 9000 7 n9 1\nend 14000\n"
		}, []string{need}, 0},
		"the suspended one is not resumed but starts again": {func(all map[string]string) {
			all["b16"] = strings.Replace(all["b16"], "on 14300\n", "start 14300 7 n4 1\n", 1)
		}, []string{suspended}, 0},
		"the suspended one was no victim": {func(all map[string]string) {
			all["b16"] = "start 0 7 n5 0\n" + strings.Join(beats(100, 25_000), "") + "end 25000\n"
		}, []string{need, suspended}, 0},
		"the one that saves itself begins anew": {func(all map[string]string) {
			all["b15"] = strings.Replace(all["b15"], "from 14200 59\n", "", 1)
		}, []string{saved}, 0},
		"the one that saves itself goes on elsewhere": {func(all map[string]string) {
			all["b15"] = strings.Replace(all["b15"], "from 14200 59\n", "from 14200 40\n", 1)
		}, []string{saved}, 0},
		"the one that saves itself was killed": {func(all map[string]string) {
			all["b15"] = strings.Replace(all["b15"], "saved 5950 59\n", "", 1)
		}, []string{saved}, 0},
		"a job ends twice":    {func(all map[string]string) { all["b3"] += "end 25001\n" }, []string{once}, 0},
		"a job never ends":    {func(all map[string]string) { all["b24"] = cut(all["b24"], "end") }, []string{once}, 0},
		"a job never starts":  {func(all map[string]string) { all["b24"] = "" }, []string{once}, 0},
		"a job of A is lost":  {func(all map[string]string) { all["a6"] = "" }, []string{inTime, before, once}, 0},
		"a requeue is hidden": {func(all map[string]string) { all["b12"] = strings.Replace(all["b12"], "n3 1\n", "n3 0\n", 1) }, []string{numbered}, 0},
		"five on a host":      {func(all map[string]string) { all["b24"] = strings.ReplaceAll(all["b24"], "n2", "n1") }, []string{filled}, 0},
		"pba rebalance does not run": {func(all map[string]string) {
			for i := 11; i <= 16; i++ {
				all[fmt.Sprintf("b%d", i)] = strings.ReplaceAll(all["b1"], "n1", fmt.Sprintf("n%d", (i-1)/4+1))
			}
			for i := range jobsOfA {
				all[fmt.Sprintf("a%d", i+1)] = strings.ReplaceAll(later(all["a1"], 19_000), "n3", fmt.Sprintf("n%d", 3+i/4))
			}
		}, []string{inTime, before, need, suspended, saved}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all := asPlanned(6_000)
			c.change(all)
			a, b := readJobs(t, all)
			e := collect(a, b)
			e.cycle = c.cycle
			for _, got := range e.checks() {
				want := true
				for _, f := range c.fails {
					want = want && !strings.HasPrefix(got.What, f)
				}
				if got.OK != want {
					t.Errorf("%s: %v, want %v: %s", got.What, got.OK, want, got.Found)
				}
			}
		})
	}
}

func beats(from, to int) (lines []string) {
	for at := from; at < to; at += 100 {
		lines = append(lines, fmt.Sprintf("at %d\n", at))
	}
	return lines
}

func TestUsage(t *testing.T) {
	a, b := readJobs(t, asPlanned(6_000))
	worked, lost, available := collect(a, b).usage()
	if available != 16*50_100*time.Millisecond {
		t.Errorf("available: %v", available)
	}
	if lost != 4*5900*time.Millisecond {
		t.Errorf("lost: %v", lost)
	}
	if want := (10*25_000 + 4*(5900+25_000) + (5950 + 19_100) + (5900 + 10_700) + 8*25_000 + 6*8000) * time.Millisecond; worked != want {
		t.Errorf("worked: %v, want %v", worked, want)
	}
}

// Events from several sources are printed in order, those of one kind on one line.
func TestNarrator(t *testing.T) {
	var out strings.Builder
	n := &narrator{out: &out, began: time.UnixMilli(0)}
	n.add(time.UnixMilli(1200), "", "pba: suspend b16")
	n.add(time.UnixMilli(1000), "starts", "b10@n3")
	n.add(time.UnixMilli(1100), "starts", "b9@n3")
	n.add(time.UnixMilli(1300), "ends", "b1@n1")
	n.flush()
	n.flush()
	want := "   1.0 s  starts: b9@n3 b10@n3\n   1.2 s  pba: suspend b16\n   1.3 s  ends: b1@n1\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
