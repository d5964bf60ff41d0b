package slurm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFormatHosts(t *testing.T) {
	for want, hosts := range map[string][]string{
		"":                        nil,
		"node3":                   {"node3"},
		"node[1-3]":               {"node2", "node1", "node3", "node2"},
		"node[8-9],node[10,12]":   {"node10", "node9", "node12", "node8"},
		"a,b[1-2],b01,c[001-002]": {"a", "b1", "b01", "b2", "c001", "c002"},
		"x99999999999":            {"x99999999999"},
	} {
		if got := formatHosts(hosts); got != want {
			t.Errorf("%q is written as %q, want %q", hosts, got, want)
		}
	}
}

func TestFormatHostsIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SliceOfDistinct(rapid.StringMatching(`[a-c]{1,2}-?[0-9]{0,4}`), func(s string) string { return s }).Draw(t, "hosts")
		got, err := parseHosts(formatHosts(hosts))
		slices.Sort(hosts)
		if slices.Sort(got); err != nil || !slices.Equal(got, hosts) {
			t.Errorf("%q is read back as %q, %v", hosts, got, err)
		}
	})
}
