package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// asub runs once for every job: the packages that it links must not allocate much before
// main, for example a regular expression that only another queue needs.
func TestStartupAllocatesLittle(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trace)
	}
	const most = 100 // allocations
	found := regexp.MustCompile(`(?m)^init (github\.com/allotment-hpc/\S+) .* (\d+) allocs$`).FindAllSubmatch(trace, -1)
	if len(found) == 0 {
		t.Errorf("no package of Allotment in the trace:\n%s", trace)
	}
	for _, f := range found {
		if n, err := strconv.Atoi(string(f[2])); err != nil || n > most {
			t.Errorf("%s allocates %s times before main, want at most %d", f[1], f[2], most)
		}
	}
}
