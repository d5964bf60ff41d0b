package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/disk"
)

// line returns a line of the journal whose event is a name.
func line(t *testing.T, seq uint64, who string) string {
	t.Helper()
	b, err := appendEntry(nil, &entry{Seq: seq, At: 1, Event: fmt.Appendf(nil, "%q", who)})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What failed writes and syncs can leave of a journal is read as it was
// acknowledged, and a possible loss is an error.
func TestJournalAfterFailedWrites(t *testing.T) {
	a, b, c, d := line(t, 1, "a"), line(t, 2, "b"), line(t, 3, "c"), line(t, 4, "d")
	torn := "0123abcd {\"q\":3,"
	for name, test := range map[string]struct {
		first, second string // segments from 1 and from 3 on
		want          string
		wrong         string
	}{
		"whole":                                     {a + b, c + d, `"a" "b" "c" "d"`, ""},
		"a new segment that nothing came to":        {a + b, "", `"a" "b"`, ""},
		"a torn end before one":                     {a + b + torn, "", `"a" "b"`, ""},
		"a torn end before what came later":         {a + b + torn, c + d, `"a" "b" "c" "d"`, ""},
		"what was refused before what came later":   {a + b + line(t, 3, "x") + line(t, 4, "y"), c + d, `"a" "b" "c" "d"`, ""},
		"a segment that was not begun after all":    {a + b + c + d, "", `"a" "b" "c" "d"`, ""},
		"damage to what was acknowledged":           {a + strings.Replace(b, "b", "x", 1), c + d, "", "where requests stood that were acknowledged"},
		"a torn end of the last one":                {a + b, c + d + torn, `"a" "b" "c" "d"`, ""},
		"a segment that is missing in between":      {a, c + d, "", "a part of the journal is missing"},
		"nothing at all, or a torn first entry":     {"", torn, "", ""},
		"sectors of zeros where a write was torn":   {a + b + strings.Repeat("\x00", 700), "", `"a" "b"`, ""},
		"zeros before what came later and was read": {a + b + strings.Repeat("\x00", 700), c, `"a" "b" "c"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for first, text := range map[uint64]string{1: test.first, 3: test.second} {
				if err := os.WriteFile(filepath.Join(dir, segmentName(first)), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // what the first one mended the second one reads
				var got []string
				var log bytes.Buffer
				j, seq, err := replay(disk.OS(), dir, 0, slog.New(slog.NewTextHandler(&log, nil)), func(e *entry) error {
					got = append(got, string(e.Event))
					return nil
				})
				if test.wrong != "" {
					if err == nil || !strings.Contains(err.Error(), test.wrong) {
						t.Errorf("error %v, want %q", err, test.wrong)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if text := strings.Join(got, " "); text != test.want || int(seq) != len(got) {
					t.Errorf("read %s up to %d, want %s", text, seq, test.want)
				}
				if err := j.f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
