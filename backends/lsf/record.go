package lsf

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// entry is what must be remembered of a job that the engine acted on. It is kept in a
// file of our own: of what LSF keeps with a job, the description is its owner's to
// change, and bmod can't change that of a running job (lava).
type entry struct {
	Submitted time.Time `json:"submitted,omitzero"` // of the job; LSF reuses IDs: one submitted at another time is another job
	Mark      string    `json:"mark,omitempty"`
	Until     time.Time `json:"until,omitzero"` // the engine's hold
	Requeues  int       `json:"requeues,omitempty"`

	// Of the last forceful act.
	Run       time.Time     `json:"run,omitzero"`        // which run it is about: its start, as LSF shows it
	Acted     time.Time     `json:"acted,omitzero"`      // when; written just before the act
	Requeuing bool          `json:"requeuing,omitempty"` // that run goes back into the queue, and is not known to be there
	Down      time.Time     `json:"down,omitzero"`       // when its host was last seen down meanwhile
	Returns   bool          `json:"returns,omitempty"`   // it comes back held (brequeue -H), and the engine releases it
	Suspended bool          `json:"suspended,omitempty"` // the engine stopped that run
	Resuming  bool          `json:"resuming,omitempty"`  // and resumes it as soon as it fits
	Resumed   time.Time     `json:"resumed,omitzero"`    // when that run was resumed
	Ran       time.Duration `json:"ran,omitempty"`       // nanoseconds; how long it had run when it was last stopped

	Save        save `json:"save,omitzero"`         // how that run was asked to save itself
	FailedSaves int  `json:"failedSaves,omitempty"` // of its checkpoints on demand, in a row

	// What the queue has in place of the owner's own.
	Begin  time.Time         `json:"begin,omitzero"`   // the owner's begin time
	Ours   time.Time         `json:"ours,omitzero"`    // the one that the engine set; zero: none
	Was    time.Time         `json:"was,omitzero"`     // the engine's before it, which stands until LSF has Ours
	Freed  bool              `json:"freed,omitempty"`  // Ours ends a hold, and is none
	Asked  []string          `json:"asked,omitempty"`  // the owner's hosts
	Pinned []string          `json:"pinned,omitempty"` // the ones that the engine set; none: it is not pinned
	Ranked bool              `json:"ranked,omitempty"` // Rank and Number are set
	Number int64             `json:"number,omitempty"` // Rank as LSF has it (-sp); 0: not given to LSF yet
	Rank   backends.Priority `json:"rank,omitempty"`   // exact: -sp has too few numbers

	Gone time.Time `json:"gone,omitzero"` // since when the job has ended or is unknown
}

// empty reports whether there is nothing to remember.
func (e entry) empty() bool {
	return e.Mark == "" && e.Until.IsZero() && e.Requeues == 0 && e.Run.IsZero() && e.Ours.IsZero() && len(e.Pinned) == 0 && !e.Ranked && e.FailedSaves == 0
}

// describes reports whether the entry is about that job. Of a vague job bjobs shows the
// minute only.
func (e entry) describes(listed *listedJob) bool {
	if listed.vague {
		return e.Submitted.Truncate(time.Minute).Equal(listed.Submitted.Truncate(time.Minute))
	}
	return e.Submitted.Equal(listed.Submitted)
}

// goneLimit is how long a job is remembered that has ended, or that the queue does not
// know: it may only be away.
const goneLimit = 24 * time.Hour

// entries are those of all jobs, by ID.
type entries map[backends.ID]entry

// recordFile is the content of the file.
type recordFile struct {
	Version int     `json:"version"`
	Jobs    entries `json:"jobs"`
}

const recordVersion = 1

// parseRecord reads the file's text.
func parseRecord(text []byte) (entries, error) {
	var file recordFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Version != recordVersion {
		return nil, fmt.Errorf("version %d; this program reads %d", file.Version, recordVersion)
	}
	if file.Jobs == nil {
		file.Jobs = entries{}
	}
	return file.Jobs, nil
}

// text returns the file's text.
func (all entries) text() ([]byte, error) {
	return json.Marshal(recordFile{Version: recordVersion, Jobs: all})
}

// prune removes jobs that have been gone for long. alive reports whether a job is there
// and has not ended.
func (all entries) prune(at time.Time, alive func(backends.ID, entry) bool) {
	for id, e := range all {
		switch {
		case alive(id, e):
			e.Gone = time.Time{}
		case e.Gone.IsZero():
			e.Gone = at
		case at.Sub(e.Gone) > goneLimit:
			delete(all, id)
			continue
		}
		all[id] = e
	}
}
