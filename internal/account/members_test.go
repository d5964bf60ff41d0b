package account

import (
	"os/user"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMembers(t *testing.T) {
	got := parseMembers("chipa:x:500:bert,anna,anna\nchipb:x:501:\nbad:x\n:x:502:x\n", "anna:x:1:501:a:/:/bin/sh\ncarl:x:2:500:c:/:/bin/sh\ndora:x:3\n:x:4:500:::\n")
	want := map[string][]string{"chipa": {"anna", "bert", "carl"}, "chipb": {"anna"}}
	if !cmp.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestMembers(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	g, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Members(t.Context(), []string{"no-such-group", g.Name})
	if err != nil || len(got) != 1 || !slices.Contains(got[g.Name], me.Username) {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzMembers(f *testing.F) {
	f.Add("chipa:x:500:bert,anna\n", "carl:x:2:500:c:/:/bin/sh\n")
	f.Fuzz(func(t *testing.T, groups, users string) {
		for name, all := range parseMembers(groups, users) {
			if name == "" || slices.Contains(all, "") || !slices.IsSorted(all) {
				t.Errorf("%q: %q", name, all)
			}
		}
	})
}
