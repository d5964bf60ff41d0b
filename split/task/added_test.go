package task

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Items are added to the file of one execution, and to no other.
func TestAdd(t *testing.T) {
	f, at, err := openAdded('\n')
	if err != nil {
		t.Fatal(err)
	}
	at = strings.TrimPrefix(at, EnvAdd+"=")
	long := strings.Repeat("x", MaxAdded/2)
	for _, x := range []struct {
		items []string
		good  bool
	}{
		{[]string{"a", "b c"}, true},
		{[]string{"d", "e\nf"}, false},
		{[]string{long}, true},
		{[]string{long}, false},
		{[]string{""}, true},
	} {
		if err := Add(at, x.items); x.good != (err == nil) {
			t.Errorf("%.10q: %v", x.items, err)
		}
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, MaxAdded))
	if want := "a\nb c\n" + long + "\n\n"; string(text) != want || err != nil {
		t.Errorf("%d bytes, want %d; %v", len(text), len(want), err)
	}
	// The number of its file is another file's now.
	fd := f.Fd()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for len(files) == 0 || files[len(files)-1].Fd() < fd {
		other, _, err := openAdded('\n')
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		files = append(files, other)
	}
	if err := Add(at, []string{"late"}); !errors.Is(err, ErrNoAdding) {
		t.Errorf("to the file of another execution: %v", err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	_, token, _ := strings.Cut(at, ":")
	for _, at := range []string{"", file.Name(), file.Name() + ":" + token, fmt.Sprintf("/proc/%d/fd/%d:%s", os.Getpid(), file.Fd(), token), "/proc/1/fd/../x:" + token, strings.Replace(at, ":10", ":9", 1)} {
		if err := Add(at, []string{"x"}); !errors.Is(err, ErrNoAdding) {
			t.Errorf("%q: %v", at, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("/proc/12/fd/3:ABCDEFGHIJKLMNOPQRSTUVWXYZ:10")
	f.Fuzz(func(t *testing.T, text string) {
		path, token, separator, err := parsePlace(text)
		if err != nil {
			return
		}
		if strings.Contains(path, "..") || !strings.HasPrefix(path, "/proc/") || len(token) != 26 || separator != 0 && separator != '\n' {
			t.Errorf("%q: %q %q %d", text, path, token, separator)
		}
	})
}
