package desk

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

const someTable = `project,step,user,hosts,sla,jobs,2026-W52,2026-W53,(total)
(revision),57
(free),,,,,,12,"1,300"
chipA,logic,,,velocity,,12,,12
chipA,logic,,,throughput,5000,,5,5
chipA,,bob,gpu,,,1440,1,
chipB,,,,,,,,
`

// someWeeks reads the weeks of a table's head.
var someWeeks = calendar.Reader{This: calendar.Week{Year: 2026, Week: 51}, Last: calendar.Week{Year: 2027, Week: 7}}

// TestTableIsRead: a table is a plan however a spreadsheet wrote it.
func TestTableIsRead(t *testing.T) {
	w52, w53 := calendar.Week{Year: 2026, Week: 52}, calendar.Week{Year: 2026, Week: 53}
	want := []ledger.Change{
		{Pool: ledger.Pool{Project: "chipA", Step: "logic"}, Week: w52, Terms: ledger.Terms{Slots: 12, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "chipA", Step: "logic"}, Week: w53, Terms: ledger.Terms{Slots: 5, SLA: plan.Throughput, Jobs: 5000}},
		{Pool: ledger.Pool{Project: "chipA", User: "bob", Hosts: "gpu"}, Week: w52, Terms: ledger.Terms{Slots: 1440, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "chipA", User: "bob", Hosts: "gpu"}, Week: w53, Terms: ledger.Terms{Slots: 1, SLA: plan.Velocity}},
	}
	replaced := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(someTable) }
	for name, text := range map[string]string{
		"as it was written":         someTable,
		"BOM and CRLF":              "\ufeff" + replaced("\n", "\r\n"),
		"semicolons":                replaced(",\"1,300\"", ";1.300", ",", ";"),
		"semicolons and groups":     replaced(",\"1,300\"", ";1.300", ",", ";", "1440", "1.440"),
		"a separator in line 1":     "sep=;\r\n" + replaced(",\"1,300\"", ";1.300", ",", ";"),
		"tabs":                      replaced(",\"1,300\"", "\t", ",", "\t"),
		"groups":                    replaced("1440", "\"1,440\""),
		"weeks in other forms":      replaced("2026-W52", "W52", "2026-W53", "2026-12-28"),
		"weeks as numbers":          replaced("2026-W52", "52", "2026-W53", "w53"),
		"spaces between groups":     replaced("1440", "1\u202f440", "5000", "5 000"),
		"spaces around":             replaced("chipA", " chipA ", "bob", "\u00a0bob", "12,,", " 12 ,,", "2026-W52", " 2026-w52 "),
		"decimals":                  replaced("12,,12", "12.0,,12.0", "1440", "1440.00"),
		"nothing, in several ways":  replaced("12,,12", "12,-,12", "5000,,5", "5000,0,5", "chipB,,,", "chipB,-,.,"),
		"a changed total":           replaced("12,,12", "12,,999", "57", "57,,,,,,,,"),
		"empty rows and columns":    replaced("chipB", ",,,\n\nchipB", "12,,12", "12,,12,,,"),
		"quoted against formulas":   replaced("bob", "'bob"),
		"columns in another order":  "2026-W52,project,hosts,2026-W53,step,jobs,sla,user,(notes)\n,(revision),,57\n12,chipA,,,logic,,,,later\n,chipA,,5,logic,5000,throughput\n1440,chipA,gpu,1,,,,bob\n,chipB\n",
		"a revision in another row": replaced("(revision),57\n", "") + "(revision),57\n",
	} {
		if name == "quoted against formulas" { // a name that begins so is no formula
			text = strings.Replace(text, "'bob", "'@bob", 1)
		}
		p, err := readSheet(someWeeks, "p", CSVFile, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := slices.Clone(p.Allocations)
		for i := range got {
			got[i].User = strings.TrimPrefix(got[i].User, "@")
		}
		if d := cmp.Diff(want, got); d != "" || p.Revision != 57 || !cmp.Equal(p.Projects, []string{"chipA", "chipB"}) || p.From != w52 || p.To != w53 {
			t.Errorf("%s: revision %d, projects %v, %v to %v\n%s", name, p.Revision, p.Projects, p.From, p.To, d)
		}
	}
}

