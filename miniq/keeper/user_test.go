package keeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What the user may not open is not opened, and root is root again afterwards.
func TestFilesAreOpenedAsTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip: only root can become another user")
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := &User{UID: 65534, GID: 65534, Groups: []uint32{65534, 12345}}
	err := u.as(func() error {
		f, err := os.Open(secret)
		if err == nil {
			_ = f.Close()
		}
		return err
	})
	if !os.IsPermission(err) {
		t.Errorf("got %v, want permission denied", err)
	}
	if os.Geteuid() != 0 {
		t.Fatalf("effective user %d afterwards", os.Geteuid())
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("root can't read it any more: %v", err)
	}
}

func TestLimits(t *testing.T) {
	own, err := LimitsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.parse(); err != nil {
		t.Errorf("%q: %v", own, err)
	}
	var out strings.Builder
	_, err = Limits("nofile=100:200 core=0:0 fsize=4096:-").runUnder(func() error {
		cmd := exec.Command("/bin/sh", "-c", "ulimit -S -n; ulimit -H -n; ulimit -c")
		cmd.Stdout = &out
		return cmd.Run()
	})
	if err != nil {
		t.Fatal(err)
	}
	if maySetLimits() {
		if got := strings.Fields(out.String()); strings.Join(got, " ") != "100 200 0" {
			t.Errorf("got %q", got)
		}
	}
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil || r.Cur == 4096 {
		t.Errorf("the keeper keeps the job's limit %d, %v", r.Cur, err)
	}
	for _, text := range []Limits{"nofile", "nofile=1", "nofile=2:1", "nofile=x:1", "dance=1:1", "core=-1:2"} {
		if _, err := text.parse(); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func FuzzLimits(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/limits")
	f.Add(string(own), "nofile=1:2 core=0:-")
	f.Fuzz(func(_ *testing.T, text, limits string) {
		_, _ = parseLimits(text)
		_, _ = Limits(limits).parse()
	})
}
