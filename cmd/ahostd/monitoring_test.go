package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/exposition"
)

const (
	hostBoard     = "../../packaging/grafana/allotment-hosts.json"
	hostRules     = "../../packaging/prometheus/allotment-hosts.rules.yml"
	hostRuleTests = "../../packaging/prometheus/allotment-hosts.rules.test.yml"
)

// fullSample has every figure of a job.
func fullSample() *measure.Sample {
	v := measure.Value{N: 1, Known: true}
	use := measure.GPUUse{Devices: v, Memory: v, SM: v}
	return &measure.Sample{At: time.Unix(1, 0), GPUs: []measure.GPU{{UUID: "GPU-0", Name: "a\"b", Busy: v, MemoryUsed: v, Memory: v, Celsius: v, Milliwatts: v}}, Jobs: []measure.Job{{
		Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: 1}, User: 1000}, Source: measure.FromGroupV2,
		CPU: v, Memory: v, Cache: v, Peak: v, Swap: v, Processes: v, Threads: v,
		Disks:    []measure.Disk{{Device: "sda", ReadBytes: v, WrittenBytes: v, Reads: v, Writes: v}},
		Pressure: measure.Pressure{CPUSome: v, MemorySome: v, MemoryFull: v, IOSome: v, IOFull: v},
		Network:  measure.Network{Known: true},
		GPU:      use, GPUs: []measure.JobGPU{{GPUUse: use}},
	}}}
}

// TestBoardAndRulesNameWhatIsExported: a metric or label that ahostd does not export makes a
// panel empty, and an alert silent.
func TestBoardAndRulesNameWhatIsExported(t *testing.T) {
	text := string(metricsText("h", fullSample(), own{}, nil, nil))
	takenByPromtool(t, text)
	if _, err := exposition.Check(text); err != nil {
		t.Fatal(err)
	}
	board, err := os.ReadFile(hostBoard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(board, &d); err != nil {
		t.Fatal(err)
	}
	var expressions []string
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d is there twice, or shows nothing", p.ID)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			expressions = append(expressions, x.Expr)
		}
	}
	rules, err := os.ReadFile(hostRules)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?:allotment|process)_[a-z_]+`)
	used := map[string]bool{}
	for _, x := range append(expressions, regexp.MustCompile(`(?m)expr: .*`).FindAllString(string(rules), -1)...) {
		for _, name := range names.FindAllString(x, -1) {
			used[name] = true
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
				t.Errorf("%s is not exported: %s", name, x)
			}
		}
		for _, group := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(x, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				if label != "instance" && !strings.Contains(text, label+`="`) {
					t.Errorf("no metric has a label %q: %s", label, x)
				}
			}
		}
	}
	if len(used) < 10 {
		t.Errorf("only %d metrics are found", len(used))
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("skip: promtool is not installed (Debian: apt install prometheus): the rules' own tests do not run")
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Base(hostRuleTests))
	cmd.Dir = filepath.Dir(hostRuleTests)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