// TestTableFaults: all faults are named, each by its cell.
func TestTableFaults(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"letters":            {"velocity,,12", "velocity,,12a", []string{`p: cell G4: "12a" is no number of slots`}},
		"half a slot":        {"velocity,,12", "velocity,,1.5", []string{`p: cell G4: "1.5" is no whole number of slots`}},
		"negative":           {"velocity,,12", "velocity,,-3", []string{`p: cell G4: "-3" is no number of slots: it is below zero`}},
		"too many":           {"velocity,,12", "velocity,,4294967296", []string{`p: cell G4: "4294967296" is too large a number of slots`}},
		"jobs":               {"5000", "many", []string{`p: cell F5: "many" is no number of jobs`}},
		"no jobs":            {"throughput,5000", "throughput,", []string{"p: cell E5: throughput needs a number of jobs, one or more"}},
		"unknown SLA":        {"velocity", "fast", []string{`p: cell E4: "fast" is no SLA (known: velocity, throughput)`}},
		"a date":             {"2026-W53", "28.12.2026", []string{`p: cell H1: "28.12.2026" is a date: write its week, such as 2026-W48`}},
		"no week":            {"2026-W53", "2025-W53", []string{`p: cell H1: "2025-W53" is no week: 2025 has only 52; other columns are project, step, user, hosts, sla, jobs`}},
		"another week later": {"2026-W53", "next", []string{`p: cell H1: "next" is another week later; write it like 2026-W48; other columns`}},
		"a week of no plan":  {"2026-W53", "W20", []string{`p: cell H1: "W20": there is no such week from 2026-W51 to 2027-W07; write its year, too: 2026-W20`}},
		"several weeks":      {"2026-W53", "53-2", []string{`p: cell H1: "53-2" is several weeks: a column has one`}},
		"the same, as a day": {"2026-W53", "2026-12-24", []string{"p: cell H1: the week 2026-W52 is given a second time (first in column G)"}},
		"the same week":      {"2026-W53", "2026-W52", []string{"p: cell H1: the week 2026-W52 is given a second time (first in column G)"}},
		"the same column":    {",step", ",project", []string{"p: cell B1: the column project is given a second time", "p: cell B3: project: it is missing (and 2 more cells)"}},
		"a missing project":  {"chipB,,,,,,,", ",logic,,,,,,", []string{"p: cell A7: project: it is missing"}},
		"the same row":       {"chipB,,,", "chipA,logic,,", []string{"p: cell A7: chipA:logic is given a second time (first in row 4)"}},
		"the same cell":      {"5000,,5", "5000,3,5", []string{"p: cell G5: chipA:logic in 2026-W52 has slots in row 4, too"}},
		"a week without one": {"2026-W53", "", []string{"p: cell H5: the column H has no head: write its week into row 1, or empty it (and 1 more cell)"}},
		"no head":            {"project,step", "chips,stage", []string{`p: cell A1: "chips" is no week; write it like 2026-W48, W48, 48 or 2026-11-25; other columns are project`}},
		"no weeks":           {"2026-W52,2026-W53", ",", []string{"p: cell A1: this row names no week"}},
		"a bad revision":     {"(revision),57", "(revision),x", []string{`p: cell B2: "x" is no revision of a plan`}},
		"three":              {"velocity,,12,,12\nchipA,logic,,,throughput,5000,,5", "velocity,,12a,O,\nchipA,logic,,,throughput,5000,,½", []string{`p: cell G4: "12a"`, `p: cell H4: "O" is no number`, `p: cell H5: "½" is no number`}},
		"no text":            {"chipB", "chip\xe4", []string{"p: it is no text in UTF-8"}},
		"an open quote":      {"chipB", "\"chipB", []string{"p: line 7: "}},
		"hostile":            {"chipB", "\"chip\x1b[31m\n\"\"B\"", []string{}},
	} {
		text := strings.Replace(someTable, c.old, c.new, 1)
		if text == someTable {
			t.Errorf("%s: nothing was changed", name)
		}
		p, err := readSheet(someWeeks, "p", CSVFile, []byte(text))
		var lines []string
		var faults *FileFaults
		if errors.As(err, &faults) {
			lines = faults.Lines()
		} else if err != nil {
			lines = []string{err.Error()}
		}
		if len(c.want) == 0 && err == nil && p != nil {
			continue
		}
		for i, want := range c.want {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: %q; want %q", name, lines, c.want)
				break
			}
		}
		if len(lines) < len(c.want) || strings.ContainsFunc(strings.Join(lines, ""), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%s: %q", name, lines)
		}
	}
	for _, empty := range []string{"", "\n\n", "project\nchipA\n", "\ufeff"} {
		if p, err := readSheet(someWeeks, "p", CSVFile, []byte(empty)); err == nil {
			t.Errorf("%q was read as a plan: %+v", empty, p)
		}
	}
}

