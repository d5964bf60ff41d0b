package slurm

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func TestParseFixed(t *testing.T) {
	hosts := []backends.Host{{Slots: 4}, {Slots: 16}}
	for text, want := range map[string]backends.FixedShare{
		"(null)":                    {},
		"":                          {},
		"other:3":                   {},
		"allotment_fixed":           {Slots: 1, HostSlots: 16},
		"other:3,allotment_fixed:8": {Slots: 8, HostSlots: 16},
		"allotment_fixed:0":         {},
		"allotment_fixed:-5":        {},
		"allotment_fixed:x":         {},
		"allotment_fixed_0:4":       {},
		"allotment_fixed:8,allotment_fixed_1:4,allotment_fixed_0:3,allotment_fixed_3:2": {Slots: 8, Users: 2, OfUser: 3, HostSlots: 16},
	} {
		if got := parseFixed(map[string]string{"Licenses": text}, hosts); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// R22: doctor asks for the licences, and for others when the farm has changed.
func TestExamineFixed(t *testing.T) {
	for want, share := range map[string]backends.FixedShare{
		"slurm.conf has no licences allotment_fixed":       {},
		"slurm.conf has 20 licences allotment_fixed, ":     {Slots: 20, Users: 8, OfUser: 10},
		"slurm.conf has 0 licences allotment_fixed_0 and":  {Slots: 40},
		"slurm.conf has 40 licences allotment_fixed_0 and": {Slots: 40, Users: 8, OfUser: 40},
		"": {Slots: 38, Users: 3, OfUser: 19},
	} {
		switch got := examineFixed(share, 40); {
		case want == "" && len(got) > 0, want != "" && len(got) != 1:
			t.Errorf("%+v: %+v", share, got)
		case want != "" && (!strings.HasPrefix(got[0].What, want) || !strings.Contains(got[0].Remedy, "Licenses=allotment_fixed:40,allotment_fixed_0:20,allotment_fixed_1:20,")):
			t.Errorf("%+v: %+v", share, got)
		}
	}
}

func TestWithoutFixed(t *testing.T) {
	for licences, want := range map[string]string{
		"":                                   "",
		"other:2":                            "",
		"allotment_fixed:1":                  "-",
		"allotment_fixed_3:1,other:2":        "-other:2",
		"a,allotment_fixed,allotment_fixedx": "-a,allotment_fixedx",
	} {
		got, fixed := withoutFixed(licences)
		if fixed {
			got = "-" + got
		} else {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, want %q", licences, got, want)
		}
	}
}
