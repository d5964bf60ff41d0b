// Package leased lets a split run on slots that asplit serve grants (R56): each task is the task of a
// lease, on whichever of the manager's workers has a slot. The slots are given back as tasks end.
package leased

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/random"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/split/task"
)

// Queue is the queue of one split. Its hosts are slots: a task for one is executed by any worker.
type Queue struct {
	client *client.Client
	slots  int
	close  context.CancelFunc
	ended  chan struct{} // the connection has ended
	news   backends.News

	mu   sync.Mutex
	last int64
	jobs map[int64]*job
	done []int64 // jobs that ended, the oldest first
	dirs map[string]bool
	err  error // why the connection ended
}

// job is a task.
type job struct {
	backends.Job
	body    requestBody
	attempt int
	lease   uint64 // 0: none
	killed  bool
}

// request returns the ID of its request.
func (j *job) request() string { return fmt.Sprintf("%d.%d", j.ID.Job, j.attempt) }

// requestBody is a request for a slot with a task.
type requestBody struct {
	ID     string `json:"id"`
	Memory int64  `json:"memory,omitempty"`
	Task   string `json:"task"`
}

// MaxSlots bounds the slots of a split.
const MaxSlots = 10_000

// maxDone bounds the jobs that ended and are remembered.
const maxDone = 4 * MaxSlots

// ErrRefused is wrapped where the manager does not take a holder, or a request.
var ErrRefused = errors.New("asplit serve refuses")

// Open joins the manager of a place as a holder of so many slots at most.
func Open(at client.Place, slots int) (*Queue, error) {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{
		slots: slots, close: cancel, ended: make(chan struct{}), jobs: map[int64]*job{}, dirs: map[string]bool{},
	}
	stranger, err := client.Open(ctx, at)
	if err == nil {
		body := fmt.Sprintf(`{"holder":"asplit-%d-%s","limit":%d}`, os.Getpid(), random.Text()[:8], slots)
		q.client, err = stranger.Join("holders", body)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("join asplit serve: %w", err)
	}
	q.slots = min(slots, q.client.Limit())
	go q.read()
	return q, nil
}

// Close ends the connection: all that it holds or waits for ends with it.
func (q *Queue) Close() error {
	q.close()
	<-q.ended
	return nil
}

// read reads what the manager says until the connection ends.
func (q *Queue) read() {
	defer close(q.ended)
	for {
		var l struct {
			Grant, Lease, Revoke uint64
			Request, Result      string
			Host                 string
		}
		if err := q.client.Next(&l); err != nil {
			q.mu.Lock()
			q.err = fmt.Errorf("asplit serve has ended, or its host is away: %w", err)
			q.news.Tell()
			q.mu.Unlock()
			return
		}
		var again *job
		q.mu.Lock()
		switch j := q.find(l.Request); {
		case j == nil:
		case l.Grant != 0:
			j.lease, j.State, j.Started = l.Grant, backends.Running, time.Now()
			j.Hosts = []backends.Placement{{Host: l.Host, Slots: 1}}
		case l.Lease != 0:
			o, err := task.ParseOutcome(l.Result)
			if err != nil {
				o = task.Outcome{Status: 1}
			}
			q.end(j, o.Status)
		case l.Revoke != 0 && j.killed:
			q.end(j, killedStatus)
		case l.Revoke != 0: // as a queue requeues a job whose host is lost
			j.lease, j.State, j.Hosts, again = 0, backends.Pending, nil, j
			j.attempt++
		}
		q.news.Tell()
		q.mu.Unlock()
		if again != nil {
			q.again(again, l.Revoke)
		}
	}
}

// killedStatus is the exit status of a task that was killed.
const killedStatus = 137

// find returns the job of a request; nil: it has ended, or the request is an earlier one of it. The caller has the lock.
func (q *Queue) find(request string) *job {
	number, _, _ := strings.Cut(request, ".")
	n, err := strconv.ParseInt(number, 10, 64)
	j := q.jobs[n]
	if err != nil || j == nil || j.State.Ended() || j.request() != request {
		return nil
	}
	return j
}

// end ends a job. The caller has the lock.
func (q *Queue) end(j *job, status int) {
	j.State, j.ExitCode, j.Ended = backends.Done, status, time.Now()
	if status != 0 {
		j.State = backends.Exited
	}
	j.body = requestBody{}
	q.done = append(q.done, j.ID.Job)
	if len(q.done) > maxDone {
		delete(q.jobs, q.done[0])
		q.done = q.done[1:]
	}
}

