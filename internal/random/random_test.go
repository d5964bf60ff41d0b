package random

import (
	"bytes"
	"regexp"
	"testing"
)

func TestTextIsNewEachTime(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text := Text()
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(text) || seen[text] {
			t.Fatalf("%q after %d others", text, len(seen))
		}
		seen[text] = true
	}
}

func TestOldKernelsHaveAFile(t *testing.T) {
	var b [16]byte
	if err := fillFrom("/dev/urandom", b[:]); err != nil || bytes.Equal(b[:], make([]byte, 16)) {
		t.Errorf("%x, %v", b, err)
	}
	if err := fillFrom("/dev/null", b[:]); err == nil {
		t.Error("no error without random numbers")
	}
}
