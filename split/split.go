package split

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split/task"
)

// Definition describes the work to split, and how. It does not change.
type Definition struct {
	Name      string    // of its directory, and of its jobs
	Token     string    // distinguishes the jobs of splits of one name
	Began     time.Time // by this host's clock
	Argv      []string
	Mode      task.Mode
	Input     Input
	Slots     int // of each job, and items side by side in it; 0: all of its host; FreeSlots
	Hosts     []string
	Unordered bool
	Measured  bool // hosts are measured before they take part
	Balance   metrics.Options
	Options   []string // of the jobs' submission: not interpreted here
}

// FreeSlots in Definition.Slots: as many as are free on the host when a round begins, 1 at least.
const FreeSlots = -1

// Input is where items come from.
type Input struct {
	Kind Kind
	Path string `json:",omitempty"` // of a file, absolute
	Null bool   `json:",omitempty"` // items end in NUL, not in a newline
	From int64  `json:",omitempty"` // of a range
	To   int64  `json:",omitempty"` // its last item
}

// Kind is a kind of input.
type Kind string

// The kinds.
const (
	Stdin Kind = "stdin" // the lines of standard input, as they arrive
	Lines Kind = "file"  // the lines of a file
	Range Kind = "range" // whole numbers
)

// Number returns the number that users know an item by: in a range the number itself,
// else that of its line, from 1. item counts from 0.
func (i Input) Number(item int64) int64 {
	if i.Kind == Range {
		return i.From + item
	}
	return item + 1
}

// ParseRange reads FROM-TO; both may be negative: -3--1.
func ParseRange(text string) (from, to int64, err error) {
	parts := regexp.MustCompile(`^(-?[0-9]{1,18})-(-?[0-9]{1,18})$`).FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, fmt.Errorf("range %q: want two whole numbers such as 1-20000", text)
	}
	if _, err := fmt.Sscan(parts[1]+" "+parts[2], &from, &to); err != nil {
		return 0, 0, fmt.Errorf("range %q: %w", text, err)
	}
	if from > to {
		return 0, 0, fmt.Errorf("range %q: it ends before it begins", text)
	}
	return from, to, nil
}

// CheckName returns an error unless name can be a split's: its directory has that
// name, and its jobs' names contain it.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`).MatchString(name) {
		return fmt.Errorf("name %q: want letters, digits, dots, dashes and underscores, 64 at most, the first a letter or digit", name)
	}
	return nil
}

// JobName returns the name of a task's job: asplit/NAME.TOKEN/N.
func (d *Definition) JobName(n int64) string { return d.jobPrefix() + strconv.FormatInt(n, 10) }

func (d *Definition) jobPrefix() string { return fmt.Sprintf("asplit/%s.%s/", d.Name, d.Token) }

// token returns six random letters and digits.
func token() string { return strings.ToLower(rand.Text()[:6]) }

// Errors that callers branch on.
var (
	// ErrInterrupted: the run's context ended; Resume continues the split.
	ErrInterrupted = errors.New("interrupted")
	// ErrBusy: another process works on the split.
	ErrBusy = errors.New("another asplit process runs it")
	// ErrItems: the split is done, and some items failed; each was reported.
	ErrItems = errors.New("items failed")
)
