package backendtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What the queue keeps of jobs that have ended or were requeued.
var historyCases = []testCase{{"history", testHistory}}

func testHistory(s *suite) {
	s.need(s.able.History != nil, "show what became of jobs")
	before := s.now().Add(-time.Second)
	fails := s.short(1)
	fails.Command[len(fails.Command)-1], fails.Name = "3", "fails"
	g := s.newGate()
	killed, again := s.running(s.job(s.newGate(), 1)), s.running(s.job(g, 2))
	done, failed := s.submitOne(s.short(1)), s.submitOne(fails)
	s.awaitState(done, backends.Done)
	s.awaitState(failed, backends.Exited)
	s.must("requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: again, Notice: "requeued for chipA by pba"}}))
	s.must("kill", s.Backend.Kill(s.ctx, []backends.ID{killed}))
	s.awaitEnd(killed)
	s.awaitJob(again, "its second run", func(j backends.Job) bool { return j.Requeues == 1 && j.State == backends.Running })
	s.open(g)
	s.awaitState(again, backends.Done)
	ids := []backends.ID{killed, again, done, failed}
	ask := func(q backends.PastQuery) map[backends.ID]backends.Past {
		all, err := s.able.History(s.ctx, q)
		if err != nil {
			s.Fatalf("history: %v", err)
		}
		found := map[backends.ID]backends.Past{}
		for _, p := range all.Jobs {
			found[p.Job.ID] = p
		}
		return found
	}
	var found map[backends.ID]backends.Past
	s.await("the history of all jobs", func() (bool, string) { // accounting is written behind the queue's back
		found = ask(backends.PastQuery{Since: before, User: s.User, Most: 100})
		ready := len(found) == len(ids) && found[again].Record != nil && len(found[again].Record.Runs) == 2
		return ready, fmt.Sprintf("%+v", found)
	})
	for id, want := range map[backends.ID]struct {
		state backends.State
		code  int
		runs  int
	}{done: {backends.Done, 0, 1}, failed: {backends.Exited, 3, 1}, killed: {backends.Exited, -1, 1}, again: {backends.Done, 0, 2}} {
		p := found[id]
		if p.Record == nil || p.Job.State != want.state || want.code >= 0 && p.Job.ExitCode != want.code || len(p.Record.Runs) != want.runs || p.Job.Requeues != want.runs-1 {
			s.Errorf("job %v: %+v with %+v; want it %v, exit code %d, %d runs", id, p.Job, p.Record, want.state, want.code, want.runs)
			continue
		}
		if p.Job.ID != id || p.Job.Project != s.Project || p.Job.Submitted.IsZero() || p.LastEnd().Before(p.Job.Submitted) || len(p.Job.Hosts) == 0 {
			s.Errorf("job %v: %+v", id, p.Job)
		}
		for i, run := range p.Record.Runs {
			if run.Host == "" || run.Started.IsZero() || run.Ended.Before(run.Started) {
				s.Errorf("job %v: run %d: %+v", id, i, run)
			}
		}
	}
	if why := found[again].Record.Runs[0].Why; !strings.Contains(strings.ToLower(why), "requeued") {
		s.Errorf("its first run ended: %q", why)
	}
	if run := found[killed].Record.Runs[0]; run.Why == "" && run.ExitCode < 128 { // an older LSF keeps no reason
		s.Errorf("the killed run has no reason: %+v", run)
	}
	if some := ask(backends.PastQuery{IDs: []backends.ID{failed, {Job: 1 << 40}}, Most: 9}); len(some) != 1 || some[failed].Job.ID != failed {
		s.Errorf("one job and an unknown one: %+v", some)
	}
	only := backends.PastQuery{Since: before, Most: 1, Keep: func(j *backends.Job) bool { return j.Name != "fails" }}
	if one, err := s.able.History(s.ctx, only); err != nil || len(one.Jobs) != 1 || one.Older != 2 || one.Jobs[0].Job.Name == "fails" {
		s.Errorf("the last one of three: %+v, %v", one, err)
	}
	if none := ask(backends.PastQuery{Since: before, User: "nobody-of-this-name", Most: 9}); len(none) != 0 {
		s.Errorf("jobs of another user: %+v", none)
	}
}
