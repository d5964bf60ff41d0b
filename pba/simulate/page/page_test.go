package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

func written(t *testing.T, p Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Nothing on the page comes from elsewhere, and nothing on it runs.
func TestPageIsSelfContained(t *testing.T) {
	html := written(t, fixturePage())
	for _, never := range []string{"<script", "<img", "<link rel=\"stylesheet", "<iframe", "<object", "@import", "url(", "javascript:"} {
		if at := strings.Index(html, never); at >= 0 {
			t.Errorf("%s: …%s…", never, html[max(0, at-80):min(len(html), at+120)])
		}
	}
	if m := regexp.MustCompile(`<[a-z]+[^<>]* (src|on[a-z]+)=`).FindString(html); m != "" {
		t.Errorf("on the page: %s", m)
	}
	for _, m := range regexp.MustCompile(`[a-z:-]+="?(https?:|//)[^"]*`).FindAllString(html, -1) {
		if m != `xmlns="http://www.w3.org/2000/svg` {
			t.Errorf("the page names %s", m)
		}
	}
	for _, m := range regexp.MustCompile(`href="[^"]*"`).FindAllString(html, -1) {
		if m != `href="data:,"` && !strings.HasPrefix(m, `href="#`) {
			t.Errorf("the page leads to %s", m)
		}
	}
}

// A name is shown as it is, with what can't be seen made visible, and does nothing.
func TestHostileNames(t *testing.T) {
	html := written(t, fixturePage())
	for at, r := range html {
		if r != '\n' && r != '\u202f' && !strconv.IsPrint(r) {
			t.Fatalf("%q on the page: …%q…", r, html[max(0, at-80):at])
		}
	}
	shown := regexp.MustCompile(`&lt;/title&gt;&lt;script&gt;alert\(1\)&lt;/script&gt;`)
	// Command, version, name twice, trace, format, bad line, why, user, step, note;
	// its project in the head twice, a table, and a caption, title and text each.
	if n := len(shown.FindAllString(html, -1)); n < 16 {
		t.Errorf("the hostile text is shown %d times", n)
	}
	if !strings.Contains(html, `\x1b[31m\u202egnp.exe`) {
		t.Error("what can't be seen is not made visible")
	}
	if strings.Count(html, "<title>") != 1 || strings.Count(html, "</html>") != 1 {
		t.Error("a name ended the title or the page")
	}
}

// Each chart has a title and text for readers who can't see it; and is sound XML.
func TestChartsAreValid(t *testing.T) {
	html := written(t, fixturePage())
	charts := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(html, -1)
	// Two widths of utilization and of the projects that are charted, three
	// distributions, for two runs; and the sweeps.
	if want := 2*(1+1) + 3 + 2*(1+chartedProjects) + 3 + 3; len(charts) != want {
		t.Errorf("%d charts, want %d", len(charts), want)
	}
	ids := map[string]bool{}
	for _, chart := range charts {
		checkXML(t, chart)
		id := regexp.MustCompile(`<title id="([^"]+)">[^<]+</title>\n<desc id="[^"]+">[^<]+</desc>`).FindStringSubmatch(chart)
		if id == nil || ids[id[1]] {
			t.Fatalf("no title or text, or one of another chart: %s", chart[:300])
		}
		ids[id[1]] = true
	}
	if !strings.Contains(html, "Without a chart here: 1 more of the projects") {
		t.Error("the page does not state that a project has no chart")
	}
}

func checkXML(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v: %s", err, svg[:300])
		}
	}
}

// The same results give the same bytes.
func TestPageIsDeterministic(t *testing.T) {
	first := written(t, fixturePage())
	if written(t, fixturePage()) != first {
		t.Error("two pages of the same results differ")
	}
}

// Every figure is labelled with its name, its unit, and how it was measured; the head
// states what was simulated, and what was left out.
func TestFiguresAreLabelled(t *testing.T) {
	r := fixture("user7", "user4")
	for _, table := range tables(r) {
		for _, g := range table.Groups {
			if g.Name == "" || g.How == "" && table.About == "" {
				t.Errorf("%s: %q does not say how it was measured", table.Caption, g.Name)
			}
			for _, row := range g.Rows {
				if row.Label == "" || len(row.Cells) != len(r.Policies) {
					t.Errorf("%s, %s: %q has %d figures of %d policies", table.Caption, g.Name, row.Label, len(row.Cells), len(r.Policies))
				}
			}
		}
	}
	html := written(t, Page{Command: "pba simulate --seed 1", Version: "1.2.3", Runs: []Run{{"", r}}, Sweeps: sweeps()})
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.ReplaceAll(html, "\u202f", ""), " ")
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"pba simulate --seed 1", "NASA-iPSC-1993-3.1-cln.swf.gz (swf)", "18066 simulated, 4211 of them within the guarantee; 12 left out", "wider than what dedicated leaves the others fenced off 173 0.9 % 5083 28.6 %", "wider than the farm all 12 0.1 % 100 0.5 %",
		"128 slots on 128 hosts", "32 slots for project user7; 32 slots for project user4", "1993-10-01 07:00 to 1994-01-01 07:00 UTC (92 d)", "with seed 1", "Allotment 1.2.3",
		"median 1778 29.6 min 44.4 1.1", "the promise is 100 s", "jobs beyond the promise 0 0 3 of these, put off by max_victims_per_project 0 0 2", "checked 0 0 200 cheaper sets found 0 0 1", "greatest 4411 4411 4411", "used 65.6 % 64.8 % 65.6 %", "useful 65.6 % 64.8 % 65.5 %", "lost 0 0 583", "seconds 1234567 14.3 d 61728 17.1 h 3086 51.4 min",
		"Preemptions runs that were ended or suspended for another job all 0 0 312 suspended 0 0 31", "requested 0 0 1411", "evicted 0 0 1529", "evicted ÷ requested – – 1.08", "useless 0 0 2",
		"Project user4 guarantee of at most 32 slots jobs 5000", "All other projects jobs 13066",
		"pending_threshold The default, 60, is in bold",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Missing data is left out, and breaks nothing.
