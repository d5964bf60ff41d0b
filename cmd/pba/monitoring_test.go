package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

const (
	rulesFile     = "../../packaging/prometheus/allotment.rules.yml"
	ruleTests     = "../../packaging/prometheus/allotment.rules.test.yml"
	dashboardFile = "../../packaging/grafana/allotment.json"
)

// fullMetrics has a sample of every metric that pba exports.
func fullMetrics() *desk.Metrics {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	return &desk.Metrics{
		Mode: configfile.Live, Every: 20 * time.Second, Requests: map[string]int{"A": 2},
		Now: &desk.Status{
			Pools:    []desk.PoolStatus{{Project: "A", Step: "s", User: "u", Hosts: "gpu", Planned: 6, Guarantee: 5, Jobs: 100, Finished: 40, Undone: 12, Charged: 3, Held: 2, Below: true}},
			Unserved: []desk.Unserved{{Reason: "r", Jobs: 1}},
		},
		Beyond: []plan.Beyond{{Project: "A", Step: "s", User: "u", Slots: 1}},
		Ended:  []desk.Ended{{End: plan.HandedOver}, {End: plan.Expired}, {End: plan.Cancelled}},
		LastCycle: &ledger.CycleRecord{
			ID: 7, Started: at, Read: at.Add(2 * time.Second), Planned: at.Add(2500 * time.Millisecond), Finished: at.Add(6 * time.Second),
		},
		Day: desk.Day{
			Promises: []desk.Promised{{Project: "A", Within: 100 * time.Second, Kept: report.Promise{Reclaims: 10, Kept: 9}, Wait: &report.Wait{Median: 70, P95: 95, Max: 120}}, {Project: "B", Within: 40 * time.Second}},
			Losses:   []report.Loss{{Project: "B", User: "u", To: "A", Requeued: 3, Suspended: 1, Slots: 9, Lost: 1.5}, {User: "v", To: "A", Requeued: 1, Slots: 1}},
		},
	}
}

