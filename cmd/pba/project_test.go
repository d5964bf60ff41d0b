package main

import (
	"strings"
	"testing"
)

func TestMembersText(t *testing.T) {
	many := strings.Fields(strings.Repeat("someone ", 100))
	for _, c := range []struct {
		members []string
		more    int
		wide    bool
		want    string
	}{
		{nil, 0, false, "-"},
		{[]string{"anna", "bert"}, 0, false, "anna bert"},
		{many, 0, false, "someone someone someone someone someone someone and 94 more"},
		{many[:7], 3, true, strings.Join(many[:7], " ") + " and 3 more"},
		{[]string{strings.Repeat("x", 60)}, 0, false, "and 1 more"},
	} {
		if got := membersText(c.members, c.more, c.wide); got != c.want {
			t.Errorf("%d members, wide %v: %q, want %q", len(c.members), c.wide, got, c.want)
		}
	}
}
