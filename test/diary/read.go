package diary

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/test/judge"
)

// Run is one start of a job and what came of it.
type Run struct {
	PID      int
	Host     string
	Requeues string // ALLOTMENT_REQUEUES
	Start    time.Time
	Last     time.Time // its last line
	End      time.Time // zero: it did not get there
	Stretches
	silence Stretch // of the last stretch: the last one longer than Gap; zero: none
}

// Stretches are the times in which a run worked: between them it was stopped.
type Stretches []Stretch

// Stretch is an unbroken time of work.
type Stretch struct{ From, To time.Time }

// Total is the time worked.
func (s Stretches) Total() time.Duration {
	var sum time.Duration
	for _, one := range s {
		sum += one.To.Sub(one.From)
	}
	return sum
}

// Gap is more than a job's silence without a reason. After a longer one it was stopped
// if it was told to go on, else the machine was busy. The word may come as late again.
const Gap = 2 * time.Second

// Diary is what a job has written so far.
type Diary struct {
	Name  string // of the job
	Runs  []Run
	Ends  int // end lines
	path  string
	read  int64
	lines int
}

// New is the diary of a job, of which nothing has been read.
func New(name, path string) *Diary { return &Diary{Name: name, path: path} }

// Path is its file.
func (d *Diary) Path() string { return d.path }

// Ended tells whether the job's last run came to its end.
func (d *Diary) Ended() bool { return len(d.Runs) > 0 && !d.Runs[len(d.Runs)-1].End.IsZero() }

// First is the job's first start, or zero.
func (d *Diary) First() time.Time {
	if len(d.Runs) == 0 {
		return time.Time{}
	}
	return d.Runs[0].Start
}

// Suspensions is how often the job was stopped and went on.
func (d *Diary) Suspensions() int {
	n := 0
	for _, r := range d.Runs {
		n += len(r.Stretches) - 1
	}
	return n
}

// Tally is how often it started and came to its end.
func (d *Diary) Tally() judge.Tally {
	return judge.Tally{Name: d.Name, Starts: len(d.Runs), Ends: d.Ends}
}

// Update reads what was written since. A file that is not there yet is empty.
func (d *Diary) Update() error {
	f, err := os.Open(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= d.read {
		return err
	}
	data := make([]byte, info.Size()-d.read)
	n, err := f.ReadAt(data, d.read)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data[:n], '\n') + 1
	d.read += int64(whole)
	for line := range strings.Lines(string(data[:whole])) {
		d.lines++
		if err := d.add(strings.Fields(line)); err != nil {
			return fmt.Errorf("%s:%d: %w", d.path, d.lines, err)
		}
	}
	return nil
}

// errLine is a line that no job of ours wrote.
var errLine = errors.New("no line of a diary")

func (d *Diary) add(words []string) error {
	if len(words) < 2 {
		return errLine
	}
	nanoseconds, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return errLine
	}
	at := time.Unix(0, nanoseconds)
	if words[0] == "start" {
		if len(words) != 5 {
			return errLine
		}
		pid, err := strconv.Atoi(words[2])
		if err != nil {
			return errLine
		}
		d.Runs = append(d.Runs, Run{PID: pid, Host: words[3], Requeues: words[4], Start: at, Last: at, Stretches: Stretches{{at, at}}})
		return nil
	}
	if len(d.Runs) == 0 {
		return errLine
	}
	r := &d.Runs[len(d.Runs)-1]
	if at.Sub(r.Last) > Gap {
		r.silence = Stretch{r.Last, at}
	}
	r.Last = at
	r.Stretches[len(r.Stretches)-1].To = at
	switch words[0] {
	case "at":
	case "on":
		r.goOn(at)
	case "end":
		r.End = at
		d.Ends++
	default:
		return errLine
	}
	return nil
}

// goOn ends a stretch where the run was stopped, once it is told to go on.
func (r *Run) goOn(at time.Time) {
	s := r.silence
	r.silence = Stretch{}
	if s.To.IsZero() || at.Sub(s.To) > Gap {
		return
	}
	r.Stretches[len(r.Stretches)-1].To = s.From
	r.Stretches = append(r.Stretches, Stretch{s.To, at})
}
