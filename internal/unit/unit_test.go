package unit_test

import (
	"math"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
)

func TestSize(t *testing.T) {
	good := map[string]unit.Size{"0": 0, "1K": 1 << 10, "16G": 16 << 30, "16g": 16 << 30, "512MiB": 512 << 20, "1.5T": 3 << 39, "2GB": 2 << 30, "1000B": 1000}
	for text, want := range good {
		if got, err := unit.ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "G", "16", "-1G", "1X", "NaNG", "infT", "9e30T", "1 2G", "B", "1e"} {
		if got, err := unit.ParseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	for size, want := range map[unit.Size]string{0: "0", 1023: "1023B", 1 << 10: "1K", 1536: "1536B", 16 << 30: "16G", 2048 << 40: "2048T"} {
		if got := size.String(); got != want {
			t.Errorf("%d: got %s, want %s", size, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"20s": 20 * time.Second, "0": 0, "1h30m": 90 * time.Minute, "10ms": 10 * time.Millisecond} {
		var d unit.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q: got %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "20", "-1s", "1d", "soon"} {
		var d unit.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, d)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", 2 * time.Hour: "2h", 90 * time.Second: "1m30s", 10*time.Hour + 10*time.Minute: "10h10m", 20 * time.Minute: "20m"} {
		if got := unit.Duration(d).String(); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	for text, want := range map[string]float64{"0%": 0, "85%": 0.85, "100%": 1, "12.5 %": 0.125} {
		var s unit.Share
		if err := s.UnmarshalText([]byte(text)); err != nil || math.Abs(float64(s)-want) > 1e-12 {
			t.Errorf("%q: got %v, %v", text, float64(s), err)
		}
	}
	for _, text := range []string{"", "%", "0.85", "1", "101%", "-1%", "NaN%"} {
		var s unit.Share
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, s)
		}
	}
	if got := unit.Share(0.85).String(); got != "85%" {
		t.Errorf("got %s, want 85%%", got)
	}
}

func TestParseAgo(t *testing.T) {
	for text, want := range map[string]time.Duration{"12h": 12 * time.Hour, "2d": 48 * time.Hour, "1w": 7 * 24 * time.Hour, "1h30m": 90 * time.Minute} {
		if got, err := unit.ParseAgo(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1d", "1.5d", "0", "2", "soon", "999999999999d"} {
		if got, err := unit.ParseAgo(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestShort(t *testing.T) {
	for size, want := range map[unit.Size]string{0: "0B", 999: "999B", 1000: "0.98K", 1024: "1.00K", 1413120: "1.35M", 10 << 30: "10.0G", 1023 << 20: "1023M", 1 << 60: "1048576T"} {
		if got := size.Short(); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

func TestPrice(t *testing.T) {
	for text, want := range map[string]unit.Price{"0": 0, "1": 10_000, "1.00": 10_000, "2.5": 25_000, "0.0125": 125, "007.10": 71_000, "1000000": 1e10} {
		var p unit.Price
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("%s: %d, %v", text, p, err)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1,5", "1e3", "0x10", "1_000", " 1", "NaN", "0.00001", "1000000.0001", "99999999999999999999"} {
		var p unit.Price
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %v, want an error", text, p)
		}
	}
	for price, want := range map[unit.Price]string{0: "0.00", 10_000: "1.00", 125: "0.0125", 1_250: "0.125", 25_001: "2.5001", 1e10: "1000000.00"} {
		if got := price.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(price), got, want)
		}
	}
}