// TestNumbers: a number is read as it is meant, or not at all.
func TestNumbers(t *testing.T) {
	for text, want := range map[string][3]int{ // English, European, not known; -1: refused
		"12": {12, 12, 12}, "012": {12, 12, 12}, "12.0": {12, 12, 12}, "12,00": {12, 12, 12},
		"1,440": {1440, -1, -1}, "1.440": {-1, 1440, -1}, "12,000": {12000, 12, -1}, "12.000": {12, 12000, -1},
		"1 440": {1440, 1440, 1440}, "1’440": {1440, 1440, 1440}, "1.234.567": {1234567, 1234567, 1234567}, "1,234,567": {1234567, 1234567, 1234567},
		"1,234.567": {-1, -1, -1}, "1.5": {-1, -1, -1}, "1e3": {-1, -1, -1}, "0x10": {-1, -1, -1}, "+5": {-1, -1, -1}, "12 a": {-1, -1, -1},
		"99999999999999999999": {-1, -1, -1}, "٣": {-1, -1, -1}, "=12": {-1, -1, -1}, "TRUE": {-1, -1, -1}, "12 34": {-1, -1, -1},
	} {
		for i, s := range []separators{english, european, unknown} {
			got, err := s.whole(text, "slots")
			if err != nil {
				got = -1
			}
			if got != want[i] {
				t.Errorf("%q with %v: %d, %v; want %d", text, s, got, err, want[i])
			}
		}
	}
}

func TestCellNames(t *testing.T) {
	for column, want := range map[int]string{0: "A", 25: "Z", 26: "AA", 51: "AZ", 52: "BA", 701: "ZZ", 702: "AAA"} {
		if got := cellName(column); got != want {
			t.Errorf("%d is %s, want %s", column, got, want)
		}
	}
}

// TestFaultsAreBounded: a file of nothing but faults gives as many as can be read.
func TestFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("project,2026-W52\n")
	for i := range 200 {
		b.WriteString("chip" + strings.Repeat("x", i) + ",a" + strings.Repeat("b", i%7) + strings.Repeat("y", i) + "\n")
	}
	_, err := readSheet(someWeeks, "p", CSVFile, []byte(b.String()))
	var faults *FileFaults
	if !errors.As(err, &faults) || len(faults.Faults) != maxFaults || faults.More == 0 || len(err.Error()) > 20000 {
		t.Errorf("%v", err)
	}
	if _, err := readSheet(someWeeks, "p", CSVFile, []byte("project,2026-W52\n"+strings.Repeat("chipA\n", 20000))); err == nil {
		t.Error("20,000 rows were read")
	}
	if _, err := readSheet(someWeeks, "p", CSVFile, []byte("project"+strings.Repeat(",", 300)+"\n")); err == nil {
		t.Error("300 columns were read")
	}
	if _, err := readSheet(someWeeks, "p", CSVFile, make([]byte, maxSheetFile+1)); err == nil {
		t.Error("a file of 16 MB was read")
	}
}

