package desk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// PlanFile is a plan as a file: all allocations of some projects in some weeks.
// Applying it withdraws what else those projects have in those weeks.
type PlanFile struct {
	From, To    calendar.Week // both included
	Projects    []string
	Allocations []ledger.Change

	Steps map[string][]string // of projects in the order of their flows, for Write; others are in order of their names

	Lines        map[ledger.Change]int // of the allocations in the file that was read
	ProjectLines []int                 // of the projects
}

// Covers reports whether a plan decides about a project's week.
func (f *PlanFile) Covers(project string, w calendar.Week) bool {
	return w.Compare(f.From) >= 0 && w.Compare(f.To) <= 0 && slices.Contains(f.Projects, project)
}

// planHead explains the file to its readers.
const planHead = `# A plan of Allotment: all that these projects have in these weeks. Apply it with
# ` + "`pba alloc import FILE`" + `, which first shows what would change.
`

// Write writes the plan so that the same plan gives the same text, one line for an
// allocation's weeks in a row: by project, step, user, host set and week.
func (f *PlanFile) Write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%sfrom: %s\nto: %s\nprojects: [%s]\n", planHead, f.From, f.To,
		strings.Join(quoted(slices.Sorted(slices.Values(f.Projects))), ", "))
	lines := make([]Line, len(f.Allocations))
	for i, c := range f.Allocations {
		lines[i] = Line{Pool: c.Pool, Weeks: calendar.Range{First: c.Week, Last: c.Week}, Terms: c.Terms}
	}
	if lines = inRows(lines, newStepOrder(f.Steps)); len(lines) == 0 {
		b.WriteString("allocations: []\n")
	} else {
		b.WriteString("allocations:\n")
	}
	for _, a := range lines {
		key := "week"
		if a.Weeks.First != a.Weeks.Last {
			key = "weeks"
		}
		fmt.Fprintf(&b, "  - {%s: %s, project: %s", key, a.Weeks, quoteScalar(a.Project))
		if a.User != "" {
			fmt.Fprintf(&b, ", user: %s", quoteScalar(a.User))
		}
		if a.Step != "" {
			fmt.Fprintf(&b, ", step: %s", quoteScalar(a.Step))
		}
		if a.Hosts != "" {
			fmt.Fprintf(&b, ", hosts: %s", quoteScalar(a.Hosts))
		}
		fmt.Fprintf(&b, ", slots: %d", a.Slots)
		if a.SLA == plan.Throughput {
			fmt.Fprintf(&b, ", sla: %s, jobs: %d", a.SLA, a.Jobs)
		}
		b.WriteString("}\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func quoted(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quoteScalar(text)
	}
	return all
}

// quoteScalar is a text as a YAML scalar in a flow list: bare where nothing but
// letters, digits, _ . - are in it and it can't be taken for something else.
func quoteScalar(text string) string {
	bare := strings.IndexFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.-", r))
	}) < 0
	var node yaml.Node
	if bare && yaml.Unmarshal([]byte(text), &node) == nil && len(node.Content) == 1 && node.Content[0].ShortTag() == "!!str" {
		return text
	}
	return fmt.Sprintf("%q", text) // Go's escapes are YAML's
}

// weekText is a week in a file.
type weekText struct{ calendar.Week }

// UnmarshalText reads a week as people write it.
func (w *weekText) UnmarshalText(text []byte) (err error) {
	w.Week, err = calendar.ParseWeek(string(text))
	return err
}

type planEntry struct {
	Week    string `yaml:"week"` // or several, such as 2026-W48..2026-W51
	Weeks   string `yaml:"weeks"`
	Project string `yaml:"project"`
	User    string `yaml:"user"`
	Step    string `yaml:"step"`
	Hosts   string `yaml:"hosts"`
	Slots   int    `yaml:"slots"`
	SLA     string `yaml:"sla"`
	Jobs    int    `yaml:"jobs"`
}

// maxAllocations is more than any plan has: 100 projects with 100 pools for 100 weeks.
const maxAllocations = 1_000_000

