package account

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	want, err := user.Current()
	if err != nil {
		t.Skip("skip: this process's user is unknown to the machine")
	}
	ids, err := want.GroupIds()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Lookup(t.Context(), uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	groups := make([]string, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = strconv.Itoa(int(g))
	}
	slices.Sort(ids)
	slices.Sort(groups)
	if a.Name != want.Username || strconv.Itoa(int(a.UID)) != want.Uid || strconv.Itoa(int(a.GID)) != want.Gid || a.Home != want.HomeDir || !slices.Equal(ids, groups) {
		t.Errorf("got %+v, want %+v with groups %v", a, want, ids)
	}
}

func TestLookupOfUnknownUser(t *testing.T) {
	if _, err := Lookup(t.Context(), 3_999_999_999); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want %v", err, ErrUnknown)
	}
}

func TestParse(t *testing.T) {
	a, err := parse("alice:x:1000:1001:Alice A.,,,:/home/alice:/bin/bash")
	if err != nil || a.Name != "alice" || a.UID != 1000 || a.GID != 1001 || a.Home != "/home/alice" || a.Shell != "/bin/bash" {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, line := range []string{"", ":x:0:0::/:/bin/sh", "a:x:-1:0::/:", "a:x:0:99999999999::/:", "a:x:0:0:/:", "a:x:0:0::/:/bin/sh:"} {
		if a, err := parse(line); err == nil {
			t.Errorf("%q was taken for %+v", line, a)
		}
	}
}

func TestMayRun(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		home, shell, want string
	}{
		{home, "/bin/sh", ""},
		{home, "", ""},
		{home, "/usr/sbin/nologin", "no login shell"},
		{home, "/bin/false", "no login shell"},
		{home, filepath.Join(home, "shell"), "no login shell"},
		{home, file, "no login shell"},
		{home, home, "no login shell"},
		{filepath.Join(home, "gone"), "/bin/sh", "no home directory"},
		{file, "/bin/sh", "no home directory"},
		{"", "/bin/sh", "no home directory"},
	} {
		err := Account{Name: "alice", Home: c.home, Shell: c.shell}.MayRun()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("home %q, shell %q: %v, want %q", c.home, c.shell, err, c.want)
		}
	}
}

func TestEnviron(t *testing.T) {
	a := Account{Name: "alice", Home: "/home/alice"}
	got := a.Environ([]string{"A=1", "USER=root", "HOME=/root", "HOME=/twice", "LOGNAME", "SHELL=/x", "HOMER=2"})
	want := []string{"A=1", "HOMER=2", "USER=alice", "LOGNAME=alice", "HOME=/home/alice", "SHELL=/bin/sh"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
