package slurm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Slurm resumes a job onto full hosts. If another job has got its cores since, Slurm no
// longer counts it there: slurmctld logs "job overflow" and starts others beside it
// (22.05). So a job is resumed when all of its cores are free, and while a reservation
// keeps other jobs from starting on its hosts. Until then placeholders keep what comes
// free: jobs of the engine's that hold what they can get of its hosts, and end before
// it is resumed.
const (
	placeholderName  = "allotment-placeholder"
	placeholderLimit = 5 * time.Minute // if the engine does not end it
	// reservationPrefix begins the names of the reservations. They end by themselves after a minute,
	// the shortest time that there is.
	reservationPrefix = "allotment-resume-"
	// resumeWait is how long Resume waits for free slots; Reconcile handles the rest.
	resumeWait = 3 * time.Second
	// placeholderWait is how long placeholders may take to be gone.
	placeholderWait = 10 * time.Second
)

// Resume resumes suspended jobs: at once where their slots are free, else when they
// are.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	p, b := c.newBatch(ctx, ids, func(it *item) error {
		if j := it.Job; j.State != backends.Suspended && j.State != backends.Running {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	suspended := b.Where(func(it *item) bool { return it.Job.State == backends.Suspended })
	c.write(ctx, suspended, func(it *item) []string {
		if it.Job.Resuming {
			return nil
		}
		it.Job.record.resumed, it.Job.record.until = p.at, time.Time{}
		return []string{it.Job.recordChange()}
	})
	if suspended = suspended.Open(); len(suspended) == 0 {
		return b.Errors()
	}
	reconcile.Pace{First: 50 * time.Millisecond, Most: 300 * time.Millisecond, Limit: resumeWait}.Poll(ctx, func() bool { // Reconcile goes on with it
		left, err := c.advanceResumes(ctx)
		if err != nil {
			suspended.Fail(err)
		}
		return err != nil || left == 0
	})
	return b.Errors()
}

// reconcile does what is due by itself: jobs that have saved themselves are requeued,
// requeued jobs get their begin times, suspended
// ones whose time has come are resumed, and so are those whose placeholders run.
func (c *Client) reconcile(ctx context.Context) error {
	p, err := c.readSnapshot(ctx, nil)
	if err != nil {
		return err
	}
	if p.idle() {
		c.latest.Store(p, p.taken, p.commands)
		return nil
	}
	if c.finishSaves(ctx, p) {
		if p, err = c.readSnapshot(ctx, nil); err != nil {
			return err
		}
	}
	c.endDelays(ctx, p)
	c.releaseDummies(ctx, p)
	var due []*listedJob
	for _, j := range p.jobs {
		if reconcile.Due(&j.Job, j.record.until, p.at) {
			j.record.resumed = p.at
			due = append(due, j)
		}
	}
	c.writeRecords(ctx, due)
	_, err = c.advanceResumes(ctx)
	return err
}

// idle reports whether there is nothing to reconcile.
func (p *snapshot) idle() bool {
	return !slices.ContainsFunc(p.jobs, func(j *listedJob) bool {
		return j.returning || j.late(p.at) || !j.State.Ended() && (j.State == backends.Suspended || j.record.delayed || j.holdsFor != (backends.ID{}) || j.awaitsRelease())
	})
}

// advanceResumes takes each suspended job that is to be resumed one step further, and returns
// how many wait for slots that may be free.
func (c *Client) advanceResumes(ctx context.Context) (left int, err error) {
	p, err := c.readSnapshot(ctx, nil)
	if err != nil {
		return 0, err
	}
	placeholders := map[backends.ID][]*listedJob{}
	var useless, held []backends.ID
	var resuming []*listedJob
	for _, j := range p.jobs {
		switch {
		case j.State == backends.Suspended && j.Resuming:
			resuming = append(resuming, j)
		case j.holdsFor == (backends.ID{}) || j.State.Ended() || j.Ending:
		default:
			suspended, err := reconcile.One(p.jobs, j.holdsFor)
			if err != nil || suspended.State != backends.Suspended || !suspended.Resuming {
				useless = append(useless, j.ID)
				continue
			}
			placeholders[suspended.ID] = append(placeholders[suspended.ID], j)
			if j.State == backends.Held {
				held = append(held, j.ID)
			}
		}
	}
	c.cancel(ctx, useless) // one that is left is found again
	if len(resuming) == 0 || p.rankErr != nil {
		return 0, nil // without ranks a placeholder would keep slots from no job
	}
	c.releasePlaceholders(ctx, p, held) // submitted, and not released yet
	details, err := c.allDetails(ctx)
	if err != nil {
		return 0, err
	}
	for _, j := range resuming {
		if j.fits(details, placeholders[j.ID]) {
			if err := c.resumeReserved(ctx, j, placeholders[j.ID]); err != nil {
				left++ // in the next step: its placeholders keep its place
			}
			continue
		}
		for _, at := range j.Hosts {
			if n := missing(details, j, placeholders[j.ID], at); n > 0 {
				c.submitPlaceholder(ctx, p, j, backends.Placement{Host: at.Host, Slots: n})
			}
		}
	}
	return left, nil
}

func (c *Client) cancel(ctx context.Context, ids []backends.ID) {
	if len(ids) > 0 {
		_, _ = c.run(ctx, nil, append([]string{"scancel", "--quiet"}, names(ids)...)...)
	}
}

func (c *Client) allDetails(ctx context.Context) (map[backends.ID]detail, error) {
	out, err := c.run(ctx, nil, "squeue", "--json")
	if err != nil {
		return nil, err
	}
	return parseJSON(out)
}

