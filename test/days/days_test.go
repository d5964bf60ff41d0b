package days

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/programs"
)

// patience is how long a script waits for an output.
const patience = 45 * time.Second

// TestDays runs the scripts. Each begins with the programs in $BUILT, as make
// build leaves them, none of them in PATH. In the scripts
//
//	until PATTERN PROGRAM ARG...    runs it again and again until its output matches
//	group NAME                      sets a variable to the name of this user's group
//	package install|remove|purge    does that below $ROOT, with what findPackage has found; [dpkg]: dpkg does it
//	jobs FILE                       writes what owners know of their jobs that have not ended
//	unchanged BEFORE AFTER JOB...   compares two of these; owners have ended the JOBs
//	files FILE                      writes what is in $ROOT and $ALLOTMENT_HOME
//	crontab FILE                    runs the line of a file of /etc/cron.d each second, until the script ends it
//	nocron                          ends it
//	idle FILE                       runs that line once: it must end at once and print nothing
func TestDays(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // files that others may write are not trusted
	built, supply := programs.Build(t, "pba"), findPackage(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				return err
			}
			root := filepath.Join(e.WorkDir, "root")
			if err := supply.prepare(root); err != nil {
				return err
			}
			e.Setenv("ROOT", root)
			e.Setenv("BUILT", built)
			e.Setenv("PATH", os.Getenv("PATH"))
			e.Setenv("HOME", os.Getenv("HOME")) // where go keeps what it has built
			e.Setenv("ALLOTMENT_HOME", home)
			e.Values["cron"] = &cron{}
			e.Defer(func() { e.Values["cron"].(*cron).stop(); programs.StopQueue(t, built, e.Vars) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"until": until, "group": group, "package": supply.pack,
			"jobs": jobs, "unchanged": unchanged, "files": files,
			"crontab": crontab, "nocron": noCron, "idle": idle,
		},
		Condition: supply.condition,
	})
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN PROGRAM ARG...")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	var last string
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	matched := await.Every(ctx, 50*time.Millisecond, func() bool {
		cmd := exec.Command(program(ts, args[1]), args[2:]...)
		cmd.Dir, cmd.Env = ts.Getenv("WORK"), []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "ALLOTMENT_HOME=" + ts.Getenv("ALLOTMENT_HOME")}
		text, _ := cmd.CombinedOutput() // a program that fails may succeed later
		last = string(text)
		return want.MatchString(last)
	})
	if !matched {
		ts.Fatalf("no output matched %q within %v: %s", args[0], patience, last)
	}
}

// program finds a program as the script's shell would.
func program(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	ts.Fatalf("no program %s in %s", name, ts.Getenv("PATH"))
	return ""
}

func group(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: group NAME")
	}
	name, err := exec.Command("id", "-gn").Output()
	ts.Check(err)
	ts.Setenv(args[0], strings.TrimSpace(string(name)))
}
