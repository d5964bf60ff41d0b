// Package state keeps state objects. A job's state object is one SQLite file that holds
// its specification, what happened to it, and its results, and that may travel with
// the job. The package knows jobs by package backends alone, so that the jobs of any
// queue can have one; the caller says what happened, in which order, and reads it back.
//
// The sqlite3 shell opens an object:
//
//	spec     key, n, value     the job as it was submitted; lists (command, env, hosts) have
//	                           one row for each n from 0, everything else has n = 0. Durations
//	                           are nanoseconds, sizes bytes, the umask is decimal, times RFC 3339.
//	                           "end" is how the job, or the array as a whole, ended: a
//	                           backends.CompactJob, its texts escaped (backends.Escape).
//	history  seq, n, at, run, event, detail    what happened, in order; seq is the place in the
//	                           queue's journal, run is 0 where it concerns none
//	results  run, host, started, ended, exit_code, user_us, system_us, max_rss, why    one row a run
//
// user_version is the schema's number, application_id is 'allo'. Other texts are the
// user's own bytes.
//
// The queue's journal is the record; objects follow it. Put hands a Writer a Change, which
// gathers in memory (backlog.go bounds how much) and is written with others of its job: the
// object is built in memory (memory.go), serialized, synced and renamed (writer.go). Until
// Durable has passed a change, the caller keeps it elsewhere and puts it again after a
// crash; a change that is put twice counts once. Read and ReadFinal read an object back, an
// Inspector verifies it (verify.go). A damaged object is set aside and begun anew, with a
// line in its history that says so.
//
// An array's own object (JOB.db) holds the specification of all its elements.
// An element has one of its own (JOB.INDEX.db) as soon as something happens to it;
// of the specification, that object has the rows job and index alone.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Change is one thing to be written into a job's object. Writing it twice is
// writing it once.
type Change struct {
	ID     backends.ID
	Seq    uint64 // place in the journal, and
	N      int    // among the changes of that place
	At     time.Time
	Submit *Submission // makes the object
	Event  string      // "": no line of history
	Detail string
	RunNo  int // 0: concerns no run
	Begin  *Begin
	End    *End
	Final  *backends.Job // how it ended, as the queue shows it
	Doubt  bool          // verify the object, and set it aside if it is damaged

	Host   string   // whose segment (see Segment); "": the queue's own
	Set    *Setting // CheckSetting has passed it
	Attach *File    // CheckFile has passed it
	Merge  []byte   // another object of the job, from elsewhere; an Inspector has verified it
}

// Submission is what a job is submitted with.
type Submission struct {
	Owner
	Spec backends.Spec // not escaped
}

// Begin is the beginning of a run.
type Begin struct{ Host string }

// End is the end of a run.
type End struct {
	ExitCode int
	At       time.Time // by the keeper; zero: not known
	User     time.Duration
	System   time.Duration
	MaxRSS   int64
	Why      string // "": it ended by itself
}

// ErrCorrupt is wrapped where an object can't be read.
var ErrCorrupt = errors.New("the job's state object is damaged")

// perDir keeps directories short.
const perDir = 1000

// Path returns the path of a job's object, below a directory of objects.
func Path(dir string, id backends.ID) string {
	name := strconv.FormatInt(id.Job, 10)
	if id.Index > 0 {
		name += "." + strconv.Itoa(id.Index)
	}
	return filepath.Join(dir, strconv.FormatInt(id.Job/perDir, 10), name+".db")
}

// IDOf returns the job of an object, by the name of its file; false: no object has it.
func IDOf(path string) (backends.ID, bool) {
	name, ok := strings.CutSuffix(filepath.Base(path), ".db")
	job, index, element := strings.Cut(name, ".")
	var id backends.ID
	var err [2]error
	id.Job, err[0] = strconv.ParseInt(job, 10, 64)
	if element {
		id.Index, err[1] = strconv.Atoi(index)
	}
	return id, ok && err[0] == nil && err[1] == nil && filepath.Base(Path("", id)) == filepath.Base(path)
}

// Read reads a job's object. An element's specification is its array's, and so is
// its history before it has an object of its own.
func Read(dir string, id backends.ID) (*backends.Record, error) {
	o, err := readObject(dir, id)
	if err != nil {
		return nil, err
	}
	if o.record.Spec, err = o.rows.spec(); err != nil {
		return nil, damaged(id, err)
	}
	return o.record, nil
}

// object is the content of a job's object.
type object struct {
	rows   specRows         // of an element: its array's, but for what only an array has
	record *backends.Record // without the specification
}

func readObject(dir string, id backends.ID) (*object, error) {
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	defer m.close()
	own, err := m.readFile(dir, id)
	array := backends.ID{Job: id.Job}
	switch {
	case id.Index == 0, err != nil && !errors.Is(err, fs.ErrNotExist), err == nil && own.rows.specified():
		return own, err
	case err != nil:
		own, err = m.readFile(dir, array)
		if err == nil {
			own.rows = own.rows.ofElement()
		}
		return own, err
	}
	common, err := m.readFile(dir, array)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the rest is returned, without a command
	case err != nil:
		return nil, err
	default:
		own.rows = common.rows.ofElement()
	}
	return own, nil
}

// readFile reads one file.
func (m *memory) readFile(dir string, id backends.ID) (*object, error) {
	data, err := os.ReadFile(Path(dir, id))
	if err != nil {
		return nil, fmt.Errorf("read the state object of job %v: %w", id, err)
	}
	o, err := m.read(data)
	if err != nil {
		return nil, damaged(id, err)
	}
	return o, nil
}

func damaged(id backends.ID, why error) error {
	return fmt.Errorf("read the state object of job %v: %w: %w", id, ErrCorrupt, why)
}
