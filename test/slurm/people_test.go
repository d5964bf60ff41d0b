package slurm

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// person is a user of the machine that a test made, to submit as any user does.
type person struct {
	name     string
	uid, gid int
}

// nameOfOurs begins the names of all that these tests make on the machine: users,
// groups, directories. The ID of the process that made them follows.
const nameOfOurs = "alms"

func ownName(what string) string { return nameOfOurs + strconv.Itoa(os.Getpid()) + what }

// names counts the names of users and groups, which tests make at the same time.
var names atomic.Int32

func nextName(what string) string {
	n := names.Add(1)
	return ownName(what + string([]rune{'a' + n/26%26, 'a' + n%26}))
}

// addPerson makes a user, who is in these groups too.
func addPerson(t *testing.T, what string, groups ...string) person {
	t.Helper()
	args := []string{"-M", "-U", "-K", "MAIL_DIR=/nonexistent", "-d", "/", "-s", "/bin/sh"}
	if len(groups) > 0 {
		args = append(args, "-G", strings.Join(groups, ","))
	}
	p := person{name: nextName(what)}
	machine(t, "useradd", append(args, p.name)...)
	t.Cleanup(func() { removePerson(t, p.name) })
	u, err := user.Lookup(p.name)
	if err != nil {
		t.Fatal(err)
	}
	p.uid, _ = strconv.Atoi(u.Uid)
	p.gid, _ = strconv.Atoi(u.Gid)
	return p
}

// removePerson ends the processes of a user that a test made, and removes the user.
func removePerson(t *testing.T, name string) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Error(err)
		return
	}
	for again := true; again; {
		again = false
		processes, _ := filepath.Glob("/proc/[0-9]*/status")
		for _, path := range processes {
			status, _ := os.ReadFile(path)
			if strings.Contains(string(status), "\nUid:\t"+u.Uid+"\t") && !strings.Contains(string(status), "\nState:\tZ") {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				_ = syscall.Kill(pid, syscall.SIGKILL)
				again = true
			}
		}
	}
	machine(t, "userdel", name)
}

func addGroup(t *testing.T, what string) string {
	t.Helper()
	name := nextName(what)
	machine(t, "groupadd", name)
	t.Cleanup(func() { machine(t, "groupdel", name) })
	return name
}

// accounts is held while the machine's users and groups are changed: useradd and the
// like don't wait for one another.
var accounts sync.Mutex

func machine(t *testing.T, name string, args ...string) {
	t.Helper()
	accounts.Lock()
	defer accounts.Unlock()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v: %s", name, args, err, out)
	}
}

var swept sync.Once

// sweep removes what killed runs left: clusters, users, groups.
func sweep(t *testing.T) {
	t.Helper()
	swept.Do(func() { sweepNow(t) })
}

func sweepNow(t *testing.T) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), nameOfOurs+"*-*"))
	for _, dir := range dirs {
		if gone(regexp.MustCompile(`^` + nameOfOurs + `([0-9]+)-`).FindStringSubmatch(filepath.Base(dir))) {
			stopCluster(t, dir)
		}
	}
	for _, kind := range [][2]string{{"/etc/passwd", "userdel"}, {"/etc/group", "groupdel"}} {
		data, err := os.ReadFile(kind[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^`+nameOfOurs+`([0-9]+)[a-z]+:`).FindAllStringSubmatch(string(data), -1) {
			switch name := strings.TrimSuffix(found[0], ":"); {
			case !gone(found):
			case kind[1] == "userdel":
				removePerson(t, name)
			default:
				machine(t, kind[1], name)
			}
		}
	}
}

// gone reports whether the process that made a name no longer exists.
func gone(found []string) bool {
	if len(found) < 2 {
		return false
	}
	pid, err := strconv.Atoi(found[1])
	return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
