package bsub

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/nearest"
)

// Bounds of a format.
const (
	maxFields = 100
	maxWidth  = 4096
)

// Format is which columns a list of jobs has: bjobs -o.
type Format struct {
	columns   []column
	delimiter string // between columns, which are as wide as their texts then; "": they are padded
}

type column struct {
	field
	right bool // aligned
}

// WideFormat is the format of ajobs -W.
func WideFormat() Format {
	f, err := ParseFormat("jobid user stat queue from_host exec_host job_name submit_time proj_name cpu_used mem swap pids start_time finish_time slots")
	if err != nil {
		panic(err) // each is a field: a test has read it
	}
	return f
}

// ParseFormat reads LSF's list of fields: FIELD[:[-][WIDTH]]… [delimiter='C'], between blanks.
// Commas part fields, too: cpu,mem,io.
func ParseFormat(text string) (Format, error) {
	var f Format
	words := strings.Fields(text)
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "delimiter="); ok {
			d, err := parseDelimiter(value)
			if err != nil {
				return Format{}, err
			}
			if i != len(words)-1 {
				return Format{}, fmt.Errorf("%s: the delimiter comes after the fields", Visible(word))
			}
			f.delimiter = d
			continue
		}
		for _, part := range strings.Split(word, ",") {
			c, err := parseColumn(part)
			if err != nil {
				return Format{}, err
			}
			f.columns = append(f.columns, c)
		}
	}
	switch {
	case len(f.columns) == 0:
		return Format{}, fmt.Errorf("no field named: give some, such as 'jobid stat pend_reason' (known: %s)", strings.Join(FieldNames(), ", "))
	case len(f.columns) > maxFields:
		return Format{}, fmt.Errorf("%d fields: %d at most", len(f.columns), maxFields)
	}
	return f, nil
}

func parseDelimiter(text string) (string, error) {
	for _, quote := range []string{"'", `"`} {
		if inner, ok := strings.CutPrefix(text, quote); ok && strings.HasSuffix(inner, quote) && len(inner) > 1 {
			text = strings.TrimSuffix(inner, quote)
		}
	}
	if utf8.RuneCountInString(text) != 1 || Visible(text) != text {
		return "", fmt.Errorf("delimiter=%s: want one printable character, such as delimiter='^'", Visible(text))
	}
	return text, nil
}

func parseColumn(word string) (column, error) {
	name, width, sized := strings.Cut(word, ":")
	known, err := fieldNamed(name)
	if err != nil {
		return column{}, err
	}
	c := column{field: known}
	if sized {
		digits, right := strings.CutPrefix(width, "-")
		c.right = right
		if digits != "" || !right {
			n, err := parseNumber(digits, 1, maxWidth)
			if err != nil {
				return column{}, fmt.Errorf("field %s: width %q: want a number from 1 to %d, or - before it to align to the right", name, Visible(width), maxWidth)
			}
			c.width = n
		}
	}
	return c, nil
}

// FieldNames are the names of the columns that there are.
func FieldNames() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

func fieldNamed(name string) (field, error) {
	all := fields()
	wanted := strings.ToLower(name)
	var words []string
	for _, f := range all {
		if wanted == f.name || wanted == f.alias && f.alias != "" {
			return f, nil
		}
		words = append(words, f.name)
		if f.alias != "" {
			words = append(words, f.alias)
		}
	}
	hint := nearest.Hint(name, words)
	if hint == "" {
		hint = " (known: " + strings.Join(FieldNames(), ", ") + ")"
	}
	return field{}, fmt.Errorf("unknown field %q%s", Visible(name), hint)
}

// NeedsRecords reports whether a column is in the jobs' records.
func (f *Format) NeedsRecords() bool {
	return slices.ContainsFunc(f.columns, func(c column) bool { return c.record })
}

// NeedsUse reports whether agents measure a column, and whether nothing else has it.
func (f *Format) NeedsUse() (needed, alone bool) {
	for _, c := range f.columns {
		needed, alone = needed || c.use, alone || c.useAlone
	}
	return needed, alone
}

