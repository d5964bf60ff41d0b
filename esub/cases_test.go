package esub_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/esub/esubtest"
)

// R1, R3, R4, R5, R6, R7, R12, R22, R29, R33, R48: the table of cases.
func TestDecideTheTableOfCases(t *testing.T) {
	rules := map[string]int{}
	for _, c := range cases(t) {
		rules[c.Rule]++
		t.Run(c.Rule+" "+c.Name, func(t *testing.T) {
			got, err := decide(t, c)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != c.Want.Error {
				t.Fatalf("error %q, want %q", text, c.Want.Error)
			}
			if got.Reject != c.Want.Reject || got.Queue != c.Want.Queue || got.Mark != c.Want.Mark || int64(got.Priority) != c.Want.Priority || !got.Hold.Equal(c.Want.Hold) || !slices.Equal(got.Messages, c.Want.Messages) {
				t.Errorf("got  %+v\nwant %+v", got, c.Want)
			}
			switch want := c.Want.Description; {
			case got.Reject || err != nil:
			case got.Describe != (want != nil):
				t.Errorf("description %q written: %t", got.Description(), got.Describe)
			case want != nil && got.Description() != *want:
				t.Errorf("description %q, want %q", got.Description(), *want)
			}
		})
	}
	for _, rule := range []string{"R1", "R3", "R4", "R5", "R6", "R7", "R12", "R22", "R29", "R33", "R48"} {
		if rules[rule] == 0 {
			t.Errorf("no case for %s", rule)
		}
	}
}

func cases(t *testing.T) []esubtest.Case {
	t.Helper()
	all, err := esubtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func decide(t *testing.T, c esubtest.Case) (esub.Decision, error) {
	t.Helper()
	snapshot := esub.Encode(c.Policy)
	r, err := esub.Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := esub.EncodeGeneration(snapshot, c.Standing)
	if err != nil {
		t.Fatal(err)
	}
	g, err := esub.OpenGeneration(content)
	if err != nil {
		t.Fatal(err)
	}
	return esub.Decide(c.Request, r, g, c.Now)
}
