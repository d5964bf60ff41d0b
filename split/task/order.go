package task

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode is how a command is given its items.
type Mode string

// The modes.
const (
	Each  Mode = "each"  // one execution an item: {} stands for it, {.} {/} {//} {/.} for parts of it, {#} for its number
	Whole Mode = "whole" // one execution a task: {start} and {count} stand for its items
	Feed  Mode = "feed"  // one execution a task, with its items on standard input
)

// What stands for a task's items in the arguments of a command.
const (
	markStart = "{start}"
	markCount = "{count}"
)

// Marks returns what stands for an item, or for a part of it, in the arguments of a
// command: as in GNU parallel.
func Marks() []string { return []string{"{}", "{.}", "{/}", "{//}", "{/.}", "{#}"} }

// parts returns what Marks stand for, in their order. The item's number counts from 1.
func parts(item string, number int64) []string {
	base := item[strings.LastIndexByte(item, '/')+1:]
	return []string{item, withoutExtension(item), base, path.Dir(item), withoutExtension(base), strconv.FormatInt(number, 10)}
}

// withoutExtension returns a path without what follows the last dot of its last part.
func withoutExtension(text string) string {
	if i := strings.LastIndexByte(text, '.'); i >= 0 && !strings.Contains(text[i:], "/") {
		return text[:i]
	}
	return text
}

// ModeOf returns the mode that a command's arguments ask for.
func ModeOf(argv []string) (Mode, error) {
	has := func(mark string) bool {
		for _, arg := range argv {
			if strings.Contains(arg, mark) {
				return true
			}
		}
		return false
	}
	numbers := has(markStart) || has(markCount)
	item := slices.ContainsFunc(Marks(), has)
	switch {
	case item && numbers:
		return "", errors.New("{} is one item, {start} and {count} are a whole task: use one of the two")
	case item:
		return Each, nil
	case numbers:
		return Whole, nil
	}
	return Feed, nil
}

// HasMark reports whether a text has one of Marks.
func HasMark(text string) bool {
	return slices.ContainsFunc(Marks(), func(mark string) bool { return strings.Contains(text, mark) })
}

// Order says what a task is to execute. It is the first line of the task's file; the
// items' texts follow, each ended by a newline, or by NUL.
type Order struct {
	Argv    []string `json:"argv"`
	Mode    Mode     `json:"mode"`
	First   int64    `json:"first"` // number of its first item
	Count   int64    `json:"count"`
	Numbers bool     `json:"numbers,omitempty"` // the items are the numbers themselves: no texts follow
	Null    bool     `json:"null,omitempty"`
	Slots   int      `json:"slots"` // so many items side by side

	Number  int64         `json:"number,omitempty"`  // what {#} is for its first item; 0: First
	Each    []int64       `json:"each,omitempty"`    // what {#} is for each item; empty: they follow Number
	Period  int64         `json:"period,omitempty"`  // of a resident job, from 1: what EnvPeriod is; 0: it is none
	Retries int           `json:"retries,omitempty"` // how often an item that fails is executed again
	Timeout time.Duration `json:"timeout,omitempty"` // ns; of one execution; 0: none
	Halt    Halt          `json:"halt,omitempty"`    // "": the task executes all of its items, whatever fails
	Adds    bool          `json:"adds,omitempty"`    // executions may add items
	States  string        `json:"states,omitempty"`  // the split's name: the job's state object says how far the task is; "": it does not
	Try     [][]string    `json:"try,omitempty"`     // settings of the command, NAME=VALUE of each variable (R49): an item that is executed again gets the next one; empty: none
	Tries   []int         `json:"tries,omitempty"`   // which of them each item has; empty: the first one
	Fails   int64         `json:"fails,omitempty"`   // with Halt: the number of items that fail here after which it halts; 0: by the file halt alone
}

// EnvPeriod is the variable of the commands of a resident job that holds the number of the period.
const EnvPeriod = "ALLOTMENT_PERIOD"

// Environ returns the environment of the order's commands.
func (o *Order) Environ(from []string) []string {
	if o.Period == 0 {
		return from
	}
	from = slices.DeleteFunc(from, func(v string) bool { return strings.HasPrefix(v, EnvPeriod+"=") })
	return append(from, EnvPeriod+"="+strconv.FormatInt(o.Period, 10))
}

// setting returns the place in Try of an item's setting when it is executed for the n-th time, from 1.
func (o *Order) setting(at int64, n int) int {
	first := 0
	if len(o.Tries) > 0 {
		first = o.Tries[at]
	}
	return (first + n - 1) % len(o.Try)
}

// Tried returns an environment with variables set to NAME=VALUE.
func Tried(env, setting []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return slices.ContainsFunc(setting, func(s string) bool {
			name, _, _ := strings.Cut(s, "=")
			return strings.HasPrefix(v, name+"=")
		})
	})
	return append(env, setting...)
}

// tries reports whether what is tried is valid.
func (o *Order) tries() bool {
	if len(o.Try) == 0 {
		return len(o.Tries) == 0
	}
	wrong := func(setting []string) bool {
		return slices.ContainsFunc(setting, func(s string) bool { return strings.Index(s, "=") < 1 || strings.IndexByte(s, 0) >= 0 })
	}
	return o.Mode == Each && !slices.ContainsFunc(o.Try, wrong) && (len(o.Tries) == 0 || int64(len(o.Tries)) == o.Count) &&
		!slices.ContainsFunc(o.Tries, func(i int) bool { return i < 0 || i >= len(o.Try) })
}

// Halt says what halts with a split, once enough of its items have failed.
type Halt string

// The kinds of halts.
const (
	HaltSoon Halt = "soon" // no item begins any more
	HaltNow  Halt = "now"  // those that run are ended, too
)

