package lsf

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// entry is what must be remembered of a job that the engine touched. It stands in a
// file of our own: of what LSF keeps with a job, a description is its owner's to
// change, and bmod changes none of a running job's (lava).
type entry struct {
	Submitted time.Time `json:"submitted,omitzero"` // of the job; LSF gives numbers again, and one submitted at another time is another job
	Mark      string    `json:"mark,omitempty"`
	Until     time.Time `json:"until,omitzero"` // the engine's hold
	Requeues  int       `json:"requeues,omitempty"`

	// Of the last forceful act.
	Run       time.Time     `json:"run,omitzero"`        // which run it is about: its start, as LSF tells it
	Acted     time.Time     `json:"acted,omitzero"`      // written just before it
	Requeuing bool          `json:"requeuing,omitempty"` // that run goes back into the queue, and is not known to be there
	Down      time.Time     `json:"down,omitzero"`       // its host was last seen down meanwhile
	Returns   bool          `json:"returns,omitempty"`   // it comes back held (brequeue -H), to be let go by us
	Suspended bool          `json:"suspended,omitempty"` // that run is stopped by us
	Resuming  bool          `json:"resuming,omitempty"`  // and goes on as soon as it fits
	Resumed   time.Time     `json:"resumed,omitzero"`    // that run went on then
	Ran       time.Duration `json:"ran,omitempty"`       // nanoseconds; what it had run when it was stopped last

	// What stands in the queue in place of the owner's own.
	Begin  time.Time         `json:"begin,omitzero"`   // the owner's begin time
	Ours   time.Time         `json:"ours,omitzero"`    // the one that we set; zero: none
	Was    time.Time         `json:"was,omitzero"`     // the one of ours before it, which stands until LSF has heard of Ours
	Freed  bool              `json:"freed,omitempty"`  // Ours is no hold: it ends one
	Asked  []string          `json:"asked,omitempty"`  // the owner's hosts
	Pinned []string          `json:"pinned,omitempty"` // the ones that we set; none: it is not pinned
	Ranked bool              `json:"ranked,omitempty"` // Priority and Number are ours
	Number int64             `json:"number,omitempty"` // as which LSF has the priority (-sp); 0: it could not be told yet
	Rank   backends.Priority `json:"rank,omitempty"`   // which -sp has too few numbers for

	Gone time.Time `json:"gone,omitzero"` // since when the job has ended or is unknown
}

// empty tells whether there is nothing to remember.
func (e entry) empty() bool {
	return e.Mark == "" && e.Until.IsZero() && e.Requeues == 0 && e.Run.IsZero() && e.Ours.IsZero() && len(e.Pinned) == 0 && !e.Ranked
}

// about tells whether this is remembered of that job. Of a vague one bjobs tells the
// minute alone.
func (e entry) about(listed *seen) bool {
	if listed.vague {
		return e.Submitted.Truncate(time.Minute).Equal(listed.Submitted.Truncate(time.Minute))
	}
	return e.Submitted.Equal(listed.Submitted)
}

// keepGone is for how long a job is remembered that has ended, or that the queue
// does not know: it may only be away.
const keepGone = 24 * time.Hour

// entries are those of all jobs.
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

// text is the file's.
func (all entries) text() ([]byte, error) {
	return json.Marshal(recordFile{Version: recordVersion, Jobs: all})
}

// prune forgets jobs that have been gone for long. alive tells of a job whether it
// is there and has not ended.
func (all entries) prune(at time.Time, alive func(backends.ID, entry) bool) {
	for id, e := range all {
		switch {
		case alive(id, e):
			e.Gone = time.Time{}
		case e.Gone.IsZero():
			e.Gone = at
		case at.Sub(e.Gone) > keepGone:
			delete(all, id)
			continue
		}
		all[id] = e
	}
}
