package acct_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf/acct"
)

// Lines of lsb.events, as lava and LSF 10.1 write them.
func submitted(at int, job int64, user, name string) string {
	return fmt.Sprintf(`"JOB_NEW" "22" %d %d 1001 33554451 1 %[1]d 0 0 -65535 0 0 "%[3]s" -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 "" 100.00 18 "normal" "" "h0" "" "" "" "" "" "/" "1.%[2]d" 1 "n1" "" "" "%[4]s" "sleep 9" 1 "a" "b" 1 "" "chipA:syn" 1 "linux" ""`, at, job, user, name)
}

func started(at int, job int64, index int, hosts string) string {
	return fmt.Sprintf(`"JOB_START" "22" %d %d 4 0 0 100.0 %s "" "" 0 %d "select[type == any]"`, at, job, hosts, index)
}

func ended(at int, job int64, index, state, status int) string {
	return fmt.Sprintf(`"JOB_STATUS" "22" %d %d %d 0 0 0.5 %[1]d 1 1.5 0.5 2048 %[4]s %[5]d %[6]d 0 0`, at, job, state, strings.Repeat("-1 ", 16), status, index)
}

func signalled(at int, job int64, symbol string, index int, user string) string {
	return fmt.Sprintf(`"JOB_SIGNAL" "22" %d %d 1001 1 "%s" %d "%s"`, at, job, symbol, index, user)
}

