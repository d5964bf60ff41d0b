package lsf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// listing is what bjobs printed; both empty: there are no jobs.
type listing struct {
	records string // bjobs -json
	details string // lava: bjobs -UF
	crashed bool   // bjobs -UF crashed: details is empty
}

// list asks for jobs; without names, for all. Ended jobs are included as long as the
// queue knows them (CLEAN_PERIOD).
func (c *Client) list(ctx context.Context, f flavour, some []string) (listing, error) {
	var l listing
	if f == lsf10 {
		var err error
		l.records, err = c.bjobs(ctx, some, "-json", "-o", lsf10Fields)
		return l, err
	}
	err := command.RunAll(ctx, func(ctx context.Context) (err error) {
		l.records, err = c.bjobs(ctx, some, "-json", "-o", lavaFields)
		return err
	}, func(ctx context.Context) (err error) {
		l.details, err = c.bjobs(ctx, some, "-UF")
		if l.crashed = crashed(err); l.crashed {
			return nil
		}
		return err
	})
	return l, err
}

// crashed reports whether a signal that is not ours ended a command. lava's bjobs -UF
// dies of a text that is longer than its buffer, which any user can write.
func crashed(err error) bool {
	const signalled, last = 128, 128 + 31
	var failed *command.Error
	return errors.As(err, &failed) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		(failed.Killed || failed.Status > signalled && failed.Status <= last)
}

// joinListing parses both halves of lava's listing. If the second one crashed, it is asked
// for again, for each owner's jobs alone: a text that crashes it again hides only its
// owner's jobs, which are then missing.
func (c *Client) joinListing(ctx context.Context, listed listing, counts *cluster) (*details, error) {
	anchors, err := parseAnchors([]byte(listed.records))
	if err != nil {
		return nil, err
	}
	if listed.crashed {
		of := map[string][]backends.ID{}
		for _, a := range anchors {
			of[a.user] = append(of[a.user], backends.ID{Job: a.id.Job})
		}
		for _, user := range slices.Sorted(maps.Keys(of)) {
			slices.SortFunc(of[user], backends.ID.Compare)
			for some := range slices.Chunk(slices.Compact(of[user]), atOnce) {
				out, err := c.bjobs(ctx, names(some), "-UF")
				if err != nil && !crashed(err) {
					return nil, err
				}
				listed.details += out
			}
		}
	}
	return parseDetails(anchors, []byte(listed.details), counts)
}

func (c *Client) bjobs(ctx context.Context, some []string, options ...string) (string, error) {
	printed, err := c.query(ctx, slices.Concat([]string{"bjobs", "-u", "all", "-a"}, options, some)...)
	if err != nil && !onlyUnknown(printed, err) {
		return "", err
	}
	return printed.stdout, nil
}

// onlyUnknown reports whether a bjobs failed only because some of the jobs do not exist; it
// prints the others. With -json it says so on standard output.
func onlyUnknown(printed answer, err error) bool {
	if _, failed := reconcile.ExitFailure(err); !failed || printed == (answer{}) {
		return false
	}
	for line := range strings.Lines(printed.stderr) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.Contains(line, "is not found") && !strings.Contains(line, "No matching job found") &&
			(!strings.HasPrefix(line, "No ") || !strings.HasSuffix(line, "job found")) {
			return false
		}
	}
	return true
}

// fillSnapshot reads a listing into a snapshot, with what is remembered of the jobs.
func (c *Client) fillSnapshot(ctx context.Context, p *snapshot, s *clusterFacts, listed listing) error {
	p.params, p.limitUnit, p.usageUnit, p.scale = s.params, s.limitUnit, s.usageUnit, newScale(s.params)
	counts := cluster{at: time.Now(), limitUnit: s.limitUnit, usageUnit: s.usageUnit, perTask: s.params.perTask}
	seen, err := c.readJobs(ctx, s.flavour, listed, &counts)
	if err != nil {
		return err
	}
	remembered, err := c.record.read()
	if err != nil {
		return err
	}
	p.engineUsers = c.engineUsers()
	p.jobs = make([]*job, 0, len(seen))
	for _, j := range seen {
		p.jobs = append(p.jobs, newJob(j, remembered[j.ID], p, c.lowQueue))
	}
	slices.SortFunc(p.jobs, func(a, b *job) int { return a.ID.Compare(b.ID) })
	p.jobs = slices.CompactFunc(p.jobs, func(a, b *job) bool { return a.ID == b.ID })
	for id, e := range remembered {
		p.misses = p.misses || e.Save.Signal != "" && !p.knows(id, e)
	}
	return nil
}

