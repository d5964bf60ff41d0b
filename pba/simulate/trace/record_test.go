package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// all reads a whole trace: its records, and what is wrong with its bad lines.
func all(t *testing.T, content string) (Format, []Record, []string) {
	t.Helper()
	format, source, err := Open(strings.NewReader(content), time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	var (
		good []Record
		bad  []string
	)
	for r, err := range source {
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		good = append(good, r)
	}
	return format, good, bad
}

func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func check(t *testing.T, content string, format Format, want []Record, wrong ...string) {
	t.Helper()
	got, records, bad := all(t, content)
	if got != format {
		t.Errorf("its format is %q", got)
	}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wrong, bad); diff != "" {
		t.Error(diff)
	}
}

func TestSWFRecords(t *testing.T) {
	check(t, `; UnixStartTime: 749458803
  57   25574  -1   10   1  9.5  -1   2  600  1024  1   4   1   2 -1 -1 -1 -1
broken
  59   26613   3  716  32   -1 2.5  -1   -1    -1  0   -1   1   3  0  1 57 20
  60   26614  -1    0  -1   -1  -1   2    1    -1  1   5   1   3  0  1 -1 -1
  61   26615  -1    0   1   -1  -1   2    1    -1  5   5   1   3  0  1 -1 -1
  62   26615  -1   -1   1   -1  -1   2    1    -1  1   5   1   3  0  1 -1 -1
`, SWF, []Record{
		{Submitted: at(749458803 + 25574), Run: 10 * time.Second, Slots: 1, User: "4", Project: "4", Group: "1", Memory: 1 << 20, RunLimit: 10 * time.Minute},
		{Submitted: at(749458803 + 26613), Run: 716 * time.Second, Slots: 32, User: "unknown", Project: "unknown", Group: "1", Queue: "0", Partition: "1"},
		{Submitted: at(749458803 + 26614), Run: time.Second, Slots: 2, User: "5", Project: "5", Group: "1", Queue: "0", Partition: "1"},
		{Submitted: at(749458803 + 26615), Slots: 1, User: "5", Project: "5", Group: "1", Queue: "0", Partition: "1", LeftOut: NeverRan},
		{Submitted: at(749458803 + 26615), Run: -1, Slots: 1, User: "5", Project: "5", Group: "1", Queue: "0", Partition: "1", LeftOut: NoLength},
	}, "line 3: 1 fields, want 18")
}

func TestSacctRecords(t *testing.T) {
	const head = "JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|AllocCPUS|State|TimelimitRaw|ReqMem\n"
	check(t, head+
		"12|alice|chipA:logic|2026-11-20T12:00:00|2026-11-20T12:01:00|2026-11-20T12:03:00|90|4|COMPLETED|60|4000M\n"+
		"12.batch||chipA|2026-11-20T12:01:00|2026-11-20T12:01:00|2026-11-20T12:03:00|120|4|COMPLETED||\n"+
		"13|bob|chipB|2026-11-20T12:00:01|None|2026-11-20T12:00:09|0|0|CANCELLED by 1000|60|4000M\n"+
		"14|bob|chipB|2026-11-20T12:00:02|2026-11-20T12:00:09|Unknown|5|1|RUNNING|60|4000M\n"+
		"15|bob\n"+
		"16|bob|chipB|yesterday|2026-11-20T12:00:09|Unknown|5|1|FAILED|60|4000M\n"+
		"17|bob|chipB|2026-11-20T12:00:02|Unknown|Unknown|5|1|ODD|60|4000M\n"+
		"18|bob|chipB|1795215258|2026-11-20T12:00:09|Unknown|7|2|TIMEOUT|UNLIMITED|2Gc\n",
		SAcct, []Record{
			{Submitted: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Run: 90 * time.Second, Slots: 4, User: "alice", Project: "chipA", Step: "logic", Memory: 4000 << 20, RunLimit: time.Hour},
			{Submitted: time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC), User: "bob", Project: "chipB", LeftOut: NeverRan},
			{Submitted: time.Date(2026, 11, 20, 12, 0, 2, 0, time.UTC), User: "bob", Project: "chipB", LeftOut: NotEnded},
			{Submitted: at(1795215258), Run: 7 * time.Second, Slots: 2, User: "bob", Project: "chipB", Memory: 4 << 30},
		},
		"line 6: 2 fields, want 11 as in the heading (a name with | in it? leave JobName and Comment out)",
		`line 7: column Submit: "yesterday" is not a time like 2026-11-20T12:34:56`,
		`line 8: column State: "ODD" is not known`)
}

