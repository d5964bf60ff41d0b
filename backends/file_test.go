package backends_test

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

func TestOutputFile(t *testing.T) {
	for _, test := range []struct {
		stdout string
		id     backends.ID
		want   string
	}{
		{"", backends.ID{Job: 12}, "/d/12.out"},
		{"", backends.ID{Job: 12, Index: 3}, "/d/12.3.out"},
		{"log/", backends.ID{Job: 12}, "/d/log/12.out"},
		{"/l/%J.%I", backends.ID{Job: 12, Index: 3}, "/l/12.3"},
		{"a.%I.%x", backends.ID{Job: 12}, "/d/a.0.%x"},
		{"e%I", backends.ID{Job: 12, Index: backends.ZeroIndex}, "/d/e0"},
	} {
		s := backends.Spec{Dir: "/d", Stdout: test.stdout}
		if got := s.OutputFile(test.id); got != test.want {
			t.Errorf("%q of %s: got %q, want %q", test.stdout, test.id, got, test.want)
		}
	}
}
