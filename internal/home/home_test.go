package home

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestFind(t *testing.T) {
	const user, root = 1000, 0
	own := Paths{Config: "/home/u/.config/allotment/config.yaml", State: "/home/u/.local/state/allotment", Runtime: "/home/u/.local/state/allotment"}
	system := Paths{Config: systemConfig, State: systemState, Runtime: systemRuntime}
	tests := map[string]struct {
		env    map[string]string
		uid    int
		exists []string
		want   Paths
	}{
		"home":         {map[string]string{"ALLOTMENT_HOME": "/h"}, user, nil, Paths{"/h/config.yaml", "/h", "/h"}},
		"home as root": {map[string]string{"ALLOTMENT_HOME": "/h"}, root, nil, Paths{"/h/config.yaml", "/h", "/h"}},
		"config":       {map[string]string{"ALLOTMENT_HOME": "/h", "ALLOTMENT_CONFIG": "/c.yaml"}, user, nil, Paths{"/c.yaml", "/h", "/h"}},
		"root":         {map[string]string{"HOME": "/root"}, root, nil, system},
		"user":         {map[string]string{"HOME": "/home/u"}, user, nil, own},
		"site's farm":  {map[string]string{"HOME": "/home/u"}, user, []string{systemConfig}, system},
		"own and site": {map[string]string{"HOME": "/home/u"}, user, []string{systemConfig, own.Config}, own},
		"relative XDG": {map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "x", "XDG_RUNTIME_DIR": "y"}, user, nil, own},
		"XDG, no HOME": {map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}, user, nil, Paths{"/c/allotment/config.yaml", "/s/allotment", "/r/allotment"}},
		"home and XDG": {map[string]string{"ALLOTMENT_HOME": "/h", "XDG_RUNTIME_DIR": "/r"}, user, nil, Paths{"/h/config.yaml", "/h", "/h"}},
		"dots in home": {map[string]string{"ALLOTMENT_HOME": "/h/../g/"}, user, nil, Paths{"/g/config.yaml", "/g", "/g"}},
		"long home":    {map[string]string{"ALLOTMENT_HOME": "/" + strings.Repeat("h", 88)}, user, nil, Paths{"/" + strings.Repeat("h", 88) + "/config.yaml", "/" + strings.Repeat("h", 88), "/" + strings.Repeat("h", 88)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := find(environment(test.env), test.uid, func(path string) bool {
				for _, existing := range test.exists {
					if path == existing {
						return true
					}
				}
				return false
			})
			if err != nil || got != test.want {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, test.want)
			}
		})
	}
}

func TestFindWithoutHomeFails(t *testing.T) {
	_, err := Find(environment(nil), 1000)
	if err == nil || !strings.Contains(err.Error(), "set ALLOTMENT_HOME") {
		t.Errorf("got %v", err)
	}
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	paths := Paths{State: filepath.Join(dir, "a/state"), Runtime: filepath.Join(dir, "b/run")}
	for range 2 {
		if err := paths.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{paths.State, paths.Runtime} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	if err := os.Chmod(paths.Runtime, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := paths.Prepare(); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a runtime directory that others can write: %v", err)
	}
	link := Paths{State: dir, Runtime: filepath.Join(dir, "link")}
	if err := os.Symlink(paths.State, link.Runtime); err != nil {
		t.Fatal(err)
	}
	if err := link.Prepare(); err == nil {
		t.Error("a planted symbolic link was used")
	}
}

// Root's daemon must not use a directory that another user can exchange.
func TestCheckOwner(t *testing.T) {
	dir := t.TempDir()
	p := Paths{State: filepath.Join(dir, "state"), Runtime: filepath.Join(dir, "run")}
	if err := p.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := p.CheckOwner(); err != nil {
		t.Errorf("our own: %v", err)
	}
	if err := os.Chmod(p.State, 0o770); err != nil {
		t.Fatal(err)
	}
	if err := p.CheckOwner(); err == nil {
		t.Error("a state directory that others can write was used")
	}
}
