package esub

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The shape of testdata/cases.json, which every filter of ours passes.
type (
	casesFile struct {
		About    string          `json:"about"`
		Now      time.Time       `json:"now"`
		Policy   json.RawMessage `json:"policy"`
		Standing json.RawMessage `json:"standing"`
		Request  json.RawMessage `json:"request"`
		Cases    []caseEntry     `json:"cases"`
	}
	caseEntry struct {
		Name     string          `json:"name"`
		Rule     string          `json:"rule"`
		Policy   json.RawMessage `json:"policy"`
		Standing json.RawMessage `json:"standing"`
		Request  json.RawMessage `json:"request"`
		Want     caseWant        `json:"want"`
	}
	caseWant struct {
		Reject      bool     `json:"reject"`
		Queue       string   `json:"queue"`
		Priority    int64    `json:"priority"`
		Description *string  `json:"description"`
		Messages    []string `json:"messages"`
		Error       string   `json:"error"`
	}
	casePolicy struct {
		OnFailure    Answer   `json:"on_failure"`
		OnUntagged   Answer   `json:"on_untagged"`
		OnNoPool     Answer   `json:"on_no_pool"`
		LowQueue     string   `json:"low_queue"`
		StaleAfter   string   `json:"stale_after"`
		Observe      bool     `json:"observe"`
		NextInLine   int64    `json:"next_in_line"`
		DefaultQueue string   `json:"default_queue"`
		MemoryUnit   int64    `json:"memory_unit"`
		SuspendFrees bool     `json:"suspend_frees"`
		Queues       []string `json:"queues"`
		Projects     []struct {
			Name  string   `json:"name"`
			Group string   `json:"group"`
			GID   int64    `json:"gid"`
			Steps []string `json:"steps"`
			Pools []struct {
				ID    int64  `json:"id"`
				User  string `json:"user"`
				UID   int64  `json:"uid"`
				Step  string `json:"step"`
				Slots int    `json:"slots"`
			} `json:"pools"`
		} `json:"projects"`
	}
	caseStanding struct {
		At                 time.Time `json:"at"`
		Observe            bool      `json:"observe"`
		LowerUnpreemptable bool      `json:"lower_unpreemptable"`
		Below              []int64   `json:"below"`
	}
	caseRequest struct {
		User        string  `json:"user"`
		UID         int64   `json:"uid"`
		Groups      []int64 `json:"groups"`
		Project     string  `json:"project"`
		Queue       string  `json:"queue"`
		Slots       int     `json:"slots"`
		Memory      int64   `json:"memory"`
		Preempt     string  `json:"preempt"`
		Description string  `json:"description"`
		Interactive bool    `json:"interactive"`
		Exclusive   bool    `json:"exclusive"`
		NoRequeue   bool    `json:"no_requeue"`
		Modify      bool    `json:"modify"`
		HasProject  bool    `json:"has_project"`
	}
)

