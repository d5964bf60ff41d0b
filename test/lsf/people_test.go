package lsf

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/test/programs"
)

// account is a user; uid 0 stands for the user who runs the test.
type account struct {
	name, group string
	uid, gid    int
}

// accounts are the users of a test: for root, users that every machine has; else both are
// the user who started the cluster and so administers it.
type accounts struct{ admin, engineer account }

func testAccounts(t *testing.T) accounts {
	t.Helper()
	if os.Getuid() != 0 {
		u, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		me := accountOf(t, u)
		me.uid, me.gid = 0, 0
		return accounts{me, me}
	}
	find := func(name string) account {
		u, err := user.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return accountOf(t, u)
	}
	return accounts{admin: find("daemon"), engineer: find("nobody")}
}

func accountOf(t *testing.T, u *user.User) account {
	t.Helper()
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return account{name: u.Username, group: g.Name, uid: uid, gid: gid}
}

// admins returns LSF's administrators, beside the user who started the cluster.
func (p accounts) admins() []string {
	if p.admin.uid == 0 {
		return nil
	}
	return []string{p.admin.name}
}

// run makes a command run as the user.
func (a account) run(cmd *exec.Cmd) {
	if a.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
	}
}

// chown gives a file to the user.
func (a account) chown(path string) error {
	if a.uid == 0 {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// publicDir returns a directory that every user can look into.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lsf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// publicPrograms returns a directory with the programs, which every user can run.
func publicPrograms(t *testing.T) string {
	t.Helper()
	dir := publicDir(t)
	if err := programs.Make(t.Context(), dir, "pba"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copySelf returns a copy of this test binary in another directory.
func copySelf(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	to := filepath.Join(dir, "orderer")
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}
