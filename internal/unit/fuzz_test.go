package unit_test

import (
	"testing"

	"github.com/allotment-hpc/allotment/internal/unit"
)

// Sizes, durations, prices and shares are in their range, and all but shares are the
// same when it is written and read again.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"16G", "1.5T", "512MiB", "20s", "1h30m", "85%", "12.5 %", "-1G", "NaN%", "9e30T", "2562047h47m", "2d", "15250w", "2.50", "0.0125", "1e3", "1000000.0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := unit.ParseSize(text); err == nil {
			if again, err := unit.ParseSize(size.String()); err != nil || again != size || size < 0 {
				t.Errorf("%q is %d bytes, and that again %d, %v", text, size, again, err)
			}
		}
		if bytes, ok := unit.ParseBytes(text, 1<<20); ok && !(bytes >= 0) {
			t.Errorf("%q is %v bytes", text, bytes)
		}
		var d, again unit.Duration
		if d.UnmarshalText([]byte(text)) == nil {
			if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d || d < 0 {
				t.Errorf("%q is %v, and that again %v, %v", text, d, again, err)
			}
		}
		if ago, err := unit.ParseAgo(text); err == nil && ago <= 0 {
			t.Errorf("%q is %v ago", text, ago)
		}
		var price, same unit.Price
		if price.UnmarshalText([]byte(text)) == nil {
			if err := same.UnmarshalText([]byte(price.String())); err != nil || same != price || price < 0 {
				t.Errorf("%q is %v, and that again %v, %v", text, price, same, err)
			}
		}
		var s unit.Share
		if s.UnmarshalText([]byte(text)) == nil && !(s >= 0 && s <= 1) {
			t.Errorf("%q is a share of %v", text, float64(s))
		}
	})
}
