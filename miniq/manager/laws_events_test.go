package manager

import (
	"bytes"
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// The random events of the laws.

func (w *world) anyID() backends.ID {
	if len(w.ids) == 0 {
		return backends.ID{Job: 1}
	}
	// Young jobs are more likely to live.
	return w.ids[len(w.ids)-1-rapid.IntRange(0, min(len(w.ids), 12)-1).Draw(w.T, "id")]
}

func (w *world) anyRun() *liveRun {
	var runs []*liveRun
	for _, id := range w.ids {
		if r := w.runs[id]; r != nil {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		w.Skip("nothing runs")
	}
	return rapid.SampledFrom(runs).Draw(w.T, "run")
}

func (w *world) someHosts() []string {
	var names []string
	for _, h := range w.m.hosts {
		if rapid.Bool().Draw(w.T, h.name) {
			names = append(names, h.name)
		}
	}
	return names
}

// shareOut pins a job to so many slots of each of some hosts.
func (w *world) shareOut() {
	pin := backends.Pin{ID: w.anyID()}
	j := w.m.jobs[pin.ID]
	if j == nil {
		return
	}
	left := j.work.spec.Slots
	for _, h := range w.m.hosts {
		if n := rapid.IntRange(0, left).Draw(w.T, h.name); n > 0 {
			pin.Hosts, pin.Slots = append(pin.Hosts, h.name), append(pin.Slots, n)
			left -= n
		}
	}
	w.step(Pin{admin, []backends.Pin{pin}})
}

func (w *world) soon() time.Time {
	return w.now.Add(time.Duration(rapid.IntRange(-1, 300).Draw(w.T, "soon")) * time.Second)
}

// liveID is a run's job mostly.
func (w *world) liveID(stopped bool) backends.ID {
	var ids []backends.ID
	for _, id := range w.ids {
		if r := w.runs[id]; r != nil && r.stopped == stopped {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || rapid.IntRange(0, 5).Draw(w.T, "anyone") == 0 {
		return w.anyID()
	}
	return rapid.SampledFrom(ids).Draw(w.T, "live")
}

func (w *world) act() backends.Act {
	a := backends.Act{ID: w.liveID(false), Grace: time.Second, Save: anySave(w.T), Mark: "r1"}
	if rapid.Bool().Draw(w.T, "until") {
		a.Until = w.soon()
	}
	return a
}

func (w *world) submit() {
	s := backends.Spec{
		Slots: rapid.IntRange(1, 5).Draw(w.T, "slots"), Memory: int64(rapid.SampledFrom([]int{0, 0, 1, 5, 9}).Draw(w.T, "memory")),
		OneHost: rapid.Bool().Draw(w.T, "oneHost"), NoRequeue: rapid.IntRange(0, 7).Draw(w.T, "noRequeue") == 0,
		Rerunnable: rapid.Bool().Draw(w.T, "rerunnable"), Exclusive: rapid.IntRange(0, 9).Draw(w.T, "exclusive") == 0,
	}
	switch rapid.IntRange(0, 9).Draw(w.T, "kind") {
	case 0:
		s.BeginTime = w.soon()
	case 1:
		s.Hold = true
	case 2:
		s.RunLimit = time.Duration(rapid.IntRange(1, 400).Draw(w.T, "limit")) * time.Second
	case 3:
		s.Array = &backends.Array{Indices: []int{1, 2, 5, 7}, Limit: rapid.IntRange(0, 3).Draw(w.T, "throttle")}
		s.Slots = 1
	case 4:
		s.Priority = backends.At(backends.LevelNext, 20)
	case 5:
		s.Hosts = w.someHosts()
	case 6:
		if len(w.ids) > 0 {
			s.After = rapid.SampledFrom([]string{"done", "ended", "exit", "started"}).Draw(w.T, "after") + "(" + w.anyID().String() + ")"
		}
	}
	for _, name := range []string{"net", "gpu"} {
		if n := rapid.IntRange(-6, 2).Draw(w.T, name); n > 0 {
			s.Needs = append(s.Needs, backends.Amount{Name: name, Count: n})
		}
	}
	if rapid.IntRange(0, 5).Draw(w.T, "feature") == 0 {
		s.Features = []string{rapid.SampledFrom([]string{"big", "gpu"}).Draw(w.T, "name")}
	}
	w.drawPlace(&s)
	if rapid.IntRange(0, 9).Draw(w.T, "held") == 0 {
		s.HeldUntil = w.soon()
	}
	w.step(Submit{By: user, Specs: []backends.Spec{s}, Next: []bool{true}})
}

// drawPlace lets some jobs ask how they lie on their hosts, and which these are.
func (w *world) drawPlace(s *backends.Spec) {
	switch rapid.IntRange(0, 11).Draw(w.T, "place") {
	case 0, 1:
		s.OneHost, s.PerHost = false, rapid.IntRange(1, 3).Draw(w.T, "perHost")
	case 2, 3:
		s.OneHost, s.Same = false, [][]string{{"rack"}, {"big"}, {"rack", "gpu"}}[rapid.IntRange(0, 2).Draw(w.T, "same")]
	case 4:
		s.OneHost, s.PerHost, s.Same = false, 2, []string{"rack"}
	case 5:
		s.Select = rapid.SampledFrom([]string{"!big", "rack == r0", "ncpus > 3 || big", "gpu >= 2 && !(rack == r1)"}).Draw(w.T, "select")
	}
}

func (w *world) submitDummy() {
	d := backends.Dummy{
		For: w.anyID(), Host: rapid.SampledFrom(w.m.hosts).Draw(w.T, "host").name, Limit: time.Duration(rapid.IntRange(1, 400).Draw(w.T, "limit")) * time.Second,
		Priority: backends.At(rapid.SampledFrom([]backends.Level{backends.LevelNormal, backends.LevelPBA}).Draw(w.T, "level"), 30),
	}
	w.step(Dummies(admin, "", []backends.Dummy{d, d}))
}

// modify changes what a job, or a whole array, asks for.
func (w *world) modify() {
	id := w.anyID()
	if rapid.Bool().Draw(w.T, "whole") {
		id.Index = 0
	}
	slots, memory, oneHost := rapid.IntRange(0, 5).Draw(w.T, "slots"), int64(rapid.IntRange(0, 9).Draw(w.T, "memory")), rapid.Bool().Draw(w.T, "oneHost")
	begin, hosts := w.soon(), w.someHosts()
	name := rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.T, "name")
	c := backends.Change{Name: &name}
	switch rapid.IntRange(0, 7).Draw(w.T, "what") {
	case 7:
		per, condition := rapid.IntRange(0, 2).Draw(w.T, "perHost"), rapid.SampledFrom([]string{"", "big"}).Draw(w.T, "select")
		c.PerHost, c.Select, c.Same = &per, &condition, &[]string{}
	case 6:
		limit := time.Duration(rapid.IntRange(0, 9).Draw(w.T, "limit")) * time.Minute
		c = backends.Change{RunLimit: &limit}
	case 5:
		c.Needs, c.Features = &[]backends.Amount{{Name: "gpu", Count: 1}}, &[]string{}
	case 0:
		c.Slots, c.OneHost = &slots, &oneHost
	case 1:
		c.Memory = &memory
	case 2:
		c.BeginTime = &begin
	case 3:
		c.Hosts = &hosts
	case 4:
		after := ""
		if rapid.Bool().Draw(w.T, "waits") {
			after = "ended(" + w.anyID().String() + ")"
		}
		c.After = &after
	}
	w.step(Modify{By: user, IDs: []backends.ID{id}, Change: c})
}

func (w *world) runOver(r *liveRun, e Event) {
	// What the event ends has no processes from here on.
	delete(w.runs, r.ID)
	back := w.endWithSave(r, e)
	if result := w.step(e); result.Errors.First() != nil {
		w.Fatalf("%#v: %v", e, result.Errors)
	}
	w.checkSaves(r.ID, back)
}

func (w *world) actions() map[string]func(*rapid.T) {
	ids := func() []backends.ID { return []backends.ID{w.anyID()} }
	in := func(f func()) func(*rapid.T) {
		return func(t *rapid.T) {
			outer := w.T
			w.T = t
			defer func() { w.T = outer }()
			f()
		}
	}
	ends := func() {
		r := w.anyRun()
		w.runOver(r, w.anyEnd(r))
	}
	pass := func() {
		w.pass(w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(w.T, "seconds")) * time.Second))
	}
	return map[string]func(*rapid.T){
		"submit":  in(w.submit),
		"submit2": in(w.submit),
		"submit3": in(w.submit),
		"end":     in(ends),
		"end2":    in(ends),
		"kill":    in(func() { w.step(Kill{user, ids()}) }),
		"end_now": in(func() { w.step(KillNow{user, ids()}) }),
		"requeue": in(func() { w.step(Requeue{admin, []backends.Act{w.act()}}) }),
		"reopen": in(func() {
			w.step(Reopen{rapid.SampledFrom([]By{user, admin}).Draw(w.T, "by"), ids()})
		}),
		"note": in(func() {
			text := rapid.SampledFrom([]string{"", "10", "20 half of it"}).Draw(w.T, "progress")
			e := Note{By: rapid.SampledFrom([]By{user, other, admin}).Draw(w.T, "by"), ID: w.anyID(), Key: rapid.SampledFrom([]string{"", "a", "b"}).Draw(w.T, "key"), Progress: text}
			if rapid.Bool().Draw(w.T, "file") {
				e.File, e.Data = "f", []byte(text)
			}
			w.step(e)
		}),
		"suspend": in(func() { w.step(Suspend{admin, []backends.Act{w.act()}}) }),
		"resume": in(func() {
			w.step(Resume{rapid.SampledFrom([]By{user, admin}).Draw(w.T, "by"), []backends.ID{w.liveID(true)}})
		}),
		"hold":    in(func() { w.step(Hold{user, ids()}) }),
		"release": in(func() { w.step(Release{user, ids()}) }),
		"rank": in(func() {
			level := rapid.SampledFrom([]backends.Level{backends.LevelLow, backends.LevelNormal, backends.LevelVictim, backends.LevelPBA, backends.LevelHandOver}).Draw(w.T, "level")
			w.step(SetPriority{admin, []backends.PriorityChange{{ID: w.anyID(), Priority: backends.At(level, rapid.IntRange(18, 30).Draw(w.T, "value"))}}})
		}),
		"modify":     in(w.modify),
		"pin":        in(func() { w.step(Pin{admin, []backends.Pin{{ID: w.anyID(), Hosts: w.someHosts()}}}) }),
		"share out":  in(w.shareOut),
		"hold until": in(func() { w.step(HoldUntil{admin, []backends.HoldUntil{{ID: w.anyID(), Until: w.soon()}}}) }),
		"reserve": in(func() {
			w.step(Reserve{admin, []backends.Reservation{{ID: w.anyID(), Hosts: w.someHosts(), Until: w.soon()}}})
		}),
		"guarantee": in(func() {
			g := backends.Guaranteed{Slots: rapid.IntRange(0, 8).Draw(w.T, "guaranteed"), Hosts: w.someHosts(), Until: w.soon()}
			w.step(Guarantee{admin, []backends.Guaranteed{g}})
		}),
		"node": in(func() {
			h := w.hosts[rapid.SampledFrom(w.m.hosts).Draw(w.T, "node").name]
			h.State = rapid.SampledFrom([]backends.HostState{backends.HostUp, backends.HostUp, backends.HostClosed, backends.HostDown}).Draw(w.T, "state")
			w.hosts[h.Name] = h
			if h.State == backends.HostDown {
				w.step(NodeDown{h.Name})
			} else {
				if rapid.IntRange(0, 3).Draw(w.T, "other resources") == 0 {
					w.drawResources(&h)
					w.hosts[h.Name] = h
					for _, r := range w.runs { // what they took of the old ones is not judged
						r.before = true
					}
				}
				w.step(nodeUpOf(h))
			}
		}),
		"place": in(w.submitDummy),
		"stopped": in(func() {
			r := w.anyRun()
			if r.stopped {
				r.stopBy = time.Time{}
			}
			w.step(Stopped{r.ID, r.Run})
		}),
		"confirm":      in(func() { r := w.anyRun(); w.step(Started{r.ID, r.Run}) }),
		"start failed": in(func() { r := w.anyRun(); w.runOver(r, StartFailed{ID: r.ID, Run: r.Run, Reason: "no keeper"}) }),
		"lost":         in(func() { r := w.anyRun(); w.runOver(r, RunLost{r.ID, r.Run, "its keeper is gone"}) }),
		"late": in(func() {
			r := w.anyRun()
			if result := w.step(Ended{ID: r.ID, Run: r.Run - 1}); !errors.Is(result.Errors.First(), backends.ErrWrongState) {
				w.Fatalf("the end of an old run: %v", result.Errors)
			}
		}),
		"pass":    in(pass),
		"pass2":   in(pass),
		"restore": in(func() { w.twin = w.clone(w.twin) }),
		"clock": in(func() {
			by := time.Duration(rapid.SampledFrom([]int{-315360000, -7207, -30, 0, 30, 7207, 315360000}).Draw(w.T, "jump")) * time.Second
			w.now = w.now.Add(by)
			for _, r := range w.runs {
				r.stopBy = r.stopBy.Add(by)
			}
			w.step(ClockRead{clock.Reading{Wall: w.now, Boot: 1}, by})
		}),
		"same": in(func() {
			w.twin.Step(w.now, Tick{})
			a, _ := w.m.State()
			b, _ := w.twin.State()
			if !bytes.Equal(a, b) {
				w.Fatalf("live and replayed state differ:\n%s", cmp.Diff(string(a), string(b)))
			}
		}),
	}
}
