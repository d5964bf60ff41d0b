package days

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// supply is what a sysadmin installs, below a directory that stands for /.
type supply struct {
	deb string // a package, installed and removed by dpkg
	bin string // without one: what make build left, installed and removed by make
}

// findPackage returns what can be installed here, logs it, and downloads nothing:
//
//   - ALLOTMENT_PACKAGE names a .deb: that one. An obstacle fails the test.
//   - dpkg is here, on a system of its own kind, and so is the packager, in Go's
//     module cache: a package that make package makes now.
//   - Neither: the files of make install, the same except for zsh's.
func findPackage(t *testing.T) supply {
	t.Helper()
	if deb := os.Getenv("ALLOTMENT_PACKAGE"); deb != "" {
		if !filepath.IsAbs(deb) {
			deb = filepath.Join("../..", deb)
		}
		t.Logf("the package is ALLOTMENT_PACKAGE, %s", deb)
		return supply{deb: deb}
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := exec.Command("dpkg-query", "--status", libc).Run(); err != nil {
		t.Logf("make install and no package: dpkg-query --status %s: %v", libc, err)
		mustMake(t, "build", "BIN="+bin)
		return supply{bin: bin}
	}
	if text, err := runMake("packager"); err != nil {
		t.Logf("make install and no package: the packager is not in Go's module cache (make package gets it): %v: %s", err, text)
		mustMake(t, "build", "BIN="+bin)
		return supply{bin: bin}
	}
	mustMake(t, "package", "BIN="+bin, "DIST="+dir, "KINDS=deb")
	debs, err := filepath.Glob(dir + "/*.deb")
	if err != nil || len(debs) != 1 {
		t.Fatalf("make package made %q (%v)", debs, err)
	}
	t.Logf("the package is made by make package: %s", filepath.Base(debs[0]))
	return supply{deb: debs[0]}
}

// libc is what the package depends on.
const libc = "libc6"

// runMake runs make without a network.
func runMake(args ...string) ([]byte, error) {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("make", append([]string{"-s", "-C", "../.."}, args...)...)
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+strings.TrimSpace(string(cache))+"/cache/download", "GOSUMDB=off")
	return cmd.CombinedOutput()
}

func mustMake(t testing.TB, args ...string) {
	t.Helper()
	if text, err := runMake(args...); err != nil {
		t.Fatalf("make %q: %v\n%s", args, err, text)
	}
}

// prepare makes the root: the directories that the package expects of a Debian, and
// dpkg's database, with this machine's libc.
func (s supply) prepare(root string) error {
	for _, dir := range []string{"var/log", dpkgDir + "/info", dpkgDir + "/updates"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if s.deb == "" {
		return nil
	}
	status, err := exec.Command("dpkg-query", "--status", libc).Output()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, dpkgDir, "status"), status, 0o644)
}

// dpkgDir is the directory of dpkg's database.
const dpkgDir = "var/lib/dpkg"

// run installs, removes or purges it.
func (s supply) run(root, what string) ([]byte, error) {
	if s.deb == "" {
		target, ok := map[string]string{"install": "install", "remove": "uninstall"}[what]
		if !ok {
			return nil, nil // make has no purge
		}
		return runMake(target, "BIN="+s.bin, "DESTDIR="+root, "PREFIX=/usr", "SYSCONFDIR=/etc")
	}
	args := map[string][]string{"install": {"--install", s.deb}, "remove": {"--remove", "allotment"}, "purge": {"--purge", "allotment"}}[what]
	cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--log=" + filepath.Join(root, "var/log/dpkg.log"), "--force-not-root", "--force-script-chrootless"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=" + root}
	return cmd.CombinedOutput()
}

// pack is the script's command package.
func (s supply) pack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || (args[0] != "install" && args[0] != "remove" && args[0] != "purge") {
		ts.Fatalf("usage: package install|remove|purge")
	}
	text, err := s.run(ts.Getenv("ROOT"), args[0])
	ts.Logf("%s", bytes.TrimSpace(text))
	ts.Check(err)
}

// condition evaluates [dpkg]: whether dpkg installs and removes.
func (s supply) condition(name string) (bool, error) {
	if name != "dpkg" {
		return false, os.ErrInvalid
	}
	return s.deb != "", nil
}