// Without ElapsedRaw the run time is that of Elapsed, or of Start and End.
func TestSacctRunTimes(t *testing.T) {
	for columns, line := range map[string]string{
		"JobID|User|Submit|Start|End|NCPUS|State":     "1_7|bob|2026-11-20T12:00:00|2026-11-20T12:00:00|2026-11-21T13:01:01|1|COMPLETED",
		"JobID|User|Submit|Elapsed|NCPUS|State":       "1|bob|2026-11-20T12:00:00|1-01:01:01|1|COMPLETED",
		"JobID|User|Submit|Elapsed|ReqCPUS|State|End": "1|bob|2026-11-20T12:00:00|1501:01.5|1|FAILED|",
	} {
		check(t, columns+"\n"+line+"\n", SAcct, []Record{{
			Submitted: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Run: 25*time.Hour + time.Minute + time.Second, Slots: 1, User: "bob",
		}})
	}
}

func TestSacctHeading(t *testing.T) {
	_, _, bad := all(t, "JobID|User|Submit|State\n1|bob|2026-11-20T12:00:00|COMPLETED\n")
	if len(bad) == 0 || !strings.HasPrefix(bad[0], "line 1: the heading has no column ElapsedRaw or Elapsed or End: print it with -o JobIDRaw,") {
		t.Errorf("got %q", bad)
	}
}

const usage19 = "0.1 0.2 " + "-1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1"

func TestLSBRecords(t *testing.T) {
	finish := func(slots, submitted, started, ended int, asked, ran, project string) string {
		return fmt.Sprintf(`"JOB_FINISH" "10.1" %d 101 1001 33554451 %d %d 0 0 %d "alice" "normal" "select[type==any]" "" "" "lava0" "/home" "" "/tmp/o.%%J" "" "1795215258.789" %s %s 64 100.0 "name ""quoted"" > |" "sleep 300" %s "" "%s" 0 %d "" "" 0 7000 0 "" "" "" -1`+"\n",
			ended, slots, submitted, started, asked, ran, usage19, project, slots)
	}
	check(t, "#80\n"+
		finish(2, 1795215258, 1795215260, 1795215300, "0", `2 "n1" "n2"`, "chipA:logic")+
		`"EVENT_ADRSV_FINISH" "10.1" 1795215300 x`+"\n"+
		finish(1, 1795215200, 1795215260, 1795215400, `1 "n1"`, `2 "4*n1" "n2"`, "default")+
		finish(1, 1795215200, 0, 1795215400, "0", "0", "default")+
		`"JOB_FINISH" "10.1" 1795215300 101`+"\n"+
		`"JOB_FINISH" "10.1`+"\n"+
		finish(1, 1795215200, 1795215500, 1795215400, "0", `1 "n1"`, "default"),
		LSBAcc, []Record{
			{Submitted: at(1795215258), Run: 40 * time.Second, Slots: 2, User: "alice", Queue: "normal", Project: "chipA", Step: "logic"},
			{Submitted: at(1795215200), Run: 140 * time.Second, Slots: 5, User: "alice", Queue: "normal", Project: "default"},
			{Submitted: at(1795215200), Slots: 1, User: "alice", Queue: "normal", Project: "default", LeftOut: NeverRan},
		},
		"line 6: field 5 (userId): missing",
		"line 7: field 2 (version): its closing quote is missing",
		"line 8: field 11 (startTime): 1795215500 is not possible for an end at 1795215400")
}

func TestOpen(t *testing.T) {
	for name, content := range map[string]string{"nothing": "", "prose": "Dear all,\n", "binary": "\x00\x01\x02"} {
		if _, _, err := Open(strings.NewReader(content), time.UTC); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("; x\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if format, _, err := Open(&packed, time.UTC); format != SWF || err != nil {
		t.Errorf("packed: %q, %v", format, err)
	}
}

// A store returns its records sorted, from memory and from files.
func TestStore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var given []Record
	for i := range 1000 {
		given = append(given, Record{Submitted: at(int64(r.IntN(300))), Run: time.Duration(i), Slots: 1, User: "u"})
	}
	want := slices.Clone(given)
	slices.SortStableFunc(want, func(a, b Record) int { return a.Submitted.Compare(b.Submitted) })
	for _, perFile := range []int{0, 64, 1000} {
		s := Store{perFile: perFile}
		defer s.Close()
		err := s.Fill(func(yield func(Record, error) bool) {
			for i, r := range given {
				if i%100 == 0 && !yield(Record{}, &LineError{i, errors.New("bad")}) || !yield(r, nil) {
					return
				}
			}
		}, 10)
		if err != nil || s.Jobs != 1000 || len(s.Bad) != 10 || s.First != want[0].Submitted || s.Last != want[999].Submitted {
			t.Fatalf("%d jobs from %v to %v, %d bad lines, %v", s.Jobs, s.First, s.Last, len(s.Bad), err)
		}
		for range 2 {
			var got []Record
			for r, err := range s.All() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%d a file: %s", perFile, diff)
			}
		}
	}
}

