package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/lease/serve"
	"github.com/allotment-hpc/allotment/lease/supply"
	"github.com/allotment-hpc/allotment/split"
)

// supplier submits jobs that bring slots to a manager: as many as it wants (R50).
type supplier struct {
	queue split.Queue
	spec  backends.Spec // of each job, but its name, environment and output
	token string        // of this manager: its jobs and workers have it in their names
	dir   string        // for the jobs' output: all hosts have it
	log   func(string)

	news chan struct{} // something has changed that supply.Decide asks for

	mu     sync.Mutex
	want   int
	joined map[string]struct{} // workers of its jobs that have joined

	// Only used by run.
	state  supply.State
	number int64
	names  map[backends.ID]string // of the jobs' workers
	unsure bool                   // a submission had no answer: there may be jobs that are not known
	told   string                 // the kind of failure that was last said
}

func newSupplier(queue split.Queue, spec backends.Spec, dir string, most int, log func(string)) *supplier {
	return &supplier{
		queue: queue, spec: spec, token: random.Text()[:8], dir: dir, log: log, news: make(chan struct{}, 1),
		joined: map[string]struct{}{}, names: map[backends.ID]string{}, state: supply.State{Most: most},
	}
}

func (s *supplier) nudge() {
	select {
	case s.news <- struct{}{}:
	default: // one that waits is enough
	}
}

// wants notes how many workers more would be of use. It does not wait.
func (s *supplier) wants(n int) {
	s.mu.Lock()
	s.want = n
	s.mu.Unlock()
	s.nudge()
}

// workerJoined notes a worker that has joined. It does not wait.
func (s *supplier) workerJoined(name string) {
	if !strings.HasPrefix(name, s.token+"-") {
		return
	}
	s.mu.Lock()
	if len(s.joined) < 2*s.state.Most { // a stranger's name is of no job
		s.joined[name] = struct{}{}
	}
	s.mu.Unlock()
	s.nudge()
}

// workerName and jobName are of the nth job.
func (s *supplier) workerName(n int64) string { return s.token + "-" + strconv.FormatInt(n, 10) }
func (s *supplier) jobPrefix() string         { return "asplit/serve." + s.token + "/" }

// queryEvery bounds the time between two queries of the jobs.
const queryEvery = time.Minute

// run supplies jobs until the context ends. Then it ends them.
func (s *supplier) run(ctx context.Context) {
	changed := split.WatchQueue(ctx, s.queue)
	queryNext := time.Now()
	for ctx.Err() == nil {
		if !time.Now().Before(queryNext) {
			queryNext = time.Now().Add(queryEvery)
			if s.query(ctx) != nil {
				queryNext = time.Now().Add(time.Second)
			}
		}
		at := s.decide(ctx)
		if at.IsZero() || queryNext.Before(at) {
			at = queryNext
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-s.news:
		case <-changed:
			queryNext = time.Now()
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	s.end()
}

// query asks the queue what became of the jobs.
func (s *supplier) query(ctx context.Context) error {
	if err := s.find(ctx); err != nil || len(s.state.Jobs) == 0 {
		return err
	}
	var ids []backends.ID
	for _, j := range s.state.Jobs {
		ids = append(ids, j.ID)
	}
	found, err := s.queue.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	now := map[backends.ID]*backends.Job{}
	for i := range found {
		now[found[i].ID] = &found[i]
	}
	s.mark()
	s.state.Jobs = slices.DeleteFunc(s.state.Jobs, func(j supply.Job) bool {
		is := now[j.ID]
		if is != nil && !is.State.Ended() {
			return false
		}
		s.forget(j, is)
		return true
	})
	for i := range s.state.Jobs {
		j := &s.state.Jobs[i]
		j.Began = now[j.ID].State == backends.Running || now[j.ID].State == backends.Suspended
	}
	return nil
}

// mark takes over what the manager has said: how many workers are wanted, and which have joined.
func (s *supplier) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Want = s.want
	for i := range s.state.Jobs {
		j := &s.state.Jobs[i]
		if _, here := s.joined[s.names[j.ID]]; here && !j.Joined {
			j.Joined, j.Began = true, true
			s.state.Fruitless = 0
		}
	}
}

// forget drops a job that has ended; is is nil if the queue does not know it any more.
func (s *supplier) forget(j supply.Job, is *backends.Job) {
	name := s.names[j.ID]
	delete(s.names, j.ID)
	s.mu.Lock()
	delete(s.joined, name)
	s.mu.Unlock()
	if j.Joined || !j.Began && is != nil && is.Started.IsZero() { // it was killed while it waited
		return
	}
	s.state.Fruitless++
	s.state.Failed = time.Now()
	if s.state.Fruitless >= supply.Lenient {
		s.say(failsToJoin, fmt.Sprintf("%d jobs in a row ended, and no worker of theirs had joined, the last one job %v: its output is in %s; further ones come one at a time",
			s.state.Fruitless, j.ID, s.output(name)))
	}
}

// Kinds of failures.
const (
	failsToJoin   = "joins"
	failsToSubmit = "submits"
)

// say says what is wrong, once for each kind.
func (s *supplier) say(kind, text string) {
	if kind != s.told {
		s.told = kind
		s.log(text)
	}
}

func (s *supplier) output(worker string) string { return filepath.Join(s.dir, worker+".log") }

// find finds the jobs of submissions that had no answer.
func (s *supplier) find(ctx context.Context) error {
	if !s.unsure {
		return nil
	}
	farm, err := s.queue.Snapshot(ctx, time.Now())
	if err != nil {
		return err
	}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		n, err := strconv.ParseInt(strings.TrimPrefix(j.Name, s.jobPrefix()), 10, 64)
		if _, known := s.names[j.ID]; known || err != nil || n < 1 || n > s.number {
			continue
		}
		s.add(j.ID, n)
	}
	s.unsure = false
	return nil
}