// R1, R3, R4, R5, R7, R12, R22: the table of cases.
func TestDecideTheTableOfCases(t *testing.T) {
	file := readCases(t)
	rules := map[string]int{}
	for _, c := range file.Cases {
		rules[c.Rule]++
		t.Run(c.Rule+" "+c.Name, func(t *testing.T) {
			var (
				policy   casePolicy
				standing caseStanding
				request  caseRequest
			)
			overlay(t, &policy, file.Policy, c.Policy)
			overlay(t, &standing, file.Standing, c.Standing)
			overlay(t, &request, file.Request, c.Request)

			before := Request(request)
			got, err := decide(t, policy.policy(t), standing.standing(), before, file.Now)
			if text := errorText(err); text != c.Want.Error {
				t.Fatalf("error %q, want %q", text, c.Want.Error)
			}
			if got.Reject != c.Want.Reject || got.Queue != c.Want.Queue || int64(got.Priority) != c.Want.Priority || !slices.Equal(got.Messages, c.Want.Messages) {
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
	for _, rule := range []string{"R1", "R3", "R4", "R5", "R7", "R12", "R22"} {
		if rules[rule] == 0 {
			t.Errorf("no case for %s", rule)
		}
	}
}

// R3: a generation of another snapshot is a mismatch, whatever it says.
func TestDecideMismatch(t *testing.T) {
	one, other := open(t, Encode(somePolicy())), Encode(Policy{})
	g := generation(t, other, Standing{At: someTime})
	if _, err := Decide(Request{}, one, g, someTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("error %v, want ErrMismatch", err)
	}
}

// R5: what Decide writes is read back by every reader of tags.
func TestDescriptionIsReadBack(t *testing.T) {
	tag := backends.Tag{Preempt: backends.PreemptSuspend, Memory: 5, Step: "a b", Queue: "q;=%", Low: true}
	d := Decision{Tag: tag, Text: "allotment is a word; so is this"}
	gotTag, text, err := backends.ParseTag(d.Description())
	if err != nil || gotTag != tag || text != d.Text {
		t.Errorf("%q gives %+v, %q, %v", d.Description(), gotTag, text, err)
	}
}

func TestConfigAnswers(t *testing.T) {
	for _, a := range []Answer{Low, Reject, Pass} {
		text, _ := a.MarshalText()
		var back Answer
		if err := back.UnmarshalText(text); err != nil || back != a {
			t.Errorf("%s gives %v, %v", text, back, err)
		}
	}
	var a Answer
	if err := a.UnmarshalText([]byte("deny")); errorText(err) != `"deny" is no answer of the filter: want low, reject or pass` {
		t.Error(err)
	}
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.OnNoPool = Reject
	if c.Validate() == nil {
		t.Error("on_no_pool: reject was accepted")
	}
	c = DefaultConfig()
	c.StaleAfter = 0
	if c.Validate() == nil {
		t.Error("stale_after: 0s was accepted")
	}
}

func decide(t *testing.T, p Policy, s Standing, req Request, now time.Time) (Decision, error) {
	t.Helper()
	snapshot := Encode(p)
	return Decide(req, open(t, snapshot), generation(t, snapshot, s), now)
}

func open(t *testing.T, snapshot []byte) *Reader {
	t.Helper()
	r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func generation(t *testing.T, snapshot []byte, s Standing) Generation {
	t.Helper()
	data, err := EncodeGeneration(snapshot, s)
	if err != nil {
		t.Fatal(err)
	}
	g, err := OpenGeneration(data)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func readCases(t *testing.T) casesFile {
	t.Helper()
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file casesFile
	overlay(t, &file, data)
	return file
}

// overlay reads layers of JSON into one value, the later over the earlier.
func overlay(t *testing.T, to any, layers ...json.RawMessage) {
	t.Helper()
	for _, layer := range layers {
		if layer == nil {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(layer))
		d.DisallowUnknownFields()
		if err := d.Decode(to); err != nil {
			t.Fatal(err)
		}
	}
}

func (c casePolicy) policy(t *testing.T) Policy {
	t.Helper()
	p := Policy{Settings: Settings{
		Config:  Config{OnFailure: c.OnFailure, OnUntagged: c.OnUntagged, OnNoPool: c.OnNoPool, LowQueue: c.LowQueue},
		Observe: c.Observe, NextInLine: backends.Priority(c.NextInLine), DefaultQueue: c.DefaultQueue,
		MemoryUnit: c.MemoryUnit, SuspendFrees: c.SuspendFrees, Queues: c.Queues,
	}}
	if err := p.StaleAfter.UnmarshalText([]byte(c.StaleAfter)); err != nil {
		t.Fatal(err)
	}
	for _, project := range c.Projects {
		to := Project{Name: project.Name, Group: project.Group, GID: project.GID, Steps: project.Steps}
		for _, pool := range project.Pools {
			to.Pools = append(to.Pools, Pool(pool))
		}
		p.Projects = append(p.Projects, to)
	}
	return p
}

func (c caseStanding) standing() Standing {
	s := Standing{At: c.At, Observe: c.Observe, LowerUnpreemptable: c.LowerUnpreemptable, Below: map[int64]bool{}}
	for _, id := range c.Below {
		s.Below[id] = true
	}
	return s
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
