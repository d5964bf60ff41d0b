package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/plan"
)

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelPair  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)`)
)

// checkExposition reads Prometheus' text format 0.0.4 as promtool would: help and
// type once and before the samples of their metric, which stand together; names,
// labels and values well-formed; no sample twice; counters end in _total. It
// returns the samples.
func checkExposition(text string) (map[string]float64, error) {
	samples, kinds, seen := map[string]float64{}, map[string]string{}, map[string]bool{}
	current := ""
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if seen[name] || !metricName.MatchString(name) || help == "" {
				return nil, fmt.Errorf("%q", line)
			}
			seen[name], current = true, name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != current || kinds[name] != "" || (kind != "gauge" && kind != "counter") || (kind == "counter") != strings.HasSuffix(name, "_total") {
				return nil, fmt.Errorf("%q", line)
			}
			kinds[name] = kind
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		if end < 0 {
			return nil, fmt.Errorf("%q has no value", line)
		}
		key, number := line[:end], line[end+1:]
		name, labels, has := strings.Cut(key, "{")
		if name != current || kinds[name] == "" {
			return nil, fmt.Errorf("%q stands with another metric", line)
		}
		if has {
			labels, has = strings.CutSuffix(labels, "}")
			if !has || labels == "" {
				return nil, fmt.Errorf("%q: labels", line)
			}
			names := map[string]bool{}
			for labels != "" {
				m := labelPair.FindStringSubmatch(labels)
				if m == nil || names[m[1]] || m[3] == "," && len(m[0]) == len(labels) {
					return nil, fmt.Errorf("%q: label at %q", line, labels)
				}
				names[m[1]] = true
				labels = labels[len(m[0]):]
			}
		}
		value, err := strconv.ParseFloat(number, 64)
		if _, twice := samples[key]; err != nil || twice {
			return nil, fmt.Errorf("%q: %w, twice %v", line, err, twice)
		}
		samples[key] = value
	}
	return samples, nil
}

func TestExpositionEscapesHostileNames(t *testing.T) {
	var m exposition
	hostile := "a\"b\\c\nallotment_farm_slots 99\n\xff\x1b[31m{}"
	m.pools([]desk.PoolStatus{
		{Project: "A", Guarantee: 6, Charged: 4, Held: 2},
		{Project: "A", Step: "s", User: hostile, Guarantee: 1, Waiting: 3},
	})
	m.beyond(&desk.Metrics{Beyond: []plan.Beyond{{User: hostile, Slots: 2}, {Project: "A", Slots: 1}}})
	m.beyond(&desk.Metrics{}) // no sample: left out, or its help would stand twice
	m.farm(&desk.FarmStatus{Slots: 16, Dummies: 2, DummiesWait: 1})
	m.unserved([]desk.Unserved{{Reason: hostile, Jobs: 4}, {Reason: "other", Jobs: 5}})
	text := string(m.text())
	samples, err := checkExposition(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for key, want := range map[string]float64{
		`allotment_pool_guarantee_slots{project="A"}`:                       6,
		`allotment_farm_slots{of="dummy"}`:                                  2,
		`allotment_pool_pending_within_slots{project="A"}`:                  2,
		`allotment_beyond_pools_slots{project="A"}`:                         1,
		`allotment_unserved_jobs{reason="other"}`:                           5,
		`allotment_farm_slots{of="up"}`:                                     16,
		`allotment_beyond_pools_slots{user="` + escapeLabel(hostile) + `"}`: 2,
	} {
		if got, ok := samples[key]; !ok || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

func TestMetricsListenOnLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9746": true, "127.1.2.3:0": true, "[::1]:9746": true, "localhost:9746": true,
		":9746": false, "0.0.0.0:9746": false, "[::]:9746": false, "10.0.0.1:9746": false, "example.com:9746": false,
		"127.0.0.1": false, "127.0.0.1:": false, "": false, "localhost.example.com:1": false,
	} {
		if err := loopback(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAgo(t *testing.T) {
	for text, want := range map[string]string{"7d": "7d", "4w": "28d", "36h": "36h0m0s", "90m": "1h30m0s", "24h": "1d"} {
		var a ago
		if err := a.Set(text); err != nil || a.String() != want {
			t.Errorf("%s: %v, %v", text, a.String(), err)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1d", "1.5d", "7", "7y", "99999999999w", "0s"} {
		if err := new(ago).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
