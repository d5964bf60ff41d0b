package lsf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// LSF refuses root's submissions. If root gives the state directory to an LSF
// administrator, dummy jobs are placed, whichever of the two runs pba, and both keep the
// ledger.
func TestEngineRunByAdministrator(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, who gives the state directory to an LSF administrator")
	}
	bin, p := publicPrograms(t), testAccounts(t)
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for _, owner := range []account{p.admin, {name: "root"}} {
			t.Run(fmt.Sprintf("%s, %s", flavour, owner.name), func(t *testing.T) {
				t.Parallel()
				newTestSite(t, p, filepath.Join(bin, "pba"), flavour, owner).checkEngine()
			})
		}
	}
}

// testSite is a site whose state directory is an administrator's, or root's.
type testSite struct {
	*testing.T
	*lsfstandin.Cluster
	accounts
	owner     account
	pba, home string
	ctx       context.Context
}

func newTestSite(t *testing.T, p accounts, pba string, flavour lsfstandin.Flavour, owner account) *testSite {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := lsfstandin.New(t, lsfstandin.Options{Hosts: 1, Slots: 4, Flavour: flavour, Admins: p.admins()})
	o := &testSite{T: t, Cluster: c, accounts: p, owner: owner, pba: pba, home: publicDir(t), ctx: ctx}
	config := fmt.Sprintf("backend: lsf\ntimezone: UTC\nfilter: {low_queue: \"\"}\nqueues: [normal]\ndummies: {mode: surround}\nlsf: {bin: %q, envdir: %q}\n", c.Bin(), c.EnvDir())
	err := errors.Join(os.WriteFile(filepath.Join(o.home, "config.yaml"), []byte(config), 0o644),
		os.Symlink(filepath.Join(filepath.Dir(pba), "esub"), filepath.Join(c.ServerDir(), "esub")))
	if owner.uid != 0 {
		err = errors.Join(err, owner.chown(o.home))
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runPba runs pba as a user, and returns its output.
func (o *testSite) runPba(as account, args ...string) (string, error) {
	cmd := exec.CommandContext(o.ctx, o.pba, args...)
	cmd.Env = append(os.Environ(), "ALLOTMENT_HOME="+o.home)
	as.run(cmd)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (o *testSite) mustRun(as account, args ...string) string {
	o.Helper()
	out, err := o.runPba(as, args...)
	if err != nil {
		o.Fatalf("%s: pba %s: %v: %s", as.name, strings.Join(args, " "), err, out)
	}
	return out
}

// countDummies counts dummy jobs by their owners.
func (o *testSite) countDummies() map[string]int {
	o.Helper()
	snapshot, err := o.Snapshot()
	if err != nil {
		o.Fatal(err)
	}
	n := map[string]int{}
	for _, j := range snapshot.Jobs {
		if j.Name == "allotment-dummy" && j.Stat != lsfstandin.EXIT && j.Stat != lsfstandin.DONE {
			n[j.User]++
		}
	}
	return n
}

// submitHeavy submits a job that needs the memory of three slots, and awaits its start.
func (o *testSite) submitHeavy(name string) {
	o.Helper()
	if out, message, rc := o.RunAs(o.engineer.uid, o.engineer.gid, "bsub", "-J", name, "-R", "rusage[mem=3000]", "sleep", "600"); rc != 0 {
		o.Fatalf("bsub: %d: %s%s", rc, out, message)
	}
	runs := func() bool {
		snapshot, err := o.Snapshot()
		if err != nil {
			o.Fatal(err)
		}
		return slices.ContainsFunc(snapshot.Jobs, func(j lsfstandin.Job) bool { return j.Name == name && j.Stat == lsfstandin.RUN })
	}
	if !await.Until(o.ctx, runs) {
		o.Fatalf("%s does not start", name)
	}
}

func (o *testSite) checkEngine() {
	root := account{name: "root"}
	o.mustRun(root, "init")
	o.mustRun(root, "project", "add", "chipa", "--group", o.engineer.group)
	o.mustRun(root, "alloc", "set", "chipa", "1", "--weeks", "2")
	o.submitHeavy("heavy")
	_, failed := o.runPba(root, "rebalance")
	doctor, _ := o.runPba(root, "doctor")
	if o.owner.uid == 0 {
		if n := o.countDummies(); failed == nil || len(n) > 0 || !strings.Contains(doctor, "root runs the engine") {
			o.Errorf("root's engine: %v, dummy jobs %v, doctor says %s", failed, n, doctor)
		}
		return
	}
	if n := o.countDummies()[o.admin.name]; failed != nil || n == 0 || len(o.countDummies()) != 1 || doctor != "Nothing is wrong.\n" {
		o.Errorf("%v, dummy jobs %v, doctor says %s", failed, o.countDummies(), doctor)
	}
	o.mustRun(o.admin, "alloc", "set", "chipa", "2", "--weeks", "2")
	o.mustRun(o.admin, "rebalance")
	o.mustRun(root, "alloc", "set", "chipa", "1", "--weeks", "2")
	o.mustRun(root, "rebalance")
	o.mustRun(o.admin, "restore")
	if n := o.countDummies(); len(n) > 0 {
		o.Errorf("restore left dummy jobs: %v", n)
	}
	err := filepath.WalkDir(o.home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() == "config.yaml" {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != o.admin.uid {
			o.Errorf("%s is not the administrator's: %+v", path, info.Sys())
		}
		return nil
	})
	if err != nil {
		o.Error(err)
	}
}