// exportOf is the grid of an export of what is planned.
func exportOf(in gridInput) *Grid {
	g := makeGrid(in, GridQuery{ByStep: true, ByUser: true, ByHosts: true, ByTerms: true})
	g.Revision = 57
	return g
}

// TestExportIsImported: the import of an export changes nothing.
func TestExportIsImported(t *testing.T) {
	in := someGridInput()
	in.planned = append(in.planned, somePlanned(ledger.Pool{Project: "chipB", User: "=cmd|' /C calc'!A0"}, 0, 1), somePlanned(ledger.Pool{Project: "010", User: "@x", Step: "1e3"}, 0, 1), somePlanned(ledger.Pool{Project: "010", User: "ü, \"y\""}, 0, 2))
	in.blank = []ledger.Pool{{Project: "chipC"}}
	for _, kind := range sheetKinds {
		var out bytes.Buffer
		if err := exportOf(in).Write(kind, &out); err != nil {
			t.Fatal(err)
		}
		p, err := readSheet(someWeeks, "p", kind, out.Bytes())
		if err != nil {
			t.Fatalf("%s: %v\n%s", kind, err, out.String())
		}
		if d := p.differences(in.planned); len(d) > 0 || p.Revision != 57 || len(p.Projects) != 4 || len(p.Weeks) != 3 {
			t.Errorf("%s: %+v, revision %d, projects %v", kind, d, p.Revision, p.Projects)
		}
		if kind == CSVFile {
			for cell := range strings.FieldsFuncSeq(out.String(), func(r rune) bool { return r == ',' || r == '\n' }) {
				if risky(strings.Trim(cell, `"`)) && !plainNumber.MatchString(cell) {
					t.Errorf("a formula: %s", cell)
				}
			}
		}
	}
}

// TestMissingWeeksStay: a table decides about the weeks of its columns alone.
func TestMissingWeeksStay(t *testing.T) {
	p, err := readSheet(someWeeks, "p", CSVFile, []byte("project,2026-W52,2027-W01\nchipA,3,\n"))
	if err != nil {
		t.Fatal(err)
	}
	pool := ledger.Pool{Project: "chipA"}
	planned := []ledger.Allocation{somePlanned(pool, 0, 3), somePlanned(pool, 1, 7), somePlanned(pool, 2, 9), somePlanned(ledger.Pool{Project: "chipB"}, 0, 5)}
	want := []Difference{{ledger.Change{Pool: pool, Week: planned[2].Week}, planned[2].Terms}}
	if d := cmp.Diff(want, p.differences(planned)); d != "" {
		t.Error(d)
	}
}

// TestMerge: of two managers with the same file both changes stay, and a cell that both
// changed is a clash.
func TestMerge(t *testing.T) {
	pool := func(step string) ledger.Pool { return ledger.Pool{Project: "chipA", Step: step} }
	week := calendar.Week{Year: 2026, Week: 52}
	terms := func(slots int) ledger.Terms {
		if slots == 0 {
			return ledger.Terms{}
		}
		return ledger.Terms{Slots: slots, SLA: plan.Velocity}
	}
	differs := func(step string, was, is int) Difference {
		return Difference{ledger.Change{Pool: pool(step), Week: week, Terms: terms(is)}, terms(was)}
	}
	all := []Difference{differs("mine", 4, 5), differs("theirs", 7, 3), differs("both", 9, 8), differs("removed", 0, 2), differs("again", 20, 12), differs("theirs-new", 6, 0), differs("back", 3, 4)}
	edited := func(who, step string, before int) ledger.Record {
		return ledger.Record{Who: who, Pool: pool(step), Week: week, Was: terms(before)}
	}
	changes, clashes, kept := merge(all, []ledger.Record{
		edited("bob (uid 2)", "theirs", 3), edited("carol (uid 3)", "theirs", 6), edited("bob (uid 2)", "both", 7), edited("bob (uid 2)", "removed", 2),
		edited("ann (uid 1) by sudo", "again", 12), edited("bob (uid 2)", "theirs-new", 0), edited("bob (uid 2)", "back", 3), edited("bob (uid 2)", "back", 5), edited("bob (uid 2)", "other", 1),
	}, "ann (uid 1)")
	if d := cmp.Diff([]Difference{all[0], all[2], all[4], all[6]}, changes); d != "" {
		t.Errorf("changes: %s", d)
	}
	if d := cmp.Diff([]Difference{all[1], all[3], all[5]}, kept); d != "" {
		t.Errorf("kept: %s", d)
	}
	if len(clashes) != 1 || clashes[0].difference != all[2] || clashes[0].edit.Who != "bob (uid 2)" {
		t.Errorf("clashes: %+v", clashes)
	}
}

