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
	"github.com/allotment-hpc/allotment/split/try"
)

// MaxCopies bounds Definition.Copies.
const MaxCopies = 8

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

	Retries   int            `json:",omitempty"` // how often an item that fails is run again, at once
	Timeout   time.Duration  `json:",omitempty"` // of one run of an item; 0: none
	Halt      Halt           `json:",omitzero"`
	Joblog    string         `json:",omitempty"` // file that gets a line for each item; absolute
	Speculate bool           `json:",omitempty"` // a task that takes long is begun on another host, too (R54)
	Copies    int            `json:",omitempty"` // hosts that execute each task (R53); 0 and 1: one
	Adds      bool           `json:",omitempty"` // items may add items (R56)
	States    bool           `json:",omitempty"` // state objects of jobs say how far their tasks are (R56)
	Try       []try.Variable `json:",omitempty"` // settings of which the best one is found (R49)
	Resident  *Resident      `json:",omitempty"` // the items are blocks, which are computed each period (R55); nil: each item once
	Leased    int            `json:",omitempty"` // it runs on so many slots of asplit serve at most (R56); 0: on the queue
	Joined    string         `json:",omitempty"` // it runs on the machines that joined in this directory; "": on the queue
}

// Resident describes a resident job (R55). Definition.Balance.Rule is metrics.Half or metrics.Rate.
type Resident struct {
	Period  time.Duration // MinPeriod to MaxPeriod
	Periods int64         `json:",omitempty"` // 0: until it is interrupted
	Reduce  string        `json:",omitempty"` // line of /bin/sh that gets a period's results on standard input; "": none
}

// The bounds of a period.
const (
	MinPeriod = 10 * time.Millisecond
	MaxPeriod = 12 * time.Hour
)

// Halt says when a split halts because items fail.
type Halt struct {
	When    task.Halt // "": never
	Fails   int64     // items
	Percent float64   // of those that have ended, once minHalt have; 0: Fails counts
}

// minHalt is the number of items that must have ended before a percentage of them counts.
const minHalt = 3

// MaxFails bounds the number in ParseHalt.
const MaxFails = 1_000_000_000

// ParseHalt reads never, or now or soon with a number of failures or a percentage:
// now,fail=1 or soon,fail=10%.
func ParseHalt(text string) (Halt, error) {
	if text == "never" {
		return Halt{}, nil
	}
	parts := regexp.MustCompile(`^(now|soon),fail=([0-9]{1,10})(%?)$`).FindStringSubmatch(text)
	if parts == nil {
		return Halt{}, fmt.Errorf("%q: want never, or now or soon with a number of failures or a percentage: now,fail=1 or soon,fail=10%%", text)
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	h := Halt{When: task.Halt(parts[1]), Fails: n}
	if parts[3] != "" {
		h.Fails, h.Percent = 0, float64(n)
	}
	if err != nil || n < 1 || h.Percent > 100 || n > MaxFails {
		return Halt{}, fmt.Errorf("%q: want a number of failures from 1 to %d, or a percentage from 1 to 100", text, MaxFails)
	}
	return h, nil
}

// Due reports whether a split halts when so many items have ended and failed.
func (h Halt) Due(ended, failed int64) bool {
	switch {
	case h.When == "" || failed == 0:
		return false
	case h.Percent > 0:
		return ended >= minHalt && 100*float64(failed) >= h.Percent*float64(ended)
	}
	return failed >= h.Fails
}

// FreeSlots in Definition.Slots: as many as are free on the host when a round begins, 1 at least.
const FreeSlots = -1

// Input is where items come from.
type Input struct {
	Kind Kind
	Path string `json:",omitempty"` // of a file, absolute
	Null bool   `json:",omitempty"` // items end in NUL, not in a newline
	From int64  `json:",omitempty"` // of a range, or of blocks
	To   int64  `json:",omitempty"` // its last item

	Sources []Source `json:",omitempty"` // of Several
	Numbers []int64  `json:",omitempty"` // of Again: the items' numbers
}

// Source is one of several sources of items.
type Source struct {
	Kind  Kind     // Stdin, Lines or Words
	Path  string   `json:",omitempty"`
	Words []string `json:",omitempty"`
}

// The bounds of an input.
const (
	MaxSources = 64
	MaxAgain   = 100_000 // items that failed, of one joblog
)

// Kind is a kind of input.
type Kind string

// The kinds.
const (
	Stdin Kind = "stdin" // the lines of standard input, as they arrive
	Lines Kind = "file"  // the lines of a file
	Range Kind = "range" // whole numbers

	Several Kind = "several" // sources, in one order: that in which their items arrive
	Words   Kind = "words"   // of the command line; only in Several
	Again   Kind = "again"   // the items of a joblog that failed
	Periods Kind = "periods" // blocks, which are whole numbers, each of them in each period
)

// Number returns the number that users know an item by: in a range the number itself,
// else that of its line, from 1; of an item that is run again that of the former run.
// item counts from 0.
func (i Input) Number(item int64) int64 {
	switch i.Kind {
	case Range:
		return i.From + item
	case Again:
		if last := int64(len(i.Numbers)) - 1; item > last { // it was added
			return i.Numbers[last] + item - last
		}
		return i.Numbers[item]
	case Stdin, Lines, Several, Words, Periods:
	}
	return item + 1
}

// position returns where an item of a number stands in the order of arrival, from 1.
func (i Input) position(number int64) int64 {
	if i.Kind == Periods {
		return number
	}
	if i.From != 0 || i.To != 0 { // a range, or some of its items again
		return number - i.From + 1
	}
	return number
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
	// ErrHalted: the split halted because items failed; Resume runs those that were left.
	ErrHalted = errors.New("halted")
)
