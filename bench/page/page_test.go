package page

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const (
		text = "a\n<!-- make one writes from here -->\nold\n<!-- to here -->\nb\n<!-- make two writes from here -->\nstays\n<!-- to here -->\nc\n"
		want = "a\n<!-- make one writes from here -->\nnew\n<!-- to here -->\nb\n<!-- make two writes from here -->\nstays\n<!-- to here -->\nc\n"
	)
	content := func(out io.Writer) error { _, err := io.WriteString(out, "new\n"); return err }
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, "make one", content); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, got, want)
	}
	// A page without the marks, and one whose content can't be made, stay as they are.
	failed := errors.New("failed")
	if err := Replace(path, "make three", content); err == nil {
		t.Error("a page without the marks is written")
	}
	if err := Replace(path, "make two", func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error is %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("after errors: %v:\n%s", err, got)
	}
}
