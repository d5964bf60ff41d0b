package bsub

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// MaxArray is the largest number of elements of a job array, and maxIndex their
// largest index (LSF's own, as MAX_JOB_ARRAY_SIZE).
const (
	MaxArray = 10_000
	maxIndex = 2_147_483_646
)

// ParseName reads what follows -J: a name, and for an array an index list in
// brackets with an optional limit: sim[1-9], sim[1-10:3,20]%2.
func ParseName(s string) (string, *backends.Array, error) {
	open, shut := strings.LastIndexByte(s, '['), strings.LastIndexByte(s, ']')
	if open < 0 || shut < open {
		return s, nil, nil
	}
	tail := s[shut+1:]
	if tail != "" && tail[0] != '%' {
		return s, nil, nil // brackets within a name
	}
	indices, err := ParseIndices(s[open+1 : shut])
	if err != nil {
		return "", nil, fmt.Errorf("job name %q: %w", s, err)
	}
	array := &backends.Array{Indices: indices}
	if tail != "" {
		if array.Limit, err = parseNumber(tail[1:], 1, maxSlots); err != nil {
			return "", nil, fmt.Errorf("job name %q: limit %w", s, err)
		}
	}
	return s[:open], array, nil
}

// checkBrackets refuses a job's name in which a bracket has no other: it is the index list of
// an array with a slip in it, and would run as one job.
func checkBrackets(name string) error {
	open := -1
	for i, c := range []byte(name) {
		switch {
		case c == '[':
			open = i
		case c == ']' && open < 0:
			return fmt.Errorf("job name %q: the ] after %q closes nothing: an array is NAME[1-10]", name, name[:i])
		case c == ']':
			open = -1
		}
	}
	if open < 0 {
		return nil
	}
	list, limit, limited := strings.Cut(name[open+1:], "%")
	if limited {
		limit = "%" + limit
	}
	return fmt.Errorf("job name %q: the [ before %q is not closed: write %q", name, list, name[:open+1]+list+"]"+limit)
}

// ParseIndices reads an index list such as 1-3,7,10-20:5 into ascending, distinct
// indices.
func ParseIndices(s string) ([]int, error) { return parseIndices(s, 1) }

// parseIndices is ParseIndices for arrays whose first index can be least.
func parseIndices(s string, least int) ([]int, error) {
	var indices []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, step, err := parseRange(strings.TrimSpace(part), least)
		if err != nil {
			return nil, fmt.Errorf("index list %q: %w", s, err)
		}
		if (last-first)/step+1+len(indices) > MaxArray {
			return nil, fmt.Errorf("index list %q: more than %d elements", s, MaxArray)
		}
		for i := first; i <= last; i += step {
			indices = append(indices, i)
		}
	}
	slices.Sort(indices)
	return slices.Compact(indices), nil
}

// parseRange reads start[-end[:step]].
func parseRange(s string, least int) (first, last, step int, err error) {
	span, every, stepped := strings.Cut(s, ":")
	from, to, ranged := strings.Cut(span, "-")
	if first, err = parseNumber(from, least, maxIndex); err != nil {
		return 0, 0, 0, err
	}
	last, step = first, 1
	if ranged {
		if last, err = parseNumber(to, least, maxIndex); err != nil {
			return 0, 0, 0, err
		}
	}
	if stepped {
		if step, err = parseNumber(every, 1, maxIndex); err != nil {
			return 0, 0, 0, err
		}
	}
	if last < first || (stepped && !ranged) {
		return 0, 0, 0, fmt.Errorf("%s: want start, start-end or start-end:step", Visible(s))
	}
	return first, last, step, nil
}

// FormatIndices writes indices as an index list, runs as ranges.
func FormatIndices(indices []int) string {
	var b strings.Builder
	for i := 0; i < len(indices); {
		end := i
		for end+1 < len(indices) && indices[end+1] == indices[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(indices[i]))
		if end > i {
			b.WriteString("-" + strconv.Itoa(indices[end]))
		}
		i = end + 1
	}
	return b.String()
}

// JobArg is a word of a command line that names jobs: 12, 12[3], 12[1-3,7], or 0,
// all of the caller's own. An array of LSF's has no element 0; one that was made
// by the queue's own commands may have. Slurm's ways of writing are read, too: 12_3 is
// 12[3], and 12+1 a part of a job that starts on several kinds of hosts at once.
// In its place a user may type a job's name.
type JobArg struct {
	All     bool
	Name    string // of a job, instead of its number (see JobByName)
	Job     int64
	Indices []int // 0 or more; nil: the job, or the whole array
	Parted  bool  // it is one part of the job: IDs does not have it
	Part    int   // 0 or more
}

// ParseJobArg reads a job argument.
func ParseJobArg(s string) (JobArg, error) {
	if s == "0" {
		return JobArg{All: true}, nil
	}
	if job, part, ok := backends.ParsePart(s); ok {
		return JobArg{Job: job, Parted: true, Part: part}, nil
	}
	if id, ok := backends.ParseElement(s); ok {
		return JobArg{Job: id.Job, Indices: []int{max(id.Index, 0)}}, nil
	}
	number, list, indexed := strings.Cut(s, "[")
	id, err := backends.ParseID(number)
	if err != nil {
		return JobArg{}, illegalJobID(s)
	}
	if !indexed {
		return JobArg{Job: id.Job}, nil
	}
	list, closed := strings.CutSuffix(list, "]")
	if !closed {
		return JobArg{}, illegalJobID(s)
	}
	indices, err := parseIndices(list, 0)
	if err != nil {
		return JobArg{}, fmt.Errorf("%s: Illegal job ID: %w", Visible(s), err)
	}
	return JobArg{Job: id.Job, Indices: indices}, nil
}

// illegalJobID says so in LSF's own words.
func illegalJobID(s string) error { return errors.New(Visible(s) + ": Illegal job ID.") }

// IDs are the IDs that the argument names; the array's own for a whole array.
func (a JobArg) IDs() []backends.ID {
	if a.All || a.Parted {
		return nil
	}
	if a.Indices == nil {
		return []backends.ID{{Job: a.Job}}
	}
	ids := make([]backends.ID, len(a.Indices))
	for i, index := range a.Indices {
		if index == 0 {
			index = backends.ZeroIndex
		}
		ids[i] = backends.ID{Job: a.Job, Index: index}
	}
	return ids
}

// JobByName takes a job's name in the place of its number: a word that begins with a letter.
// ok: it is one.
func JobByName(word string) (arg JobArg, ok bool) {
	first, _ := utf8.DecodeRuneInString(word)
	return JobArg{Name: word}, unicode.IsLetter(first)
}
