package node

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func FuzzRunID(f *testing.F) {
	f.Add("12.0.1")
	f.Add("012.0.1")
	f.Add("../x.1.1")
	f.Fuzz(func(t *testing.T, s string) {
		var id RunID
		if id.UnmarshalText([]byte(s)) == nil && id.String() != s {
			t.Errorf("%q was read as %q", s, id.String())
		}
	})
}

func TestRunID(t *testing.T) {
	want := RunID{ID: backends.ID{Job: 12, Index: 3}, Run: 2}
	var got RunID
	if err := got.UnmarshalText([]byte("12.3.2")); err != nil || got != want || want.String() != "12.3.2" {
		t.Errorf("got %+v, %v", got, err)
	}
}