func TestMissingData(t *testing.T) {
	bare := fixture("a")
	for i := range bare.Policies {
		bare.Policies[i].Series, bare.Policies[i].Projects = simulate.Series{}, nil
	}
	one := fixture("a")
	for i := range one.Policies {
		s := &one.Policies[i].Series
		s.Utilization, s.Bucket, s.Waits = s.Utilization[:1], 1, []simulate.WaitBin{{Seconds: -1, Within: 3}}
		for k := range s.Pools {
			s.Pools[k] = simulate.Pool{Project: s.Pools[k].Project, Held: []float64{0}, Allocated: []float64{0}, Waiting: []float64{0}}
		}
	}
	for name, p := range map[string]Page{
		"nothing": {}, "no policies": {Runs: []Run{{"", &simulate.Result{}}}}, "no series": {Runs: []Run{{"", bare}}}, "one bucket": {Runs: []Run{{"", one}}},
		"one sweep point": {Sweeps: []simulate.Sweep{{Setting: "headroom", Default: 1.5, Points: []simulate.SweepPoint{{Value: 1.5}}}}},
		"empty sweep":     {Sweeps: []simulate.Sweep{{Setting: "headroom"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if html := written(t, p); !strings.HasSuffix(html, "</html>\n") || strings.Contains(html, "NaN") || strings.Contains(html, "Inf") {
				t.Error("the page is not whole")
			}
		})
	}
}

func TestWriteSweeps(t *testing.T) {
	var out bytes.Buffer
	if err := WriteSweeps(&out, sweeps()); err != nil {
		t.Fatal(err)
	}
	checkXML(t, out.String())
	for _, want := range []string{"pending_threshold, seconds (default 60)", "min_runtime, seconds (default 60)", "headroom, a factor (default 1.5)", `width="1080"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the chart lacks %s", want)
		}
	}
	if err := WriteSweeps(&out, nil); err == nil {
		t.Error("a chart of nothing")
	}
	if err := WriteSweeps(&out, []simulate.Sweep{{Setting: "x"}}); err == nil {
		t.Error("a chart of a sweep without points")
	}
}

// Waits add up; jobs beyond the last bin never count as started.
func TestCumulative(t *testing.T) {
	bins := []simulate.WaitBin{{Seconds: 0, Rest: 2}, {Seconds: 10}, {Seconds: 60, Rest: 1}, {Seconds: 3600}, {Seconds: -1}}
	rest := func(b simulate.WaitBin) int { return b.Rest }
	check := func(want plotter.XYs, wantWithin float64) {
		t.Helper()
		got, within := cumulative(bins, rest)
		if d := cmp.Diff(want, got); d != "" || within != wantWithin {
			t.Errorf("within %v (-want +got):\n%s", within, d)
		}
	}
	check(plotter.XYs{{X: atOnce, Y: 100 * 2.0 / 3}, {X: 10, Y: 100 * 2.0 / 3}, {X: 60, Y: 100}}, 60)
	bins[4].Rest = 1
	check(plotter.XYs{{X: atOnce, Y: 50}, {X: 10, Y: 50}, {X: 60, Y: 75}, {X: 3600, Y: 75}}, 3600)
	bins = nil
	check(nil, 0)
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{chart.Count(0), "0"},
		{chart.Count(999), "999"},
		{chart.Count(1000), "1\u202f000"},
		{chart.Count(-1234567), "−1\u202f234\u202f567"},
		{plural(1, "slot"), "1 slot"},
		{plural(2, "slot"), "2 slots"},
		{chart.Number(1.5), "1.5"},
		{chart.Number(100), "100"},
		{chart.Number(1234.6), "1\u202f235"},
		{percent(0.6555), "65.5 %"},
		{seconds(59.96), "60"},
		{seconds(74.46), "74.5"},
		{seconds(16101.2), "16\u202f101"},
		{human(60), "60 s"},
		{human(100), "100 s"},
		{human(150), "2.5 min"},
		{human(7200), "2 h"},
		{human(86400 * 45.8), "45.8 d"},
		{slotHours(3600 * 6.83), "6.8"},
		{slotHours(3600 * 37730), "37\u202f730"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
	if fmt.Sprint(secondsCell(599.9), secondsCell(600)) != "{600 } {600 10 min}" {
		t.Error(secondsCell(599.9), secondsCell(600))
	}
}
