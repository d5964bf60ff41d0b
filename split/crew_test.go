package split

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
)

// begun returns a crew with a worker on each host, which have executed their first tasks.
func begun(most int, hosts ...string) *crew {
	c := newCrew(most)
	for i, host := range hosts {
		n := int64(i + 1)
		w := &row{Task: Task{N: n, Host: host, Took: time.Second}, Job: 100 + n, Worker: n, Slots: 2, Submitted: time.Unix(1000, 0)}
		c.add(w, host, 0)
		c.hear(n, WorkerState{Run: "a", Seq: 2, Done: n})
		c.freed(w)
	}
	return c
}

// workerNumbers returns the workers' numbers.
func workerNumbers(all []*member) (n []int64) {
	for _, m := range all {
		n = append(n, m.N)
	}
	return n
}

func TestPlace(t *testing.T) {
	now := time.Unix(1100, 0)
	for name, x := range map[string]struct {
		change func(*crew)
		host   string
		more   bool
		worker int64
		stays  bool
	}{
		"a worker stands":          {func(*crew) {}, "n1", true, 1, false},
		"also for the last round":  {func(*crew) {}, "n1", false, 1, false},
		"no worker yet":            {func(*crew) {}, "n3", true, 0, true},
		"no other round":           {func(*crew) {}, "n3", false, 0, false},
		"too many stay":            {func(c *crew) { c.most = 2 }, "n3", true, 0, false},
		"no workers":               {func(c *crew) { *c = *newCrew(0) }, "n1", true, 0, false},
		"unreachable":              {func(c *crew) { c.barred["n3"] = now.Add(1) }, "n3", true, 0, false},
		"unreachable a while ago":  {func(c *crew) { c.barred["n3"] = now }, "n3", true, 0, true},
		"it is at work":            {func(c *crew) { c.members[1].give(7, now) }, "n1", true, 0, false},
		"it leaves":                {func(c *crew) { c.members[1].left = true }, "n1", true, 0, true},
		"its job has time":         {func(c *crew) { c.members[1].limit = 110 * time.Second }, "n1", true, 1, false},
		"its job's limit is near":  {func(c *crew) { c.members[1].limit = 106 * time.Second }, "n1", true, 0, false},
		"its tasks take too long":  {func(c *crew) { c.members[1].limit, c.members[1].longest = 160*time.Second, time.Minute }, "n1", true, 0, false},
		"its job runs a long time": {func(c *crew) { c.members[1].limit, c.members[1].longest = 300*time.Second, time.Minute }, "n1", true, 1, false},
	} {
		c := begun(10, "n1", "n2")
		x.change(c)
		m, stays := c.place(x.host, x.more, now)
		if m == nil && x.worker != 0 || m != nil && m.N != x.worker || stays != x.stays {
			t.Errorf("%s: worker %v, stays %v", name, m, stays)
		}
	}
}

func TestRelease(t *testing.T) {
	now := time.Unix(1100, 0)
	part := map[string]struct{}{"n1": {}, "n2": {}}
	slots := func(string) int { return 2 }
	for name, x := range map[string]struct {
		change func(*crew)
		need   need
		want   int
	}{
		"all of use":       {func(*crew) {}, need{true, part, slots}, 0},
		"nothing is left":  {func(*crew) {}, need{false, part, slots}, 2},
		"one is at work":   {func(c *crew) { c.members[1].give(7, now) }, need{false, part, slots}, 1},
		"a host left":      {func(*crew) {}, need{true, map[string]struct{}{"n2": {}}, slots}, 1},
		"more room":        {func(*crew) {}, need{true, part, func(string) int { return 4 }}, 2},
		"a little more":    {func(*crew) {}, need{true, part, func(string) int { return 3 }}, 0},
		"the limit nears":  {func(c *crew) { c.members[2].limit = 105 * time.Second }, need{true, part, slots}, 1},
		"only told once":   {func(c *crew) { c.release(need{false, part, slots}, now) }, need{false, part, slots}, 0},
		"one has left":     {func(c *crew) { c.hear(1, WorkerState{Seq: 3, Leaving: LeaveIdle}) }, need{false, part, slots}, 1},
		"one is preempted": {func(c *crew) { c.hear(1, WorkerState{Seq: 3, Leaving: LeaveKill}) }, need{false, part, slots}, 1},
	} {
		c := begun(10, "n1", "n2")
		x.change(c)
		if got := c.release(x.need, now); len(got) != x.want {
			t.Errorf("%s: %v", name, workerNumbers(got))
		}
	}
}

