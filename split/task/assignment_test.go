package task

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func FuzzAssignment(f *testing.F) {
	f.Add(`{"dir":"/x/.asplit/a","task":3}`)
	f.Add(`{"status":3,"error":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := ParseAssignment(text); err == nil {
			again, _ := a.Encode()
			if b, err := ParseAssignment(again); err != nil || a != b || !filepath.IsAbs(a.Dir) || a.N < 1 {
				t.Errorf("%q: %+v, %+v, %v", text, a, b, err)
			}
		}
		if o, err := ParseOutcome(text); err == nil {
			again, _ := o.Encode()
			if b, err := ParseOutcome(again); err != nil || b.Status != o.Status || o.Status < 0 || o.Status > 255 {
				t.Errorf("%q: %+v, %+v, %v", text, o, b, err)
			}
		}
	})
}

// A worker executes tasks of directories that no other user could have made or read.
func TestSurroundings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "split")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := Surroundings{Dir: "/work", Env: []string{"A=b\n", "C="}}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSurroundings(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	path := filepath.Join(dir, fileSurroundings)
	for name, mode := range map[string]os.FileMode{path: 0o644, dir: 0o777} {
		before, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSurroundings(dir); err == nil {
			t.Errorf("%s is readable by others", name)
		}
		if err := os.Chmod(name, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", "{}", `{"dir":"x"}`, `{"dir":"/x","more":1}`, `{"dir":"/x"} {}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSurroundings(dir); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
