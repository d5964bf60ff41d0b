package lsf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/lsfstandin"
	"github.com/allotment-hpc/allotment/test/programs"
)

// R13: users give their jobs any priority up to MAX_USER_PRIORITY, at submission and
// later, past our filter. One cycle puts back what is more than the default, whether a
// project is planned or not; what is less stays; and its owner reads why.
func TestRaisedPrioritiesAreResetInACycle(t *testing.T) {
	pba := filepath.Join(programs.Build(t, "pba"), "pba")
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			t.Cleanup(cancel)
			c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 2, Flavour: flavour})
			l := &reclaimTest{T: t, Cluster: c, ctx: ctx, pba: pba, home: t.TempDir(), dir: t.TempDir()}
			config := fmt.Sprintf("backend: lsf\nlsf: {bin: %q, envdir: %q}\n", c.Bin(), c.EnvDir())
			if err := os.WriteFile(filepath.Join(l.home, "config.yaml"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			pba := func(args ...string) string {
				t.Helper()
				out, err := l.command(args...).CombinedOutput()
				if err != nil {
					t.Errorf("pba %s: %v: %s", args, err, out)
				}
				return string(out)
			}
			types := func(args ...string) {
				t.Helper()
				if out, text, rc := c.Run(args...); rc != 0 {
					t.Fatalf("%s: %d: %s%s", args, rc, out, text)
				}
			}
			pba("init")
			for range 2 {
				l.submit("filler", "", "requeue", filepath.Join(l.dir, "over"))
			}
			l.await("the host to be full", func() bool { return l.count(lsfstandin.RUN) == 2 })
			types("bsub", "-J", "honest", "true")
			types("bsub", "-J", "raised", "-sp", "100", "true")
			types("bsub", "-J", "a bit", "-sp", "51", "true")
			types("bsub", "-J", "later", "true")
			types("bsub", "-J", "lowered", "-sp", "20", "true")
			types("bsub", "-J", "many[1-3]", "-sp", "77", "true")
			types("bmod", "-sp", "90", "6")
			stand := func(when string) {
				t.Helper()
				snapshot, err := c.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range snapshot.Jobs {
					want := map[string]bool{"honest": j.UserPriority == 0, "lowered": j.UserPriority == 20, "filler": true}
					if ok, known := want[j.Name]; known && !ok || !known && j.UserPriority != 50 {
						t.Errorf("%s: job %d, %s, stands at %d", when, j.ID, j.Name, j.UserPriority)
					}
				}
			}
			pba("rebalance")
			stand("after a cycle")
			types("bmod", "-sp", "100", "4")
			pba("rebalance")
			stand("after it was raised again")
			if out := pba("explain", "4"); !strings.Contains(out, "it was raised outside pba to") {
				t.Errorf("pba explain 4:\n%s", out)
			}
			if out := pba("rebalance", "--dry-run"); strings.Contains(out, "rank") {
				t.Errorf("put back, they are ranked again:\n%s", out)
			}
			l.write(filepath.Join(l.dir, "over"))
		})
	}
}