// readJobs reads a listing. It asks again for jobs that are in one half of it only, or
// unclear there.
func (c *Client) readJobs(ctx context.Context, f flavour, listed listing, counts *cluster) ([]*listedJob, error) {
	if strings.TrimSpace(listed.records) == "" {
		return nil, nil
	}
	if f == lsf10 {
		return parseJobs([]byte(listed.records), counts)
	}
	d, err := c.joinListing(ctx, listed, counts)
	if err != nil {
		return nil, err
	}
	jobs := d.jobs
	again := func(some []anchor) error {
		late, err := c.queryAgain(ctx, some, counts)
		if err != nil {
			return err
		}
		jobs = append(jobs, late.jobs...)
		maps.Copy(d.unclear, late.unclear)
		return nil
	}
	if err := again(d.missing); err != nil {
		return nil, err
	}
	for _, own := range owners(d.unclear) {
		for _, a := range own {
			delete(d.unclear, a.id)
		}
		if err := again(own); err != nil {
			return nil, err
		}
	}
	doubtful, err := c.queryUnclear(ctx, d, counts)
	return append(jobs, doubtful...), err
}

// owners groups unclear jobs by owner, and returns the groups of more than one. One
// command asks for a group: no other user's text is among its lines. So one user cannot
// slow queries for others.
func owners(unclear map[backends.ID]anchor) [][]anchor {
	of := map[string][]anchor{}
	for _, a := range unclear {
		of[a.user] = append(of[a.user], a)
	}
	var several [][]anchor
	for _, user := range slices.Sorted(maps.Keys(of)) {
		if len(of[user]) > 1 {
			several = append(several, of[user])
		}
	}
	return several
}

// mostAlone is how many jobs of a snapshot are queried one by one. Those beyond it are
// unclear by their own texts, and may be as many as their owner likes.
const mostAlone = 20

// queryUnclear queries each unclear job alone, the oldest first. Of those beyond
// mostAlone it reads only the slots, if they hold any.
func (c *Client) queryUnclear(ctx context.Context, d *details, counts *cluster) ([]*listedJob, error) {
	var jobs []*listedJob
	for i, id := range slices.SortedFunc(maps.Keys(d.unclear), backends.ID.Compare) {
		query := c.queryAlone
		if i >= mostAlone {
			query = c.queryCertain
		}
		j, err := query(ctx, d.unclear[id], counts)
		if err != nil {
			return nil, err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// queryAgain asks once more for jobs that were in one half of a listing only: they changed
// between the two commands, or were forgotten. Those that are missing again are unclear:
// a user's text may cause that each time.
func (c *Client) queryAgain(ctx context.Context, missing []anchor, counts *cluster) (*details, error) {
	late := &details{unclear: map[backends.ID]anchor{}}
	for some := range slices.Chunk(missing, atOnce) {
		ids := reconcile.IDs(some, func(a anchor) backends.ID { return backends.ID{Job: a.id.Job} })
		slices.SortFunc(ids, backends.ID.Compare)
		listed, err := c.list(ctx, lava, names(slices.Compact(ids)))
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(listed.records) == "" {
			continue // they are forgotten
		}
		d, err := c.joinListing(ctx, listed, counts)
		if err != nil {
			return nil, err
		}
		late.jobs = append(late.jobs, d.jobs...)
		maps.Copy(late.unclear, d.unclear)
		for _, a := range d.missing {
			late.addUnclear(a, errUnclear)
		}
	}
	return late, nil
}

// queryAlone asks for one unclear job by itself, so that no other job's text is in its
// lines. nil: it is forgotten.
func (c *Client) queryAlone(ctx context.Context, a anchor, counts *cluster) (*listedJob, error) {
	for _, id := range a.ids() {
		out, err := c.bjobs(ctx, []string{id.String()}, "-UF")
		if crashed(err) {
			a.why = fmt.Errorf("%w: bjobs -UF dies of one of its texts", errUnclear)
			continue
		}
		if err != nil {
			return nil, err
		}
		j, err := parseDetail(a, []byte(out), counts)
		if err == nil {
			return j, nil
		}
		if strings.TrimSpace(out) != "" {
			a.why = err
		}
	}
	return c.queryHosts(ctx, a, counts)
}

// queryCertain returns what is certain of an unclear job. It runs no command for one without
// slots.
func (c *Client) queryCertain(ctx context.Context, a anchor, counts *cluster) (*listedJob, error) {
	switch a.stat {
	case "PEND", "PSUSP", "DONE", "EXIT", "ERROR", "WAIT":
		return certainJob(a, a.stat, a.queue, nil, counts)
	}
	return c.queryHosts(ctx, a, counts)
}

// queryHosts asks for a job's hosts, and leaves the rest vague. nil: it is forgotten.
func (c *Client) queryHosts(ctx context.Context, a anchor, counts *cluster) (*listedJob, error) {
	for _, id := range a.ids() {
		out, err := c.bjobs(ctx, []string{id.String()}, "-w")
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(out) != "" {
			a.id = id
			return vagueJob(a, []byte(out), counts)
		}
	}
	return nil, nil
}
