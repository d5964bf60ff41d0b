package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/mail"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// errStopping refuses a request that comes while the daemon stops.
var errStopping = fmt.Errorf("%w: miniqd is stopping", backends.ErrUnreachable)

// handle answers one request. An error means that the client is lost.
func (d *daemon) handle(c *connection, req *miniq.Request) error {
	switch req.Op {
	case miniq.OpSnapshot, miniq.OpJobs, miniq.OpWait, miniq.OpRecord, miniq.OpFile, miniq.OpQueues, miniq.OpStatus, miniq.OpStop, miniq.OpCompact:
	default:
		if err := d.awaitRate(c, req); err != nil {
			return c.answer(miniq.Response{Error: miniq.ToError(err)})
		}
	}
	switch req.Op {
	case miniq.OpSnapshot:
		return d.listQueue(c, req)
	case miniq.OpJobs:
		return d.jobs(c, req)
	case miniq.OpWait:
		return d.wait(c, req)
	case miniq.OpRecord:
		return d.record(c, req)
	case miniq.OpFile:
		return d.file(c, req)
	case miniq.OpNote:
		return d.note(c, req)
	case miniq.OpQueues:
		return d.queues(c)
	case miniq.OpSignal:
		return d.signal(c, req)
	case miniq.OpStatus:
		return d.status(c)
	case miniq.OpStop:
		return d.stop(c, req)
	case miniq.OpCompact:
		return d.compactNow(c, req)
	case miniq.OpSubmit:
		return d.submit(c, req)
	case miniq.OpPlace:
		return d.answerDummies(c, req)
	case miniq.OpReopen:
		return d.reopen(c, req)
	default:
		return d.act(c, req)
	}
}

// act answers a request that does one thing to each of a list of jobs.
func (d *daemon) act(c *connection, req *miniq.Request) error {
	event, err := eventOf(c.by, req)
	if err == nil {
		err = checkRepeats(req)
	}
	if modify, ok := event.(manager.Modify); ok && err == nil && modify.Change.After != nil {
		modify.Past, err = d.pastEnds(c, []string{*modify.Change.After})
		event = modify
	}
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	result, err := d.ask(input{event: event})
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	if d.isLimited(c) {
		d.rates.addChanges(time.Now(), c.uid, len(result.Errors))
	}
	errs := make([]*miniq.Error, len(result.Errors))
	for i, err := range result.Errors {
		errs[i] = miniq.ToError(err)
	}
	return c.answer(miniq.Response{Errors: errs})
}

// maxRepeats is how often a request may name one job, or an array, which stands
// for all its elements.
const (
	maxRepeats = 100
	allRepeats = 10_000 // of all jobs that it names again
)

func checkRepeats(req *miniq.Request) error {
	named, again := make(map[backends.ID]int), 0
	for id := range req.Named() {
		if named[id]++; named[id] > 1 {
			again++
		}
		if named[id] > maxRepeats {
			return fmt.Errorf("the request names job %v more than %d times", id, maxRepeats)
		}
		if again > allRepeats {
			return fmt.Errorf("the request names jobs again more than %d times", allRepeats)
		}
	}
	return nil
}

// eventOf returns the manager's event for a request on jobs.
func eventOf(by manager.By, req *miniq.Request) (manager.Event, error) {
	switch req.Op {
	case miniq.OpKill:
		if req.Now {
			return manager.KillNow{By: by, IDs: req.IDs}, nil
		}
		return manager.Kill{By: by, IDs: req.IDs}, nil
	case miniq.OpRequeue:
		return manager.Requeue{By: by, Acts: req.Acts}, nil
	case miniq.OpSuspend:
		return manager.Suspend{By: by, Acts: req.Acts}, nil
	case miniq.OpResume:
		return manager.Resume{By: by, IDs: req.IDs}, nil
	case miniq.OpHold:
		return manager.Hold{By: by, IDs: req.IDs}, nil
	case miniq.OpRelease:
		return manager.Release{By: by, IDs: req.IDs}, nil
	case miniq.OpRank:
		return manager.SetPriority{By: by, Rankings: req.Rankings}, nil
	case miniq.OpPin:
		return manager.Pin{By: by, Pins: req.Pins}, nil
	case miniq.OpHoldUntil:
		return manager.HoldUntil{By: by, Holds: req.Holds}, nil
	case miniq.OpReserve:
		return manager.Reserve{By: by, Reservations: req.Reservations}, nil
	case miniq.OpGuarantee:
		return manager.Guarantee{By: by, Guaranteed: req.Guaranteed}, nil
	case miniq.OpMove:
		return manager.Move{By: by, IDs: req.IDs, Queue: req.Queue}, nil
	case miniq.OpReorder:
		return manager.Reorder{By: by, IDs: req.IDs, Position: req.Position, Bottom: req.Bottom}, nil
	case miniq.OpHosts:
		return manager.CloseHosts{By: by, Names: req.Hosts, Open: req.OpenHosts, Reason: req.Reason}, nil
	case miniq.OpModify:
		if req.Change == nil {
			return nil, errors.New("the request names no change")
		}
		return manager.Modify{By: by, IDs: req.IDs, Change: *req.Change}, nil
	default:
		return nil, fmt.Errorf("%w: request %q is not known here", backends.ErrUnable, req.Op)
	}
}

