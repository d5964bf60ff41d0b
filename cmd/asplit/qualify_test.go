package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/metrics/qualify"
)

func TestAsksFor(t *testing.T) {
	farm := []backends.Host{{Name: "a", State: backends.HostUp, Slots: 4}, {Name: "b", State: backends.HostUp, Slots: 1}, {Name: "c", State: backends.HostDown, Slots: 4}}
	for _, c := range []struct {
		names string
		slots int
		want  string // the hosts, or a part of the error
		code  int    // of the error
	}{
		{names: "b,a", slots: 1, want: "b a"},
		{names: "all", slots: 1, want: "a b"},
		{names: "a", slots: 4, want: "a"},
		{names: "b", slots: 2, want: "has 1", code: shell.ExitUsage},
		{names: "c", slots: 1, want: "not up", code: shell.ExitFailure},
		{names: "d", slots: 1, want: "no host", code: shell.ExitUsage},
		{names: "", slots: 1, want: "no host", code: shell.ExitUsage},
		{names: "a,b,a", slots: 1, want: "twice", code: shell.ExitUsage},
	} {
		asks, err := asksFor(farm, strings.Split(c.names, ","), c.slots)
		var got []string
		for _, a := range asks {
			got = append(got, a.Host)
			if a.Slots != c.slots {
				t.Errorf("%s: %+v", c.names, a)
			}
		}
		code := shell.ExitOK
		var exit *shell.ExitError
		switch {
		case errors.As(err, &exit):
			code = exit.Code
		case err != nil:
			code = shell.ExitFailure
		}
		if code != c.code || err == nil && strings.Join(got, " ") != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %d slots: %v, %v; want %s", c.names, c.slots, got, err, c.want)
		}
	}
}

func TestPrintQualified(t *testing.T) {
	speed := qualify.Speed{Integer: 100, Floating: 100, Hash: 100}
	good := qualify.Result{CPU: qualify.CPU{One: speed, All: speed}, Notes: []string{"the interconnect is left out: \x1b"}}
	answers := []qualify.Answer{
		{Request: qualify.Request{Host: "a", Slots: 1}, Result: good},
		{Request: qualify.Request{Host: "b", Slots: 1}, Err: errors.New("no space left\x1b")},
	}
	var out, stderr bytes.Buffer
	err := printQualified(&out, &stderr, table.Text, metrics.Factors{metrics.CPU: 100}, answers)
	var exit *shell.ExitError
	if !errors.As(err, &exit) || exit.Code != shell.ExitFailure {
		t.Errorf("with a host that failed: %v", err)
	}
	if got := strings.Join(strings.Fields(out.String()), " "); got != "HOST INTERCONNECT CPU GPU STORAGE MEMORY BUS SHARE a - 100 - - - - 100.0%" {
		t.Errorf("%s", got)
	}
	if got := stderr.String(); !strings.Contains(got, `host b: no space left\x1b`) || !strings.Contains(got, `host a: the interconnect is left out: \x1b`) {
		t.Errorf("%q", got)
	}
	out.Reset()
	_ = printQualified(&out, &stderr, table.JSON, metrics.Factors{metrics.CPU: 100}, answers)
	var answer struct {
		Factors string
		Hosts   []qualified
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if h := answer.Hosts; len(h) != 2 || h[0].Measures["cpu"] != 100 || h[0].Share != 100 || h[1].Error == "" || h[1].Result != nil || answer.Factors != "C=100" {
		t.Errorf("%+v", answer)
	}
}

func TestFactorsOf(t *testing.T) {
	for text, good := range map[string]bool{"cpu": true, "C=70,M=30": true, "disk": false, "X=1": false, "": false} {
		if _, err := factorsOf(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
