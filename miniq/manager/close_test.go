package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A host that an administrator closed takes no new jobs, whatever its node does, until it is opened.
func TestCloseHosts(t *testing.T) {
	b := newBench(t, Config{}, 1, 1)
	on1 := spec(1)
	on1.Hosts = []string{"n1"}
	runs := b.submit(on1)
	b.must(CloseHosts{By: admin, Names: []string{"n1"}, Reason: "a fan"})
	b.state(runs, backends.Running)
	b.ends(runs, 0)
	waits := b.submit(on1)
	anywhere := b.submit(spec(1))
	b.waits(waits, backends.WaitOther)
	if j := b.job(anywhere); j.State != backends.Running || j.Hosts[0].Host != "n2" {
		t.Errorf("%+v", j)
	}
	b.do(NodeUp{Name: "n1", Slots: 1, Memory: 1 << 32})
	b.starts()
	text, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	if b.m, err = Restore(text); err != nil {
		t.Fatal(err)
	}
	if h := b.m.Hosts()[0]; h.State != backends.HostClosed || h.Reason != "closed by root at 2026-11-23 12:00 UTC: a fan" {
		t.Errorf("%+v", h)
	}
	for _, c := range []struct {
		event CloseHosts
		says  string
		is    error
	}{
		{CloseHosts{By: user, Names: []string{"n1"}, Open: true}, "only an administrator", backends.ErrDenied},
		{CloseHosts{By: admin, Names: []string{"n3"}}, "no such host", nil},
		{CloseHosts{By: admin, Names: []string{"n1"}, Reason: "two\nlines"}, "one line", nil},
		{CloseHosts{By: admin, Names: []string{"n1"}, Reason: strings.Repeat("x", maxReason+1)}, "at most 256 bytes", nil},
	} {
		b.do(c.event)
		if err := b.last.Errors.First(); err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%+v: %v", c.event, err)
		}
	}
	b.must(roundTrip(t, CloseHosts{By: admin, Names: []string{"n1"}, Open: true}))
	b.starts(waits)
	if h := b.m.Hosts()[0]; h.State != backends.HostUp || h.Reason != "" {
		t.Errorf("%+v", h)
	}
}
