package split

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// readAll reads an input to its end.
func readAll(t testing.TB, path string, separator byte, in io.Reader, before inputState) (*stream, int64, error) {
	t.Helper()
	s, err := openStream(path, separator, in, before)
	if err != nil {
		return nil, 0, err
	}
	for {
		items, ended, err := s.count()
		if ended || err != nil {
			return s, items, err
		}
		<-s.changed()
	}
}

func TestItemsOfAnInput(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "a": 1, "a\n": 1, "\n": 1, "\n\n": 2, "a\nb": 2} {
		path := filepath.Join(t.TempDir(), "items")
		_, items, err := readAll(t, path, '\n', strings.NewReader(text), inputState{})
		if items != want || err != nil {
			t.Errorf("%q: %d items, %v", text, items, err)
		}
		// An input that has ended is not read again.
		s, items, err := readAll(t, path, '\n', strings.NewReader("other"), inputState{Ended: true, Items: items})
		if items != want || err != nil {
			t.Errorf("%q again: %d items, %v", text, items, err)
		}
		if err := s.copy(io.Discard, want, 1); !errors.Is(err, errSpool) {
			t.Errorf("%q: one item too many: %v", text, err)
		}
	}
	if _, _, err := readAll(t, filepath.Join(t.TempDir(), "items"), '\n', nil, inputState{Ended: true, Items: 3}); !errors.Is(err, errSpool) {
		t.Errorf("a spool that is gone: %v", err)
	}
}

// An input that was interrupted anywhere is resumed, in pieces of any size.
func TestInterruptedInputIsResumed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n")), 0, 5000).Draw(r, "text")
		path := filepath.Join(t.TempDir(), "items")
		for broke := range rapid.IntRange(0, 3).Draw(r, "breaks") {
			part := text[:rapid.IntRange(0, len(text)).Draw(r, "until")]
			s, err := openStream(path, '\n', io.MultiReader(bytes.NewReader(part), brokenReader{}), inputState{})
			if err != nil {
				r.Fatal(err)
			}
			for err = nil; err == nil; _, _, err = s.count() {
				<-s.changed()
			}
			if !errors.Is(err, errBroken) {
				r.Fatalf("break %d: %v", broke, err)
			}
			_ = s.close()
		}
		s, items, err := readAll(t, path, '\n', bytes.NewReader(text), inputState{})
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = s.close() }()
		want := bytes.SplitAfter(text, []byte("\n"))
		if last := len(want) - 1; len(want[last]) == 0 {
			want = want[:last]
		} else {
			want[last] = append(bytes.Clone(want[last]), '\n')
		}
		if items != int64(len(want)) {
			r.Fatalf("%d items, want %d", items, len(want))
		}
		if items == 0 {
			return
		}
		first := rapid.Int64Range(0, items-1).Draw(r, "first")
		count := rapid.Int64Range(1, items-first).Draw(r, "count")
		var got bytes.Buffer
		if err := s.copy(&got, first, count); err != nil || !bytes.Equal(got.Bytes(), bytes.Join(want[first:first+count], nil)) {
			r.Fatalf("items %d+%d: %q, %v", first, count, got.Bytes(), err)
		}
		if got := s.text(first); got != strings.TrimSuffix(string(want[first]), "\n")[:min(len(want[first])-1, maxText)] {
			r.Fatalf("item %d: %q", first, got)
		}
	})
}

var errBroken = errors.New("interrupted")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// A million items, and one of many megabytes, take no memory.
func TestInputMemory(t *testing.T) {
	line := bytes.Repeat([]byte("x"), 99)
	in := io.MultiReader(repeated(append(line, '\n'), 1_000_000), repeated(line, 300_000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, items, err := readAll(t, filepath.Join(t.TempDir(), "items"), '\n', in, inputState{})
	if err != nil || items != 1_000_001 {
		t.Fatalf("%d items, %v", items, err)
	}
	defer func() { _ = s.close() }()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes stay in memory", grown)
	}
	if err := s.copy(io.Discard, 0, items); err != nil {
		t.Error(err)
	}
	if got := s.text(items - 1); len(got) != maxText {
		t.Errorf("%d bytes are shown", len(got))
	}
}

// repeated returns a text so many times.
func repeated(text []byte, times int) io.Reader {
	const together = 1000
	var all []io.Reader
	whole := bytes.Repeat(text, together)
	for range times / together {
		all = append(all, bytes.NewReader(whole))
	}
	return io.MultiReader(all...)
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string][2]int64{"1-20000": {1, 20000}, "-3--1": {-3, -1}, "-3-1": {-3, 1}, "5-5": {5, 5}} {
		if from, to, err := ParseRange(text); from != want[0] || to != want[1] || err != nil {
			t.Errorf("%q: %d, %d, %v", text, from, to, err)
		}
	}
	for _, text := range []string{"", "-", "1", "2-1", "1-", "a-b", "1-2-3", "1 - 2", "99999999999999999999-3", "0x1-2"} {
		if _, _, err := ParseRange(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, text := range []string{"1-2", "-3--1", "", "007-9", "1e3-2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from, to, err := ParseRange(text)
		if err == nil && (from > to || to-from+1 < 1) {
			t.Errorf("%q: %d to %d", text, from, to)
		}
	})
}

// FuzzStream: whatever the spool has from before, the items are those of the input, or
// there is an error.
func FuzzStream(f *testing.F) {
	f.Add([]byte("a\nb\n"), []byte("a\nb\nc"), false)
	f.Add([]byte("a"), []byte("b"), true)
	f.Add([]byte("a\x00"), []byte("a"), true)
	f.Fuzz(func(t *testing.T, before, input []byte, null bool) {
		separator := byte('\n')
		if null {
			separator = 0
		}
		path := filepath.Join(t.TempDir(), "items")
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		s, items, err := readAll(t, path, separator, bytes.NewReader(input), inputState{})
		if s != nil {
			defer func() { _ = s.close() }()
		}
		if err != nil {
			return
		}
		var got bytes.Buffer
		if err := s.copy(&got, 0, items); err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(input)
		if len(want) > 0 && want[len(want)-1] != separator {
			want = append(want, separator)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("got %q, want %q", got.Bytes(), want)
		}
	})
}
