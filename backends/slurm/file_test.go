package slurm

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func TestExpandFile(t *testing.T) {
	facts := fileFacts{own: "84", id: backends.ID{Job: 82, Index: 3}, name: "run", user: "bob", host: "n1"}
	for name, want := range map[string]string{
		"/d/slurm-%A_%a.out": "/d/slurm-82_3.out",
		"%j.%x.%u.%N":        "84.run.bob.n1",
		"%4j-%3a-%t%n":       "0084-003-00",
		"%J":                 "84.batch",
		"100%%":              "100%",
		"%q %":               "%q %",
		"%99999999j":         "%99999999j",
		`a\%j`:               "a%j",
		"plain":              "plain",
	} {
		if got := expandFile(name, facts); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
