package root

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/test/programs"
)

// person is a user of the machine that the test made.
type person struct {
	name     string
	uid, gid uint32
	groups   []uint32 // all of them
	home     string
}

// machine is root's queue with its users. Everything is below base, which all users may
// search.
type machine struct {
	*testing.T
	base   string
	bin    string
	home   string // ALLOTMENT_HOME, root's
	socket string
	group  string // of alice and bob, besides their own

	alice, bob *person
	outsider   *person // is in no group but an own one
	carol      *person // an administrator by the config
	nologin    *person // has no shell
	homeless   *person // has no home
}

// tag begins the names of all users and groups that the tests make; the ID of the process
// that made them follows.
const tag = "almt"

func ownName(what string) string { return tag + strconv.Itoa(os.Getpid()) + what }

// newMachine makes the users and starts the queue. All of it is removed when the test
// ends.
func newMachine(t *testing.T) *machine {
	t.Helper()
	sweep(t)
	base, err := os.MkdirTemp("/tmp", tag+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, base: base, bin: filepath.Join(base, "bin"), home: filepath.Join(base, "queue"), group: ownName("g")}
	m.socket = filepath.Join(m.home, "miniq.sock")
	t.Cleanup(func() {
		programs.StopQueue(t, m.bin, m.rootEnv())
		remove(t, os.Getpid())
	})
	m.must(os.Chmod(base, 0o755))
	m.must(os.MkdirAll(m.home, 0o755))
	command(t, "groupadd", m.group)
	m.alice = m.add("a", "-G", m.group)
	m.bob = m.add("b", "-G", m.group)
	m.carol = m.add("c")
	m.outsider = m.add("o")
	m.nologin = m.add("n", "-s", "/usr/sbin/nologin")
	m.homeless = m.add("h")
	m.must(os.RemoveAll(m.homeless.home))
	command(t, "cp", "-a", programs.Build(t, "pba"), m.bin)
	m.must(os.Chmod(m.bin, 0o755))
	m.must(copyFile("/proc/self/exe", filepath.Join(m.bin, "client")))
	config := fmt.Sprintf("mode: live\npba: {every: 1s, roles: {admins: {users: [%s]}}}\nminiq: {nodes: [\"n1:4\"], ageing: {cap: 0}, max_bytes: 20M}\n", m.carol.name)
	m.must(os.WriteFile(filepath.Join(m.home, "config.yaml"), []byte(config), 0o644))
	m.root("sh", "-c", "exec 7</etc/passwd 9>>/dev/null; miniqd") // no job inherits what the daemon's caller has open
	return m
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// add makes a user with a home that is closed to others.
func (m *machine) add(what string, options ...string) *person {
	m.Helper()
	p := &person{name: ownName(what), home: filepath.Join(m.base, "home-"+what)}
	args := []string{"-M", "-U", "-K", "MAIL_DIR=/nonexistent", "-d", p.home, "-s", "/bin/sh"}
	command(m.T, "useradd", append(append(args, options...), p.name)...)
	u, err := user.Lookup(p.name)
	m.must(err)
	p.uid, p.gid = number(m.T, u.Uid), number(m.T, u.Gid)
	ids, err := u.GroupIds()
	m.must(err)
	for _, id := range ids {
		p.groups = append(p.groups, number(m.T, id))
	}
	slices.Sort(p.groups)
	m.must(os.Mkdir(p.home, 0o700))
	m.must(os.Chown(p.home, int(p.uid), int(p.gid)))
	return p
}

func number(t *testing.T, text string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// sweep removes what earlier runs left behind when they were killed.
func sweep(t *testing.T) {
	t.Helper()
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^`+tag+`([0-9]+)[a-z]:`).FindAllSubmatch(data, -1) {
			pid, err := strconv.Atoi(string(found[1]))
			if err == nil && (pid == os.Getpid() || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)) {
				remove(t, pid)
			}
		}
	}
}

// remove removes what the test of a process made: processes, users, groups, files.
func remove(t *testing.T, pid int) {
	t.Helper()
	prefix := tag + strconv.Itoa(pid)
	dirs, _ := filepath.Glob("/tmp/" + prefix + "-*")
	killAll(prefix, dirs)
	for _, kind := range [][2]string{{"/etc/passwd", "userdel"}, {"/etc/group", "groupdel"}} {
		data, err := os.ReadFile(kind[0])
		if err != nil {
			t.Error(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^(`+prefix+`[a-z]):`).FindAllSubmatch(data, -1) {
			if out, err := exec.CommandContext(context.Background(), kind[1], string(found[1])).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v: %s", kind[1], found[1], err, out)
			}
		}
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// killAll ends the processes of the test's users, and those that run its programs.
func killAll(prefix string, dirs []string) {
	uids := make(map[string]bool)
	data, _ := os.ReadFile("/etc/passwd")
	for line := range strings.SplitSeq(string(data), "\n") {
		if fields := strings.Split(line, ":"); strings.HasPrefix(line, prefix) && len(fields) > 2 {
			uids[fields[2]] = true
		}
	}
	for again := true; again; {
		again = false
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			status, _ := os.ReadFile(process + "/status")
			exe, _ := os.Readlink(process + "/exe")
			ours := slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(exe, dir+"/") })
			for line := range bytes.SplitSeq(status, []byte{'\n'}) {
				fields := strings.Fields(string(line))
				ours = ours || len(fields) == 5 && fields[0] == "Uid:" && uids[fields[1]]
			}
			if ours && !bytes.Contains(status, []byte("\nState:\tZ")) {
				pid, _ := strconv.Atoi(filepath.Base(process))
				_ = syscall.Kill(pid, syscall.SIGKILL)
				again = true
			}
		}
	}
}
