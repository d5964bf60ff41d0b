package lsfstandin

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain runs, in a process of its own, what TestNothingOutlivesItsTest looks at.
func TestMain(m *testing.M) {
	if how := os.Getenv("LSFSTANDIN_ABANDON"); how != "" {
		abandon(how)
	}
	os.Exit(m.Run())
}

// abandon leaves a cluster with a running job, as a test that is killed does.
func abandon(how string) {
	c, err := Start(Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
	if err != nil {
		panic(err)
	}
	if _, stderr, rc := c.Run("bsub", "exec sleep 300"); rc != 0 {
		panic(stderr)
	}
	group := 0
	for group == 0 {
		l, err := c.Snapshot()
		if err != nil {
			panic(err)
		}
		group = l.Jobs[0].PGID
	}
	switch how {
	case "killed":
		err = c.Kill()
	case "hangs":
		err = c.Hang()
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(c.EnvDir() + " " + c.program + "\n")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func TestNothingOutlivesItsTest(t *testing.T) {
	for _, how := range []string{"serves", "killed", "hangs"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LSFSTANDIN_ABANDON="+how)
			out, _ := cmd.Output()
			words := strings.Fields(string(out))
			if len(words) != 2 {
				t.Fatalf("it printed %q", out)
			}
			for deadline := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
				left := processesOf(t, words[0], words[1])
				_, err := os.Stat(words[0])
				_, err2 := os.Stat(words[1])
				if len(left) == 0 && errors.Is(err, fs.ErrNotExist) && errors.Is(err2, fs.ErrNotExist) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%q are left, and files: %v, %v", left, err, err2)
				}
			}
		})
	}
}

// processesOf are the command lines that name one of these files.
func processesOf(t *testing.T, names ...string) (all []string) {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		text, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		for _, name := range names {
			if strings.Contains(string(text), name) {
				all = append(all, strings.ReplaceAll(string(text), "\x00", " "))
				break
			}
		}
	}
	return all
}
