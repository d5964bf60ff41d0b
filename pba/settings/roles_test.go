package settings

import "testing"

func TestRoles(t *testing.T) {
	roles := Roles{Admins: Admins{Users: []string{"root2"}, Groups: []string{"ops", ""}}}
	managers := []string{"alice"}
	for _, c := range []struct {
		who           Caller
		admin, planIt bool
	}{
		{Caller{Owner: true}, true, true},
		{Caller{User: "root2"}, true, true},
		{Caller{User: "carol", Groups: []string{"users", "ops"}}, true, true},
		{Caller{User: "alice", Groups: []string{"users"}}, false, true},
		{Caller{User: "bob"}, false, false},
		{Caller{}, false, false}, // a number that the system has no name for
	} {
		if roles.Admin(c.who) != c.admin || roles.MayPlan(c.who, managers) != c.planIt {
			t.Errorf("%+v: admin %v, plans %v", c.who, roles.Admin(c.who), roles.MayPlan(c.who, managers))
		}
	}
	for _, c := range []struct {
		who Caller
		may bool
	}{
		{Caller{Owner: true}, true},
		{Caller{User: "alice"}, true}, // a manager
		{Caller{User: "bob", Groups: []string{"users", "chip"}}, true},
		{Caller{User: "bob", Groups: []string{"users"}}, false},
		{Caller{Groups: []string{"chip"}}, false},
	} {
		if roles.MayAsk(c.who, "chip", managers) != c.may {
			t.Errorf("%+v: asks %v", c.who, !c.may)
		}
	}
	if (Roles{}).MayAsk(Caller{User: "bob", Groups: []string{""}}, "", managers) {
		t.Error("a project without a group takes requests of users in none")
	}
	if (Roles{Admins: Admins{Users: []string{""}}}).MayPlan(Caller{}, []string{""}) {
		t.Error("an empty name in a list makes nameless callers managers")
	}
}
