package desk

import (
	"cmp"
	"context"
	"slices"
)

// stepOrder has the steps of projects in the order of their flows.
type stepOrder map[string]map[string]int

// newStepOrder returns the order of steps of the projects that have a flow.
func newStepOrder(steps map[string][]string) stepOrder {
	order := stepOrder{}
	for project, names := range steps {
		order[project] = map[string]int{}
		for i, name := range names {
			order[project][name] = i
		}
	}
	return order
}

func (d *Desk) stepOrder(ctx context.Context) (stepOrder, error) {
	steps, err := d.stepsOfProjects(ctx)
	return newStepOrder(steps), err
}

// compare orders pools by project, step, user and host set: those without a step first,
// then the flow's steps in its order, then others by name.
func (o stepOrder) compare(a, b Pool) int {
	return cmp.Or(cmp.Compare(a.Project, b.Project), o.compareSteps(a.Project, a.Step, b.Step), cmp.Compare(a.User, b.User), cmp.Compare(a.Hosts, b.Hosts))
}

func (o stepOrder) compareSteps(project, a, b string) int {
	return cmp.Or(cmp.Compare(o.rank(project, a), o.rank(project, b)), cmp.Compare(a, b))
}

func (o stepOrder) rank(project, step string) int {
	if step == "" {
		return -1
	}
	if at, ok := o[project][step]; ok {
		return at
	}
	return len(o[project])
}

// FlowPreset is a flow that can be added by its name.
type FlowPreset struct {
	Name  string
	Steps []string
}

// FlowPresets lists the flows that can be added by their names.
func FlowPresets() []FlowPreset {
	return []FlowPreset{
		{"rtl2gds", []string{"logic", "synthesis", "netlist", "physical", "ret", "mask"}},
		{"verification", []string{"lint", "build", "smoke", "regress", "coverage", "formal"}},
		{"software-ci", []string{"lint", "build", "unit", "integration", "system", "package"}},
	}
}

// Preset finds a flow that can be added by its name.
func Preset(name string) (FlowPreset, error) {
	all := FlowPresets()
	i := slices.IndexFunc(all, func(p FlowPreset) bool { return p.Name == name })
	if i < 0 {
		return FlowPreset{}, invalidf("--preset: there is no %q: see `pba flow add --help`", name)
	}
	return all[i], nil
}
