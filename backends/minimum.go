package backends

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MinimumVariable says in the environment of a submission what the job needs at least of
// its hosts (see ParseMinimum).
const MinimumVariable = "ALLOTMENT_MIN"

// Minimum is what a job needs at least in each second, over all its slots, as its owner
// says: a claim, which counts only within a guarantee and up to a site's bound (R48). The
// zero Minimum is a job that says nothing.
type Minimum struct {
	CPU     int64 // milli-cores
	Disk    int64 // bytes read and written
	Network int64 // bytes sent
}

const (
	maxMinimumCores = 100_000
	maxMinimumRate  = 1 << 50 // bytes a second
	rateUnits       = "KMGT"
)

// ParseMinimum reads what ALLOTMENT_MIN or asub --min says, parts joined by commas:
//
//	cpu=2        cores, perhaps with a fraction
//	disk=300M    bytes read and written in a second
//	net=100M     bytes sent in a second
//
// Bytes are written as in the config (see unit.ParseSize). The empty text is the zero Minimum.
// esub/job_submit.lua has the same grammar. An error says what is wrong, and does not repeat the
// text.
func ParseMinimum(text string) (Minimum, error) {
	var m Minimum
	if text == "" {
		return m, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := m.parsePart(part); err != nil {
			return Minimum{}, err
		}
	}
	return m, nil
}

func badMinimum(why string) error { return errors.New(why + ": say cpu=2, disk=300M or net=100M") }

// errMinimumMemory is the error of mem=: what a job may use of memory is no rate.
var errMinimumMemory = errors.New("memory has no minimum: a job has the memory that it asks for with -M, on Slurm with --mem")

// parsePart reads one part.
func (m *Minimum) parsePart(part string) error {
	key, value, _ := strings.Cut(part, "=")
	var to *int64
	switch key {
	case "cpu":
		to = &m.CPU
	case "disk":
		to = &m.Disk
	case "net":
		to = &m.Network
	case "mem", "memory":
		return errMinimumMemory
	case "":
		return badMinimum("a part is empty")
	default:
		return badMinimum("a part is not of cpu, disk or net")
	}
	if *to != 0 {
		return badMinimum(key + " stands there twice")
	}
	var ok bool
	if key == "cpu" {
		if *to, ok = parseCores(value); !ok {
			return badMinimum(fmt.Sprintf("cpu needs a number of cores, more than 0 and at most %d", maxMinimumCores))
		}
	} else if *to, ok = parseRate(value); !ok {
		return badMinimum(key + " needs bytes a second with a unit (K, M, G or T), more than 0 and at most 1024T")
	}
	return nil
}

// parseCores reads a number of cores, in milli-cores.
func parseCores(s string) (milli int64, ok bool) {
	n, ok := parseAmount(s)
	if !ok || n > maxMinimumCores {
		return 0, false
	}
	milli = int64(math.Floor(n*1000 + 0.5))
	return milli, milli > 0
}

// parseRate reads bytes a second.
func parseRate(s string) (bytes int64, ok bool) {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 1 {
		return 0, false // no unit, or no number
	}
	number, suffix := s[:end], s[end:]
	n, ok := parseAmount(number)
	exponent := strings.IndexByte(rateUnits, suffix[0]&^0x20) + 1 // in capitals
	switch rest := suffix[1:]; {
	case exponent == 0:
		ok = ok && strings.EqualFold(suffix, "B") && !strings.Contains(number, ".")
	case rest != "" && !strings.EqualFold(rest, "B") && !strings.EqualFold(rest, "I") && !strings.EqualFold(rest, "IB"):
		return 0, false
	}
	n = math.Ldexp(n, 10*exponent)
	if !ok || n > maxMinimumRate {
		return 0, false
	}
	return int64(n), n >= 1
}

// parseAmount reads digits, perhaps with a point after the first one.
func parseAmount(s string) (float64, bool) {
	if s == "" || s[0] == '.' || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// String is the text that ParseMinimum reads; "" for the zero Minimum.
func (m Minimum) String() string {
	var parts []string
	if m.CPU > 0 {
		parts = append(parts, "cpu="+strconv.FormatFloat(float64(m.CPU)/1000, 'f', -1, 64))
	}
	if m.Disk > 0 {
		parts = append(parts, "disk="+rateText(m.Disk))
	}
	if m.Network > 0 {
		parts = append(parts, "net="+rateText(m.Network))
	}
	return strings.Join(parts, ",")
}

// rateText returns bytes in the largest unit that divides them.
func rateText(n int64) string {
	name := "B"
	for i := 0; i < len(rateUnits) && n%1024 == 0; i++ {
		n, name = n/1024, rateUnits[i:i+1]
	}
	return strconv.FormatInt(n, 10) + name
}