// The bounds of an order.
const (
	MaxRetries = 100
	MaxTimeout = 365 * 24 * time.Hour
)

// number returns what {#} is for an item; at counts from 0.
func (o *Order) number(at int64) int64 {
	switch {
	case len(o.Each) > 0:
		return o.Each[at]
	case o.Number != 0:
		return o.Number + at
	}
	return o.First + at
}

// MaxItems is the most items of one task: what is kept of each while it runs, 100
// bytes, must fit into the memory of the smallest host.
const MaxItems = 1 << 20

// maxHead is the longest first line of an order: Linux's limit on a command line.
const maxHead = 4 << 20

// Separator returns what ends an item's text.
func (o *Order) Separator() byte {
	if o.Null {
		return 0
	}
	return '\n'
}

// Encode returns the order as the first line of its file.
func (o *Order) Encode() ([]byte, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode a task: %w", err)
	}
	return append(line, '\n'), nil
}

// ReadOrder reads what Encode returned; length is its size in bytes.
func ReadOrder(r io.Reader) (o Order, length int64, err error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxHead)).ReadBytes('\n')
	if err != nil {
		return Order{}, 0, fmt.Errorf("read the task: its first line is not whole: %w", err)
	}
	if err := decode(line, &o); err != nil {
		return Order{}, 0, fmt.Errorf("read the task: %w", err)
	}
	mode := o.Mode == Each || o.Mode == Whole || o.Mode == Feed
	if len(o.Argv) == 0 || o.Argv[0] == "" || !mode || o.Count < 1 || o.Count > MaxItems || o.Slots < 1 {
		return Order{}, 0, errors.New("read the task: its command, mode, number of items or number of slots is missing or invalid")
	}
	halt := o.Halt == "" || o.Halt == HaltSoon || o.Halt == HaltNow
	if !halt || o.Fails < 0 || o.Period < 0 || o.Retries < 0 || o.Retries > MaxRetries || o.Timeout < 0 || o.Timeout > MaxTimeout ||
		len(o.Each) > 0 && int64(len(o.Each)) != o.Count || !o.tries() {
		return Order{}, 0, errors.New("read the task: its halt, period, retries, timeout, numbers or settings are invalid")
	}
	return o, int64(len(line)), nil
}

// Arguments returns the command line for one item (Each), which is the number-th, or for all of
// them.
func (o *Order) Arguments(item string, number int64) []string {
	var replacer *strings.Replacer
	switch o.Mode {
	case Feed:
		return o.Argv
	case Each:
		var pairs []string
		for i, part := range parts(item, number) {
			pairs = append(pairs, Marks()[i], part)
		}
		replacer = strings.NewReplacer(pairs...)
	case Whole:
		replacer = strings.NewReplacer(markStart, strconv.FormatInt(o.First, 10), markCount, strconv.FormatInt(o.Count, 10))
	}
	argv := make([]string, len(o.Argv))
	for i, arg := range o.Argv {
		argv[i] = replacer.Replace(arg)
	}
	return argv
}

// File returns the path of a task's file in the split's directory: N.task, N.out …
func File(dir string, n int64, kind string) string {
	return filepath.Join(dir, strconv.FormatInt(n, 10)+"."+kind)
}

// The kinds of a task's files.
const (
	KindOrder  = "task"  // its Order and items
	KindNew    = "new"   // its result while it is at work: it has begun
	KindResult = "out"   // its result, whole
	KindLog    = "log"   // its job's output: why it failed
	KindCount  = "count" // with Halt: how many of its items have ended and failed
)

// FileHalt is the file of a split's directory that halts its tasks; it holds a Halt.
const FileHalt = "halt"

// maxArgument is the longest argument that Linux passes on (MAX_ARG_STRLEN).
const maxArgument = 128<<10 - 1

// Why a text is no argument.
var (
	errLong = fmt.Errorf("longer than %d bytes, which no argument can be: pass the items on standard input (omit {})", maxArgument)
	errNUL  = errors.New("contains a NUL byte, which no argument can: use --null if items end in NUL")
)

// items returns the texts of a task's items one by one.
type items struct {
	order *Order
	next  int64 // of Count
	text  *bufio.Reader
}

// item is one of a task's items.
type item struct {
	at    int64 // from 0
	text  string
	wrong error // why it can't be an argument
}

// readItem returns the next item. The caller counts them: it is an error if there are no
// more.
func (i *items) readItem() (item, error) {
	at := i.next
	i.next++
	if i.order.Numbers {
		return item{at: at, text: strconv.FormatInt(i.order.First+at, 10)}, nil
	}
	text, whole, err := readText(i.text, i.order.Separator())
	if err != nil {
		return item{}, fmt.Errorf("read item %d: %w", i.order.First+at, err)
	}
	switch {
	case !whole:
		return item{at: at, wrong: errLong}, nil
	case strings.IndexByte(text, 0) >= 0:
		return item{at: at, wrong: errNUL}, nil
	}
	return item{at: at, text: text}, nil
}

// readText reads a text up to its separator. One too long for an argument is skipped,
// and is not whole.
func readText(r *bufio.Reader, separator byte) (text string, whole bool, err error) {
	var kept []byte
	whole = true
	for {
		part, err := r.ReadSlice(separator)
		if whole = whole && len(kept)+len(part) <= maxArgument+1; whole {
			kept = append(kept, part...)
		} else {
			kept = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return "", false, io.ErrUnexpectedEOF
		case err != nil:
			return "", false, err
		case !whole:
			return "", false, nil
		default:
			return string(kept[:len(kept)-1]), true, nil
		}
	}
}

// openItems opens a task's file behind its first line.
func openItems(path string, length int64) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(length, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
