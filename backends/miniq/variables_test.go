package miniq

import (
	"slices"
	"testing"
)

func TestVariablesAreOneText(t *testing.T) {
	want := Variables{"A=1", "B=a:b 12:c\n", "no equals sign", "Ä=ö"}
	text, err := want.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got Variables
	if err := got.UnmarshalText(text); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q is read as %q, %v", text, got, err)
	}
	for _, bad := range []string{"A=1", "4:A=1", "0:", "-3:A=1", "3:A=1x", "99999999999:A=1", ":"} {
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is read as %q", bad, got)
		}
	}
}

// Whatever is read takes memory in proportion to its text.
func FuzzVariables(f *testing.F) {
	f.Add([]byte("3:A=15:BB=xy"))
	f.Add([]byte("1:="))
	f.Fuzz(func(t *testing.T, text []byte) {
		var v, again Variables
		if v.UnmarshalText(text) != nil {
			return
		}
		if len(v)*len("1:=") > len(text) {
			t.Errorf("%q has %d variables", text, len(v))
		}
		written, err := v.MarshalText()
		if err == nil {
			err = again.UnmarshalText(written)
		}
		if err != nil || !slices.Equal(v, again) {
			t.Errorf("%q became %q, %v", v, again, err)
		}
	})
}