// fits reports whether all of a suspended job's cores are free, or its placeholders'.
func (j *listedJob) fits(details map[backends.ID]detail, placeholders []*listedJob) bool {
	needs, free := map[core]int{}, map[core]int{}
	for c := range details[j.ID].cores {
		needs[c], free[c] = 1, 1
	}
	for id, d := range details {
		if d.holds && id != j.ID && !slices.ContainsFunc(placeholders, func(placeholder *listedJob) bool { return placeholder.ID == id }) {
			for c := range d.cores {
				free[c]--
			}
		}
	}
	return len(needs) > 0 && reconcile.Fits(needs, free)
}

// missing returns how many slots of a host still need placeholders: those of the job
// that no placeholder has, less what is asked for already.
func missing(details map[backends.ID]detail, j *listedJob, placeholders []*listedJob, at backends.Placement) int {
	covered, asked := map[core]bool{}, 0
	for _, placeholder := range placeholders {
		if placeholder.State == backends.Running {
			maps.Copy(covered, details[placeholder.ID].cores)
		} else if slices.Contains(placeholder.hosts(), at.Host) {
			asked += placeholder.Slots
		}
	}
	all, left := 0, 0
	for c := range details[j.ID].cores {
		if c.host == at.Host {
			all++
			if !covered[c] {
				left++
			}
		}
	}
	if all == 0 {
		return 0
	}
	return min((left*at.Slots+all-1)/all-asked, at.Slots)
}

// resumeReserved resumes a job, under a reservation of its hosts, if it still fits.
func (c *Client) resumeReserved(ctx context.Context, j *listedJob, placeholders []*listedJob) (err error) {
	var hosts []string
	for _, at := range j.Hosts {
		hosts = append(hosts, at.Host)
	}
	reservation := reservationPrefix + name(j.ID)
	_, err = c.run(ctx, nil, "scontrol", "create", "reservation", "ReservationName="+reservation, "Nodes="+strings.Join(hosts, ","),
		"StartTime=now", "Duration=1", "Users=root", "Flags=IGNORE_JOBS,OVERLAP")
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(c.config.Timeout))
		defer cancel()
		_, _ = c.run(ctx, nil, "scontrol", "delete", "ReservationName="+reservation) // else it ends by itself
	}()
	c.cancel(ctx, reconcile.Of(placeholders).IDs())
	fits := false
	reconcile.Pace{First: 10 * time.Millisecond, Most: 100 * time.Millisecond, Limit: placeholderWait}.Poll(ctx, func() bool {
		var details map[backends.ID]detail
		details, err = c.allDetails(ctx)
		fits = err == nil && j.fits(details, nil)
		return fits || err != nil || len(placeholders) == 0
	})
	if !fits {
		return cmp.Or(err, fmt.Errorf("job %v: others are on its cores", j.ID))
	}
	if err := c.sendRequests(ctx, []string{"resume " + name(j.ID)}).First(); err != nil {
		return err
	}
	j.record.resumed, j.record.ranked, j.record.stop = time.Time{}, false, false
	return c.writeRecords(ctx, []*listedJob{j}).First()
}

// submitPlaceholder submits a placeholder. What fails is tried again in the next cycle.
func (c *Client) submitPlaceholder(ctx context.Context, p *snapshot, j *listedJob, at backends.Placement) {
	id, err := c.submitOwn(ctx, placeholderLimit, "--job-name="+placeholderName, "--comment="+placeholderComment(j.ID),
		"--partition="+j.Queue, "--nodelist="+at.Host, "--cpus-per-task="+strconv.Itoa(at.Slots))
	if err == nil {
		c.releasePlaceholders(ctx, p, []backends.ID{id})
	}
}

// submitOwn submits a job of the engine's own that does nothing, on one host. It is held
// until it has its rank. Its environment is its own: for --export=NONE a login shell
// would be run on its host first (22.05).
func (c *Client) submitOwn(ctx context.Context, limit time.Duration, options ...string) (backends.ID, error) {
	seconds := int64((limit + time.Second - 1) / time.Second)
	out, _, err := c.sbatch(ctx, &submission{
		argv: append([]string{
			"sbatch", "--parsable", "--hold", "--nodes=1-1", "--ntasks=1", "--mem=1M", "--time=" + bsub.FormatMinutes(limit),
			"--no-requeue", "--chdir=/", "--output=/dev/null",
		}, options...),
		script: fmt.Appendf(nil, "#!/bin/sh\nexec sleep %d\n", seconds),
		env:    []byte("PATH=/usr/bin:/bin\x00"),
	})
	if err != nil {
		return backends.ID{}, err
	}
	return parseSubmitted(out)
}

// releasePlaceholders ranks and releases placeholders, which are held until then.
func (c *Client) releasePlaceholders(ctx context.Context, p *snapshot, ids []backends.ID) {
	var requests []string
	for _, id := range ids {
		requests = append(requests, p.releaseRequests(id, backends.At(backends.LevelPlaceholder, backends.DefaultValue))...)
	}
	c.sendRequests(ctx, requests)
}

// releaseRequests returns the requests that rank and release a job of the engine's own.
func (p *snapshot) releaseRequests(id backends.ID, rank backends.Priority) []string {
	return []string{fmt.Sprintf("update JobId=%s SiteFactor=%d", name(id), p.scale.SiteFactor(rank)), "release " + name(id)}
}

// hosts is where a placeholder is, or is to be.
func (j *listedJob) hosts() []string {
	if len(j.nodes) > 0 {
		return j.nodes
	}
	return j.Asked
}
