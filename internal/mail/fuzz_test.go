package mail

import (
	"bytes"
	stdmail "net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// FuzzAddresses: an address that is taken is no option, file or program of sendmail's, and
// stays one recipient in the mail's head. The error for another one is a line to be shown.
func FuzzAddresses(f *testing.F) {
	for _, text := range []string{"ann@example.org", "root", "a.b+c@x-y.example", "-t", "-oQ/tmp", "|/bin/sh", ":include:/x", "a\nBcc: eve@x", "ann@x..y", "a b@c", "a,b", "\u202e@x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Addresses([]string{"root", text, text})
		if err != nil {
			if strings.ContainsFunc(err.Error(), printable.Hidden) || len(got) > 0 {
				t.Errorf("%q: %q, %q", text, got, err)
			}
			return
		}
		if want := slices.Compact([]string{"root", text}); !slices.Equal(got, want) || text == "" || text[0] == '-' || strings.ContainsAny(text, " \t\r\n,;:<>()[]|/\\\"'`$&!%*?") {
			t.Errorf("%q was taken: %q", text, got)
		}
		read, err := stdmail.ReadMessage(bytes.NewReader((&Message{To: got}).Bytes()))
		if err != nil || read.Header.Get("To") != strings.Join(got, ", ") || len(read.Header) != 6 {
			t.Errorf("%q: %v, %v", text, read, err)
		}
	})
}
