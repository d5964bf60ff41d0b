package manager

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// A client that submits jobs and gets no answer does not know whether they were taken.
// Under a key it can submit them again: what was taken the first time is not taken
// twice. Each user has keys of their own.

// maxRemembered bounds the jobs and arrays of the submissions that are remembered by
// their keys; the newest submission is remembered however large it is. A client tries
// again within seconds.
const maxRemembered = 100_000

type submissionKey struct{ user, key string }

// keyedSubmission is a submission under a key: the numbers of its jobs, 0 for those
// that were refused.
type keyedSubmission struct {
	submissionKey
	jobs []int64
}

var errKey = errors.New("this key belongs to a submission of other jobs: use a new one for each submission")

// submitOnce is submit for a submission that may have come before. again has a true for
// each of its jobs that had; nil: none.
func (m *Manager) submitOnce(e Submit) (results []backends.Submitted, again []bool) {
	if e.Key == "" {
		return m.submit(e), nil
	}
	key := submissionKey{e.By.User, e.Key}
	before := m.keys[key]
	if before != nil && len(before.jobs) != len(e.Specs) {
		results = make([]backends.Submitted, len(e.Specs))
		for i := range results {
			results[i].Err = fmt.Errorf("%d jobs, there were %d: %w", len(e.Specs), len(before.jobs), errKey)
		}
		return results, nil
	}
	if before == nil {
		results = m.submit(e)
		r := &keyedSubmission{key, make([]int64, len(results))}
		for i := range results {
			r.jobs[i] = results[i].ID.Job
		}
		m.remember(r)
		return results, nil
	}
	results, again = make([]backends.Submitted, len(e.Specs)), make([]bool, len(e.Specs))
	for i, job := range before.jobs {
		if again[i] = job > 0; again[i] {
			results[i].ID = backends.ID{Job: job}
			results[i].Queue = m.queueOf(results[i].ID)
			continue
		}
		results[i].ID, results[i].Err = m.submitOne(e.jobAt(i))
		results[i].Queue = m.queueOf(results[i].ID)
		before.jobs[i] = results[i].ID.Job
	}
	return results, again
}

// remember keeps a submission, and forgets the oldest ones when there are many.
func (m *Manager) remember(r *keyedSubmission) {
	m.keys[r.submissionKey] = r
	m.keyed = append(m.keyed, r)
	m.keyedJobs += len(r.jobs)
	n := 0
	for ; m.keyedJobs > maxRemembered && n < len(m.keyed)-1; n++ {
		old := m.keyed[n]
		m.keyedJobs -= len(old.jobs)
		m.keyed[n] = nil
		delete(m.keys, old.submissionKey)
	}
	m.keyed = m.keyed[n:]
}

// savedKey is a remembered submission.
type savedKey struct {
	User, Key string
	Jobs      []int64
}

// saveKeys lists them, oldest first.
func (m *Manager) saveKeys() []savedKey {
	var all []savedKey
	for _, r := range m.keyed {
		all = append(all, savedKey{r.user, r.key, slices.Clone(r.jobs)})
	}
	return all
}
