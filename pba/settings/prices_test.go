package settings

import (
	"strconv"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
)

func TestPrices(t *testing.T) {
	const plans = "  currency: EUR\n  default: standard\n  plans: {standard: {slot_hour: 1.00}, gold: {slot_hour: 2.5}}\n"
	for name, c := range map[string]struct{ text, want string }{
		"none":                    {"prices: {}", ""},
		"all":                     {"prices:\n" + plans + "  projects: {chipA: gold}\n  departments: {silicon: [chipA, chipB], soft: [web]}", ""},
		"departments alone":       {"prices: {departments: {silicon: [chipA]}}", ""},
		"free":                    {"prices: {default: free, plans: {free: {slot_hour: 0}}}", ""},
		"an exponent":             {"prices: {default: a, plans: {a: {slot_hour: 1e3}}}", `prices.plans.a.slot_hour: "1e3" is not a price; write it like 1, 2.50 or 0.0125`},
		"below zero":              {"prices: {default: a, plans: {a: {slot_hour: -1}}}", `"-1" is not a price`},
		"five places":             {"prices: {default: a, plans: {a: {slot_hour: 0.00001}}}", `"0.00001" is too fine; a price has at most 4 decimal places`},
		"too much":                {"prices: {default: a, plans: {a: {slot_hour: 1000000.0001}}}", `is too much; a price is at most 1000000`},
		"no price":                {"prices: {default: a, plans: {a: {}}}", `plans: a: slot_hour is missing: want a price, such as 1.00`},
		"no default":              {"prices: {plans: {b: {slot_hour: 1}, a: {slot_hour: 1}}}", `default: "": want one of the plans: a, b`},
		"a default that is none":  {"prices: {default: c, plans: {b: {slot_hour: 1}}}", `default: "c": want one of the plans: b`},
		"a plan of none":          {"prices:\n" + plans + "  projects: {chipA: silver}", `projects: chipA: there is no plan "silver" (known: gold, standard)`},
		"projects without plans":  {"prices: {projects: {chipA: gold}}", `plans: there are none: name one and its price`},
		"a bad name":              {"prices: {default: a b, plans: {a b: {slot_hour: 1}}}", `plans: "a b" can't be the name of a plan`},
		"a bad department":        {"prices: {departments: {'': [chipA]}}", `departments: "" can't be the name of a department`},
		"a project in two":        {"prices: {departments: {a: [chipA], b: [chipA]}}", `project chipA is in a and in b: a project may be in one department, once`},
		"a project twice":         {"prices: {departments: {a: [chipA, chipA]}}", `project chipA is in a and in a`},
		"a currency of digits":    {"prices: {currency: E1}", `currency: "E1": want letters, such as EUR`},
		"a currency that is long": {"prices: {currency: Denarioni}", `at most 8 letters`},
	} {
		var p Prices
		err := config.Parse("c.yaml", []byte(c.text), map[string]any{"prices": &p}, yamlplain.Convert)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	many := Prices{Departments: map[string][]string{"a": make([]string, maxPricedProjects+1)}}
	for i := range many.Departments["a"] {
		many.Departments["a"][i] = strconv.Itoa(i)
	}
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Error(err)
	}
}
