package split

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openTestMerged opens sources in a directory, and returns them when all have ended, or with
// the error.
func openTestMerged(t *testing.T, dir *Dir, sources []Source, stdin io.Reader) (source, error) {
	t.Helper()
	s, err := openMerged(sources, dir, '\n', stdin, inputState{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, ended, err := s.count()
		if ended || err != nil {
			return s, err
		}
		<-s.changed()
	}
}

func itemsOf(t *testing.T, s source) string {
	t.Helper()
	n, _, _ := s.count()
	var b bytes.Buffer
	if err := s.copy(&b, 0, n); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Items of several sources stand in the order in which they arrive; a run that resumes keeps
// that order, and compares each source with what it was.
func TestSeveralSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("f1\nf2"), 0o600); err != nil {
		t.Fatal(err)
	}
	sources := []Source{{Kind: Stdin}, {Kind: Lines, Path: file}, {Kind: Words, Words: []string{"w 1", ""}}}
	dir := &Dir{Path: t.TempDir()}
	in, out := io.Pipe()
	m, err := openMerged(sources, dir, '\n', in, inputState{})
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(0); n < 4; n, _, _ = m.count() {
		<-m.changed()
	}
	if _, err := io.WriteString(out, "s1\ns"); err != nil { // s is no whole item
		t.Fatal(err)
	}
	for n := int64(0); n < 5; n, _, _ = m.count() {
		<-m.changed()
	}
	before := itemsOf(t, m)
	if !strings.HasSuffix(before, "s1\n") || !strings.Contains(before, "f1\nf2\n") || !strings.Contains(before, "w 1\n\n") {
		t.Errorf("%q", before)
	}
	// The process is killed in the middle of an append.
	if err := os.WriteFile(dir.file(fileItems), []byte(before+"hal"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dir.file(fileArrivals), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("1 "); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()

	again, err := openTestMerged(t, dir, sources, strings.NewReader("s1\ns2\ns3"))
	if err != nil || itemsOf(t, again) != before+"s2\ns3\n" {
		t.Errorf("%q, %v", itemsOf(t, again), err)
	}
	if err := again.sync(); err != nil {
		t.Error(err)
	}
	if _, err := openTestMerged(t, dir, sources, strings.NewReader("s1\ns2\nother\n")); !errors.Is(err, errSourceDiffers) {
		t.Errorf("error is %v", err)
	}
	if _, err := openTestMerged(t, dir, sources, strings.NewReader("s1\n")); !errors.Is(err, errSourceDiffers) {
		t.Errorf("a shorter source: error is %v", err)
	}
	whole, err := openMerged(sources, dir, '\n', nil, inputState{Ended: true, Items: 7})
	if err != nil || itemsOf(t, whole) != before+"s2\ns3\n" {
		t.Errorf("a source that has ended is read again: %v", err)
	}
}

func TestSourceBounds(t *testing.T) {
	dir := &Dir{Path: t.TempDir()}
	for _, n := range []int{0, MaxSources + 1} {
		if _, err := openMerged(make([]Source, n), dir, '\n', nil, inputState{}); err == nil || !strings.Contains(err.Error(), "want 1 to 64") {
			t.Errorf("%d sources: %v", n, err)
		}
	}
	long := strings.Repeat("x", MaxMerged+1)
	if _, err := openTestMerged(t, dir, []Source{{Kind: Stdin}, {Kind: Words, Words: []string{"a"}}}, strings.NewReader(long)); err == nil || !strings.Contains(err.Error(), "one is longer than 16777216 bytes") {
		t.Errorf("error is %v", err)
	}
}

func FuzzArrivals(f *testing.F) {
	f.Add("0 3\n1 2\n0")
	f.Add("2 1\n")
	f.Add("0 -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "arrivals")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		order, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer order.Close()
		m := &merged{order: order}
		known, size, err := m.readArrivals(2)
		if err != nil {
			return
		}
		sum := int64(0)
		for _, pieces := range known {
			for _, e := range pieces {
				if e.from < 0 || e.size < 1 || e.from+e.size > size {
					t.Fatalf("piece %+v of %d bytes", e, size)
				}
				sum += e.size
			}
		}
		if sum != size {
			t.Fatal(fmt.Sprint(sum, " of ", size))
		}
	})
}
