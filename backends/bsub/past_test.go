package bsub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// pastJobs are a job that is done, one that failed, one that was killed before it started, one
// that was requeued and waits, and one of another user's.
func pastJobs() []backends.Past {
	job := func(id int64, index int, state backends.State, code int, runs ...backends.RunRecord) backends.Past {
		j := backends.Job{
			ID: backends.ID{Job: id, Index: index}, User: "bob", Name: "sim", Queue: "normal", State: state, ExitCode: code, Slots: 2, Submitted: submitted,
			Requeues: max(len(runs)-1, 0),
		}
		if n := len(runs); n > 0 && state.Ended() {
			j.Started, j.Ended = runs[n-1].Started, runs[n-1].Ended
			j.Hosts = []backends.Placement{{Host: "n1", Slots: 2}}
		}
		return backends.Past{Job: j, Record: &backends.Record{Runs: runs}}
	}
	run := func(n int, from, to time.Duration, code int, why string) backends.RunRecord {
		return backends.RunRecord{
			Run: n, Host: "n2", Started: submitted.Add(from), Ended: submitted.Add(to), ExitCode: code, User: to - from, MaxRSS: 3 << 20, Why: why,
		}
	}
	killed := job(3, 0, backends.Exited, 143)
	killed.Job.Ended, killed.Job.Reason = submitted.Add(time.Minute), "killed by bob before it started"
	waits := job(4, 0, backends.Pending, 0, run(1, 0, 50*time.Second, 137, "requeued for chip\x1bA by pba"))
	waits.Job.Requeues, waits.Job.Reason = 1, "Job slot limit reached"
	hers := job(5, 0, backends.Done, 0)
	hers.Job.User, hers.Job.Started, hers.Job.Ended, hers.Record = "amy", submitted.Add(time.Hour), submitted.Add(75*time.Hour), nil
	return []backends.Past{
		job(1, 7, backends.Done, 0, run(1, 5*time.Second, 2*time.Hour, 137, "requeued by amy; its checkpoint was made"), run(2, 3*time.Hour, 4*time.Hour, 0, "")),
		job(2, 0, backends.Exited, 137, run(1, 300*time.Millisecond, 12*time.Second, 137, "killed: over its run limit of 12s")),
		killed, waits, hers,
	}
}

func TestPastTable(t *testing.T) {
	var b strings.Builder
	var rows []bsub.Row
	jobs := pastJobs()
	for i := range jobs {
		rows = append(rows, bsub.Row{Job: &jobs[i].Job, Record: jobs[i].Record})
	}
	now := submitted.Add(2 * time.Minute)
	if err := (bsub.FormatTable{Format: bsub.PastFormat(true), Now: now}).Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	if err := bsub.TotalPast(jobs, now).Write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `JOB       USER    STAT  QUEUE    WAIT   RUN    CPU    MAXMEM   HOSTS       REQUEUES JOB_NAME   ENDED           REASON
1[7]      bob     DONE  normal   1h00m  1h00m  2h59m  3 M      2*n1        1        sim[7]     Nov 21 02:54    requeued by amy; its checkpoint was made
2         bob     EXIT  normal   0.3s   11s    11s    3 M      2*n1        0        sim        Nov 20 22:54    exit 137 (KILL): killed: over its run limit of 12s
3         bob     EXIT  normal   1m00s  -      -      -        -           0        sim        Nov 20 22:55    exit 143 (TERM): killed by bob before it started
4         bob     PEND  normal   1m10s  50s    50s    3 M      n2          1        sim        Nov 20 22:55    requeued for chip\x1bA by pba
5         amy     DONE  normal   1h00m  3d02h  -      -        -           0        sim        Nov 24 01:54    -

5 jobs: 2 done, 2 exited, 2 requeued (2 times, 1m40s of slot time lost); processor time 3h00m; average wait 24m27s
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	order, err := bsub.ParseOrder("-lost,job")
	if err != nil {
		t.Fatal(err)
	}
	order.Sort(rows, "", nil, now)
	if got := rows[0].Job.ID.String() + rows[1].Job.ID.String() + rows[4].Job.ID.String(); got != "41[7]5" {
		t.Errorf("sorted by what was lost: %s", got)
	}
}

func TestPastStories(t *testing.T) {
	var b strings.Builder
	jobs := pastJobs()
	for i := range jobs {
		if err := (bsub.Detail{}).WritePast(&b, &jobs[i], submitted.Add(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	const want = `Job <1[7]>, Job Name <sim[7]>, User <bob>, Status <DONE>, Queue <normal>, Job Priority <0, normal>, Preempt Mode <requeue>
Fri Nov 20 22:54:18: Submitted, 2 slots;
Fri Nov 20 22:54:23: Run 1 started on <n2>;
Sat Nov 21 00:54:18: Run 1 ended after 1h59m: requeued by amy; its checkpoint was made; nothing was lost; processor time 1h59m, memory 3 M;
Sat Nov 21 01:54:18: Run 2 started on <n2>;
Sat Nov 21 02:54:18: Run 2 ended after 1h00m: exit 0; processor time 1h00m, memory 3 M;
 In all it waited 1h00m, used 2h59m of processor time and at most 3 M of memory, requeued 1 time, lost 0.0s on 2 slots
Job <2>, Job Name <sim>, User <bob>, Status <EXIT>, Queue <normal>, Job Priority <0, normal>, Preempt Mode <requeue>
Fri Nov 20 22:54:18: Submitted, 2 slots;
Fri Nov 20 22:54:18: Run 1 started on <n2>;
Fri Nov 20 22:54:30: Run 1 ended after 11s: exit 137 (KILL): killed: over its run limit of 12s; processor time 11s, memory 3 M;
 In all it waited 0.3s, used 11s of processor time and at most 3 M of memory
Job <3>, Job Name <sim>, User <bob>, Status <EXIT>, Queue <normal>, Job Priority <0, normal>, Preempt Mode <requeue>
Fri Nov 20 22:54:18: Submitted, 2 slots;
Fri Nov 20 22:55:18: Ended: exit 143 (TERM): killed by bob before it started;
 In all it waited 1m00s
Job <4>, Job Name <sim>, User <bob>, Status <PEND>, Queue <normal>, Job Priority <0, normal>, Preempt Mode <requeue>
Fri Nov 20 22:54:18: Submitted, 2 slots;
Fri Nov 20 22:54:18: Run 1 started on <n2>;
Fri Nov 20 22:55:08: Run 1 ended after 50s: requeued for chip\x1bA by pba; lost: 50s on 2 slots; processor time 50s, memory 3 M;
Fri Nov 20 22:56:18: It waits: Job slot limit reached;
 In all it waited 1m10s, used 50s of processor time and at most 3 M of memory, requeued 1 time, lost 50s on 2 slots
Job <5>, Job Name <sim>, User <amy>, Status <DONE>, Queue <normal>, Job Priority <0, normal>, Preempt Mode <requeue>
Fri Nov 20 22:54:18: Submitted, 2 slots;
Fri Nov 20 23:54:18: Started; its runs are not shown: they are its owner's to see;
Tue Nov 24 01:54:18: Ended: done;
 In all it waited 1h00m
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
