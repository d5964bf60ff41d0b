package slurm

import (
	"strings"
	"testing"
)

// What amod -m becomes: a job of several slots never gets a list of required nodes.
func TestPlaceOn(t *testing.T) {
	p := &snapshot{cluster: cluster{slots: map[string]int{"n1": 4, "n2": 4, "n3": 4}}}
	pinned := record{mark: "r3", pin: []string{"n1"}, out: []string{"n3"}, excluded: 2}
	const unpinned = "AdminComment=allotment:1;engine:1;mark=r3;"
	for _, c := range []struct {
		what            string
		slots, to       int // as it is, and as it is to be
		least           int
		asked, excluded []string
		record          record
		hosts           []string
		want            string
	}{
		{what: "one slot", slots: 1, to: 1, hosts: []string{"n1"}, want: "ReqNodeList=n1"},
		{what: "another host than it asked for", slots: 1, to: 1, asked: []string{"n2"}, excluded: []string{"n1"}, hosts: []string{"n1"}, want: "ReqNodeList=n1 ExcNodeList="},
		{what: "one slot, several hosts", slots: 1, to: 1, hosts: []string{"n3", "n1"}, want: "ExcNodeList=n2"},
		{what: "more slots at the same time", slots: 1, to: 2, hosts: []string{"n1"}, want: "ExcNodeList=n[2-3]"},
		{what: "two slots", slots: 2, to: 2, hosts: []string{"n1"}, want: "ExcNodeList=n[2-3]"},
		{what: "two hosts", slots: 1, to: 1, least: 2, hosts: []string{"n1"}, want: "ExcNodeList=n[2-3]"},
		{what: "excluded before", slots: 2, to: 2, asked: []string{"n3"}, excluded: []string{"n1"}, hosts: []string{"n1"}, want: "ReqNodeList= ExcNodeList=n[2-3]"},
		{what: "all hosts", slots: 2, to: 2, excluded: []string{"n1"}, hosts: []string{"n1", "n2", "n3"}, want: "ExcNodeList="},
		{what: "-mn", slots: 2, to: 2, asked: []string{"n3"}, excluded: []string{"n1"}, want: "ReqNodeList= ExcNodeList="},
		{what: "-mn of a job that may run anywhere", slots: 1, to: 1, want: ""},
		{what: "a pin", slots: 2, to: 2, excluded: []string{"n3"}, record: pinned, hosts: []string{"n1", "n2"}, want: "ExcNodeList=n3 " + unpinned},
		{what: "a pin, one slot", slots: 1, to: 1, record: pinned, hosts: []string{"n2"}, want: "ReqNodeList=n2 ExcNodeList= " + unpinned},
		{what: "a pin, -mn", slots: 1, to: 1, record: pinned, want: "ExcNodeList= " + unpinned},
	} {
		j := &listedJob{least: max(c.least, 1), excluded: c.excluded, record: c.record, before: "allotment:1;"}
		j.Slots, j.Asked = c.slots, c.asked
		got, err := j.placeOn(c.hosts, max(c.slots, c.to), p)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v, want %q", c.what, got, err, c.want)
		}
	}
	if got, err := (&listedJob{}).placeOn([]string{"n1", "x"}, 1, p); err == nil || err.Error() != `host "x": no such host` {
		t.Errorf("an unknown host: %q, %v", got, err)
	}
}