// ReadPlan reads what Write writes, and what users made of it; name is the file's in
// errors, which name the line.
func ReadPlan(name string, content []byte) (*PlanFile, error) {
	var (
		from, to weekText
		f        PlanFile
		entries  []planEntry
	)
	err := config.Parse(name, content, map[string]any{"from": &from, "to": &to, "projects": &f.Projects, "allocations": &entries}, yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	f.From, f.To = from.Week, to.Week
	lines, err := linesOf(content)
	if err != nil {
		return nil, &config.Error{File: name, Why: err.Error()}
	}
	for _, key := range []string{"from", "to", "projects", "allocations"} {
		if _, ok := lines[key]; !ok {
			return nil, &config.Error{File: name, Why: fmt.Sprintf("there is no key %q in it: `pba alloc export` shows how a plan is written", key)}
		}
	}
	if f.From.Compare(f.To) > 0 {
		return nil, &config.Error{File: name, Line: lines["to"][0], Why: fmt.Sprintf("to: %s is before %s", f.To, f.From)}
	}
	if calendar.WeeksBetween(f.From, f.To) >= calendar.MaxWeeks {
		return nil, &config.Error{File: name, Line: lines["to"][0], Why: fmt.Sprintf("to: %s is more than %d weeks after %s", f.To, calendar.MaxWeeks, f.From)}
	}
	f.ProjectLines = lines["projects"][1:]
	f.Lines = make(map[ledger.Change]int, len(entries))
	seen := map[ledger.Change]int{}
	for i, e := range entries {
		line := lines["allocations"][i+1]
		changes, err := f.entry(e)
		if err != nil {
			return nil, &config.Error{File: name, Line: line, Why: err.Error()}
		}
		for _, c := range changes {
			key := ledger.Change{Pool: c.Pool, Week: c.Week}
			if first, twice := seen[key]; twice {
				return nil, &config.Error{File: name, Line: line, Why: fmt.Sprintf("%s in %s is given a second time (first in line %d)", c.Pool, c.Week, first)}
			}
			seen[key] = line
			f.Lines[c] = line
		}
		f.Allocations = append(f.Allocations, changes...)
		if len(f.Allocations) > maxAllocations {
			return nil, &config.Error{File: name, Line: line, Why: fmt.Sprintf("more than %d allocations", maxAllocations)}
		}
	}
	return &f, nil
}

// entry is an allocation of the file in each of its weeks, checked in itself.
func (f *PlanFile) entry(e planEntry) ([]ledger.Change, error) {
	c := ledger.Change{
		Pool:  ledger.Pool{Project: e.Project, User: e.User, Step: e.Step, Hosts: e.Hosts},
		Terms: ledger.Terms{Slots: e.Slots, SLA: plan.SLA(cmp.Or(e.SLA, string(plan.Velocity))), Jobs: e.Jobs},
	}
	switch {
	case e.Week == "" && e.Weeks == "":
		return nil, fmt.Errorf("week: it is missing: write it like %s", f.From)
	case e.Week != "" && e.Weeks != "":
		return nil, errors.New("week and weeks exclude each other")
	case c.Project == "":
		return nil, errors.New("project: it is missing")
	case !slices.Contains(f.Projects, c.Project):
		return nil, fmt.Errorf("project %q is not among the plan's projects: add it to the list at the top", c.Project)
	}
	weeks, err := calendar.Reader{This: f.From, Last: f.To, Kept: true}.Weeks(cmp.Or(e.Week, e.Weeks))
	if err != nil {
		return nil, fmt.Errorf("week: %w", err)
	}
	all := make([]ledger.Change, len(weeks))
	for i, w := range weeks {
		if !f.Covers(c.Project, w) {
			return nil, fmt.Errorf("week %s is not in the plan's weeks, %s to %s", w, f.From, f.To)
		}
		c.Week = w
		all[i] = c
	}
	return all, checkTerms(c.Terms)
}

// linesOf are the lines of each top-level key, and after it those of the items
// of its list.
func linesOf(content []byte) (map[string][]int, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	lines := map[string][]int{}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return lines, nil
	}
	root := document.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		at := []int{key.Line}
		if value.Kind == yaml.SequenceNode {
			for _, item := range value.Content {
				at = append(at, item.Line)
			}
		}
		lines[key.Value] = at
	}
	return lines, nil
}

// Difference is one line of what a plan would change.
type Difference struct {
	ledger.Change              // as it would be; no Terms: withdrawn
	Was           ledger.Terms // zero: it is new
}

// Compare returns what a plan would change of what is planned, by week, project, user,
// step and host set.
func (f *PlanFile) Compare(planned []ledger.Allocation) []Difference {
	return differ(f.Allocations, planned, func(a ledger.Allocation) bool { return f.Covers(a.Project, a.Week) })
}

// differ returns what changes if what is wanted replaces all that is planned and covered,
// by week, project, user, step and host set.
func differ(wanted []ledger.Change, planned []ledger.Allocation, covered func(ledger.Allocation) bool) []Difference {
	was := map[cell]ledger.Terms{}
	for _, a := range planned {
		if covered(a) {
			was[cell{a.Pool, a.Week}] = a.Terms
		}
	}
	var all []Difference
	for _, c := range wanted {
		at := cell{c.Pool, c.Week}
		if old := was[at]; old != c.Terms {
			all = append(all, Difference{c, old})
		}
		delete(was, at)
	}
	for at, old := range was {
		all = append(all, Difference{ledger.Change{Pool: at.Pool, Week: at.Week}, old})
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(a.Week.Compare(b.Week), a.Pool.Compare(b.Pool))
	})
	return all
}

// cell is a pool in a week: what has terms.
type cell struct {
	ledger.Pool
	calendar.Week
}
