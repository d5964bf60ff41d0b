package state

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// Job names a job of any queue of a farm.
type Job struct {
	Queue string // slurm, lsf, miniq: as package measure names it
	ID    backends.ID
}

// String is the name that ParseJob reads: slurm/123, lsf/123.4.
func (j Job) String() string {
	s := j.Queue + "/" + strconv.FormatInt(j.ID.Job, 10)
	if j.ID.Index != 0 {
		s += "." + strconv.Itoa(j.ID.Index)
	}
	return s
}

// ParseJob reads the name of a job. No name has parts that a path could use.
func ParseJob(name string) (Job, error) {
	queue, id, _ := strings.Cut(name, "/")
	number, index, element := strings.Cut(id, ".")
	j := Job{Queue: queue}
	var err [2]error
	j.ID.Job, err[0] = strconv.ParseInt(number, 10, 64)
	if element {
		j.ID.Index, err[1] = strconv.Atoi(index)
	}
	known := queue == "slurm" || queue == "lsf" || queue == "miniq"
	if !known || errors.Join(err[:]...) != nil || j.ID.Job <= 0 || j.String() != name {
		return Job{}, fmt.Errorf("%.40q is no name of a job, such as slurm/123", name)
	}
	return j, nil
}

// Sequence orders the states of a job: by its run, which the queue counts from 1, then by
// the number of the last line of that run's history.
type Sequence struct {
	Run int    `json:"run"`
	N   uint64 `json:"n"`
}

// Compare is negative if s is older than o.
func (s Sequence) Compare(o Sequence) int {
	return cmp.Or(cmp.Compare(s.Run, o.Run), cmp.Compare(s.N, o.N))
}

// Check returns an error for a sequence that no job has: no forged number shuts out all later
// ones.
func (s Sequence) Check() error {
	if s.Run < 0 || s.Run > maxRun || s.N > maxSeq {
		return fmt.Errorf("run %d, line %d: no job has them", s.Run, s.N)
	}
	return nil
}

// Segment names what one run did on one host: it alone writes there. Of the queue's own
// record, as miniq's, Host is empty.
type Segment struct {
	Run  int
	Host string
}

// Setting is a fact of the job's own, as it set it.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// File is a file that travels with a job.
type File struct {
	Name       string
	Executable bool
	Data       []byte
}

// Bounds of what one run of a job writes into its object, and of an object.
const (
	MaxSettings = 64
	MaxKey      = 64      // bytes
	MaxValue    = 4 << 10 // bytes
	MaxFiles    = 16
	MaxFile     = 1 << 20 // bytes
	MaxObject   = 48 << 20
)

// ProgressKey is the setting that holds a job's progress.
const ProgressKey = "progress"

// Progress is how far a job is, by its own words.
type Progress struct {
	Percent int    `json:"percent"` // 0 to 100
	Text    string `json:"text,omitempty"`
}

// String is the value of ProgressKey: 40 step 3 of 7.
func (p Progress) String() string { return strings.TrimRight(strconv.Itoa(p.Percent)+" "+p.Text, " ") }

// MaxBrief is the number of bytes that lists have of a job's progress.
const MaxBrief = 128

// Brief is the beginning of a text, at most MaxBrief bytes, whole characters.
func Brief(text string) string {
	if len(text) <= MaxBrief {
		return text
	}
	most := MaxBrief
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// Brief is what is kept of it in memory: its text has at most MaxBrief bytes.
func (p Progress) Brief() Progress {
	return Progress{p.Percent, strings.Clone(Brief(p.Text))}
}

// ParseProgress reads the value of ProgressKey.
func ParseProgress(value string) (Progress, error) {
	number, text, _ := strings.Cut(value, " ")
	percent, err := strconv.Atoi(number)
	if err != nil || percent < 0 || percent > 100 {
		return Progress{}, fmt.Errorf("%.40q is no progress: want a number from 0 to 100, and a text", value)
	}
	return Progress{Percent: percent, Text: strings.TrimSpace(text)}, nil
}

// ErrBounds is wrapped where a job writes more than its object takes.
var ErrBounds = errors.New("the job's state object takes no more")

// CheckSetting returns what is wrong with a setting. Keys have letters, digits and the marks
// . - _ and begin with a letter.
func CheckSetting(s Setting) error {
	switch {
	case !isName(s.Key, MaxKey):
		return fmt.Errorf("%.80q is no name of a setting: want a letter, then letters, digits, dots, hyphens or underscores, %d at most", s.Key, MaxKey)
	case len(s.Value) > MaxValue:
		return fmt.Errorf("the value of %s has %d bytes: %w than %d", s.Key, len(s.Value), ErrBounds, MaxValue)
	case s.Key == ProgressKey:
		_, err := ParseProgress(s.Value)
		return err
	}
	return nil
}

// CheckFile returns what is wrong with a file. Its name is one of a setting: it has no
// directory.
func CheckFile(f File) error {
	switch {
	case !isName(f.Name, MaxKey):
		return fmt.Errorf("%.80q is no name of a file here: want a letter, then letters, digits, dots, hyphens or underscores, %d at most", f.Name, MaxKey)
	case len(f.Data) > MaxFile:
		return fmt.Errorf("file %s has %d bytes: %w than %d", f.Name, len(f.Data), ErrBounds, MaxFile)
	}
	return nil
}

func isName(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return true
}
