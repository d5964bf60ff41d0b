package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each of these takes longer to start than asub has for all that it does before it asks
// the queue. What it does without them is in internal/config, internal/random and
// backends/miniq.
func TestLinksNothingSlow(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "github.com/allotment-hpc/allotment/backends/miniq") {
		t.Fatalf("the list is not asub's: %q", linked)
	}
	for _, slow := range []string{"gopkg.in/yaml.v3", "crypto/rand", "net/http", "text/template", "github.com/urfave/cli"} {
		if slices.Contains(linked, slow) {
			t.Errorf("asub links %s; go mod why, or go list -deps, says through which package", slow)
		}
	}
}

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