func TestMetricsOfTheDayAndOfCycles(t *testing.T) {
	text := string(metricsText(fullMetrics()))
	samples, err := exposition.Check(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for key, want := range map[string]float64{
		`allotment_last_cycle_part_seconds{part="read"}`:                          2,
		`allotment_last_cycle_part_seconds{part="plan"}`:                          0.5,
		`allotment_last_cycle_part_seconds{part="act"}`:                           3.5,
		`allotment_cycle_interval_seconds`:                                        20,
		`allotment_promise_seconds{project="A"}`:                                  100,
		`allotment_promise_seconds{project="B"}`:                                  40,
		`allotment_served_reclaims_day{project="A"}`:                              10,
		`allotment_kept_reclaims_day{project="A"}`:                                9,
		`allotment_kept_reclaims_day{project="B"}`:                                0,
		`allotment_served_wait_seconds_day{project="A",of="p95"}`:                 95,
		`allotment_victims_day{project="B",user="u",to="A",mode="requeue"}`:       3,
		`allotment_victims_day{project="B",user="u",to="A",mode="suspend"}`:       1,
		`allotment_victims_day{user="v",to="A",mode="requeue"}`:                   1,
		`allotment_victim_slots_day{project="B",user="u",to="A"}`:                 9,
		`allotment_lost_slot_seconds_day{project="B",user="u",to="A"}`:            5400,
		`allotment_pool_below{project="A",step="s",user="u",hosts="gpu"}`:         1,
		`allotment_pool_planned_slots{project="A",step="s",user="u",hosts="gpu"}`: 6,
		`allotment_pool_promised_jobs{project="A",step="s",user="u",hosts="gpu"}`: 100,
		`allotment_pool_finished_jobs{project="A",step="s",user="u",hosts="gpu"}`: 40,
		`allotment_pool_undone_jobs{project="A",step="s",user="u",hosts="gpu"}`:   12,
		`allotment_open_requests{project="A"}`:                                    2,
	} {
		if got, ok := samples[key]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", key, got, ok, want)
		}
	}
	m := fullMetrics()
	m.LastCycle.Planned = time.Time{} // of a ledger that an older version wrote
	if strings.Contains(string(metricsText(m)), "part_seconds") {
		t.Error("parts of a cycle that has none recorded")
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) == 0 {
		t.Fatal(len(file.Groups), err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// dashboardTexts returns the expressions and the variables' queries of the dashboard.
func dashboardTexts(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have ID %d", p.ID)
		}
		ids[p.ID] = true
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %d, %s: %d targets", p.ID, p.Type, len(p.Targets))
		}
		for _, x := range p.Targets {
			expressions = append(expressions, x.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			expressions = append(expressions, q["query"].(string))
		}
	}
	return expressions
}

var (
	named    = regexp.MustCompile(`allotment[_:][a-z0-9_:]*`)
	selector = regexp.MustCompile(`(allotment[_:][a-z0-9_:]*)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!=|!~|=)"([^"]*)"`)
	grouped  = regexp.MustCompile(`\b(?:by|without|on) \(([^)]*)\)`)
)

// TestRulesAndDashboardNameWhatIsExported: a metric, label or value that pba does not export
// makes a panel empty, and an alert silent.
func TestRulesAndDashboardNameWhatIsExported(t *testing.T) {
	samples, err := exposition.Check(string(metricsText(fullMetrics())))
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string][]string{} // values by metric and label
	known := map[string]bool{"instance": true, "job": true}
	for key := range samples {
		name, rest, _ := strings.Cut(key, "{")
		if labels[name] == nil {
			labels[name] = map[string][]string{"instance": nil}
		}
		for _, m := range labelPair2.FindAllStringSubmatch(rest, -1) {
			labels[name][m[1]] = append(labels[name][m[1]], m[2])
			known[m[1]] = true
		}
	}
	expressions := dashboardTexts(t)
	recorded := map[string]bool{}
	for _, r := range readRules(t) {
		if r.Record != "" {
			recorded[r.Record] = true
		} else if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
			t.Errorf("alert %s has no summary, description or severity", r.Alert)
		}
		expressions = append(expressions, r.Expr)
	}
	used := map[string]bool{}
	for _, x := range expressions {
		for _, name := range named.FindAllString(x, -1) {
			used[name] = true
			if labels[name] == nil && !recorded[name] {
				t.Errorf("%s is neither exported nor recorded: %s", name, x)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(x, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				values, has := labels[s[1]][m[1]]
				if !has || !strings.Contains(m[2], "~") && !slices.Contains(values, m[3]) {
					t.Errorf("%s has no %s=%q: %s", s[1], m[1], m[3], x)
				}
			}
		}
		for _, g := range grouped.FindAllStringSubmatch(x, -1) {
			for label := range strings.SplitSeq(g[1], ", ") {
				if !known[label] {
					t.Errorf("no metric has a label %q: %s", label, x)
				}
			}
		}
		if strings.Count(x, "(") != strings.Count(x, ")") || strings.Count(x, "{") != strings.Count(x, "}") || strings.Count(x, `"`)%2 != 0 {
			t.Errorf("brackets or quotes are not closed: %s", x)
		}
	}
	if !used["allotment_pool_undone_jobs"] {
		t.Error("no panel or alert has the promised jobs that can't be done any more")
	}
	if len(used) < 20 {
		t.Errorf("only %d metrics are found in rules and dashboard", len(used))
	}
}

var labelPair2 = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// TestPromtoolTakesTheRules runs Prometheus' own check and the rules' tests.
func TestPromtoolTakesTheRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: apt install prometheus): the rules are checked by TestRulesAndDashboardNameWhatIsExported alone")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", filepath.Base(ruleTests)}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		if args[0] == "test" {
			cmd.Dir = filepath.Dir(ruleTests)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(string(metricsText(fullMetrics())))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
