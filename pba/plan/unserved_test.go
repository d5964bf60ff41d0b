package plan

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

func TestJobsThatAreNotUnderstoodAreCountedByReason(t *testing.T) { // R32
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("ann", "chipA", "", 0) // is understood
	for range 3 {
		s.job("ann", "chipA", "", 0, unserved("--exclusive=mcs"))
	}
	s.job("ann", "chipA", "", 0, unserved("a\x1b[31m\xff"+strings.Repeat("é", 100)))
	s.job("ann", "chipA", "", 0, component)
	s.job("bob", "", "", 0, unserved("of no project"))
	s.job("ann", "chipA", "", 0, unserved("does not wait"), func(j *backends.Job) { j.Wait = backends.WaitDependency })
	got := s.cycle().Unserved
	if len(got) != 3 || got[0] != (Unserved{"--exclusive=mcs", 3}) || got[1].Jobs != 1 || !strings.HasPrefix(got[1].Reason, "a part of a job") {
		t.Fatalf("%+v", got)
	}
	if r := got[2].Reason; !strings.HasPrefix(r, "a?[31m?é") || len(r) > maxReason+1 || !utf8.ValidString(r) {
		t.Errorf("%q", r)
	}
	for i := range 15 {
		s.job("ann", "chipA", "", 0, unserved(fmt.Sprintf("other %d", i)))
	}
	got = s.cycle().Unserved
	if len(got) != maxReasons+1 || got[maxReasons] != (Unserved{otherReasons, 8}) {
		t.Errorf("%+v", got)
	}
}