func TestHear(t *testing.T) {
	now := time.Unix(1100, 0)
	given := func(c *crew) { c.members[1].give(7, now) }
	for name, x := range map[string]struct {
		change func(*crew)
		n      int64
		says   WorkerState
		answer WorkerOrder
		back   int64
		left   bool
	}{
		"a stranger":              {given, 9, WorkerState{}, WorkerOrder{End: true}, 0, true},
		"it has nothing to do":    {func(*crew) {}, 1, WorkerState{Done: 1}, WorkerOrder{}, 0, false},
		"its first task":          {func(c *crew) { c.members[1].give(1, now) }, 1, WorkerState{Running: 1}, WorkerOrder{}, 0, false},
		"it has not heard":        {given, 1, WorkerState{Done: 1}, WorkerOrder{Take: 7}, 0, false},
		"it is idle":              {func(*crew) {}, 1, WorkerState{Done: 1, Leaving: LeaveIdle}, WorkerOrder{End: true}, 0, true},
		"it is idle no more":      {given, 1, WorkerState{Done: 1, Leaving: LeaveIdle}, WorkerOrder{Take: 7}, 0, false},
		"it was released":         {func(c *crew) { c.members[1].left = true }, 1, WorkerState{Done: 1}, WorkerOrder{End: true}, 0, true},
		"it ends as told":         {func(*crew) {}, 1, WorkerState{Done: 1, Leaving: LeaveTold}, WorkerOrder{End: true}, 0, true},
		"preempted at work":       {given, 1, WorkerState{Done: 1, Leaving: LeaveKill}, WorkerOrder{}, 7, true},
		"preempted when it ended": {given, 1, WorkerState{Done: 7, Leaving: LeaveKill}, WorkerOrder{}, 0, true},
		"preempted without work":  {func(*crew) {}, 1, WorkerState{Done: 1, Leaving: LeaveKill}, WorkerOrder{}, 0, true},
		"it runs again": {
			func(c *crew) { c.hear(1, WorkerState{Leaving: LeaveKill}) }, 1, WorkerState{Done: 1}, WorkerOrder{}, 0, false,
		},
		"it runs again, and another one stands": {
			func(c *crew) {
				c.hear(1, WorkerState{Leaving: LeaveKill})
				c.members[3] = &member{N: 3, Host: "n1"}
			}, 1, WorkerState{Done: 1}, WorkerOrder{End: true}, 0, true,
		},
		"it ended and is still there": {
			func(c *crew) { c.hear(1, WorkerState{Leaving: LeaveIdle}) }, 1, WorkerState{Done: 1, Leaving: LeaveIdle}, WorkerOrder{End: true}, 0, true,
		},
	} {
		c := begun(10, "n1", "n2")
		x.change(c)
		x.says.Run, x.says.Seq, x.answer.Run, x.answer.Seq = "b", 5, "b", 5
		v := c.hear(x.n, x.says)
		m := c.members[x.n]
		if v.answer != x.answer || v.back != x.back || x.left != (m == nil || m.left) {
			t.Errorf("%s: %+v, worker %+v", name, v, m)
		}
	}
}

// Orders are repeated until they are obeyed; a worker that does not is of no use after a while.
func TestOrders(t *testing.T) {
	now := time.Unix(1100, 0)
	c := begun(10, "n1", "n2")
	c.members[1].give(7, now)
	if got := c.orders(now); len(got) != 1 || got[1].Take != 7 {
		t.Errorf("%+v", got)
	}
	if got := c.orders(now.Add(orderEvery / 2)); len(got) != 0 {
		t.Errorf("too often: %+v", got)
	}
	if got := c.orders(now.Add(orderEvery)); len(got) != 1 {
		t.Errorf("not again: %+v", got)
	}
	if got := c.late(now.Add(giveTime)); len(got) != 0 {
		t.Errorf("late too soon: %v", workerNumbers(got))
	}
	if got := c.late(now.Add(giveTime + 1)); len(got) != 1 {
		t.Errorf("not late: %v", workerNumbers(got))
	}
	c.members[1].heard = false
	if got := c.late(now.Add(firstTime)); len(got) != 0 {
		t.Errorf("late while it may join: %v", workerNumbers(got))
	}
	if got := c.late(now.Add(firstTime + 1)); len(got) != 1 {
		t.Errorf("not late, and never heard: %v", workerNumbers(got))
	}
	c.hear(1, WorkerState{Seq: 9, Running: 7})
	if o, l := c.orders(now.Add(time.Hour)), c.late(now.Add(time.Hour)); len(o) != 0 || len(l) != 0 {
		t.Errorf("it has taken it: %+v, %v", o, workerNumbers(l))
	}
}

// Where no worker ever reached asplit, no more are begun; one that did is another matter.
func TestLost(t *testing.T) {
	now := time.Unix(1100, 0)
	c := newCrew(10)
	for n, host := range map[int64]string{1: "n1", 2: "n2"} {
		c.add(&row{Task: Task{N: n}, Worker: n}, host, 0)
	}
	if !c.lost(c.members[1], now) || c.most != 0 || c.barred["n1"].Before(now.Add(barTime)) {
		t.Errorf("%+v", c)
	}
	c = begun(10, "n1", "n2")
	if c.lost(c.members[1], now) || !c.barred["n1"].IsZero() || c.most != 10 {
		t.Errorf("%+v", c)
	}
	c.add(&row{Task: Task{N: 3}, Worker: 3}, "n3", 0)
	if !c.lost(c.members[3], now) || c.barred["n3"].Before(now.Add(barTime)) || c.most != 10 {
		t.Errorf("%+v", c)
	}
	c.add(&row{Task: Task{N: 4}, Worker: 4}, "n4", 0).restored = true
	if c.lost(c.members[4], now) || !c.barred["n4"].IsZero() {
		t.Errorf("%+v", c)
	}
}

