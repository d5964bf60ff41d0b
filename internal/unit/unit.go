// Package unit reads and writes the values that people give with a unit:
// durations (20s), sizes (16G) and shares (85%).
package unit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as Go writes it: 20s, 1h30m. It
// is never negative.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes the duration as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration with its unit; a bare 0 needs none.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write it like 20s, 5m or 1h30m", text)
	}
	if parsed < 0 {
		return fmt.Errorf("%q is negative; a duration is 0 or more", text)
	}
	*d = Duration(parsed)
	return nil
}

// ParseAgo reads how far back something looks: 12h, 2d, 1w, 1h30m. It is more than 0.
func ParseAgo(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a duration; write it like 12h, 2d or 1w", text)
	for unit, each := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		digits, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > int(math.MaxInt64/each) {
			return 0, wrong
		}
		return time.Duration(n) * each, nil
	}
	var d Duration
	if err := d.UnmarshalText([]byte(text)); err != nil || d == 0 {
		return 0, wrong
	}
	return time.Duration(d), nil
}

// Size is a number of bytes. Its units are binary: 1K is 1024 bytes.
type Size int64

const sizeUnits = "KMGT"

var errSize = errors.New("not a size; write it like 512M or 16G (K, M, G, T)")

// ParseSize reads 16G, 1.5T, 512MiB, 2048K, 1000B (the letters in either case). A
// number without a unit is an error, but for 0: programs differ in what it counts.
func ParseSize(s string) (Size, error) {
	number := strings.ToUpper(strings.TrimSpace(s))
	if digits, ok := strings.CutSuffix(number, "B"); ok {
		if n, err := strconv.ParseUint(digits, 10, 63); err == nil {
			return Size(n), nil
		}
	}
	number = strings.TrimSuffix(strings.TrimSuffix(number, "B"), "I")
	if number == "0" {
		return 0, nil
	}
	if number == "" {
		return 0, fmt.Errorf("%q is %w", s, errSize)
	}
	exponent := strings.IndexByte(sizeUnits, number[len(number)-1]) + 1
	n, err := strconv.ParseFloat(number[:len(number)-1], 64)
	if exponent == 0 || err != nil || math.IsNaN(n) || n < 0 {
		return 0, fmt.Errorf("%q is %w", s, errSize)
	}
	bytes := n * math.Pow(1024, float64(exponent))
	if bytes >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than any machine has", s)
	}
	return Size(bytes), nil
}

// ParseBytes reads a size as a queue's commands write it: 128M, 1.50G, or a plain number,
// which counts in plain bytes.
func ParseBytes(s string, plain int64) (bytes float64, ok bool) {
	each, number := float64(plain), s
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGTPE", s[n-1]); i >= 0 {
			each, number = math.Ldexp(1, 10*(i+1)), strings.TrimSpace(s[:n-1])
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	return n * each, err == nil && strings.Trim(number, "0123456789.") == ""
}

// String writes the size in the largest unit that divides it, as ParseSize reads it.
func (s Size) String() string {
	n, name := int64(s), ""
	for i := 0; i < len(sizeUnits) && n != 0 && n%1024 == 0; i++ {
		n, name = n/1024, sizeUnits[i:i+1]
	}
	if name == "" && n != 0 {
		name = "B"
	}
	return strconv.FormatInt(n, 10) + name
}

// Short returns the size with three digits or four, for people: 1.35M, 1023K.
func (s Size) Short() string {
	n, name := float64(s), "B"
	for _, next := range sizeUnits {
		if n < 1000 && name == "B" || n < 1024 && name != "B" {
			break
		}
		n, name = n/1024, string(next)
	}
	switch {
	case name == "B" || n >= 99.95:
		return strconv.FormatFloat(n, 'f', 0, 64) + name
	case n >= 9.995:
		return strconv.FormatFloat(n, 'f', 1, 64) + name
	}
	return strconv.FormatFloat(n, 'f', 2, 64) + name
}

// MarshalText writes the size as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what ParseSize does.
func (s *Size) UnmarshalText(text []byte) error {
	parsed, err := ParseSize(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Share is a part of a whole, 0…1, written as a percentage: 85%.
type Share float64

func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'f', -1, 64) + "%" }

// MarshalText writes the share as a percentage.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a percentage from 0% to 100%. The sign is required: a bare
// 1 could mean all or a hundredth.
func (s *Share) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || math.IsNaN(n) || n < 0 || n > 100 {
		return fmt.Errorf("%q is not a share; write it as a percentage from 0%% to 100%%, like 85%%", text)
	}
	*s = Share(n / 100)
	return nil
}
