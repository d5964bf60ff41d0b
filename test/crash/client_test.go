package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
)

// requested is what a client requested, whether it was done or not: an act without an
// answer may have been done.
type requested struct {
	kill, requeue bool
	unstarted     bool // a kill was acknowledged while the job was held: it never begins
	noted, noting int  // the last setting that was acknowledged, and the last one that was sent
}

// job is a job whose submission was acknowledged.
type job struct {
	id     backends.ID
	file   string
	spec   *backends.Spec
	parent backends.ID // it waits for its end; zero: none
	requested
}

// book records all that was acknowledged to the clients.
type book struct {
	mu      sync.Mutex
	changed *sync.Cond
	jobs    map[backends.ID]*job
	maybe   map[string]bool // names of submissions of which asub failed: there may be one job of each
	taken   int             // jobs that clients submit or have submitted
	goal    int             // jobs that may be submitted by now
	total   int             // that will be
	calling int             // submissions in progress
	errs    []error
	over    bool
}

func newBook(total int) *book {
	b := &book{jobs: map[backends.ID]*job{}, maybe: map[string]bool{}, total: total}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// acquire waits until a client may submit n more jobs; false: there are enough.
func (b *book) acquire(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.taken >= b.goal && b.goal < b.total && !b.over {
		b.changed.Wait()
	}
	if b.taken >= b.total || b.over {
		return false
	}
	b.taken += n
	b.changed.Broadcast()
	return true
}

// allow lets clients submit so many jobs in all.
func (b *book) allow(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.goal = max(b.goal, n)
	b.changed.Broadcast()
}

// during counts a submission while it is in progress.
func (b *book) during(call func()) {
	b.count(1)
	defer b.count(-1)
	call()
}

func (b *book) count(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calling += n
	b.changed.Broadcast()
}

func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs = append(b.errs, err)
	b.over = true
	b.changed.Broadcast()
}

func (b *book) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}

// record records a submission that was acknowledged.
func (b *book) record(id backends.ID, spec *backends.Spec, file string, parent backends.ID) []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if spec.Array == nil {
		b.jobs[id] = &job{id: id, spec: spec, file: file, parent: parent}
		return []*job{b.jobs[id]}
	}
	var all []*job
	for _, index := range spec.Array.Indices {
		element := backends.ID{Job: id.Job, Index: index}
		b.jobs[element] = &job{id: element, spec: spec, file: file + "." + strconv.Itoa(index), parent: parent}
		all = append(all, b.jobs[element])
	}
	return all
}

// client is a client that submits jobs.
type client struct {
	name  string
	f     *farm
	q     *miniq.Client
	book  *book
	dice  *rand.Rand
	n     int
	plans []*plan // acts that are still to be done
	last  backends.ID
}

// plan is an act that a client will do on a job of its own.
type plan struct {
	job  *job
	next func(ctx context.Context, p *plan, now *backends.Job) (done bool)
}

