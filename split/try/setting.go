// Package try decides which of several settings of a split's command is the best (R49), by a trial on a
// part of the items: which setting each of them has, when the trial ends, and how sure its result is.
package try

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// The bounds of what is tried.
const (
	MaxVariables = 3
	MaxVariants  = 16
	MaxValue     = 200 // bytes
	maxName      = 64  // bytes
)

// Variable is an environment variable with the values that are tried.
type Variable struct {
	Name   string
	Values []string
}

// Parse reads NAME=V1,V2,…
func Parse(text string) (Variable, error) {
	name, values, ok := strings.Cut(text, "=")
	if !ok {
		return Variable{}, fmt.Errorf("%s: want a variable and its values, as in threads=4,8,16", quoted(text))
	}
	v := Variable{Name: name, Values: strings.Split(values, ",")}
	return v, v.check()
}

// Check returns an error unless these variables can be tried together.
func Check(all []Variable) error {
	if len(all) > MaxVariables {
		return fmt.Errorf("%d variables: %d at most can be tried together", len(all), MaxVariables)
	}
	variants := 1
	for i, v := range all {
		if err := v.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(all[:i], func(o Variable) bool { return o.Name == v.Name }) {
			return fmt.Errorf("%s stands twice: name all of its values at once, as in %s=4,8,16", v.Name, v.Name)
		}
		if variants *= len(v.Values); variants > MaxVariants {
			return fmt.Errorf("%d values of %s: more than %d settings, each combination of values being one: try fewer values", len(v.Values), v.Name, MaxVariants)
		}
	}
	return nil
}

func (v Variable) check() error {
	if len(v.Name) > maxName || !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(v.Name) {
		return fmt.Errorf("%s is no name of a variable: want letters, digits and underscores, %d at most, the first no digit", quoted(v.Name), maxName)
	}
	if reserved(v.Name) {
		return fmt.Errorf("%s is set by the system or by Allotment, and can't be tried: choose another name, and have the command read that", v.Name)
	}
	for i, value := range v.Values {
		if err := checkValue(value); err != nil {
			return fmt.Errorf("value %d of %s: %w", i+1, v.Name, err)
		}
		if slices.Contains(v.Values[:i], value) {
			return fmt.Errorf("value %d of %s: %s stands twice: name each value once", i+1, v.Name, quoted(value))
		}
	}
	switch n := len(v.Values); {
	case n < 2:
		return fmt.Errorf("%s has one value: want two at least, as in %s=4,8, or set it for all items in COMMAND", v.Name, v.Name)
	case n > MaxVariants:
		return fmt.Errorf("%s has %d values: %d at most can be tried", v.Name, n, MaxVariants)
	}
	return nil
}

func checkValue(value string) error {
	switch {
	case value == "":
		return errors.New("it is empty: write a value between commas")
	case len(value) > MaxValue:
		return fmt.Errorf("it is longer than %d bytes: use a short word, from which the command finds what it needs", MaxValue)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, printable.Hidden):
		return fmt.Errorf("%s has characters that a terminal does not show: use others", quoted(value))
	}
	return nil
}

// reserved reports whether a variable has a meaning for the system, or is one of asplit's or of a queue's own.
func reserved(name string) bool {
	for _, prefix := range []string{"ALLOTMENT_", "ASPLIT_", "LD_", "SLURM_", "LSB_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"PATH", "HOME", "SHELL", "USER", "LOGNAME", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4"}, name)
}

// quoted returns the beginning of a user's text, printable.
func quoted(text string) string {
	const most = 40
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Variants returns each combination of values, as NAME=VALUE of each variable; the last one's values
// change first.
func Variants(all []Variable) [][]string {
	variants := [][]string{nil}
	for _, v := range all {
		var more [][]string
		for _, begun := range variants {
			for _, value := range v.Values {
				more = append(more, append(slices.Clone(begun), v.Name+"="+value))
			}
		}
		variants = more
	}
	return variants
}
