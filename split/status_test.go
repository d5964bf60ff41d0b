package split

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/split/task"
)

// What a split says of itself is read as what it is, or refused.
func TestStatuses(t *testing.T) {
	work := t.TempDir()
	if all, err := Statuses(work); len(all) > 0 || err != nil {
		t.Errorf("no split: %v, %v", all, err)
	}
	dir, _, err := CreateDir(work, "one")
	if err != nil {
		t.Fatal(err)
	}
	state := func(want string) {
		t.Helper()
		all, err := Statuses(work)
		if err != nil || len(all) != 1 || all[0].State != want || all[0].Name != "one" {
			t.Errorf("%+v, %v, want %s", all, err, want)
		}
	}
	state(StateBegins)
	r := &runner{def: &Definition{Name: "one"}, dir: dir, crew: newCrew(0), core: new(Core)}
	r.writeStatus(&Progress{Items: 7, Total: 9, Round: 2}, StateRuns)
	state(StateRuns)
	r.writeStatus(&Progress{Items: 8, Total: 9}, StateRuns)
	if s, err := statusOf(dir.Path); err != nil || s.Items != 7 || s.Total != 9 || s.Round != 2 || len(s.Tasks) != 0 {
		t.Errorf("%+v, %v: want the first one, as the second came at once", s, err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	state(StateInterrupted)
	r.writeStatus(&Progress{Items: 9, Total: 9}, StateEnded)
	state(StateEnded)

	other, _, err := CreateDir(work, "two")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir.Path, fileStatus)
	for name, text := range map[string]string{"no JSON": "{", "too long": `{"name":"` + string(make([]byte, maxStatus)) + `"}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := Statuses(work); err == nil || len(all) != 1 || all[0].Name != "two" {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", file); err != nil {
		t.Fatal(err)
	}
	if all, err := Statuses(work); err == nil || len(all) != 1 {
		t.Errorf("a link: %+v, %v", all, err)
	}
	if err := os.Chmod(filepath.Join(work, Folder), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Statuses(work); err == nil || task.CheckDir(filepath.Join(work, Folder)) == nil {
		t.Error("a folder that others can write")
	}
}