// run submits jobs until there are enough, then does the acts that are left.
func (c *client) run(ctx context.Context) error {
	for {
		kind := c.dice.IntN(100)
		n := 1
		switch {
		case kind < 15:
			n = 3 + c.dice.IntN(10)
		case kind < 25:
			n = 2 + c.dice.IntN(7)
		}
		if !c.book.acquire(n) {
			break
		}
		if err := c.submit(ctx, kind, n); err != nil {
			return err
		}
		if err := c.act(ctx); err != nil {
			return err
		}
	}
	for len(c.plans) > 0 {
		if err := c.act(ctx); err != nil {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// spec returns a job that writes into a file of its own and ends with one of several
// statuses.
func (c *client) spec(milliseconds int) (spec *backends.Spec, file string) {
	c.n++
	name := fmt.Sprintf("%s-%d", c.name, c.n)
	file = filepath.Join(c.f.jobs, name)
	status := max(0, c.dice.IntN(6)-2) // half of them 0
	return &backends.Spec{
		Name: name, Slots: 1, Dir: c.f.jobs, Stdout: "/dev/null", Env: []string{"PATH=/usr/bin:/bin"},
		Command: []string{filepath.Join(c.f.bin, "worker"), file, strconv.Itoa(status), strconv.Itoa(milliseconds)},
	}, file
}

// submit submits a job, a batch or an array, of a kind.
func (c *client) submit(ctx context.Context, kind, n int) error {
	quick := c.dice.IntN(120)
	var specs []*backends.Spec
	var files []string
	add := func(milliseconds int) *backends.Spec {
		spec, file := c.spec(milliseconds)
		specs, files = append(specs, spec), append(files, file)
		return spec
	}
	var parent backends.ID
	var next func(context.Context, *plan, *backends.Job) bool
	switch {
	case kind < 15: // a batch
		for range n {
			add(quick)
		}
	case kind < 25:
		a := &backends.Array{Limit: c.dice.IntN(4)}
		for i := range n {
			a.Indices = append(a.Indices, 1+2*i)
		}
		add(quick).Array = a
	case kind < 32:
		add(quick).Rerunnable = true
	case kind < 40:
		if spec := add(quick); c.last.Job > 0 {
			parent = c.last
			spec.After = "ended(" + parent.String() + ")"
		}
	case kind < 46:
		add(quick).BeginTime = time.Now().Add(time.Duration(c.dice.IntN(2500)) * time.Millisecond)
	case kind < 52:
		add(700).Rerunnable = kind%2 == 0
		next = c.suspend
	case kind < 58:
		add(700)
		next = c.requeue
	case kind < 63:
		add(1000)
		next = c.kill
	case kind < 68:
		add(quick).Hold = true
		next = c.killHeld
	case kind < 73:
		add(quick).Hold = true
		next = c.release
	case kind < 80:
		add(500)
		next = c.note
	default:
		add(quick)
	}
	ids, err := c.submitRetrying(ctx, specs)
	if err != nil {
		return err
	}
	for i, id := range ids {
		for _, j := range c.book.record(id, specs[i], files[i], parent) {
			if next != nil {
				c.plans = append(c.plans, &plan{j, next})
			}
		}
		if specs[i].Array == nil {
			c.last = id
		}
	}
	return nil
}

// submitRetrying submits jobs under one key until that is acknowledged.
func (c *client) submitRetrying(ctx context.Context, specs []*backends.Spec) ([]backends.ID, error) {
	list := make([]backends.Spec, len(specs))
	for i, s := range specs {
		list[i] = *s
	}
	for {
		var results []backends.Submitted
		c.book.during(func() { results = c.q.SubmitOnce(ctx, specs[0].Name, list) })
		ids, again := make([]backends.ID, len(results)), false
		for i, r := range results {
			if r.Err != nil && !errors.Is(r.Err, backends.ErrUnreachable) || ctx.Err() != nil {
				return nil, fmt.Errorf("submit %s: %w", specs[i].Name, errors.Join(r.Err, ctx.Err()))
			}
			ids[i], again = r.ID, again || r.Err != nil
		}
		if !again {
			return ids, nil
		}
	}
}

// act takes the next step of each plan.
func (c *client) act(ctx context.Context) error {
	if len(c.plans) == 0 {
		return ctx.Err()
	}
	ids := make([]backends.ID, len(c.plans))
	for i, p := range c.plans {
		ids[i] = p.job.id
	}
	jobs, err := c.q.Jobs(ctx, ids)
	if err != nil {
		if errors.Is(err, backends.ErrUnreachable) && ctx.Err() == nil {
			return nil // the next time
		}
		return err
	}
	now := make(map[backends.ID]*backends.Job, len(jobs))
	for i := range jobs {
		now[jobs[i].ID] = &jobs[i]
	}
	var left []*plan
	for _, p := range c.plans {
		j := now[p.job.id]
		if j == nil {
			return fmt.Errorf("job %v was acknowledged, and is not known", p.job.id)
		}
		if !j.State.Ended() && !p.next(ctx, p, j) {
			left = append(left, p)
		}
	}
	c.plans = left
	return nil
}

// over reports whether an act is acknowledged, or can't be done any more.
func over(err error) bool { return err == nil || !errors.Is(err, backends.ErrUnreachable) }

func (c *client) mark(set func()) {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	set()
}

func (c *client) suspend(ctx context.Context, p *plan, now *backends.Job) bool {
	switch {
	case now.State == backends.Suspended: // by an act without an answer
		p.next = c.resume
	case now.State == backends.Running && over(c.q.Suspend(ctx, []backends.Act{{ID: now.ID}}).First()):
		p.next = c.resume
	}
	return false
}

func (c *client) resume(ctx context.Context, _ *plan, now *backends.Job) bool {
	return over(c.q.Resume(ctx, []backends.ID{now.ID}).First())
}

func (c *client) requeue(ctx context.Context, p *plan, now *backends.Job) bool {
	if now.State != backends.Running {
		return false
	}
	c.mark(func() { p.job.requeue = true })
	save := []backends.Checkpoint{{}, {Signal: "SIGUSR1", Wait: time.Second}, {Command: "/bin/true", Wait: time.Second}}[c.dice.IntN(3)]
	return over(c.q.Requeue(ctx, []backends.Act{{ID: now.ID, Started: now.Started, Save: save}}).First())
}

func (c *client) kill(ctx context.Context, p *plan, now *backends.Job) bool {
	if now.State != backends.Running {
		return false
	}
	c.mark(func() { p.job.kill = true })
	return over(c.q.Kill(ctx, []backends.ID{now.ID}).First())
}

func (c *client) killHeld(ctx context.Context, p *plan, now *backends.Job) bool {
	err := c.q.Kill(ctx, []backends.ID{now.ID}).First()
	c.mark(func() { p.job.kill, p.job.unstarted = true, true })
	return over(err)
}

func (c *client) release(ctx context.Context, _ *plan, now *backends.Job) bool {
	return now.State != backends.Held || over(c.q.Release(ctx, []backends.ID{now.ID}).First())
}

// noteKey is the setting that note counts up, beside a file of the same name.
const noteKey = "count"

func (c *client) note(ctx context.Context, p *plan, now *backends.Job) bool {
	const most = 6
	n := p.job.noted + 1
	c.mark(func() { p.job.noting = n })
	able := c.q.Abilities()
	err := able.Attach(ctx, now.ID, backends.Attachment{Name: noteKey, Data: []byte(strconv.Itoa(n))})
	if err == nil {
		err = able.Set(ctx, now.ID, noteKey, strconv.Itoa(n))
	}
	if err == nil {
		c.mark(func() { p.job.noted = n })
	}
	return over(err) && err != nil || n == most
}

var submittedLine = regexp.MustCompile(`(?m)^Job <(\d+)>`)

// runAsub is a client that calls asub, one process a job, as a user's script does:
// a call that fails is made again, under another name.
func (c *client) runAsub(ctx context.Context) error {
	for c.book.acquire(1) {
		for {
			spec, file := c.spec(c.dice.IntN(120))
			args := append([]string{"-J", spec.Name, "-o", "/dev/null"}, spec.Command...)
			cmd := exec.CommandContext(ctx, filepath.Join(c.f.bin, "asub"), args...)
			cmd.Dir, cmd.Env = c.f.jobs, os.Environ()
			var text []byte
			var err error
			c.book.during(func() { text, err = cmd.Output() })
			if m := submittedLine.FindSubmatch(text); m != nil {
				id, err := backends.ParseID(string(m[1]))
				if err != nil {
					return err
				}
				c.book.record(id, spec, file, backends.ID{})
				break
			}
			var exit *exec.ExitError
			if ctx.Err() != nil || !errors.As(err, &exit) {
				return fmt.Errorf("asub printed %q and no job: %w", text, errors.Join(err, ctx.Err()))
			}
			const tryAgain = 75
			if exit.ExitCode() != tryAgain {
				return fmt.Errorf("asub ended with status %d, want %d for a queue that can't be reached: %s", exit.ExitCode(), tryAgain, exit.Stderr)
			}
			c.mark(func() { c.book.maybe[spec.Name] = true })
		}
	}
	return nil
}
