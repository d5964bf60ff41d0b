package desk_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// A plan's file is read, or its error names the file; what is read is written and
// read again the same.
func FuzzReadPlan(f *testing.F) {
	f.Add([]byte("from: 2026-W48\nto: 2026-W49\nprojects: [chipA]\nallocations:\n- {week: 2026-W48, project: chipA, user: \"\", step: \"\", slots: 3}\n"))
	f.Add([]byte("from: 2026-W48\nto: 2027-W02\nprojects: [chipA]\nallocations:\n- {weeks: \"49-1,2026-W48\", project: chipA, slots: 3}\n"))
	f.Add([]byte("from: 2026-W54\n"))
	f.Add([]byte("allocations: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		plan, err := desk.ReadPlan("plan.yaml", content)
		if err != nil {
			if plan != nil || !bytes.Contains([]byte(err.Error()), []byte("plan.yaml")) {
				t.Errorf("%q: %+v, %v", content, plan, err)
			}
			return
		}
		var out bytes.Buffer
		if err := plan.Write(&out); err != nil {
			t.Fatalf("%q can't be written: %v", content, err)
		}
		again, err := desk.ReadPlan("plan.yaml", out.Bytes())
		if err != nil {
			t.Fatalf("%q was written as %q: %v", content, out.Bytes(), err)
		}
		if diff := cmp.Diff(plan, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(desk.PlanFile{}, "Lines", "ProjectLines")); diff != "" {
			t.Errorf("%q was written as %q:\n%s", content, out.Bytes(), diff)
		}
	})
}

// How far back a report looks is a day, or a time above zero, and not both.
func FuzzParseSince(f *testing.F) {
	for _, text := range []string{"12h", "7d", "4w", "2026-11-23", "", "d", "0d", "-1w", "99999999999999w", "1h30m"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		span, err := desk.ParseSince(text)
		switch {
		case err != nil && (span != desk.Span{} || desk.Temporary(err)):
			t.Errorf("%q: %+v, %v", text, span, err)
		case err == nil && (span.Date == "") != (span.Since > 0):
			t.Errorf("%q: %+v", text, span)
		}
	})
}