func (s *supplier) add(id backends.ID, n int64) {
	s.names[id] = s.workerName(n)
	s.state.Jobs = append(s.state.Jobs, supply.Job{ID: id})
}

// decide decides what to do and does it. It returns when to decide again if nothing happens.
func (s *supplier) decide(ctx context.Context) time.Time {
	s.mark()
	d := supply.Decide(s.state, time.Now())
	if len(d.Kill) > 0 {
		s.queue.Kill(ctx, d.Kill) // the queue says when they have ended
	}
	if d.Submit > 0 && !s.unsure {
		s.submit(ctx, d.Submit)
		return time.Now().Add(time.Second)
	}
	return d.Wake
}

func (s *supplier) submit(ctx context.Context, n int) {
	specs := make([]backends.Spec, n)
	first := s.number + 1
	for i := range specs {
		s.number++
		one := s.spec
		one.Name = s.jobPrefix() + strconv.FormatInt(s.number, 10)
		one.Env = append(slices.Clone(one.Env), envWorker+"="+s.workerName(s.number))
		one.Stdin, one.Stdout = "", s.output(s.workerName(s.number))
		one.Stderr = one.Stdout
		specs[i] = one
	}
	for i, r := range s.queue.Submit(ctx, specs) {
		switch {
		case r.Err == nil:
			s.add(r.ID, first+int64(i))
			s.state.Refused = 0
		default:
			s.unsure = s.unsure || errors.Is(r.Err, backends.ErrUnreachable)
			s.state.Refused++
			s.state.Failed = time.Now()
			s.say(failsToSubmit, "the queue takes no job for a worker: "+r.Err.Error())
		}
	}
	if s.state.Refused == 0 && s.state.Fruitless == 0 {
		s.told = ""
	}
}

// endTime bounds the wait for the ends of jobs.
const endTime = 30 * time.Second

// end kills the jobs, and returns when they have ended.
func (s *supplier) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	changed := split.WatchQueue(ctx, s.queue)
	for killed := false; ; {
		if err := s.query(ctx); err == nil && len(s.state.Jobs) == 0 {
			return
		}
		var ids []backends.ID
		for _, j := range s.state.Jobs {
			ids = append(ids, j.ID)
		}
		if len(ids) > 0 && !killed {
			killed = true
			for _, err := range s.queue.Kill(ctx, ids) {
				killed = killed && (err == nil || !errors.Is(err, backends.ErrUnreachable))
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.log(fmt.Sprintf("%d jobs of workers may run still: akill ends them", len(s.state.Jobs)))
			return
		}
	}
}

// servePlace is how a manager is reached.
type servePlace struct {
	socket      string
	url, key    string // "": by the socket alone
	certificate []byte
}

// environment is what a job knows of it. dir is its owner's alone, and all hosts must have it.
func (a *servePlace) environment(dir string) (env []string, err error) {
	env = []string{client.EnvSocket + "=" + a.socket}
	if a.url == "" {
		return env, nil
	}
	header := filepath.Join(dir, "header")
	env = append(env, client.EnvURL+"="+a.url, client.EnvHeader+"="+header)
	err = disk.Replace(disk.OS(), header, 0o600, []byte("Authorization: Bearer "+a.key+"\n"))
	if err == nil && a.certificate != nil {
		pem := filepath.Join(dir, "certificate.pem")
		env = append(env, client.EnvCertificate+"="+pem)
		err = disk.Replace(disk.OS(), pem, 0o600, a.certificate)
	}
	return env, err
}

// supply has jobs of the queue bring slots until the context ends. The function that it returns
// waits for their end.
func (p process) supply(ctx context.Context, o *serveOptions, options *serve.Options, place servePlace) (end func(), err error) {
	submitContext, err := p.submitContext()
	if err != nil {
		return nil, err
	}
	spec, err := template(o.jobs, submitContext)
	if err != nil {
		return nil, err
	}
	queue, err := p.openFiltered(ctx, p.stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(submitContext.Dir, ".asplit-serve-*")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory that the hosts see: %w", err), queue.Close())
	}
	env, err := place.environment(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write how jobs reach the manager: %w", err), os.RemoveAll(dir), queue.Close())
	}
	spec.Command, spec.OneHost, spec.Env = o.command, true, append(slices.Clone(spec.Env), env...)
	options.Limits.Milli, options.Limits.Memory = 1000*max(spec.Slots, 1), spec.Memory
	s := newSupplier(queue, spec, dir, options.Limits.Workers, func(text string) { fmt.Fprintln(p.stderr, "asplit:", shell.Printable(text)) })
	options.Want, options.Joined = s.wants, s.workerJoined
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	return func() {
		<-ended
		_ = os.RemoveAll(dir)
		_ = queue.Close()
	}, nil
}
