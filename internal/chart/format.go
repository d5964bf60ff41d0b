package chart

import (
	"math"
	"strconv"
	"strings"
)

// None stands for a figure that there is none of.
const None = "–"

// Count groups a number's digits: 12 345, by narrow spaces that don't break.
func Count(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}

// Number shows what is large without, and what is small with two decimals.
func Number(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return None
	case math.Abs(x) >= 1000:
		return Count(int(math.Round(x)))
	default:
		return Trimmed(strconv.FormatFloat(x, 'f', 2, 64))
	}
}

// Trimmed drops the zeros that end a decimal.
func Trimmed(decimal string) string {
	return strings.TrimSuffix(strings.TrimRight(decimal, "0"), ".")
}
