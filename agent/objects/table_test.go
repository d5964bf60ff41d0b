package objects

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// slurm is a job of Slurm in a control group, of user 1000.
func slurm(id int64, run int) measure.Job {
	return measure.Job{
		Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: id}, User: 1000}, Source: measure.FromGroupV2, Run: run,
		CPU: measure.Value{N: uint64(run) * 1e9, Known: true}, Peak: measure.Value{N: uint64(run) << 20, Known: true},
	}
}

func named(id int64) state.Job { return state.Job{Queue: "slurm", ID: backends.ID{Job: id}} }

// said is what acts do, in short: JOB RUN.SEQ EVENT.
func said(acts []Act) (all []string) {
	for _, a := range acts {
		s := a.Job.String()
		switch c := a.Change; {
		case a.Aside:
			s += " aside"
		case a.Remove:
			s += " removed"
		default:
			s += " " + strconv.Itoa(c.RunNo) + "." + strconv.FormatUint(c.Seq, 10) + " " + c.Event
		}
		all = append(all, s)
	}
	return all
}

func check(t *testing.T, what string, acts []Act, want ...string) {
	t.Helper()
	got := said(acts)
	if len(got) != len(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

func TestSegments(t *testing.T) {
	table := NewTable("h1", time.Hour)
	at := noon
	sample := func(jobs ...measure.Job) []Act {
		at = at.Add(5 * time.Second)
		return table.Sample(jobs, at)
	}
	miniq, nobody := slurm(3, 1), slurm(4, 1)
	miniq.Queue, nobody.User = measure.Miniq, measure.NoUser
	acts := sample(slurm(1, 1), slurm(2, 0), miniq, nobody)
	check(t, "first seen; a run that is not known yet", acts, "slurm/1 1.1 started")
	if c := acts[0].Change; c.Host != "h1" || c.Begin.Host != "h1" || c.Submit.UID != "1000" || c.N != 0 || !c.At.Equal(at) {
		t.Errorf("%+v", c)
	}
	check(t, "nothing new", sample(slurm(1, 1), slurm(2, 3)), "slurm/2 3.1 started")
	check(t, "a sample that lacks it", sample(slurm(2, 3)))
	check(t, "one that has it again", sample(slurm(1, 1), slurm(2, 3)))
	gone := at.Add(5 * time.Second)
	check(t, "one lacks it", sample(slurm(2, 3)))
	acts = sample(slurm(2, 3))
	check(t, "two in a row", acts, "slurm/1 1.2 ended")
	if e := acts[0].Change.End; e.ExitCode != -1 || e.User != time.Second || e.MaxRSS != 1<<20 || !e.At.Equal(gone) {
		t.Errorf("%+v", e)
	}
	acts = sample(slurm(1, 1), slurm(2, 4))
	check(t, "the same run again, and the next one at once", acts, "slurm/1 1.3 continued", "slurm/2 3.2 ended", "slurm/2 4.1 started")
	if acts[0].Change.Submit != nil || acts[2].Change.Submit != nil {
		t.Error("an object that is there is begun anew")
	}
	check(t, "an earlier run, as an environment may say", sample(slurm(1, 1), slurm(2, 2)))
	sample()
	acts = sample()
	check(t, "both end", acts, "slurm/1 1.4 ended", "slurm/2 4.2 ended")
	if s := table.Find(named(2)).Sequence; s != (state.Sequence{Run: 4, N: 2}) {
		t.Errorf("sequence %v", s)
	}
	at = at.Add(time.Hour)
	check(t, "later", table.Purge(at.Add(-10*time.Second)))
	if acts := table.Purge(at); len(acts) != 2 || !acts[0].Remove {
		t.Errorf("when they are old: %q", said(acts))
	}
}

// LSF does not number runs.
func TestRunsOfLSF(t *testing.T) {
	table := NewTable("h1", time.Hour)
	j := slurm(7, 0)
	j.Queue, j.ID.Index = measure.LSF, 2
	check(t, "first", table.Sample([]measure.Job{j}, noon), "lsf/7.2 1.1 started")
	check(t, "still", table.Sample([]measure.Job{j}, noon))
	table.Sample(nil, noon)
	check(t, "gone", table.Sample(nil, noon), "lsf/7.2 1.2 ended")
	check(t, "again", table.Sample([]measure.Job{j}, noon), "lsf/7.2 2.1 started")
}

// A number that another user's job has: a control group shows whose it is, an environment does not.
func TestNumberOfAnotherUser(t *testing.T) {
	table := NewTable("h1", time.Hour)
	forged := slurm(1, 9)
	forged.User, forged.Source = 2000, measure.FromProcesses
	check(t, "both at once", table.Sample([]measure.Job{slurm(1, 1), forged}, noon), "slurm/1 1.1 started")
	check(t, "it alone", table.See(named(1), &forged, noon))
	table.Sample(nil, noon)
	check(t, "after the end", table.Sample([]measure.Job{forged}, noon), "slurm/1 1.2 ended")
	forged.ID.Job = 2
	acts := table.Sample([]measure.Job{forged}, noon)
	check(t, "before the job", acts, "slurm/2 9.1 started")
	if r := (&backends.Record{History: []backends.HistoryLine{{Host: "h1", Event: "started", Detail: acts[0].Change.Detail}}}); !claimed(r, "h1") || claimed(r, "h2") {
		t.Errorf("%q does not say that an environment alone names it", acts[0].Change.Detail)
	}
	check(t, "when the job comes", table.Sample([]measure.Job{slurm(2, 1), forged}, noon), "slurm/2 aside")
	table.Forget(named(2))
	check(t, "then", table.Sample([]measure.Job{slurm(2, 1), forged}, noon), "slurm/2 1.1 started")
	if _, err := table.Merge(named(2), nil, 2000, state.Sequence{Run: 9}, noon); !errors.Is(err, errOther) {
		t.Errorf("another user's object is merged: %v", err)
	}
}

func TestClaimedJobsAreBounded(t *testing.T) {
	table := NewTable("h1", time.Hour)
	for n := range int64(maxClaimed + 5) {
		j := slurm(n+1, 1)
		if n > 0 {
			j.Source = measure.FromProcesses
		}
		at := noon.Add(time.Duration(n) * time.Millisecond)
		table.Sample([]measure.Job{j}, at)
		table.Sample(nil, at)
		table.Sample(nil, at)
	}
	check(t, "too many that environments name", table.Purge(noon.Add(time.Minute)), "slurm/5 removed", "slurm/4 removed", "slurm/3 removed", "slurm/2 removed")
}

// How far a job is counts for its user's job alone, while its run is here.
func TestSaid(t *testing.T) {
	table := NewTable("h1", time.Hour)
	mine, other, foreign := slurm(1, 1), slurm(1, 1), slurm(1, 1)
	other.User, other.Source, foreign.Queue = 1001, measure.FromProcesses, measure.Miniq
	table.Sample([]measure.Job{mine, other}, noon)
	if got := table.Said([]measure.Job{mine, other}); got != nil {
		t.Errorf("nothing is said: %+v", got)
	}
	set := func(key, value string, at time.Time) {
		t.Helper()
		if _, err := table.Set(named(1), state.Setting{Key: key, Value: value}, at); err != nil {
			t.Fatal(err)
		}
	}
	set("phase", "50", noon)
	set(state.ProgressKey, "40 "+strings.Repeat("é", 500), noon.Add(time.Minute))
	want := func(what, text string, at time.Time) {
		t.Helper()
		got := table.Said([]measure.Job{mine, other, foreign, slurm(2, 1)})
		if s := got[mine.Key]; len(got) != 1 || s.String() != text || !s.At.Equal(at) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	want("long", "40 "+strings.Repeat("é", state.MaxBrief/2), noon.Add(time.Minute))
	mine = slurm(1, 2)
	table.Sample([]measure.Job{mine}, noon.Add(2*time.Minute))
	want("the next run", "40 "+strings.Repeat("é", state.MaxBrief/2), noon.Add(time.Minute))
	set(state.ProgressKey, "0", noon.Add(3*time.Minute))
	want("it says anew", "0", noon.Add(3*time.Minute))
	o := table.Find(named(1))
	record := func(run int, value string) *backends.Record {
		return &backends.Record{Settings: []backends.SettingRecord{{Key: state.ProgressKey, Value: value, Run: run, At: noon.Add(4 * time.Minute)}}}
	}
	o.takeSaid(record(1, "99 of an earlier run"))
	want("an object of an earlier run arrives", "0", noon.Add(3*time.Minute))
	o.takeSaid(record(3, "none"))
	want("a damaged one", "0", noon.Add(3*time.Minute))
	o.takeSaid(record(2, "7 seven"))
	want("the run's own", "7 seven", noon.Add(4*time.Minute))
	table.Sample(nil, noon.Add(5*time.Minute))
	table.Sample(nil, noon.Add(6*time.Minute))
	if got := table.Said([]measure.Job{mine}); got != nil {
		t.Errorf("it has ended: %+v", got)
	}
}

func TestSettingsAreBounded(t *testing.T) {
	table := NewTable("h1", time.Hour)
	table.Sample([]measure.Job{slurm(1, 1)}, noon)
	set := func(key, value string) (Act, error) {
		return table.Set(named(1), state.Setting{Key: key, Value: value}, noon)
	}
	for n := range state.MaxSettings - 1 {
		if _, err := set("k"+strconv.Itoa(n), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ value, want string }{{"4 a", "slurm/1 1.65 progress"}, {"4 b", "slurm/1 1.65 "}, {"5 b", "slurm/1 1.66 progress"}} {
		act, err := set(state.ProgressKey, x.value)
		if err != nil {
			t.Fatal(err)
		}
		check(t, x.value, []Act{act}, x.want)
	}
	if _, err := set("one-more", ""); !errors.Is(err, state.ErrBounds) {
		t.Errorf("one more: %v", err)
	}
	if _, err := set("k3", "again"); err != nil {
		t.Error(err)
	}
	for run := 2; run <= 5; run++ { // each may set as many; all together have a bound
		table.Sample([]measure.Job{slurm(1, run)}, noon)
		var err error
		for n := range state.MaxSettings {
			if _, err = set("r"+strconv.Itoa(run)+"-"+strconv.Itoa(n), ""); err != nil {
				break
			}
		}
		if (err != nil) != (run == 5) || run == 5 && !errors.Is(err, state.ErrBounds) {
			t.Errorf("run %d: %v", run, err)
		}
	}
	for n := range state.MaxFiles + 1 {
		if _, err := table.Attach(named(1), state.File{Name: "f" + strconv.Itoa(n)}, noon); (err != nil) != (n == state.MaxFiles) {
			t.Errorf("file %d: %v", n, err)
		}
	}
	if _, err := set("bad key", ""); err == nil {
		t.Error("a bad key is set")
	}
}

// What is done to a run is noted so many times, and the last line says that there is more.
func TestNotesAreBounded(t *testing.T) {
	table := NewTable("h1", time.Hour)
	if acts := table.Note(named(1), "limited", "disk", noon); acts != nil {
		t.Errorf("of a job that is not here: %v", acts)
	}
	for run := 1; run <= 2; run++ {
		table.Sample([]measure.Job{slurm(1, run)}, noon)
		for n := range maxNotes + 2 {
			acts := table.Note(named(1), "limited", "disk", noon)
			if (len(acts) == 1) != (n < maxNotes) {
				t.Fatalf("run %d, note %d: %v", run, n, acts)
			}
			if len(acts) == 1 && strings.Contains(acts[0].Change.Detail, "the log of ahostd on h1") != (n == maxNotes-1) {
				t.Errorf("run %d, note %d: %q", run, n, acts[0].Change.Detail)
			}
		}
	}
}

// Pages hold all objects in their order, however many there are; what left goes on counting.
func TestAnnouncements(t *testing.T) {
	table := NewTable("h1", time.Hour)
	const n = 2*maxAnnounced + 7
	for id := range int64(n) {
		j := slurm(id+1, 2)
		table.See(named(id+1), &j, noon)
	}
	var of []int
	for rest := n; rest > 0; {
		of = append(of, len(table.Changes()))
		rest -= of[len(of)-1]
	}
	if len(of) != 3 || len(table.Changes()) != 0 {
		t.Errorf("changes in messages of %v", of)
	}
	for round := range 2 {
		seen, through := int64(0), ""
		for last := false; !last; {
			page, end := table.Page()
			if last = end; page.After != through {
				t.Fatalf("a page after %q, want %q", page.After, through)
			}
			through = page.Through
			for _, e := range page.Entries {
				if seen++; e.Job != named(seen) || !e.Live || e.Run != 2 || e.N != 1 {
					t.Fatalf("round %d: %+v", round, e)
				}
			}
		}
		if seen != n || through != "" {
			t.Errorf("round %d: %d jobs", round, seen)
		}
	}
	if !table.Push(named(1), noon) || table.Push(named(1), noon.Add(time.Second)) || !table.Push(named(1), noon.Add(time.Minute)) || table.Push(named(n+1), noon) {
		t.Error("copies of a job that is here go once a minute")
	}
	if _, gone := table.Left(named(1), state.Sequence{Run: 2, N: 1}, noon); gone {
		t.Error("a job that is here leaves")
	}
	table.Sample(nil, noon)
	table.Sample(nil, noon)
	if _, gone := table.Left(named(1), state.Sequence{Run: 2, N: 1}, noon); gone {
		t.Error("it leaves though something was written since")
	}
	if _, gone := table.Left(named(1), state.Sequence{Run: 2, N: 2}, noon); !gone {
		t.Error("it does not leave")
	}
	table.Forget(named(1))
	check(t, "the run goes on here", table.Sample([]measure.Job{slurm(1, 2)}, noon), "slurm/1 2.3 continued")
}
