package backends_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// An ID is read in the one way in which it is written.
func FuzzID(f *testing.F) {
	for _, s := range []string{"12", "12[3]", "0", "12[0]", "012", "12[3", "9223372036854775808", "1[2147483648]", "82+1", "82_3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if job, part, ok := backends.ParsePart(s); ok && fmt.Sprintf("%d+%d", job, part) != s {
			t.Errorf("%q was read as part %d of %d", s, part, job)
		}
		if id, ok := backends.ParseElement(s); ok && fmt.Sprintf("%d_%d", id.Job, max(id.Index, 0)) != s {
			t.Errorf("%q was read as %+v", s, id)
		}
		id, err := backends.ParseID(s)
		if err == nil && (id.String() != s || id.Job < 1 || id.Index < backends.ZeroIndex) {
			t.Errorf("%q was read as %+v", s, id)
		}
		var again backends.ID
		if s == "0" || s == "" { // no job, as text alone
			return
		}
		if got := again.UnmarshalText([]byte(s)); (got == nil) != (err == nil) || got == nil && again != id {
			t.Errorf("%q: %v as text, %v as a word", s, got, err)
		}
	})
}

// A condition that is read is written back, and means the same.
func FuzzSelection(f *testing.F) {
	for _, s := range []string{"big", "ncpus>=8 && (rack == 'r 1' || !defined(swp))", "maxmem>1.5G&&type==any", "!!(a)", "a == \"'\"", "((", "\xff"} {
		f.Add(s)
	}
	host := backends.Host{Name: "n1", Slots: 8, Memory: 1 << 30, Has: []backends.Amount{{Name: "gpu", Count: 2}}, Features: []string{"big", "rack=r1"}}
	f.Fuzz(func(t *testing.T, s string) {
		read, err := backends.ParseSelection(s)
		if err != nil {
			return
		}
		again, err := backends.ParseSelection(read.String())
		switch {
		case err != nil && len(read.String()) <= len(s):
			t.Errorf("%q is written as %q, which is not read: %v", s, read, err)
		case err == nil && (again.String() != read.String() || again.Holds(&host) != read.Holds(&host)):
			t.Errorf("%q is written as %q, and that as %q", s, read, again)
		}
	})
}

// Any text comes back as it was, also after a journey through JSON.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "\xff", "\U0010ff41\xfe", "\ufffd", "a\x00b\n", "\U0010ffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := backends.Escape(s)
		if !utf8.ValidString(e) || backends.Unescape(e) != s {
			t.Errorf("%q became %q, and that %q", s, e, backends.Unescape(e))
		}
		data, err := json.Marshal(e)
		var back string
		if err != nil || json.Unmarshal(data, &back) != nil || backends.Unescape(back) != s {
			t.Errorf("%q does not survive JSON", s)
		}
	})
}
