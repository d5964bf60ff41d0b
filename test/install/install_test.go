package install

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func makeTarget(t *testing.T, target string, variables ...string) {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-s", "-C", "../..", target}, variables...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, text)
	}
}

// built skips the test if there is nothing to install.
func built(t *testing.T) {
	if _, err := os.Stat("../../bin/pba"); err != nil {
		t.Skip("skip: nothing is built: make build does it")
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestInstall: with DESTDIR and PREFIX all files are where they belong, no link is broken,
// and uninstall removes all of them.
func TestInstall(t *testing.T) {
	built(t)
	stage := t.TempDir()
	where := []string{"DESTDIR=" + stage, "PREFIX=/opt/allotment"}
	makeTarget(t, "install", where...)
	files := filesIn(t, stage)
	for _, want := range []string{
		"/opt/allotment/bin/asub", "/opt/allotment/bin/ajobs", "/opt/allotment/bin/pba", "/opt/allotment/bin/asplit", "/opt/allotment/bin/astate", "/opt/allotment/share/man/man1/astate.1", "/opt/allotment/lib/allotment/asplit-task", "/opt/allotment/lib/allotment/esub",
		"/opt/allotment/lib/allotment/miniq-keeper", "/opt/allotment/lib/allotment/ahostd-root", "/opt/allotment/lib/allotment/adummy", "/opt/allotment/share/man/man8/adummy.8",
		"/opt/allotment/share/man/man1/ajobs.1", "/opt/allotment/share/man/man8/esub.8",
		"/opt/allotment/share/bash-completion/completions/ajobs", "/opt/allotment/share/zsh/site-functions/_allotment",
		"/opt/allotment/share/fish/vendor_completions.d/pba.fish", "/opt/allotment/lib/systemd/system/allotment-rebalance.service",
		"/opt/allotment/etc/cron.d/allotment", "/opt/allotment/etc/logrotate.d/allotment", "/opt/allotment/share/doc/allotment/README.md",
		"/opt/allotment/share/allotment/prometheus/allotment.rules.yml", "/opt/allotment/share/allotment/grafana/allotment.json",
		"/opt/allotment/share/allotment/prometheus/allotment-hosts.rules.yml", "/opt/allotment/share/allotment/grafana/allotment-hosts.json",
	} {
		if !slices.Contains(files, want) {
			t.Errorf("not installed: %s", want)
		}
	}
	for _, file := range files {
		if !strings.HasPrefix(file, "/opt/allotment/") {
			t.Errorf("outside PREFIX: %s", file)
		}
		if to, err := os.Readlink(stage + file); err == nil {
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(stage + to); err != nil {
				t.Errorf("%s is a link to nowhere: %s", file, to)
			}
			continue
		}
		if text, err := os.ReadFile(stage + file); err != nil || strings.Contains(string(text), "@BINDIR@") {
			t.Errorf("%s: unfinished (%v)", file, err)
		}
	}
	links(t, stage+"/opt/allotment/share/doc/allotment")
	makeTarget(t, "uninstall", where...)
	if left := filesIn(t, stage); len(left) > 0 {
		t.Errorf("uninstall leaves %v", left)
	}
}

// links checks that all that the installed pages show or link to is installed with them.
func links(t *testing.T, dir string) {
	t.Helper()
	pages, err := filepath.Glob(dir + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, linked := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(!?)\[[^]]*\]\(([^):#]+)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			if m[1] == "!" {
				shown++
			} else {
				linked++
			}
			if _, err := os.Stat(filepath.Join(dir, m[2])); err != nil {
				t.Errorf("%s shows or links to what is not installed: %v", filepath.Base(page), err)
			}
		}
	}
	if shown < 5 || linked < 20 {
		t.Errorf("the pages show %d pictures and have %d links: is this test empty?", shown, linked)
	}
}

// TestReinstallKeepsConfig: what the administrator wrote into /etc stays.
func TestReinstallKeepsConfig(t *testing.T) {
	built(t)
	stage := t.TempDir()
	makeTarget(t, "install", "DESTDIR="+stage)
	cron := filepath.Join(stage, "/etc/cron.d/allotment")
	if err := os.WriteFile(cron, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	makeTarget(t, "install", "DESTDIR="+stage)
	if text, err := os.ReadFile(cron); err != nil || string(text) != "mine\n" {
		t.Errorf("the cron file is %q (%v)", text, err)
	}
}

// TestUnits: systemd finds no error in the units, as they are installed, and those of the
// engine and of ahostd are exposed by 2.0 at most, with ahostd's root helper by 2.6.
func TestUnits(t *testing.T) {
	built(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("skip: no systemd-analyze here: the units are not verified")
	}
	prefix := t.TempDir() // not staged: systemd checks that the units' programs exist
	makeTarget(t, "install", "PREFIX="+prefix, "DESTDIR=")
	units, err := filepath.Glob(prefix + "/lib/systemd/system/*.service")
	if err != nil || len(units) != 4 {
		t.Fatalf("units: %v, %v", units, err)
	}
	cmd := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, units...)...)
	if text, err := cmd.CombinedOutput(); err != nil || len(text) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, text)
	}
	for name, most := range map[string]string{"rebalance": "20", "ahostd": "26"} {
		cmd = exec.Command("systemd-analyze", "security", "--offline=true", "--threshold="+most, units[slices.IndexFunc(units, func(u string) bool { return strings.Contains(u, name) })])
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the unit of %s is exposed by more than %s tenths: %v\n%s", name, most, err, text)
		}
	}
	gpuDropIn(t, units[slices.IndexFunc(units, func(u string) bool { return strings.Contains(u, "ahostd") })])
}

