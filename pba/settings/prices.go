package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Prices is the config file's section prices: what slots cost (R46).
type Prices struct {
	Currency    string                 `yaml:"currency"`
	Default     string                 `yaml:"default"`     // the plan of projects without one, and of what runs without a project
	Plans       map[string]ServicePlan `yaml:"plans"`       // by name; none: nothing has a price
	Projects    map[string]string      `yaml:"projects"`    // the plan of each
	Departments map[string][]string    `yaml:"departments"` // the projects of each
}

// ServicePlan is what is agreed with projects.
type ServicePlan struct {
	SlotHour *unit.Price `yaml:"slot_hour"` // the price of a slot for an hour
}

const (
	maxPlans          = 100
	maxDepartments    = 1000
	maxPricedProjects = 10_000 // that have a plan, or a department
	maxCurrency       = 8
)

// Validate says what is wrong with the section, if anything.
func (p Prices) Validate() error {
	for _, c := range p.Currency {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("currency: %.40q: want letters, such as EUR", p.Currency)
		}
	}
	switch {
	case len(p.Currency) > maxCurrency:
		return fmt.Errorf("currency: %.40q: want at most %d letters, such as EUR", p.Currency, maxCurrency)
	case len(p.Plans) > maxPlans:
		return fmt.Errorf("plans: %d of them: at most %d", len(p.Plans), maxPlans)
	case len(p.Plans) == 0 && (p.Default != "" || len(p.Projects) > 0):
		return errors.New("plans: there are none: name one and its price, such as {standard: {slot_hour: 1.00}}")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Plans)) {
		switch {
		case !setName().MatchString(name):
			return fmt.Errorf("plans: %.80q can't be the name of a plan: %s", name, wantName)
		case p.Plans[name].SlotHour == nil:
			return fmt.Errorf("plans: %s: slot_hour is missing: want a price, such as 1.00", name)
		}
	}
	if len(p.Plans) > 0 && !p.has(p.Default) {
		return fmt.Errorf("default: %.80q: want one of the plans: %s", p.Default, p.known())
	}
	if len(p.Projects) > maxPricedProjects {
		return fmt.Errorf("projects: %d of them: at most %d", len(p.Projects), maxPricedProjects)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Projects)) {
		switch {
		case name == "":
			return errors.New("projects: a project without a name")
		case !p.has(p.Projects[name]):
			return fmt.Errorf("projects: %.80s: there is no plan %.80q (known: %s)", name, p.Projects[name], p.known())
		}
	}
	return p.validateDepartments()
}

const wantName = "want letters, digits and _ . + -, at most 63, the first a letter, a digit or _"

// validateDepartments refuses a project that is in two: its use would be charged twice.
func (p Prices) validateDepartments() error {
	if len(p.Departments) > maxDepartments {
		return fmt.Errorf("departments: %d of them: at most %d", len(p.Departments), maxDepartments)
	}
	of := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Departments)) {
		if !setName().MatchString(name) {
			return fmt.Errorf("departments: %.80q can't be the name of a department: %s", name, wantName)
		}
		for _, project := range p.Departments[name] {
			if project == "" {
				return fmt.Errorf("departments: %s: a project without a name", name)
			}
			if other, taken := of[project]; taken {
				return fmt.Errorf("departments: project %.80s is in %s and in %s: a project may be in one department, once", project, other, name)
			}
			of[project] = name
		}
	}
	if len(of) > maxPricedProjects {
		return fmt.Errorf("departments: %d projects: at most %d", len(of), maxPricedProjects)
	}
	return nil
}

func (p Prices) has(plan string) bool { _, is := p.Plans[plan]; return is }

func (p Prices) known() string { return strings.Join(slices.Sorted(maps.Keys(p.Plans)), ", ") }
