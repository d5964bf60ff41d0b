package acct_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf/acct"
)

const (
	head = `"JOB_FINISH" "10.1" 1795215300 101 1001 33554451 2 1795215258 0 0 1795215260 "alice" "normal" "select[x==""y""]" "" "" "lava0" "/home" "" "/tmp/o.%J" "" "1795215258.789" `
	mid  = `32 100.0 "name ""quoted"" > |" "sleep 300" 1.5 0.25 4096 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 "" "chipA:logic" `
	// What LSF 10.1 writes behind the project.
	tail = `768 2 "" "" 3 7000 0 "" "" "" "" 0 "" 11 "" 0`
)

func TestParse(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	want := acct.Finish{
		ID: backends.ID{Job: 101, Index: 3}, User: "alice", Queue: "normal", Name: `name "quoted" > |`, Project: "chipA:logic",
		Submitted: at(1795215258), Started: at(1795215260), Ended: at(1795215300), Slots: 5,
		Hosts:  []backends.Placement{{Host: "n1", Slots: 4}, {Host: "n2", Slots: 1}},
		Status: 768, CPUUser: 1500 * time.Millisecond, CPUSystem: 250 * time.Millisecond, Memory: 7000 << 10, Term: acct.TermRequeueAdmin,
	}
	old := want
	old.ID.Index, old.Status, old.Memory, old.Term = 0, 0, 4096<<10, 0
	odd := old
	odd.Status = 768
	never := want
	never.Started = time.Time{}
	done := want
	done.Done = true
	for name, c := range map[string]struct {
		line string
		want acct.Finish
	}{
		"LSF 10.1":              {head + `0 2 "4*n1" "n2" ` + mid + tail, want},
		"one name a slot":       {head + `1 "n9" 5 "n1" "n1" "n1" "n1" "n2" ` + mid + tail + "\n", want},
		"up to the project":     {head + `0 2 "4*n1" "n2" ` + mid, old},
		"other fields after it": {head + `0 2 "4*n1" "n2" ` + mid + `768 2 "/bin/sh" "x" "not a number" -1`, odd},
		"an open text after it": {head + `0 2 "4*n1" "n2" ` + mid + `768 2 "/bin/sh`, odd},
		"it never ran":          {strings.Replace(head, "1795215260", "0", 1) + `0 2 "4*n1" "n2" ` + mid + tail, never},
		"done":                  {head + `0 2 "4*n1" "n2" 6` + strings.Replace(mid, "32", "4", 1) + tail, done},
	} {
		got, err := acct.Parse(c.line)
		if err != nil || got == nil {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		if diff := cmp.Diff(c.want, *got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if why := want.Why(); why != "requeued by an administrator" || done.Why() != why || old.Why() != "" {
		t.Errorf("%q, %q", why, old.Why())
	}
	for _, line := range []string{"", "  ", "#80", `"JOB_NEW" "10.1" x`} {
		if f, err := acct.Parse(line); f != nil || err != nil {
			t.Errorf("%q: %v, %v", line, f, err)
		}
	}
	for _, line := range []string{"JOB_FINISH", `"JOB_FINISH`, head, head + `0 1 "x*n1" ` + mid, head + `0 0 32 100.0 "n" "c" -1`, head + "99999999 "} {
		if f, err := acct.Parse(line); err == nil {
			t.Errorf("%q: %+v", line, f)
		}
	}
}

// Whatever a line says, a run has no negative time and no more slots than a farm.
func FuzzParse(f *testing.F) {
	f.Add(head + `0 2 "4*n1" "n2" ` + mid + tail)
	f.Add(head + `0 1 "n1" ` + mid + "NaN 1e999")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := acct.Parse(line)
		if err != nil || r == nil {
			return
		}
		sum := 0
		for _, p := range r.Hosts {
			sum += p.Slots
		}
		if r.User == "" || r.Slots < 0 || sum > r.Slots || r.CPUUser < 0 || r.CPUSystem < 0 || r.Memory < 0 || r.Status < 0 || r.ID.Index < 0 || !r.Started.IsZero() && r.Ended.Before(r.Started) {
			t.Errorf("%+v", r)
		}
	})
}