func TestReadKind(t *testing.T) {
	for content, want := range map[string]FileKind{
		"project,2026-W48\n": CSVFile, "\ufeff\"Project\";step\n": CSVFile, "sep=;\r\nproject;step": CSVFile, "PK\x03\x04x": XLSXFile,
		"projects: [chipA]\n": YAMLFile, "project: x, y": YAMLFile, "from: 2026-W48\n": YAMLFile, "": YAMLFile,
	} {
		if got := readKind("-", []byte(content)); got != want {
			t.Errorf("%q is %s, want %s", content, got, want)
		}
	}
	for file, want := range map[string]FileKind{"a.csv": CSVFile, "a.XLSX": XLSXFile, "a.yaml": YAMLFile, "a": YAMLFile, "a.csv.yml": YAMLFile} {
		if got := readKind(file, nil); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	if _, err := KindOf("ods", ""); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// FuzzReadSheet: a table is read, or its error names the file; what is read is written and
// read again the same.
func FuzzReadSheet(f *testing.F) {
	f.Add([]byte(someTable))
	f.Add([]byte("sep=;\r\nproject;2026-W52\r\nchipA;1.440\r\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := readSheet(someWeeks, "plan.csv", CSVFile, content)
		if err != nil {
			if !strings.Contains(err.Error(), "plan.csv") {
				t.Errorf("%q: %v", content, err)
			}
			return
		}
		in := gridInput{weeks: p.Weeks}
		for _, c := range p.Allocations {
			in.planned = append(in.planned, ledger.Allocation{Pool: c.Pool, Week: c.Week, Terms: c.Terms})
		}
		for _, project := range p.Projects {
			in.blank = append(in.blank, ledger.Pool{Project: project})
		}
		in.weeks = nil
		for w := p.From; w.Compare(p.To) <= 0 && len(in.weeks) < maxGridWeeks; w = calendar.AddWeeks(w, 1) {
			in.weeks = append(in.weeks, w)
		}
		if len(in.weeks) != len(p.Weeks) {
			return // weeks are missing: no export has such
		}
		g := exportOf(in)
		g.Revision = p.Revision
		var out bytes.Buffer
		if err := g.Write(CSVFile, &out); err != nil {
			t.Fatalf("%q can't be written: %v", content, err)
		}
		again, err := readSheet(someWeeks, "plan.csv", CSVFile, out.Bytes())
		if err != nil {
			t.Fatalf("%q was written as %q: %v", content, out.Bytes(), err)
		}
		order := cmpopts.SortSlices(func(a, b ledger.Change) bool {
			return a.Week.Compare(b.Week) < 0 || a.Week == b.Week && a.Pool.Compare(b.Pool) < 0
		})
		if diff := cmp.Diff(p.Allocations, again.Allocations, cmpopts.EquateEmpty(), order); diff != "" || p.Revision != again.Revision {
			t.Errorf("%q was written as %q:\n%s", content, out.Bytes(), diff)
		}
	})
}