// One bad line more than may be skipped is an error.
func TestStoreSkipBad(t *testing.T) {
	_, source, err := Open(strings.NewReader("; x\na\nb\n"), time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	var s Store
	if err := s.Fill(source, 1); err == nil || err.Error() != "line 3: 1 fields, want 18" || len(s.Bad) != 1 {
		t.Errorf("%v after %q", err, s.Bad)
	}
}

// fuzz reads any input to its end: every record is plausible, and an error that is not
// of a line is the last value.
func fuzz(t *testing.T, content string) {
	_, source, err := Open(strings.NewReader(content), time.UTC)
	if err != nil {
		return
	}
	var ended error
	for r, err := range source {
		var line *LineError
		switch {
		case ended != nil:
			t.Fatalf("it went on after %v", ended)
		case errors.As(err, &line):
			if line.Line < 1 {
				t.Errorf("no line: %v", err)
			}
		case err != nil:
			ended = err
		case r.LeftOut == "" && (r.Run <= 0 || r.Slots < 1 || r.User == "" || r.Memory < 0 || r.RunLimit < 0 || r.Submitted.Year() < 1970):
			t.Errorf("%+v", r)
		}
	}
}

func FuzzSWF(f *testing.F) {
	f.Add(small)
	f.Add("; UnixStartTime: 749458803\n1 2 -1 3 4 -1 -1 -1 -1 -1 1 4 1 2 -1 -1 -1 -1\n")
	f.Fuzz(func(t *testing.T, content string) { fuzz(t, ";\n"+content) })
}

func FuzzSacct(f *testing.F) {
	f.Add("JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|AllocCPUS|State|TimelimitRaw|ReqMem\n12|alice|chipA|2026-11-20T12:00:00|2026-11-20T12:01:00|2026-11-20T12:03:00|90|4|COMPLETED|60|4000M\n")
	f.Add("JobID|User|Submit|Elapsed|NCPUS|State\n1|bob|2026-11-20T12:00:00|1-01:01:01|1|COMPLETED\n")
	f.Fuzz(fuzz)
}

func FuzzLSB(f *testing.F) {
	f.Add(`"JOB_FINISH" "10.1" 1795215300 101 1001 33554451 2 1795215258 0 0 1795215260 "alice" "normal" "" "" "" "lava0" "/home" "" "" "" "" 0 1 "2*n1" 64 100.0 "n" "c" ` + usage19 + ` "" "chipA" 0 1` + "\n")
	f.Fuzz(func(t *testing.T, content string) { fuzz(t, "#\n"+content) })
}

func TestSacctPlaces(t *testing.T) {
	const heading = "JobIDRaw|User|Submit|ElapsedRaw|AllocCPUS|State|Partition|NNodes|AllocTRES\n"
	amount := func(name string, n int) backends.Amount { return backends.Amount{Name: name, Count: n} }
	check(t, heading+
		"1|ann|1000|10|4|COMPLETED|long|2|billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=4,mem=8G,node=2\n"+
		"2|bob|1000|10|1|COMPLETED|short|1|cpu=1,gres/gpu=0,node=1\n"+
		"3|bob|1000|10|1|COMPLETED|short|1|gres/gpu=many\n"+
		"4|bob|1000|10|1|COMPLETED||x|\n", SAcct,
		[]Record{
			{Submitted: at(1000), Run: 10 * time.Second, Slots: 4, User: "ann", Partition: "long", Nodes: 2, Units: []backends.Amount{amount("gpu", 4), amount("gpu:a100", 2)}},
			{Submitted: at(1000), Run: 10 * time.Second, Slots: 1, User: "bob", Partition: "short", Nodes: 1},
		},
		`line 4: column AllocTRES: "gres/gpu=many" is not a number of some gres`,
		`line 5: column NNodes: "x" is not a number from 0 to 16777216`)
}
