package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// dummyName is for users who list jobs. What makes a job a dummy job is its comment,
// and that it is root's or SlurmUser's.
const dummyName = "allotment-dummy"

// dummyBatch are dummy jobs of the same kind: one array.
type dummyBatch struct {
	backends.Dummy
	indices []int // which of those that were asked for
	first   backends.ID
	err     error
}

// failure says for what, and where, they were not submitted.
func (b *dummyBatch) failure(err error) error {
	if b.Project != "" {
		return fmt.Errorf("keep a slot for %s on %s: %w", b.Project, b.Host, err)
	}
	return fmt.Errorf("submit a dummy job for job %v on %s: %w", b.For, b.Host, err)
}

// id is the i-th one's.
func (b *dummyBatch) id(i int) backends.ID {
	if len(b.indices) == 1 {
		return b.first
	}
	return backends.ID{Job: b.first.Job, Index: i + 1}
}

// maxDummyBatch is the most dummy jobs in one array: of an array's pending elements,
// backfill by default reserves slots for no more (bf_max_job_array_resv).
const maxDummyBatch = 20

// batches groups dummy jobs that are alike, up to the size of an array.
func batches(dummies []backends.Dummy, array int) []*dummyBatch {
	most := min(max(array-1, 1), maxDummyBatch) // their indexes begin with 1
	var all []*dummyBatch
	open := map[backends.Dummy]*dummyBatch{}
	for i, d := range dummies {
		b := open[d]
		if b == nil || len(b.indices) == most {
			b = &dummyBatch{Dummy: d}
			open[d] = b
			all = append(all, b)
		}
		b.indices = append(b.indices, i)
	}
	return all
}

// submitDummies submits dummy jobs: an sbatch for those that are alike, and one scontrol
// that ranks and releases all of them. Reconcile does so for one that is left held in
// between.
func (c *Client) submitDummies(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
	if len(dummies) == 0 {
		return nil
	}
	results := make([]backends.Submitted, len(dummies))
	p, err := c.readSnapshot(ctx, heavyJobs(dummies))
	if err == nil && p.rankErr != nil {
		err = fmt.Errorf("submit dummy jobs: %w", p.rankErr)
	}
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	all := batches(dummies, p.array)
	for i, sent := range reconcile.SubmitEach(len(all), func(i int) (s backends.Submitted) {
		s.ID, s.Err = c.submitBatch(ctx, p, all[i])
		return s
	}) {
		all[i].first, all[i].err = sent.ID, sent.Err
	}
	c.releaseBatches(ctx, p, all)
	for _, b := range all {
		for i, k := range b.indices {
			if results[k].Err = b.err; b.err == nil {
				results[k].ID = b.id(i)
			}
		}
	}
	return results
}

// heavyJobs are the jobs that dummy jobs are for, each once.
func heavyJobs(dummies []backends.Dummy) []backends.ID {
	ids := reconcile.IDs(dummies, func(d backends.Dummy) backends.ID { return d.For })
	slices.SortFunc(ids, backends.ID.Compare)
	return slices.DeleteFunc(slices.Compact(ids), func(id backends.ID) bool { return id == backends.ID{} })
}

// submitBatch submits a batch, held.
func (c *Client) submitBatch(ctx context.Context, p *snapshot, b *dummyBatch) (backends.ID, error) {
	failed := func(err error) (backends.ID, error) { return backends.ID{}, b.failure(err) }
	queues := b.Queues
	if b.Project == "" {
		j, err := reconcile.One(p.jobs, b.For)
		switch {
		case err != nil:
			return failed(err)
		case j.State.Ended():
			return failed(reconcile.WrongState(&j.Job))
		}
		queues = j.Queue
	}
	if b.Limit <= 0 {
		return failed(errors.New("it has no run limit"))
	}
	partition, err := p.partition(queues, b.Host)
	if err != nil {
		return failed(err)
	}
	limit := b.Limit
	if most := p.limits[partition]; most > 0 { // one of a longer limit would wait for ever
		limit = min(limit, most)
	}
	options := []string{"--job-name=" + dummyName, "--comment=" + dummyComment(&b.Dummy), "--partition=" + partition, "--nodelist=" + b.Host, "--cpus-per-task=1"}
	if len(b.indices) > 1 {
		options = append(options, "--array=1-"+strconv.Itoa(len(b.indices)))
	}
	id, err := c.submitOwn(ctx, limit, options...)
	if err != nil {
		return failed(err)
	}
	return id, nil
}

// partition returns the partition for a dummy job on a host: one of the job that it is
// for, whose tier it has then, or the first one that has the host.
func (p *snapshot) partition(queues, host string) (string, error) {
	there := p.within[host]
	for queue := range strings.SplitSeq(queues, ",") {
		if slices.Contains(there, queue) {
			return queue, nil
		}
	}
	if len(there) == 0 {
		return "", errors.New("no partition has this host")
	}
	return there[0], nil
}

// releaseBatches ranks and releases batches. It ends those for which that fails.
func (c *Client) releaseBatches(ctx context.Context, p *snapshot, all []*dummyBatch) {
	var requests []string
	var batchOf []*dummyBatch
	for _, b := range all {
		if b.err == nil {
			for _, r := range p.releaseRequests(b.first, b.Priority) {
				requests, batchOf = append(requests, r), append(batchOf, b)
			}
		}
	}
	var useless []backends.ID
	for i, err := range c.sendRequests(ctx, requests) {
		if b := batchOf[i]; err != nil && b.err == nil {
			b.err = b.failure(err)
			useless = append(useless, b.first)
		}
	}
	c.cancel(ctx, useless)
}

// awaitsRelease reports whether it is a dummy job that was submitted, and not yet ranked and
// released.
func (j *listedJob) awaitsRelease() bool { return j.State == backends.Held && j.IsDummy() }

// releaseDummies ranks and releases such dummy jobs.
func (c *Client) releaseDummies(ctx context.Context, p *snapshot) {
	if p.rankErr != nil {
		return
	}
	var requests []string
	for _, j := range p.jobs {
		if j.awaitsRelease() {
			requests = append(requests, p.releaseRequests(j.ID, j.rank)...)
		}
	}
	c.sendRequests(ctx, requests) // what fails is tried again in the next cycle
}