// What is stored of a task that a worker was given is read again.
func TestWorkerIsStored(t *testing.T) {
	s, err := openStore(t.TempDir() + "/state.db")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Save(t.Context(), NewCore(metrics.Options{}), false, &row{Task: Task{N: 7, Host: "n1"}, Job: 5, Worker: 3}); err != nil {
		t.Fatal(err)
	}
	var got row
	if err := s.Tasks(t.Context(), func(w row) error { got = w; return nil }); err != nil || got.Worker != 3 || got.Job != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A worker that ended well without taking a task will never do it; of one that took it, or of a
// task's own job, the result may come.
func TestLeftUndone(t *testing.T) {
	for _, x := range []struct {
		worker, n int64
		state     WorkerState
		want      bool
	}{
		{1, 5, WorkerState{Done: 1}, true},
		{1, 5, WorkerState{Done: 1, Running: 5}, false},
		{1, 5, WorkerState{Done: 5}, false},
		{1, 1, WorkerState{}, false},
		{0, 5, WorkerState{}, false},
		{2, 5, WorkerState{}, false}, // not known any more
	} {
		c := newCrew(1)
		c.members[1] = &member{N: 1, state: x.state}
		r := runner{crew: c}
		if is := r.leftUndone(&row{Task: Task{N: x.n}, Worker: x.worker}); is != x.want {
			t.Errorf("%+v: %v", x, is)
		}
	}
}

// The order to end a task that was executed elsewhere is repeated until the worker has ended it. Its next task waits
// meanwhile.
func TestAbandon(t *testing.T) {
	now := time.Unix(1100, 0)
	c := begun(10, "n1", "n2")
	m := c.members[1]
	m.give(7, now)
	c.hear(1, WorkerState{Run: "a", Seq: 3, Done: 1, Running: 7})
	if !m.abandon(7) {
		t.Fatal("it can't be told")
	}
	c.freed(&row{Task: Task{N: 7}, Worker: 1})
	want := func(what string, got, want WorkerOrder) {
		t.Helper()
		got.Run, got.Seq = "", 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	want("at once", c.orders(now)[1], WorkerOrder{Drop: 7})
	want("again", c.orders(now.Add(orderEvery))[1], WorkerOrder{Drop: 7})
	if placed, _ := c.place("n1", true, now); placed != m {
		t.Error("its host gets no next task")
	}
	m.give(9, now)
	want("with the next task", c.orders(now)[1], WorkerOrder{Take: 9, Drop: 7})
	want("it is still at work", c.hear(1, WorkerState{Run: "a", Seq: 3, Done: 1, Running: 7}).answer, WorkerOrder{Take: 9, Drop: 7})
	want("it has ended it", c.hear(1, WorkerState{Run: "a", Seq: 4, Done: 7}).answer, WorkerOrder{Take: 9})
	want("it has the next one", c.hear(1, WorkerState{Run: "a", Seq: 5, Done: 7, Running: 9}).answer, WorkerOrder{Take: 9})
	if o := c.orders(now.Add(time.Minute)); len(o) > 0 {
		t.Errorf("orders %v", o)
	}
	c.members[2].left = true
	if c.members[2].abandon(8) || c.add(&row{Task: Task{N: 11}, Worker: 11}, "n3", 0).abandon(11) {
		t.Error("a worker that leaves, or was never heard, is believed to end its task")
	}
}

// The end of a run does not wait long for a worker that has not ended what it was to drop.
func TestMayAnswer(t *testing.T) {
	now := time.Unix(1000, 0)
	c := begun(10, "n1", "n2")
	m := c.members[1]
	if c.add(&row{Task: Task{N: 11}, Worker: 11}, "n3", 0).mayAnswer(now) {
		t.Error("a worker that was never heard")
	}
	running := WorkerState{Run: "a", Seq: 1, Done: 1, Running: 7}
	c.hear(1, running)
	m.ask(now)
	m.ask(now.Add(byeTime)) // the first one counts
	if !m.mayAnswer(now.Add(byeTime-1)) || m.mayAnswer(now.Add(byeTime)) {
		t.Error("a worker that was told to end")
	}
	c.hear(1, running)
	m.abandon(7)
	c.orders(now)
	if !m.mayAnswer(now.Add(dropTime-1)) || m.mayAnswer(now.Add(dropTime)) {
		t.Error("a worker that was to drop its task")
	}
	c.hear(1, running)
	if m.ask(now.Add(byeTime)); !m.mayAnswer(now.Add(byeTime)) {
		t.Error("a worker that answered meanwhile")
	}
}