func replayed(t *testing.T, lines ...string) []string {
	t.Helper()
	log := acct.NewLog()
	for _, line := range lines {
		if err := log.Take(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	return shown(log.Finishes())
}

func shown(all []acct.Finish) []string {
	var texts []string
	for _, f := range all {
		start := f.Started.Unix()
		if f.Started.IsZero() {
			start = 0
		}
		text := fmt.Sprintf("%v %s %d-%d %v done:%v %d", f.ID, f.User, start, f.Ended.Unix(), f.Hosts, f.Done, f.Status>>8)
		if f.Requeued {
			text += " requeued"
		}
		if why := f.Why(); why != "" {
			text += " " + why
		}
		texts = append(texts, text)
	}
	return texts
}

func TestEventsArePutTogether(t *testing.T) {
	const exit, done, postDone, pend = 32, 64, 64 | 128, 1
	for name, x := range map[string]struct {
		lines []string
		want  []string
	}{
		"done, and its post-processing": {
			[]string{submitted(1, 7, "bob", "a"), started(5, 7, 0, `2 "n1" "n1"`), ended(9, 7, 0, done, 0), ended(11, 7, 0, postDone, 0)},
			[]string{"7 bob 5-9 [{n1 2}] done:true 0"},
		},
		"killed by its owner": {
			[]string{submitted(1, 7, "bob", "a"), started(5, 7, 0, `1 "n1"`), signalled(8, 7, "KILL", 0, "bob"), ended(9, 7, 0, exit, 130<<8)},
			[]string{"7 bob 5-9 [{n1 1}] done:false 130 killed by its owner"},
		},
		"an array that an administrator killed": {
			[]string{submitted(1, 7, "bob", "a[1-2]"), started(5, 7, 2, `1 "n1"`), signalled(8, 7, "KILL", 0, "root"), ended(9, 7, 2, exit, 130<<8)},
			[]string{"7[2] bob 5-9 [{n1 1}] done:false 130 killed by an administrator"},
		},
		"a signal to the run before": {
			[]string{submitted(1, 7, "bob", "a"), signalled(3, 7, "KILL", 0, "bob"), started(5, 7, 0, `1 "n1"`), ended(9, 7, 0, exit, 1<<8)},
			[]string{"7 bob 5-9 [{n1 1}] done:false 1"},
		},
		"requeued by an administrator, then done": {
			[]string{
				submitted(1, 7, "bob", "a"), started(5, 7, 0, `1 "n1"`), signalled(8, 7, "REQUEUE_PSUSP", 0, "root"), ended(9, 7, 0, exit, 130<<8),
				`"JOB_REQUEUE" "22" 10 7 0`, started(15, 7, 0, `1 "n2"`), ended(19, 7, 0, done, 0),
			},
			[]string{"7 bob 5-9 [{n1 1}] done:false 130 requeued requeued by an administrator", "7 bob 15-19 [{n2 1}] done:true 0"},
		},
		"its host was lost": {
			[]string{submitted(1, 7, "bob", "a"), started(5, 7, 0, `1 "n1"`), `"JOB_STATUS" "22" 9 7 1 1 0 0.0 0 0 0 0 0 0`},
			[]string{"7 bob 5-9 [{n1 1}] done:false 0 requeued"},
		},
		"it never ran": {
			[]string{submitted(1, 7, "bob", "a"), signalled(8, 7, "KILL", 0, "bob"), ended(9, 7, 0, exit, 130<<8)},
			[]string{"7 bob 0-9 [] done:false 130 killed by its owner"},
		},
		"LSF 10.1": {
			[]string{
				strings.Replace(submitted(1, 7, "bob", "a"), `"bob" -1`, `"bob" -1 -1`, 1), `"JOB_START" "10.1" 5 7 4 0 0 100.0 1 "4*n1" "" "" 0 "group" 0 "x"`,
				`"JOB_STATUS" "10.1" 9 7 32 0 0 0.0 9 0 35072 0 5 0`,
			},
			[]string{"7 bob 5-9 [{n1 4}] done:false 137 over its run limit"},
		},
		"a number that is given out again": {
			[]string{submitted(1, 7, "bob", "a"), started(5, 7, 0, `1 "n1"`), submitted(100, 7, "amy", "b"), ended(109, 7, 0, exit, 0)},
			[]string{"7 amy 0-109 [] done:false 0"},
		},
		"a job of which there is no JOB_NEW": {[]string{started(5, 8, 0, `1 "n1"`), ended(9, 8, 0, done, 0), `"JOB_REQUEUE" "22" 10 8 0`}, nil},
		"other records":                      {[]string{"#1234", "", `"QUEUE_CTRL" "22" x`, ended(9, 7, 0, pend, 0)}, nil},
	} {
		if d := cmp.Diff(x.want, replayed(t, x.lines...)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, line := range []string{
		`"JOB_NEW" "22" 1`, `"JOB_NEW" "22" 1 0 1`, `"JOB_NEW" "22" 1 7 1 1 1 1 0 0 0 0 0 "bob"` + strings.Repeat(" -1", 40), submitted(1, 7, "bob", "a")[:150],
		`"JOB_START" "22" 5 7 4 0 0 100.0 1 "n1" "" "" 0 x`, `"JOB_STATUS" "22" 9 7 32 0 0 0 9 0 0 -1`, `"JOB_REQUEUE" "22" 9 7 "0`, `"JOB_SIGNAL" "22" 9 7 1 1 KILL 0 "bob"`,
	} {
		if err := acct.NewLog().Take(line); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}

// A part of the lsb.events of a volclava 2.2.
func TestRecordedEvents(t *testing.T) {
	text, err := os.ReadFile("testdata/lsb.events")
	if err != nil {
		t.Fatal(err)
	}
	log := acct.NewLog()
	for line := range strings.Lines(string(text)) {
		if err := log.Take(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	var got []string
	for _, f := range log.Finishes() {
		got = append(got, fmt.Sprintf("%v %s %q %s %s %v %d", f.ID, f.User, f.Name, f.Project, f.Hosts[0].Host, f.Ended.Sub(f.Started), f.Status>>8))
	}
	want := []string{`795 alice "quick" default lava4 0s 0`, `794 bob "fails" default lava4 0s 3`, `797 alice "dep" default lava4 1s 0`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// What lsb.acct has is kept, once; what it lacks is added in its place.
func TestMerge(t *testing.T) {
	run := func(id int64, from, to int64, change func(*acct.Finish)) acct.Finish {
		f := acct.Finish{ID: backends.ID{Job: id}, User: "bob", Submitted: time.Unix(1, 0), Ended: time.Unix(to, 0)}
		if from > 0 {
			f.Started = time.Unix(from, 0)
		}
		if change != nil {
			change(&f)
		}
		return f
	}
	requeued := func(f *acct.Finish) { f.Requeued, f.Term = true, acct.TermRequeueAdmin }
	got := shown(acct.Merge(
		[]acct.Finish{run(1, 5, 9, nil), run(1, 15, 19, func(f *acct.Finish) { f.Term = 5 }), run(2, 0, 30, nil), run(3, 20, 40, nil)},
		[]acct.Finish{run(1, 6, 9, requeued), run(1, 15, 20, func(f *acct.Finish) { f.Term = 14 }), run(2, 0, 31, nil), run(3, 10, 18, requeued), run(3, 19, 40, nil), run(4, 50, 60, nil)},
	))
	want := []string{
		"1 bob 5-9 [] done:false 0 requeued requeued by an administrator", "3 bob 10-18 [] done:false 0 requeued requeued by an administrator",
		"1 bob 15-19 [] done:false 0 over its run limit", "2 bob 0-30 [] done:false 0", "3 bob 20-40 [] done:false 0", "4 bob 50-60 [] done:false 0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Whatever the lines say, a run has no negative time, and no more slots than a farm.
func FuzzLog(f *testing.F) {
	f.Add(strings.Join([]string{submitted(1, 7, "bob", "a"), started(5, 7, 0, `2 "n1" "n1"`), signalled(8, 7, "KILL", 0, "bob"), ended(9, 7, 0, 32, 3), `"JOB_REQUEUE" "22" 10 7 0`}, "\n"))
	f.Add(submitted(9, 7, "bob", "a") + "\n" + started(5, 7, 0, `1 "n1"`) + "\n" + ended(3, 7, 0, 64, 0))
	f.Fuzz(func(t *testing.T, text string) {
		log := acct.NewLog()
		for line := range strings.Lines(text) {
			_ = log.Take(line)
		}
		for _, r := range log.Finishes() {
			if r.ID.Job < 1 || r.ID.Index < 0 || r.Slots < 0 || r.Status < 0 || r.CPUUser < 0 || r.Memory < 0 || !r.Started.IsZero() && r.Ended.Before(r.Started) {
				t.Errorf("%+v", r)
			}
		}
	})
}
