package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// sacctOf is what Slurm 22.05.8 printed of a job that was done, one that was cancelled, one that
// was requeued and waits, and one of an array; @ parts the fields.
const sacctOf = `1@1@COMPLETED@0:0@ann@main@100@120@180@01:02.500@00:00:01@@1@1@node1@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@a b|c@
1.batch@1.batch@COMPLETED@0:0@@@120@120@180@00:00@00:00@2200K@1@1@node1@@@chipa@@@batch@
3@3@CANCELLED by 0@0:0@ann@main@100@120@122@00:00:00@00:00:00@@1@1@node1@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@k
k@
3.batch@3.batch@CANCELLED@0:15@@@120@120@122@00:00@00:00@@1@1@node1@@@chipa@@@batch@
4@4@REQUEUED@0:0@bob@main@100@110@122@00:00:00@00:00:00@@6@6@node[1-2]@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@rq@
4@4@PENDING@0:0@bob@main@122@Unknown@Unknown@00:00:00@00:00:00@@0@6@None assigned@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@rq@
2_1@5@FAILED@3:0@bob@main@100@120@121@00:00:00@00:00:00@@1@1@node1@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@w@
2_[2-9]@2@PENDING@0:0@bob@main@100@Unknown@Unknown@00:00:00@00:00:00@@0@1@None assigned@billing=1,cpu=1,mem=100M,node=1@60@chipa@@@w@
6@6@CANCELLED by 7@0:0@bob@main@100@None@130@00:00:00@00:00:00@@0@2@None assigned@billing=1,cpu=1,mem=100M,node=1@Partition_Limit@chipa@@@w@
7@7@RUNNING@0:0@bob@main@100@120@Unknown@00:00:00@00:00:00@@1@1@node1@billing=1,cpu=1,mem=100M,node=1@UNLIMITED@chipa@@@w@
`

func readPast(t *testing.T, text string, piece int) []pastRow {
	t.Helper()
	r := newPastReader("@", FromAccount)
	for rest := text; rest != ""; {
		n := min(piece, len(rest))
		_, _ = r.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	return r.rows
}

func TestPastJobsOfSacct(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	for _, piece := range []int{1, 7, 1 << 20} {
		rows := readPast(t, sacctOf, piece)
		for i := range rows {
			rows[i].by = map[string]string{"0": "root", "7": "bob"}[rows[i].by]
		}
		all, err := past(rows, &backends.PastQuery{Since: at(121)})
		if err != nil {
			t.Fatal(err)
		}
		job := func(id int64, index int, user string, state backends.State, slots int) backends.Job {
			return backends.Job{ID: backends.ID{Job: id, Index: index}, Name: "w", User: user, Project: "chipa", Queue: "main", State: state, Slots: slots, Memory: 100 << 20, RunLimit: time.Hour, Submitted: at(100), Started: at(120)}
		}
		on := []backends.Placement{{Host: "node1", Slots: 1}}
		done, killed, waits, failed, never := job(1, 0, "ann", backends.Done, 1), job(3, 0, "ann", backends.Exited, 1), job(4, 0, "bob", backends.Pending, 6), job(2, 1, "bob", backends.Exited, 1), job(6, 0, "bob", backends.Exited, 2)
		done.Name, done.Hosts, done.Ended = "a b|c", on, at(180)
		killed.Name, killed.Hosts, killed.Ended, killed.ExitCode, killed.Reason = "k\nk", on, at(122), 143, "cancelled by root"
		waits.Name, waits.Started, waits.Requeues = "rq", time.Time{}, 1
		failed.Hosts, failed.Ended, failed.ExitCode = on, at(121), 3
		never.Started, never.Ended, never.ExitCode, never.Reason, never.RunLimit = time.Time{}, at(130), 143, "cancelled by bob", 0
		run := func(host string, from, to int64, code int, why string) *backends.Record {
			return &backends.Record{Runs: []backends.RunRecord{{Run: 1, Host: host, Started: at(from), Ended: at(to), ExitCode: code, Why: why}}}
		}
		used := run("node1", 120, 180, 0, "")
		used.Runs[0].User, used.Runs[0].System, used.Runs[0].MaxRSS = 62500*time.Millisecond, time.Second, 2200<<10
		want := []backends.Past{
			{Job: done, Record: used},
			{Job: killed, Record: run("node1", 120, 122, 143, "cancelled by root")},
			{Job: waits, Record: run("node1 node2", 110, 122, 143, "requeued")},
			{Job: failed, Record: run("node1", 120, 121, 3, "")},
			{Job: never, Record: &backends.Record{}},
		}
		if diff := cmp.Diff(want, all, cmp.Transformer("utc", func(t time.Time) int64 { return t.Unix() })); diff != "" {
			t.Fatalf("in pieces of %d: %s", piece, diff)
		}
		if later, err := past(rows, &backends.PastQuery{Since: at(131), User: "ann"}); err != nil || len(later) != 1 || later[0].Job.ID.Job != 1 {
			t.Errorf("%+v, %v", later, err)
		}
	}
}

func TestPastOfABrokenSacct(t *testing.T) {
	for _, broken := range []string{
		strings.Replace(sacctOf, "COMPLETED", "ODD", 1), strings.Replace(sacctOf, "@0:0@", "@x@", 1), strings.Replace(sacctOf, "01:02.500", "1.x", 1),
		strings.Replace(sacctOf, "2200K", "much", 1), "1@2@\n", strings.Replace(sacctOf, "node[1-2]", "node[", 1), strings.Replace(sacctOf, "@6@6@", "@-6@6@", 1),
	} {
		r := newPastReader("@", FromAccount)
		_, _ = r.Write([]byte(broken))
		err := r.end()
		if err == nil {
			_, err = past(r.rows, &backends.PastQuery{})
		}
		if err == nil {
			t.Errorf("no error of %.80q", broken)
		}
	}
	for from, want := range map[ProjectFrom]string{FromWCKey: "key", FromComment: "note"} {
		f := strings.Split(strings.TrimSuffix(strings.SplitN(sacctOf, "\n", 2)[0], "@"), "@")
		f[18], f[19] = "*key", "note and more"
		if p, err := parsePastRow(f, from); err != nil || p.project != want {
			t.Errorf("%v: %q, %v", from, p.project, err)
		}
	}
}

// Whatever sacct prints, its pieces make no difference, and no run has a negative time.
func FuzzPast(f *testing.F) {
	f.Add(sacctOf, 9)
	f.Add("1@1@RUNNING", 1)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		read := func(piece int) ([]backends.Past, error) {
			r := newPastReader("@", FromComment)
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				_, _ = r.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if err := r.end(); err != nil {
				return nil, err
			}
			return past(r.rows, &backends.PastQuery{})
		}
		whole, err := read(len(text) + 1)
		parts, err2 := read(max(piece, 1))
		if (err == nil) != (err2 == nil) || err == nil && !cmp.Equal(whole, parts) {
			t.Errorf("as a whole %+v, %v; in parts %+v, %v", whole, err, parts, err2)
		}
		for i := range whole {
			if whole[i].Lost() < 0 || whole[i].Waited(time.Unix(1e9, 0)) < 0 || whole[i].Job.Requeues < 0 || whole[i].Job.Slots < 0 {
				t.Errorf("%+v", whole[i])
			}
		}
	})
}
