package manager

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Whoever hands jobs in and hears nothing back does not know whether they were
// taken. Under a key they can be handed in again: what was taken the first time
// is not taken twice. A key is its user's own.

// maxRemembered is how many jobs and arrays the keys that are remembered may have
// brought; the newest submission is remembered however large it is. Who asks
// again does so within seconds.
const maxRemembered = 100_000

type submissionKey struct{ user, key string }

// remembered is a submission under a key: the numbers of its jobs, 0 for those
// that were refused.
type remembered struct {
	submissionKey
	jobs []int64
}

var errKey = errors.New("this key belongs to a submission of other jobs: use a new one for each submission")

// submitOnce is submit for a submission that may have come before. again tells
// which of its jobs had.
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
		r := &remembered{key, make([]int64, len(results))}
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
		results[i].ID, results[i].Err = m.submitOne(e.newcomer(i))
		results[i].Queue = m.queueOf(results[i].ID)
		before.jobs[i] = results[i].ID.Job
	}
	return results, again
}

// remember keeps a submission, and forgets the oldest ones when there are many.
func (m *Manager) remember(r *remembered) {
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
