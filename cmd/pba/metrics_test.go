package main

import (
	"testing"

	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestExpositionEscapesHostileNames(t *testing.T) {
	var m metricSet
	hostile := "a\"b\\c\nallotment_farm_slots 99\n\xff\x1b[31m{}"
	m.pools([]desk.PoolStatus{
		{Project: "A", Guarantee: 6, Charged: 4, Held: 2},
		{Project: "A", Step: "s", User: hostile, Guarantee: 1, Waiting: 3},
	})
	m.beyond(&desk.Metrics{Beyond: []plan.Beyond{{User: hostile, Slots: 2}, {Project: "A", Slots: 1}}})
	m.beyond(&desk.Metrics{}) // no sample: left out, or its help would stand twice
	m.farm(&desk.FarmStatus{Slots: 16, Dummies: 2, DummiesWait: 1})
	m.unserved([]desk.Unserved{{Reason: hostile, Jobs: 4}, {Reason: "other", Jobs: 5}})
	text := string(m.Text())
	samples, err := exposition.Check(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for key, want := range map[string]float64{
		`allotment_pool_guarantee_slots{project="A"}`:                                  6,
		`allotment_farm_slots{of="dummy"}`:                                             2,
		`allotment_pool_pending_within_slots{project="A"}`:                             2,
		`allotment_beyond_pools_slots{project="A"}`:                                    1,
		`allotment_unserved_jobs{reason="other"}`:                                      5,
		`allotment_farm_slots{of="up"}`:                                                16,
		`allotment_beyond_pools_slots{user="` + exposition.EscapeLabel(hostile) + `"}`: 2,
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
