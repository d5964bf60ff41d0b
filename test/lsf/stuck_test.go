package lsf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// Each program that looks reports a job that the queue does not release (R21), and
// restore claims nothing before it has looked.
func TestUnreleasedJobIsReported(t *testing.T) {
	t.Parallel()
	p, bin := testAccounts(t), publicPrograms(t)
	c := lsfstandin.New(t, lsfstandin.Options{Hosts: 1, Slots: 2, Admins: p.admins()})
	l := &reclaimTest{T: t, Cluster: c, accounts: p, ctx: t.Context(), pba: filepath.Join(bin, "pba"), orderer: copySelf(t, bin), home: publicDir(t), dir: publicDir(t)}
	l.prepare()
	for _, name := range []string{"filler1", "filler2", "stuck"} {
		l.submit(name, "", "requeue", filepath.Join(l.dir, "over"))
	}
	l.await("the host to be full", func() bool { return l.count(lsfstandin.RUN) == 2 })
	if _, message, rc := c.Run("bmod", "-bn", "3"); rc != 0 {
		t.Fatal(message)
	}
	expect := func(want string, args ...string) {
		t.Helper()
		out, _ := l.command(args...).CombinedOutput()
		word, not := strings.CutPrefix(want, "!")
		if strings.Contains(string(out), word) == not {
			t.Errorf("pba %s: want %q in\n%s", args, want, out)
		}
	}
	bmod := filepath.Join(l.dir, "bmod")
	if err := os.Remove(bmod); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bmod, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil { // it claims success and does nothing
		t.Fatal(err)
	}
	const word = "not release job 3"
	expect(word, "rebalance", "-v")
	expect(word, "status")
	expect("did not release them when the hold ended", "doctor")
	expect("!All changes are undone", "restore")
	if err := os.Remove(bmod); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(c.Bin(), "bmod"), bmod); err != nil {
		t.Fatal(err)
	}
	expect("All changes are undone", "restore")
	expect("!did not release them when the hold ended", "doctor")
	snapshot, err := c.Snapshot()
	if err != nil || snapshot.Jobs[2].Begin.After(time.Now().Add(2*time.Minute)) {
		t.Errorf("%v: it begins at %v", err, snapshot.Jobs[2].Begin)
	}
	l.write(filepath.Join(l.dir, "over"))
}