// again requests a slot for a job whose worker has ended.
func (q *Queue) again(j *job, lease uint64) {
	// It may have ended with its worker.
	_ = q.client.Call(http.MethodDelete, "leases/"+strconv.FormatUint(lease, 10), "", nil)
	if err := q.request(j); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.end(j, 1)
		q.news.Tell()
	}
}

// request requests a slot for a job.
func (q *Queue) request(j *job) error {
	q.mu.Lock()
	body := j.body
	body.ID = j.request()
	q.mu.Unlock()
	text, err := json.Marshal(body)
	if err == nil {
		err = q.client.Call(http.MethodPost, "requests", string(text), nil)
	}
	if err != nil {
		return fmt.Errorf("%w a slot: %w", ErrRefused, err)
	}
	return nil
}

// host is the name of a slot.
func host(n int) string { return "slot-" + strconv.Itoa(n) }

// Snapshot returns the slots as hosts, and the jobs.
func (q *Queue) Snapshot(context.Context, time.Time) (*backends.Snapshot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, q.err
	}
	s := new(backends.Snapshot)
	for n := range q.slots {
		s.Hosts = append(s.Hosts, backends.Host{Name: host(n + 1), Slots: 1})
	}
	for _, j := range q.jobs {
		if j.State.Ended() {
			s.Ended = append(s.Ended, j.Job)
		} else {
			s.Jobs = append(s.Jobs, j.Job)
		}
	}
	slices.SortFunc(s.Jobs, func(a, b backends.Job) int { return int(a.ID.Job - b.ID.Job) })
	return s, nil
}

// Jobs returns those of the jobs that are known.
func (q *Queue) Jobs(_ context.Context, ids []backends.ID) (all []backends.Job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if j := q.jobs[id.Job]; j != nil {
			all = append(all, j.Job)
		}
	}
	return all, q.err
}

// Submit requests a slot for each task.
func (q *Queue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	all := make([]backends.Submitted, len(specs))
	for i, s := range specs {
		j, err := q.add(&s)
		if err == nil {
			if err = q.request(j); err != nil {
				q.mu.Lock()
				delete(q.jobs, j.ID.Job)
				q.mu.Unlock()
			}
		}
		if err != nil {
			all[i].Err = err
			continue
		}
		all[i].ID = j.ID
	}
	return all
}

// add makes a job of a task, whose command ends with the split's directory and the task's number.
func (q *Queue) add(s *backends.Spec) (*job, error) {
	words := s.Command
	if len(words) < 2 {
		return nil, errors.New("the job is no task of a split")
	}
	dir, number := words[len(words)-2], words[len(words)-1]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the number of a task: %w", err)
	}
	text, err := task.Assignment{Dir: filepath.Clean(dir), N: n}.Encode()
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, q.err
	}
	if !q.dirs[dir] {
		if err := (task.Surroundings{Dir: s.Dir, Env: s.Env}).Write(dir); err != nil {
			return nil, err
		}
		q.dirs[dir] = true
	}
	q.last++
	j := &job{
		Job:  backends.Job{ID: backends.ID{Job: q.last}, Name: s.Name, State: backends.Pending, Slots: 1, Submitted: time.Now(), Reason: "no slot of asplit serve is free"},
		body: requestBody{Task: text, Memory: s.Memory},
	}
	q.jobs[q.last] = j
	return j, nil
}

// Lease returns the last lease that a job had; 0: it had none, or is not known any more.
func (q *Queue) Lease(number int64) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j := q.jobs[number]; j != nil {
		return j.lease
	}
	return 0
}

// Kill ends jobs: leases end, and requests are cancelled.
func (q *Queue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for i, id := range ids {
		q.mu.Lock()
		j := q.jobs[id.Job]
		path := ""
		switch {
		case j == nil:
			errs[i] = backends.ErrUnknownJob
		case j.State.Ended():
			errs[i] = backends.ErrWrongState
		case j.lease != 0:
			path = "leases/" + strconv.FormatUint(j.lease, 10)
		default:
			path = "requests/" + j.request()
		}
		if path == "" {
			q.mu.Unlock()
			continue
		}
		j.killed = true
		q.mu.Unlock()
		err := q.client.Call(http.MethodDelete, path, "", nil)
		q.mu.Lock()
		if refused := new(client.Error); errors.As(err, &refused) && refused.Status == http.StatusNotFound { // it ends, or was granted a slot, at this moment
			j.killed, err = false, backends.ErrWrongState
		}
		if err == nil && !j.State.Ended() {
			q.end(j, killedStatus)
			q.news.Tell()
		}
		errs[i] = err
		q.mu.Unlock()
	}
	return errs
}

// Changes returns a function that waits until a job has changed since its last call.
func (q *Queue) Changes() func(context.Context) error { return q.news.Changes() }
