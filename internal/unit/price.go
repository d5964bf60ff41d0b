package unit

import (
	"fmt"
	"strconv"
	"strings"
)

// Price is an amount of money in ten-thousandths of the currency's unit: 12500 is 1.25. It is
// exact, and never negative.
type Price int64

const (
	priceDigits = 4
	priceUnit   = 10_000
	maxPrice    = 1_000_000 * priceUnit
)

// MarshalText writes the price as String does.
func (p Price) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String writes the price as UnmarshalText reads it: 2.50, 0.0125.
func (p Price) String() string {
	text := fmt.Sprintf("%d.%04d", int64(p)/priceUnit, int64(p)%priceUnit)
	for range priceDigits - 2 {
		text = strings.TrimSuffix(text, "0")
	}
	return text
}

// UnmarshalText reads a decimal number of at most four places, without an exponent: 1, 2.50,
// 0.0125.
func (p *Price) UnmarshalText(text []byte) error {
	whole, part, pointed := strings.Cut(string(text), ".")
	if whole == "" || pointed && part == "" || strings.Trim(whole+part, "0123456789") != "" {
		return fmt.Errorf("%.40q is not a price; write it like 1, 2.50 or 0.0125", text)
	}
	if len(part) > priceDigits {
		return fmt.Errorf("%.40q is too fine; a price has at most %d decimal places", text, priceDigits)
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", priceDigits-len(part)), 10, 64)
	if err != nil || n > maxPrice {
		return fmt.Errorf("%.40q is too much; a price is at most %d", text, maxPrice/priceUnit)
	}
	*p = Price(n)
	return nil
}