// ask hands an event to the loop and waits for its result. Its journal entry is encoded
// here: the loop does nothing that other goroutines can do.
func (d *daemon) ask(in input) (manager.Result, error) {
	type outcome struct {
		result manager.Result
		err    error
	}
	buffer, _ := d.contents.Get().(*[]byte)
	if buffer == nil {
		buffer = new([]byte)
	}
	var err error
	if in.content, err = in.appendContent((*buffer)[:0]); err != nil {
		return manager.Result{}, err
	}
	if cap(in.content) <= keptContent {
		*buffer = in.content
		defer d.contents.Put(buffer) // the loop has written it, or has ended
	}
	got := make(chan outcome, 1)
	in.reply = func(r manager.Result, err error) { got <- outcome{r, err} }
	d.post(in)
	select {
	case o := <-got:
		return o.result, o.err
	case <-d.conns.closed():
		select {
		case o := <-got: // it was in time
			return o.result, o.err
		default:
			return manager.Result{}, errStopping
		}
	}
}

const keptContent = 64 << 10 // bytes of an entry whose memory another one uses

// inLoop runs something in the loop and waits for it; false: there is no loop any more.
func (d *daemon) inLoop(do func()) bool {
	done := make(chan struct{})
	d.post(input{do: func() { do(); close(done) }})
	select {
	case <-done:
		return true
	case <-d.conns.closed():
		select {
		case <-done: // it was in time: what it did may have been the last thing
			return true
		default:
			return false
		}
	}
}

func (c *connection) answerStopping() error {
	return c.answer(miniq.Response{Error: miniq.ToError(errStopping)})
}

// longestWait bounds a wait; clients ask again.
const longestWait = time.Minute

func (d *daemon) wait(c *connection, req *miniq.Request) error {
	if len(req.IDs) > perPart {
		h := &holder{uid: c.uid, n: int64(len(req.IDs)), cutLate: func(time.Time) {}}
		if !d.awaits.acquire(h, d.conns.closed()) {
			return c.answerStopping()
		}
		defer d.awaits.release(h)
	}
	finished := make(chan struct{})
	w := &waiter{after: req.After, reply: func() { close(finished) }}
	ok := d.inLoop(func() {
		if len(req.IDs) > 0 {
			w.pending = d.unended(req.IDs)
		}
		if !d.tellIfOver(w) {
			d.waiters[w] = true
		}
	})
	if !ok {
		return c.answerStopping()
	}
	timer := time.NewTimer(min(max(req.Timeout, 0), longestWait))
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	case <-d.conns.closed():
		return c.answerStopping()
	}
	return d.sendJobs(c, req.IDs, func() { delete(d.waiters, w) })
}

// Limits of one job's Spec, in bytes.
const (
	maxName = 64 << 10
	maxBody = 8 << 20
	maxKey  = 256
	maxPath = 4 << 10 // the kernel takes no longer one
)

func checkSpec(s *backends.Spec, b *body) error {
	switch {
	case len(s.Name) > maxName || len(s.Description) > maxName || len(s.Project) > maxName || len(s.After) > maxName:
		return fmt.Errorf("a job's name, project, description or dependency is longer than %d bytes", maxName)
	case b.size() > maxBody:
		return fmt.Errorf("a job's command, script and environment are longer than %d bytes", maxBody)
	case len(s.Notify) > maxName || strings.ContainsRune(s.Notify, 0):
		return fmt.Errorf("a job's notification command is longer than %d bytes, or holds a NUL byte", maxName)
	case len(b.Command) == 0 && b.Script == nil:
		return errors.New("a job without a command")
	case slices.ContainsFunc([]string{b.Dir, b.Stdin, b.Stdout, b.Stderr, b.Terminal}, func(path string) bool { return len(backends.Unescape(path)) > maxPath }):
		return fmt.Errorf("a job's directory or a file that it names has a path of more than %d bytes", maxPath)
	case b.Umask > 0o777:
		return fmt.Errorf("umask %#o: want 0 to 0777", b.Umask)
	}
	if s.Group != "" {
		if err := backends.CheckGroup(s.Group); err != nil {
			return err
		}
	}
	if s.Mail.To != "" {
		if _, err := mail.Addresses([]string{s.Mail.To}); err != nil {
			return err
		}
	}
	for _, list := range [][]string{b.Command, b.Env, {b.Dir, b.Stdin, b.Stdout, b.Stderr, b.PreExec, b.PostExec}} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) {
				return errors.New("a job's command, environment or paths hold a NUL byte")
			}
		}
	}
	return nil
}

func checkKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("a submission's key is longer than %d bytes", maxKey)
	}
	return nil
}

func (d *daemon) submit(c *connection, req *miniq.Request) error {
	if err := checkKey(req.Key); err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	results := make([]miniq.Submission, len(req.Specs))
	var specs []backends.Spec
	var bodies []body
	var places []int
	var sizes []int64
	var conditions []string
	as, err := d.runsAs(c)
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	for i := range req.Specs {
		spec := req.Specs[i].Spec
		b := splitBody(&spec)
		if b.Dir == "" {
			b.Dir = "/"
		}
		if err := checkSpec(&spec, &b); err != nil {
			results[i].Error = miniq.ToError(err)
			continue
		}
		b.As = as
		specs, bodies, places, sizes = append(specs, spec), append(bodies, b), append(places, i), append(sizes, int64(b.size()))
		if spec.After != "" {
			conditions = append(conditions, spec.After)
		}
	}
	if len(specs) > 0 {
		past, err := d.pastEnds(c, conditions)
		if err != nil {
			return c.answer(miniq.Response{Error: miniq.ToError(err)})
		}
		over, err := d.admit(c, len(specs))
		if err != nil {
			return c.answer(miniq.Response{Error: miniq.ToError(err)})
		}
		defer over()
		event := manager.Submit{By: c.by, Key: req.Key, Specs: specs, Next: d.mayBeNext(c, specs, bodies), Bytes: sizes, Past: past}
		result, err := d.ask(input{event: event, bodies: bodies})
		if err != nil {
			return c.answer(miniq.Response{Error: miniq.ToError(err)})
		}
		for i, s := range result.Submitted {
			results[places[i]] = miniq.Submission{ID: s.ID, Queue: s.Queue, Error: miniq.ToError(s.Err)}
		}
	}
	return c.answer(miniq.Response{Submitted: results})
}

// behindPause is how long a submission waits until earlier ones are written. Its
// client tries again for as long as it likes.
const behindPause = 10 * time.Second

// admit waits until there is memory for a user's new jobs.
func (d *daemon) admit(c *connection, jobs int) (over func(), err error) {
	over, err = d.objects.Admit(behindPause, c.by.User, jobs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", miniq.ErrBusy, err)
	}
	return over, nil
}

func (d *daemon) record(c *connection, req *miniq.Request) error {
	if len(req.IDs) != 1 {
		return c.answer(miniq.Response{Error: miniq.ToError(errors.New("want one job"))})
	}
	var known bool
	var now backends.Spec
	var seq uint64
	var denied error
	var past bool
	ok := d.inLoop(func() {
		now, known = d.m.Spec(req.IDs[0])
		past = len(d.past(req.IDs)) > 0
		denied = mayAccess(c.by, d.m.Jobs(time.Now(), req.IDs), "its record is its owner's to see")
		seq = d.seq
	})
	switch {
	case !ok:
		return c.answerStopping()
	case denied != nil:
		return c.answer(miniq.Response{Error: miniq.ToError(denied)})
	}
	var record *backends.Record
	var err error
	switch {
	case past:
		record, err = d.pastRecord(c.by, req.IDs[0])
	case known:
		ctx, cancel := context.WithTimeout(context.Background(), answerPause)
		defer cancel()
		record, err = d.readObject(ctx, req.IDs[0], seq)
	default:
		err = fmt.Errorf("job %v: %w", req.IDs[0], backends.ErrUnknownJob)
	}
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	d.addUse(req.IDs[0], record)
	record.MapTexts(backends.Escape)
	whole := record.Spec
	b := splitBody(&whole)
	b.Env = nil
	if past {
		now = whole // as it was submitted
	}
	record.Spec = b.join(now)
	return c.answer(miniq.Response{Record: record})
}

func (d *daemon) status(c *connection) error {
	s := miniq.Status{PID: os.Getpid(), Version: d.Version, State: d.state, Socket: miniq.Socket(d.Paths), Since: d.since}
	used := make(map[string]int)
	count := func() {
		s.Pending, s.Ended = d.m.Open(), d.m.Ended()
		for _, r := range d.m.Runs() {
			if r.Stopped {
				continue
			}
			s.Running++
			for _, p := range r.Hosts {
				used[p.Host] += p.Slots
			}
		}
		s.Pending -= s.Running
		for _, h := range d.m.Hosts() {
			s.Hosts = append(s.Hosts, miniq.HostUse{Host: h, Used: used[h.Name]})
		}
	}
	if !d.inLoop(count) {
		return c.answerStopping()
	}
	return c.answer(miniq.Response{Status: &s})
}
