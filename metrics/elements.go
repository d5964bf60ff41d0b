package metrics

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Element is one of the six things that make a host fast.
type Element int

// The elements, in the order of Measures and Factors.
const (
	Interconnect Element = iota
	CPU
	GPU
	Storage
	Memory
	Bus
)

const (
	elements = 6
	letters  = "ICGSMB"
)

// Elements lists the elements in their order.
func Elements() []Element { return []Element{Interconnect, CPU, GPU, Storage, Memory, Bus} }

// Letter returns the element's letter on a command line: I, C, G, S, M or B.
func (e Element) Letter() string { return letters[e : e+1] }

// String returns the element's name.
func (e Element) String() string {
	return [elements]string{"interconnect", "cpu", "gpu", "storage", "memory", "bus"}[e]
}

// Measures holds the measured value of each of a host's elements, by Element. Higher is
// better; an element has the same unit on all hosts; 0: the host has none of it.
type Measures [elements]float64

// Factors are influence factors by Element: how much each matters to the work. Their
// scale is of no matter.
type Factors [elements]float64

// maxFactor keeps sums of factors in range.
const maxFactor = 1e6

// Profiles names the profiles.
func Profiles() []string { return []string{"balanced", "cpu", "gpu", "io"} }

// Profile returns the influence factors of a profile, in percent.
func Profile(name string) (Factors, error) {
	switch name {
	case "balanced":
		return Factors{Interconnect: 10, CPU: 40, Storage: 20, Memory: 20, Bus: 10}, nil
	case "cpu":
		return Factors{CPU: 80, Memory: 15, Bus: 5}, nil
	case "gpu":
		return Factors{CPU: 10, GPU: 70, Memory: 10, Bus: 10}, nil
	case "io":
		return Factors{Interconnect: 20, CPU: 10, Storage: 60, Memory: 10}, nil
	}
	return Factors{}, fmt.Errorf("no profile %q: there are %s", name, strings.Join(Profiles(), ", "))
}

// ParseFactors reads influence factors as C=70,M=30: elements' letters and numbers from
// 0, which need not sum to 100. Elements that are not named have none.
func ParseFactors(text string) (Factors, error) {
	var f, none Factors
	var named [elements]bool
	for field := range strings.SplitSeq(text, ",") {
		letter, number, ok := strings.Cut(strings.TrimSpace(field), "=")
		if !ok {
			return none, fmt.Errorf("influence factors %q: want LETTER=NUMBER, as in C=70,M=30: %q", text, field)
		}
		e := slices.IndexFunc(Elements(), func(e Element) bool { return strings.EqualFold(e.Letter(), letter) })
		if e < 0 {
			return none, fmt.Errorf("influence factors %q: no element %q: there are I (interconnect), C (CPU), G (GPU), S (storage), M (memory), B (bus)", text, letter)
		}
		if named[e] {
			return none, fmt.Errorf("influence factors %q: %s is given twice", text, Element(e).Letter())
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(v) || v < 0 || v > maxFactor {
			return none, fmt.Errorf("influence factors %q: want a number from 0 to %d: %q", text, int(maxFactor), number)
		}
		f[e], named[e] = v, true
	}
	if f == none {
		return none, fmt.Errorf("influence factors %q: at least one must be above 0", text)
	}
	return f, nil
}

// String writes what ParseFactors reads.
func (f Factors) String() string {
	var fields []string
	for e, v := range f {
		if v > 0 {
			fields = append(fields, Element(e).Letter()+"="+strconv.FormatFloat(v, 'f', -1, 64))
		}
	}
	return strings.Join(fields, ",")
}
