package desk

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// Fault is one thing that is wrong with a table, and where.
type Fault struct {
	Cell string `json:"cell,omitempty"` // such as F12; "": the file as a whole
	What string `json:"what"`
	Also int    `json:"also,omitempty"` // the number of further cells with the same fault

	row, column int
}

// FileFaults is the error for a table that can't be applied. It has all of its faults, up to
// a bound.
type FileFaults struct {
	File   string  `json:"file"`
	Sheet  string  `json:"sheet,omitempty"`
	Faults []Fault `json:"faults"` // at most 50
	More   int     `json:"more,omitempty"`
}

// maxFaults is the number of faults of a file that are listed.
const maxFaults = 50

// Lines returns a line for each fault.
func (f *FileFaults) Lines() []string {
	var lines []string
	for _, fault := range f.Faults {
		line := printable.Text(f.File) + ": "
		if fault.Cell != "" {
			if f.Sheet != "" {
				line += "sheet " + printable.Text(f.Sheet) + ", "
			}
			line += "cell " + fault.Cell + ": "
		}
		line += fault.What
		if fault.Also > 0 {
			line += fmt.Sprintf(" (and %s)", printable.Count(fault.Also, "more cell"))
		}
		lines = append(lines, line)
	}
	if f.More > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %s", printable.Text(f.File), printable.Count(f.More, "more fault")))
	}
	return lines
}

func (f *FileFaults) Error() string { return strings.Join(f.Lines(), "; ") }

// faults gathers what is wrong with a table: the same text once.
type faults struct {
	all  []Fault
	text map[string]int // where a text is in all
	more int
}

// add adds a fault of a cell; row 0 is the file as a whole.
func (f *faults) add(row, column int, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if i, known := f.text[what]; known {
		f.all[i].Also++
		return
	}
	if len(f.all) >= maxFaults {
		f.more++
		return
	}
	if f.text == nil {
		f.text = map[string]int{}
	}
	f.text[what] = len(f.all)
	fault := Fault{What: what, row: row, column: column}
	if row > 0 {
		fault.Cell = cellName(column) + strconv.Itoa(row)
	}
	f.all = append(f.all, fault)
}

// of returns the faults as an error by row and column; nil where there are none.
func (f *faults) of(file, tab string) error {
	if len(f.all) == 0 {
		return nil
	}
	sortFaults(f.all)
	return &FileFaults{File: file, Sheet: tab, Faults: f.all, More: f.more}
}

// sortFaults sorts by row and column.
func sortFaults(all []Fault) {
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.column, b.column)) })
}

// cellName is the name of a column, counted from 0, in a spreadsheet: A, Z, AA.
func cellName(column int) string {
	name := ""
	for n := column + 1; n > 0; n = (n - 1) / 26 {
		name = string(rune('A'+(n-1)%26)) + name
	}
	return name
}

// clipped is a user's text for an error: quoted, and not too long.
func clipped(text string) string { return strconv.Quote(short(text)) }

// short is a text, cut if it is long.
func short(text string) string {
	const most = 60
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return text
}

// separators says which characters of a file's numbers group digits and come before decimals.
// In a spreadsheet's text either may be either.
type separators struct{ group, decimal string }

var (
	english  = separators{",", "."}
	european = separators{".", ","}
	unknown  = separators{}
)

var (
	plainNumber   = regexp.MustCompile(`^-?[0-9]+$`)
	spacedNumber  = regexp.MustCompile(`^[0-9]{1,3}([ \x{a0}\x{2009}\x{202f}'’][0-9]{3})+$`)
	groupedNumber = regexp.MustCompile(`^[0-9]{1,3}([.,])[0-9]{3}$`)
	groupedTwice  = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{3}){2,}$|^[0-9]{1,3}(,[0-9]{3}){2,}$`)
	wholeDecimal  = regexp.MustCompile(`^(-?[0-9]+)[.,]0+$`)
	partDecimal   = regexp.MustCompile(`^-?[0-9]*[.,][0-9]+$`)
)

// whole reads a number of things as people and spreadsheets write it: 1440, 1 440, 1,440,
// 12.0. A text that may be either of two numbers is an error.
func (s separators) whole(text, things string) (int, error) {
	digits := text
	switch m := groupedNumber.FindStringSubmatch(text); {
	case plainNumber.MatchString(text):
	case spacedNumber.MatchString(text), groupedTwice.MatchString(text):
		digits = strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return r
			}
			return -1
		}, text)
	case m != nil && m[1] == s.group:
		digits = strings.ReplaceAll(text, s.group, "")
	case m != nil && s == unknown:
		return 0, fmt.Errorf("%s may be %s or %s: write it without a separator", clipped(text), strings.ReplaceAll(text, m[1], ""), strings.ReplaceAll(text, m[1], "."))
	case wholeDecimal.MatchString(text):
		digits = wholeDecimal.FindStringSubmatch(text)[1]
	case partDecimal.MatchString(text):
		return 0, fmt.Errorf("%s is no whole number of %s", clipped(text), things)
	default:
		return 0, fmt.Errorf("%s is no number of %s", clipped(text), things)
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s is too large a number of %s", clipped(text), things)
	}
	if n < 0 {
		return 0, fmt.Errorf("%s is no number of %s: it is below zero", clipped(text), things)
	}
	return n, nil
}