// gpuDropIn checks the drop-in of docs/hosts.md by which ahostd reaches GPUs.
func gpuDropIn(t *testing.T, unit string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	dropIn := regexp.MustCompile("(?s)```ini\n(\\[Service\\]\nPrivateDevices=no\n.*?)```").FindSubmatch(page)
	if dropIn == nil {
		t.Fatal("docs/hosts.md has no drop-in for GPUs")
	}
	file := filepath.Join(t.TempDir(), "gpu.service")
	if err := os.WriteFile(file, append(append(text, '\n'), dropIn[1]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || len(text) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, text)
	}
	if text, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=27", file).CombinedOutput(); err != nil {
		t.Errorf("the unit of ahostd with the drop-in for GPUs is exposed by more than 27 tenths: %v\n%s", err, text)
	}
}

// TestCronFileIsDisabled: an installation does nothing until the administrator enables it.
func TestCronFileIsDisabled(t *testing.T) {
	text, err := os.ReadFile("../../packaging/cron/allotment")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "SHELL=") {
			t.Errorf("an active line: %s", line)
		}
	}
}

// TestPurgeKeepsScriptThatSlurmUses: a slurmctld whose submission script is gone does
// not start again.
func TestPurgeKeepsScriptThatSlurmUses(t *testing.T) {
	const script = "/var/lib/allotment/job_submit.lua"
	for name, ask := range map[string]func(path string) error{
		"a link":            func(path string) error { return os.Symlink(script, path) },
		"another's":         func(path string) error { return os.WriteFile(path, []byte(`dofile("`+script+`")`), 0o600) },
		"no script uses it": nil,
	} {
		root := t.TempDir()
		for _, dir := range []string{"/var/lib/allotment/miniq", "/var/lib/private/allotment-ahostd", "/etc/slurm", "/etc/allotment"} {
			if err := os.MkdirAll(root+dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{script, "/var/lib/allotment/ledger.db", "/var/lib/private/allotment-ahostd/host.key", "/etc/allotment/enrolment"} {
			if err := os.WriteFile(root+file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if ask != nil {
			if err := ask(root + "/etc/slurm/job_submit.lua"); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "../../packaging/scripts/postremove.sh", "purge")
		cmd.Env = append(os.Environ(), "DPKG_ROOT="+root)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		var want []string
		if ask != nil {
			want = []string{strings.TrimPrefix(script, "/var")}
		}
		if left := filesIn(t, root+"/var"); !slices.Equal(left, want) {
			t.Errorf("%s: %v is left, want %v", name, left, want)
		}
		if _, err := os.Stat(root + "/etc/allotment"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: /etc/allotment is left: %v", name, err)
		}
		if mentioned := strings.Contains(string(text), "is used by /etc/slurm/job_submit.lua"); mentioned != (ask != nil) {
			t.Errorf("%s: it says %q", name, text)
		}
	}
}
