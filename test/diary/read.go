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

// Run is one start of a job and what followed.
type Run struct {
	PID      int
	Host     string
	Requeues string // ALLOTMENT_REQUEUES
	Start    time.Time
	Last     time.Time // its last line
	End      time.Time // zero: it did not get there
	From     int       // steps of earlier runs that it went on from; 0: it began anew
	Saved    int       // steps that it had made when it saved itself; 0: it did not
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

// Gap is longer than a job's usual silence. After a longer one the job was stopped if it
// got SIGCONT at most Gap later, else the machine was busy.
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

// New returns the diary of a job, of which nothing has been read.
func New(name, path string) *Diary { return &Diary{Name: name, path: path} }

// Path returns the path of its file.
func (d *Diary) Path() string { return d.path }

// Ended reports whether the job's last run came to its end.
func (d *Diary) Ended() bool { return len(d.Runs) > 0 && !d.Runs[len(d.Runs)-1].End.IsZero() }

// First returns the job's first start, or zero.
func (d *Diary) First() time.Time {
	if len(d.Runs) == 0 {
		return time.Time{}
	}
	return d.Runs[0].Start
}

// Suspensions returns how often the job was stopped and continued.
func (d *Diary) Suspensions() int {
	n := 0
	for _, r := range d.Runs {
		n += len(r.Stretches) - 1
	}
	return n
}

// Tally returns how often it started and came to its end.
func (d *Diary) Tally() judge.Tally {
	return judge.Tally{Name: d.Name, Starts: len(d.Runs), Ends: d.Ends}
}

// Update reads what was written since. A missing file counts as empty.
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

// errLine is the error for a line that RunJob does not write.
var errLine = errors.New("not a line of a diary")

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
	case "from", "saved":
		if len(words) != 3 {
			return errLine
		}
		steps, err := strconv.Atoi(words[2])
		if err != nil {
			return errLine
		}
		if words[0] == "saved" {
			r.Saved = steps
		} else {
			r.From = steps
		}
	case "on":
		r.endSilence(at)
	case "end":
		r.End = at
		d.Ends++
	default:
		return errLine
	}
	return nil
}

// endSilence ends the stretch before the last silence, if the run was stopped in that.
func (r *Run) endSilence(at time.Time) {
	s := r.silence
	r.silence = Stretch{}
	if s.To.IsZero() || at.Sub(s.To) > Gap {
		return
	}
	r.Stretches[len(r.Stretches)-1].To = s.From
	r.Stretches = append(r.Stretches, Stretch{s.To, at})
}
