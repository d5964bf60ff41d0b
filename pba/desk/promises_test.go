package desk

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// R47: each slot of a job within a guarantee has its promise on the host where it is; others have none, and are
// known all the same.
func TestPromises(t *testing.T) {
	at := func(host string, slots int) backends.Placement { return backends.Placement{Host: host, Slots: slots} }
	saves := backends.Tag{Checkpoint: backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute}}
	farm := &backends.Snapshot{
		Hosts: []backends.Host{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}},
		Jobs: []backends.Job{
			{ID: backends.ID{Job: 1}, State: backends.Running, Slots: 4, Memory: 400, Hosts: []backends.Placement{at("h1", 3), at("h2", 1)}},
			{ID: backends.ID{Job: 2, Index: 5}, HostNumber: 9, State: backends.Suspended, Slots: 1, NoRequeue: true, Hosts: []backends.Placement{at("h1", 1)}},
			{ID: backends.ID{Job: 3}, State: backends.Pending, Slots: 1},
			{ID: backends.ID{Job: 4}, State: backends.Running, Slots: 1, DummyFor: backends.ID{Job: 3}, Hosts: []backends.Placement{at("h2", 1)}},
			{ID: backends.ID{Job: 5}, State: backends.Running, Slots: 1, Hosts: []backends.Placement{at("elsewhere", 1)}},
			{ID: backends.ID{Job: 6}, State: backends.Running, Slots: 1, Ending: true, Hosts: []backends.Placement{at("h2", 1)}},
			{ID: backends.ID{Job: 7}, State: backends.Running, Slots: 1, Ending: true, Tag: saves.String(), Hosts: []backends.Placement{at("h2", 1)}},
		},
	}
	classes := []plan.Class{{Within: true}, {}, {Within: true}, {}, {}, {}, {}}
	got := promises("slurm", farm, classes, &settings.Limits{Slot: settings.Promised{CPU: 1, Disk: 50}}, true)
	want := map[string]*supervise.Promises{
		"h1": {Paused: true, Jobs: []supervise.Promise{
			{Queue: "slurm", Job: 1, Slots: 3, Minimum: supervise.Amounts{3000, 150, 0}, Memory: 300, Requeues: true, Protected: true},
			{Queue: "slurm", Job: 9, Slots: 1, Held: true},
		}},
		"h2": {Paused: true, Jobs: []supervise.Promise{
			{Queue: "slurm", Job: 1, Slots: 1, Minimum: supervise.Amounts{1000, 50, 0}, Memory: 100, Requeues: true, Protected: true},
			{Queue: "slurm", Job: 6, Slots: 1, Requeues: true},
			{Queue: "slurm", Job: 7, Slots: 1, Requeues: true, Saving: true}, // it is thawed, so that it can
		}},
		"h3": {Paused: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func pointerTo[T any](v T) *T { return &v }

// R48: within a guarantee a job has the part of its minimum that its slots on a host have of its slots, where that is
// more than the promise of its project's slots, and no more than the site allows for each slot.
func TestMinima(t *testing.T) {
	limits := settings.Limits{
		Mode: settings.LimitsOn, Slot: settings.Promised{CPU: 1, Disk: 50},
		Projects: map[string]settings.PromisedPart{"chipA": {CPU: pointerTo(1.5), Network: pointerTo[unit.Size](30)}},
		Most:     settings.PromisedPart{CPU: pointerTo(2.0), Disk: pointerTo[unit.Size](200), Network: pointerTo[unit.Size](20)},
	}
	for _, c := range []struct {
		what, project, tag string
		slots, there       int
		beyond             bool // any guarantee
		want               supervise.Amounts
	}{
		{"no minimum", "chipB", "", 4, 3, false, supervise.Amounts{3000, 150, 0}},
		{"the project's", "chipA", "", 4, 3, false, supervise.Amounts{4500, 150, 90}},
		{"part of the job's slots", "chipB", "disk=401B", 4, 3, false, supervise.Amounts{3000, 300, 0}},
		{"all of them", "chipB", "disk=401B,cpu=6", 4, 4, false, supervise.Amounts{6000, 401, 0}},
		{"more than the job has", "chipB", "disk=401B", 4, 5, false, supervise.Amounts{5000, 401, 0}},
		{"less than the promise", "chipA", "cpu=0.5,disk=1B,net=1B", 1, 1, false, supervise.Amounts{1500, 50, 30}},
		{"more than the site allows", "chipB", "cpu=100,disk=1024T,net=1024T", 4, 3, false, supervise.Amounts{6000, 600, 60}},
		{"more than the site allows, less than the project's", "chipA", "net=1024T", 1, 1, false, supervise.Amounts{1500, 50, 30}},
		{"not within a guarantee", "chipA", "cpu=2,disk=200B", 1, 1, true, supervise.Amounts{}},
		{"a broken tag", "chipB", "disk=many", 1, 1, false, supervise.Amounts{1000, 50, 0}},
	} {
		j := backends.Job{ID: backends.ID{Job: 1}, State: backends.Running, Project: c.project, Slots: c.slots, Hosts: []backends.Placement{{Host: "h1", Slots: c.there}}}
		if c.tag != "" {
			j.Tag = "allotment:1;step=x;minimum=" + strings.NewReplacer("=", "%3D").Replace(c.tag) + ";"
		}
		farm := &backends.Snapshot{Hosts: []backends.Host{{Name: "h1"}}, Jobs: []backends.Job{j}}
		got := promises("slurm", farm, []plan.Class{{Within: !c.beyond}}, &limits, false)["h1"].Jobs[0].Minimum
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// R48: the owner of a job sees how much of its minimum counts.
func TestMinimumInWords(t *testing.T) {
	on := settings.Limits{Mode: settings.LimitsOn, Slot: settings.Promised{CPU: 1}, Most: settings.PromisedPart{Disk: pointerTo[unit.Size](100 << 20)}}
	off := on
	off.Mode = settings.LimitsOff
	for _, c := range []struct {
		minimum backends.Minimum
		limits  settings.Limits
		within  bool
		state   backends.State
		want    string
	}{
		{backends.Minimum{}, on, true, backends.Running, ""},
		{backends.Minimum{CPU: 1000, Disk: 200 << 20}, on, true, backends.Running, "1 core; 200M/s of disk"},
		{backends.Minimum{CPU: 2500, Disk: 300 << 20, Network: 1000}, on, true, backends.Pending, "2.5 cores, of which the site allows 2 cores (limits.most); 300M/s of disk, of which the site allows 200M/s (limits.most); 1000B/s of network, of which the site allows nothing (limits.most)"},
		{backends.Minimum{Disk: 300 << 20}, on, false, backends.Running, "300M/s of disk: it does not count, since the job is not within a guarantee"},
		{backends.Minimum{Disk: 300 << 20}, off, true, backends.Running, "300M/s of disk: it does not count, since jobs are promised nothing here beside slots (limits.mode: off)"},
		{backends.Minimum{Disk: 300 << 20}, on, true, backends.Done, ""},
	} {
		j := backends.Job{State: c.state, Slots: 2, Tag: backends.Tag{Minimum: c.minimum}.String()}
		if got := minimumInWords(&c.limits, &j, c.within); got != c.want {
			t.Errorf("%+v: %q\nwant %q", c.minimum, got, c.want)
		}
	}
}

// R48: a deadline counts within a guarantee, and lets a job have up to what the site allows for each slot that it has on
// a host; its owner sees whether it counts.
func TestDeadlines(t *testing.T) {
	on := settings.Limits{Mode: settings.LimitsOn, Slot: settings.Promised{CPU: 1, Disk: 50}, Most: settings.PromisedPart{Disk: pointerTo[unit.Size](200)}}
	off := on
	off.Mode = settings.LimitsOff
	at := time.Date(2026, 12, 1, 7, 0, 0, 0, time.Local)
	for _, c := range []struct {
		what   string
		tag    string
		limits settings.Limits
		within bool
		state  backends.State
		most   supervise.Amounts // zero: the deadline does not count
		words  string
	}{
		{"within", backends.Tag{Deadline: at.Unix()}.String(), on, true, backends.Running, supervise.Amounts{3000, 600, 0}, "2026-12-01 07:00"},
		{"beyond", backends.Tag{Deadline: at.Unix()}.String(), on, false, backends.Running, supervise.Amounts{}, "2026-12-01 07:00: it does not count, since the job is not within a guarantee"},
		{"without limits", backends.Tag{Deadline: at.Unix()}.String(), off, true, backends.Running, supervise.Amounts{3000, 600, 0}, "2026-12-01 07:00: it does not count, since jobs are promised nothing here beside slots (limits.mode: off)"},
		{"without one", backends.Tag{Step: "x"}.String(), on, true, backends.Running, supervise.Amounts{}, ""},
		{"a broken tag", "allotment:1;deadline=soon;", on, true, backends.Running, supervise.Amounts{}, ""},
		{"it has ended", backends.Tag{Deadline: at.Unix()}.String(), on, true, backends.Done, supervise.Amounts{}, ""},
	} {
		j := backends.Job{ID: backends.ID{Job: 1}, State: c.state, Slots: 4, Tag: c.tag, Hosts: []backends.Placement{{Host: "h1", Slots: 3}}}
		farm := &backends.Snapshot{Hosts: []backends.Host{{Name: "h1"}}, Jobs: []backends.Job{j}}
		got, want := supervise.Promise{}, supervise.Promise{Most: c.most}
		for _, p := range promises("slurm", farm, []plan.Class{{Within: c.within}}, &c.limits, false)["h1"].Jobs {
			got.Deadline, got.Most = p.Deadline, p.Most
		}
		if want.Most != (supervise.Amounts{}) {
			want.Deadline = at.Unix()
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.what, got, want)
		}
		if words := deadlineInWords(&c.limits, &j, c.within); words != c.words {
			t.Errorf("%s: %q, want %q", c.what, words, c.words)
		}
	}
}
