// Package backends is Allotment's vocabulary: what a job, a host and a farm are, and
// what a queuing system must be able to do for us. It imports the standard library
// only, and every package may import it.
package backends

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ID names a job in its queue. Index is 0 for a job that is no array element
// and the element's index (1 or more, or ZeroIndex) otherwise. IDs are comparable
// and may be map keys; the zero ID names no job.
type ID struct {
	Job   int64
	Index int
}

// ZeroIndex is the Index of an array's element 0, which Slurm has.
const ZeroIndex = -1

// String is LSF's way of writing an ID: 12, and 12[3] for an array element.
func (id ID) String() string {
	if id.Index == 0 {
		return strconv.FormatInt(id.Job, 10)
	}
	return strconv.FormatInt(id.Job, 10) + "[" + strconv.Itoa(max(id.Index, 0)) + "]"
}

// FileName replaces %J by the job's number and %I by its index, in the name of a job's file.
func (id ID) FileName(pattern string) string {
	return strings.NewReplacer("%J", strconv.FormatInt(id.Job, 10), "%I", strconv.Itoa(max(id.Index, 0))).Replace(pattern)
}

// Compare orders IDs by job number, then by array index.
func (id ID) Compare(other ID) int {
	if c := cmp.Compare(id.Job, other.Job); c != 0 {
		return c
	}
	return cmp.Compare(id.Index, other.Index)
}

// ParseID reads what String writes. It accepts nothing else.
func ParseID(s string) (ID, error) {
	job, index, isElement := strings.Cut(s, "[")
	n, err := positive(job)
	if err != nil {
		return ID{}, fmt.Errorf("job ID %q: want a number such as 12, or 12[3] for an array element", s)
	}
	if !isElement {
		return ID{Job: n}, nil
	}
	index, closed := strings.CutSuffix(index, "]")
	if closed && index == "0" {
		return ID{Job: n, Index: ZeroIndex}, nil
	}
	i, err := positive(index)
	if err != nil || !closed || i > 1<<31-1 {
		return ID{}, fmt.Errorf("job ID %q: want a number such as 12, or 12[3] for an array element", s)
	}
	return ID{Job: n, Index: int(i)}, nil
}

// ParsePart reads 82+1, Slurm's way of writing part 1 of a job that starts on several kinds
// of hosts at once, the first part being 0. ok: it is one.
func ParsePart(s string) (job int64, part int, ok bool) {
	number, offset, found := strings.Cut(s, "+")
	job, err := positive(number)
	part, err2 := strconv.Atoi(offset)
	if !found || err != nil || err2 != nil || part < 0 || part > 1<<15 || strconv.Itoa(part) != offset {
		return 0, 0, false
	}
	return job, part, true
}

// ParseElement reads 82_3, Slurm's way of writing 82[3]. ok: it is one.
func ParseElement(s string) (id ID, ok bool) {
	number, index, found := strings.Cut(s, "_")
	id, err := ParseID(number + "[" + index + "]")
	return id, found && err == nil
}

func positive(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || s[0] < '1' || s[0] > '9' {
		return 0, strconv.ErrSyntax
	}
	return n, nil
}

// MarshalText writes the ID as String does, so that JSON shows "12[3]".
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText writes; the empty text and "0" are the
// zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if s := string(text); s == "" || s == "0" {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