// NeedsProgress reports whether a column shows how far jobs are.
func (f *Format) NeedsProgress() bool {
	return slices.ContainsFunc(f.columns, func(c column) bool { return c.name == progressField })
}

// FormatTable is how a list in a format of its own is laid out.
type FormatTable struct {
	Format   Format
	Wide     bool // nothing is cut short
	NoHeader bool
	FromHost string // where jobs are submitted
	Zone     *time.Location
	Now      time.Time // by the queue's clock
}

// Write prints the header and a line for each job.
func (t FormatTable) Write(w io.Writer, rows []Row) error {
	c := columnsOf(t.FromHost, t.Zone, t.Now)
	var b strings.Builder
	line := func(text func(column) string) {
		for i, col := range t.Format.columns {
			if i > 0 {
				b.WriteString(cmp.Or(t.Format.delimiter, " "))
			}
			t.cell(&b, col, text(col), i == len(t.Format.columns)-1)
		}
		b.WriteByte('\n')
	}
	if !t.NoHeader {
		line(func(col column) string { return strings.ToUpper(col.name) })
	}
	for i := range rows {
		line(func(col column) string {
			return Visible(cmp.Or(col.text(c, &rows[i]), "-"))
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell writes a text as wide as its column. A number is never cut: it would be another one.
func (t FormatTable) cell(b *strings.Builder, col column, text string, last bool) {
	if t.Format.delimiter != "" {
		b.WriteString(text)
		return
	}
	switch {
	case t.Wide || col.number != nil && !col.prose || utf8.RuneCountInString(text) <= col.width:
	case col.prose:
		text = cutRight(text, col.width-1) + "*"
	default:
		text = cutLeft(text, col.width)
	}
	blanks := strings.Repeat(" ", max(col.width-utf8.RuneCountInString(text), 0))
	switch {
	case col.right:
		b.WriteString(blanks + text)
	case last:
		b.WriteString(text)
	default:
		b.WriteString(text + blanks)
	}
}

func columnsOf(fromHost string, zone *time.Location, now time.Time) *columns {
	return &columns{fromHost: fromHost, zone: cmp.Or(zone, time.UTC), now: now}
}

// Order is what a list is sorted by.
type Order struct{ keys []sortKey }

type sortKey struct {
	field
	descending bool
}

// ParseOrder reads FIELD[,-FIELD]…: the first counts most, - sorts the highest first.
func ParseOrder(text string) (Order, error) {
	var o Order
	for word := range strings.SplitSeq(text, ",") {
		name, descending := strings.CutPrefix(strings.TrimSpace(word), "-")
		f, err := fieldNamed(name)
		if err != nil {
			return Order{}, err
		}
		if o.keys = append(o.keys, sortKey{f, descending}); len(o.keys) > maxFields {
			return Order{}, fmt.Errorf("more than %d fields", maxFields)
		}
	}
	return o, nil
}

// IsZero reports whether there is no field: the list stays as it is.
func (o *Order) IsZero() bool { return len(o.keys) == 0 }

// NeedsRecords reports whether a field is in the jobs' records.
func (o *Order) NeedsRecords() bool {
	return slices.ContainsFunc(o.keys, func(k sortKey) bool { return k.record })
}

// NeedsUse is that of a format.
func (o *Order) NeedsUse() (needed, alone bool) {
	for _, k := range o.keys {
		needed, alone = needed || k.use, alone || k.useAlone
	}
	return needed, alone
}

// NeedsProgress is that of a format.
func (o *Order) NeedsProgress() bool {
	return slices.ContainsFunc(o.keys, func(k sortKey) bool { return k.name == progressField })
}

// Sort sorts rows. Those that are equal in all fields stay as they are to each other.
func (o *Order) Sort(rows []Row, fromHost string, zone *time.Location, now time.Time) {
	c := columnsOf(fromHost, zone, now)
	slices.SortStableFunc(rows, func(a, b Row) int {
		for _, k := range o.keys {
			if by := k.compare(c, &a, &b); by != 0 {
				return by
			}
		}
		return 0
	})
}

func (k *sortKey) compare(c *columns, a, b *Row) int {
	var by int
	if k.number != nil {
		by = cmp.Compare(k.number(c, a), k.number(c, b))
	} else {
		by = cmp.Compare(k.text(c, a), k.text(c, b))
	}
	if k.descending {
		return -by
	}
	return by
}

// Arrays returns a line for each array of a list, with all of its elements that are there.
func Arrays(jobs []backends.Job) []ArrayUse {
	var all []ArrayUse
	at := map[int64]int{}
	for i := range jobs {
		j := &jobs[i]
		if j.ID.Index == 0 {
			continue
		}
		n, seen := at[j.ID.Job]
		if !seen {
			n = len(all)
			at[j.ID.Job] = n
			all = append(all, ArrayUse{Job: j.ID.Job, Name: ArrayName(j), User: j.User, States: map[string]int{}})
		}
		all[n].States[Stat(j)]++
		all[n].Jobs++
		all[n].indices = append(all[n].indices, max(j.ID.Index, 0))
	}
	for i := range all {
		slices.Sort(all[i].indices)
		all[i].Indices = FormatIndices(all[i].indices)
	}
	return all
}

// ArrayUse is an array and how many of its elements are in which state.
type ArrayUse struct {
	Job     int64          `json:"id"`
	Name    string         `json:"name"`
	Indices string         `json:"indices"` // 1-3,7
	User    string         `json:"user"`
	Jobs    int            `json:"jobs"`
	States  map[string]int `json:"states"` // by LSF's words
	indices []int
}

// WriteArrays prints arrays as bjobs -A does.
func WriteArrays(w io.Writer, arrays []ArrayUse, wide, noHeader bool) error {
	var b strings.Builder
	if !noHeader {
		b.WriteString("JOBID    ARRAY_SPEC  OWNER   NJOBS  PEND  DONE   RUN  EXIT SSUSP USUSP PSUSP\n")
	}
	for _, a := range arrays {
		spec, owner := Visible(a.Name+"["+a.Indices+"]"), Visible(a.User)
		if !wide {
			spec, owner = cutLeft(spec, 11), cutRight(owner, 7)
		}
		fmt.Fprintf(&b, "%-8d %-11s %-7s %5d", a.Job, spec, owner, a.Jobs)
		for _, stat := range []string{"PEND", "DONE", "RUN", "EXIT", "SSUSP", "USUSP", "PSUSP"} {
			fmt.Fprintf(&b, " %5d", a.States[stat])
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary is the number of slots of unfinished jobs, by state.
type Summary struct {
	Running         int `json:"running_slots"`
	SystemSuspended int `json:"system_suspended_slots"`
	UserSuspended   int `json:"user_suspended_slots"`
	Pending         int `json:"pending_slots"` // held ones, too
}

// Summarize counts slots.
func Summarize(jobs []backends.Job) Summary {
	var s Summary
	for i := range jobs {
		switch n := jobs[i].Slots; Stat(&jobs[i]) {
		case "RUN":
			s.Running += n
		case "SSUSP":
			s.SystemSuspended += n
		case "USUSP":
			s.UserSuspended += n
		case "PEND", "PSUSP":
			s.Pending += n
		}
	}
	return s
}

// Write prints the numbers as bjobs -sum does. No job is forwarded to another cluster.
func (s Summary) Write(w io.Writer, noHeader bool) error {
	var b strings.Builder
	if !noHeader {
		fmt.Fprintf(&b, "%-10s %-10s %-10s %-10s %-10s %s\n", "RUN", "SSUSP", "USUSP", "UNKNOWN", "PEND", "FWD_PEND")
	}
	fmt.Fprintf(&b, "%-10d %-10d %-10d %-10d %-10d %d\n", s.Running, s.SystemSuspended, s.UserSuspended, 0, s.Pending, 0)
	_, err := io.WriteString(w, b.String())
	return err
}
