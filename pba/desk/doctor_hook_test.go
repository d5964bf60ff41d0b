package desk

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// stranger is a user who owns nothing and is in no group.
func stranger() reader { return reader{uid: 1 << 30, stat: os.Stat} }

func TestMayRead(t *testing.T) {
	for name, x := range map[string]struct {
		dir, file fs.FileMode
		why       string
	}{
		"open":             {0o755, 0o644, ""},
		"only to pass":     {0o711, 0o644, ""},
		"closed file":      {0o755, 0o640, "can't be read"},
		"closed directory": {0o750, 0o644, "directory"},
		"others' file":     {0o755, 0o666, "can be written by others"},
		"others' place":    {0o777, 0o644, "can be exchanged"},
		"sticky":           {0o777 | fs.ModeSticky, 0o644, ""},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "state")
			file := filepath.Join(dir, "policy.lua")
			for _, err := range []error{os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o600), os.Chmod(file, x.file), os.Chmod(dir, x.dir)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			err := stranger().mayRead(file)
			if (err == nil) != (x.why == "") || err != nil && !strings.Contains(err.Error(), x.why) {
				t.Errorf("%v, want %q", err, x.why)
			}
			owner := reader{uid: os.Getuid(), stat: os.Stat}
			if err := owner.mayRead(file); err != nil && !strings.Contains(err.Error(), "others") {
				t.Errorf("its owner: %v", err)
			}
		})
	}
	group := stranger()
	group.gids = []int{os.Getgid()}
	file := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || !group.has(info, 4) || stranger().has(info, 4) {
		t.Errorf("a group's right is not its members' alone (%v)", err)
	}
}

func TestDoctorOnTheHook(t *testing.T) {
	refusal := "control characters in the job's name: take them out"
	for name, x := range map[string]struct {
		hook backends.Hook
		file string // what the queue would ask; "ours": what pba writes
		want []string
	}{
		"all is well":       {hook: backends.Hook{Enabled: true, Answer: refusal}, file: "ours"},
		"not turned on":     {hook: backends.Hook{Remedy: "turn it on"}, file: "ours", want: []string{"asks no script"}},
		"not there":         {hook: backends.Hook{Enabled: true}, want: []string{"does not ask our filter"}},
		"another one":       {hook: backends.Hook{Enabled: true, Answer: "no"}, file: "-- theirs", want: []string{"does not ask our filter"}},
		"by way of theirs":  {hook: backends.Hook{Enabled: true, Answer: "; " + refusal}, file: "-- theirs"},
		"ours, not trusted": {hook: backends.Hook{Enabled: true, Answer: refusal}, file: "open", want: []string{"not trusted"}},
		"an old one":        {hook: backends.Hook{Enabled: true, Answer: refusal}, file: "old", want: []string{"of another version"}},
		"gone":              {hook: backends.Hook{Enabled: true, Answer: refusal}, file: "gone", want: []string{"is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			d := quietDesk()
			d.Config = configfile.Config{PBA: d.PBA, Paths: config.Paths{State: filepath.Join(top, "state")}}
			x.hook.File = filepath.Join(top, "job_submit.lua")
			for _, err := range []error{os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), os.Mkdir(d.Paths.State, 0o755), os.Chmod(d.Paths.State, 0o755), writeHook(d.Config)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			var err error
			switch x.file {
			case "":
			case "ours":
				err = os.Symlink(hookPath(d.Config), x.hook.File)
			case "open":
				err = os.Chmod(hookPath(d.Config), 0o666)
			case "old":
				err = os.WriteFile(hookPath(d.Config), []byte("-- an old one"), 0o644)
			case "gone":
				err = os.Remove(hookPath(d.Config))
			default:
				err = os.WriteFile(x.hook.File, []byte(x.file), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			x.hook.UID = 1 << 30
			var got findings
			d.checkHook(&x.hook, &got)
			if x.file == "open" && len(got) == 2 { // a finding names the filter's user, too
				got = got[:1]
			}
			expect(t, name, got, x.want...)
		})
	}
}

func TestDoctorOnFoldedNames(t *testing.T) {
	var got findings
	checkNames([]ledger.Project{{Name: "chipA"}, {Name: "chipB"}, {Name: "chipa"}}, &got)
	expect(t, "names", got, "projects chipA and chipa are one")
}

func TestDoctorOnAccounts(t *testing.T) {
	projects := []ledger.Project{{Name: "chipA"}, {Name: "chipB"}, {Name: "chipC"}}
	for name, x := range map[string]struct {
		accounts map[string][]int64
		want     []string
	}{
		"none are asked for": {nil, nil},
		"some":               {map[string][]int64{"chipa": {7}, "chipb": nil}, []string{"the account of project chipB has no users", "project chipC has no account"}},
	} {
		var got findings
		checkAccounts(projects, x.accounts, &got)
		expect(t, name, got, x.want...)
	}
}

// TestHookFollowsTheVersion: what another version wrote is replaced, and what is up
// to date stays as it is.
func TestHookFollowsTheVersion(t *testing.T) {
	c := configfile.Config{Paths: config.Paths{State: t.TempDir()}}
	if err := os.WriteFile(hookPath(c), []byte("-- an old one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeHook(c); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(hookPath(c))
	if err != nil || first.Mode().Perm() != 0o644 {
		t.Fatalf("%v, %v", first, err)
	}
	content, err := os.ReadFile(hookPath(c))
	if err != nil || string(content) != string(esub.JobSubmit(c.Paths.State)) || !strings.Contains(string(content), c.Paths.State[:5]) {
		t.Errorf("it was not written: %v", err)
	}
	if err := writeHook(c); err != nil {
		t.Fatal(err)
	}
	if second, err := os.Stat(hookPath(c)); err != nil || !os.SameFile(first, second) {
		t.Errorf("it was written again (%v)", err)
	}
}
