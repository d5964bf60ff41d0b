package page

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

var update = flag.Bool("update", false, "write testdata/week.html")

const hostile = "<script>alert(1)</script>\x1b[31m\u202e\n\"'&\xff"

// fixture is the report of a busy week, with a project and a user of the given names.
func fixture(project, user string) Page {
	zone := time.FixedZone("CET", 3600)
	week := calendar.PeriodOf(calendar.Week{Year: 2026, Week: 47}, zone)
	slots := func(x float64) ledger.SlotTime { return ledger.SlotTime(math.Round(x) * float64(time.Hour)) }
	past := report.Past{History: report.History{Zone: zone}, Rates: report.Rates{Threshold: time.Minute, Cycle: 20 * time.Second}}
	alu := ledger.Pool{Project: "alu"}
	for i := range 7 * 24 {
		at := week.Begin.Add(time.Duration(i) * time.Hour)
		if i >= 60 && i < 66 {
			continue // no cycle ran
		}
		day := 12 + 10*math.Sin(float64(i%24-6)/24*2*math.Pi)
		past.Farm = append(past.Farm, ledger.FarmHour{Hour: at, Seen: time.Hour, Slots: slots(64), PBA: slots(day + 20), Normal: slots(18 + day/2)})
		past.Use = append(past.Use,
			ledger.UseHour{Hour: at, PoolID: 1, Pool: alu, Guaranteed: slots(24), Used: slots(min(24, day+6)), Waiting: slots(max(0, day-18))},
			ledger.UseHour{Hour: at, Pool: alu, Used: slots(max(0, day-16))},
			ledger.UseHour{Hour: at, PoolID: 2, Pool: ledger.Pool{Project: project}, Guaranteed: slots(20), Used: slots(day / 4)},
			ledger.UseHour{Hour: at, Pool: ledger.Pool{Project: "memctl", Step: "regress"}, Used: slots(18 + day/2)})
		past.Users = append(past.Users,
			ledger.UserHour{Hour: at, PoolID: 1, In: alu, Project: "alu", User: "ann", Used: slots(min(24, day+6))},
			ledger.UserHour{Hour: at, PoolID: 2, Project: project, User: user, Used: slots(day / 4)},
			ledger.UserHour{Hour: at, Project: "memctl", User: user, Step: "regress", Used: slots(18 + day/2)})
	}
	for i := range 40 {
		ended := week.Begin.Add(time.Duration(4*i) * time.Hour)
		past.Jobs = append(past.Jobs, ledger.PastJob{Project: "alu", User: "ann", PBA: true, Started: ended, Ended: ended, Waited: time.Duration(20+3*i) * time.Second},
			ledger.PastJob{Project: "memctl", User: user, Started: ended, Ended: ended, Waited: time.Duration(i) * time.Minute})
		past.Reclaims = append(past.Reclaims, ledger.PastReclaim{Clock: time.Duration(60+2*i) * time.Second, Started: ended, Reclaim: plan.Reclaim{
			Project: "alu", User: "ann", Need: 2, Phase: plan.HandedOver, Planned: ended, Acted: ended, Freed: ended,
			Victims: []plan.Victim{{Project: "memctl", User: user, Slots: 2, Fate: plan.Taken, RanFor: 20 * time.Minute}},
		}})
	}
	w := report.WeekOf(week, week.End, past, "", user, report.Readers())
	w.Advice = []report.Advice{
		{Kind: report.Unused, Project: project, What: project + " uses less than half of its guarantee: others could have slots of it", Evidence: "of what was promised it used 15 % in 2026-W45, 16 % in 2026-W46, 15 % in 2026-W47, and hardly more was waited for"},
		{Kind: report.PlanEnds, Project: "alu", What: "alu has no slots in 2026-W50: plan them, if it goes on", Evidence: "it has 24 slots this week, and its plan goes up to 2026-W49"},
	}
	return Page{Week: w, Zone: zone, Version: "1.0.0"}
}

func written(t *testing.T, p Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// To write the page anew, and see it: go test ./pba/report/page -run Golden -update
func TestGoldenPage(t *testing.T) {
	got := written(t, fixture("chipA", "bob"))
	file := filepath.Join("testdata", "week.html")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("see it, and if it is meant write it anew (-update): (-want +got):\n%.4000s", d)
	}
}

// A name is shown with what can't be seen made visible, and does nothing; nothing comes from
// elsewhere.
func TestHostileNames(t *testing.T) {
	p := fixture(hostile, hostile)
	p.Week.Project, p.Version = hostile, hostile
	html := written(t, p)
	for at, r := range html {
		if r != '\n' && r != '\u202f' && !strconv.IsPrint(r) {
			t.Fatalf("%q on the page: …%q…", r, html[max(0, at-80):at])
		}
	}
	if n := strings.Count(html, "&lt;script&gt;alert(1)"); n < 10 {
		t.Errorf("the name is there %d times", n)
	}
	for _, never := range []string{"<script", "<img", "<link rel=\"stylesheet", "<iframe", "<object", "@import", "url(", "javascript:"} {
		if at := strings.Index(html, never); at >= 0 {
			t.Errorf("%s: …%s…", never, html[max(0, at-80):min(len(html), at+120)])
		}
	}
	for _, m := range regexp.MustCompile(`[a-z:-]+="?(https?:|//)[^"]*`).FindAllString(html, -1) {
		if m != `xmlns="http://www.w3.org/2000/svg` {
			t.Errorf("the page names %s", m)
		}
	}
	for _, m := range regexp.MustCompile(`<[a-z]+[^<>]* (src|on[a-z]+)=`).FindAllString(html, -1) {
		t.Errorf("on the page: %s", m)
	}
}

// A week of which nothing is recorded has a page, and one of many projects a bounded number of
// charts.
func TestEmptyAndLargePages(t *testing.T) {
	week := calendar.PeriodOf(calendar.Week{Year: 2026, Week: 47}, time.UTC)
	past := report.Past{History: report.History{Zone: time.UTC}}
	if html := written(t, Page{Week: report.WeekOf(week, week.Begin, past, "", "", report.Readers()), Zone: time.UTC}); strings.Contains(html, "<svg") || !strings.Contains(html, ">none<") {
		t.Error("an empty page has charts, or does not say that it is empty")
	}
	past.Farm = []ledger.FarmHour{{Hour: week.Begin, Seen: time.Hour, Slots: ledger.SlotTime(time.Hour)}}
	for i := range maxCharts + 3 {
		past.Use = append(past.Use, ledger.UseHour{Hour: week.Begin, PoolID: int64(i + 1), Pool: ledger.Pool{Project: fmt.Sprintf("p%d", i)}, Guaranteed: ledger.SlotTime(time.Hour)})
	}
	html := written(t, Page{Week: report.WeekOf(week, week.End, past, "", "", nil), Zone: time.UTC})
	if n := strings.Count(html, "<svg"); n != 2*(maxCharts+3) || !strings.Contains(html, "Without a chart here: 3 more") {
		t.Errorf("%d charts", n)
	}
}
