package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// placeView is a host that holds state of a job.
type placeView struct {
	Host   string    `json:"host"`
	Run    int       `json:"run"`
	N      uint64    `json:"n" doc:"the last line of this run's history there"`
	Live   bool      `json:"live" doc:"the run has not ended there"`
	Status string    `json:"status" enum:"here,lost,returning,flapping,gone,unknown" doc:"of the host"`
	Since  time.Time `json:"since,omitzero" doc:"it has this status"`
}

// stateView is the state of a job, wherever it is.
type stateView struct {
	Job    string           `json:"job" doc:"as the queue lists it"`
	Queue  string           `json:"queue"`
	Places []placeView      `json:"places" doc:"the holder first; several: the job moves, or runs on several hosts"`
	Moving bool             `json:"moving" doc:"what an earlier run left is on its way to the holder"`
	Host   string           `json:"host,omitempty" doc:"where the record is from"`
	Run    int              `json:"run,omitempty" doc:"the sequence of the record: its highest run,"`
	N      uint64           `json:"n,omitempty" doc:"and the last line of that"`
	Record *backends.Record `json:"record,omitempty" doc:"absent: see why"`
	Why    string           `json:"why,omitempty" doc:"it is absent"`
	Denied bool             `json:"denied,omitempty" doc:"it is not the caller's to read"`
}

type stateOut struct{ Body stateView }

// StateIn names a job by its queue, and its ID as that lists it.
type StateIn struct {
	Queue string `path:"queue" enum:"slurm,lsf,miniq"`
	ID    string `path:"id" maxLength:"40" doc:"such as 12 or 12[3]"`
}

type fileOut struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Executable  bool   `header:"Allotment-Executable"`
	Body        []byte
}

// errNoState is returned for a job that no host has announced.
var errNoState = &statusError{http.StatusNotFound, "no host has announced state of this job: see ahosts --agents"}

// listOut names jobs whose state is known to be on a host.
type listOut struct {
	Body struct {
		Jobs []string `json:"jobs" doc:"by their hosts' numbers, such as slurm/12: in the order of the list"`
		Next string   `json:"next,omitempty" doc:"after which the next part begins; absent: there is none"`
	}
}

func (a api) addStates() {
	add(a, http.MethodGet, "/states", "get-states", "the jobs whose state a host holds, part by part", func(_ context.Context, _ *desk.Desk, in *struct {
		After string `query:"after" maxLength:"60" doc:"a job of the list, such as slurm/12; none: from the beginning"`
		Most  int    `query:"most" minimum:"1" maximum:"10000" default:"1000"`
	},
	) (*listOut, error) {
		if a.server.Hosts == nil || a.server.Hosts.Places() == nil {
			return nil, errNotHeard
		}
		var after state.Job
		if in.After != "" {
			var err error
			if after, err = state.ParseJob(in.After); err != nil {
				return nil, huma.Error400BadRequest(err.Error())
			}
		}
		out := &listOut{}
		out.Body.Jobs = []string{}
		for _, j := range a.server.Hosts.Places().Jobs(after, in.Most) {
			out.Body.Jobs = append(out.Body.Jobs, j.String())
		}
		if n := len(out.Body.Jobs); n == in.Most {
			out.Body.Next = out.Body.Jobs[n-1]
		}
		return out, nil
	})
	add(a, http.MethodGet, "/states/{queue}/{id}", "get-state", "the state that a job carries with it, from the host that holds it; its record only for those who may read it", func(ctx context.Context, d *desk.Desk, in *StateIn) (*stateOut, error) {
		v, _, err := a.server.stateOf(ctx, d, in)
		if err != nil {
			return nil, err
		}
		return &stateOut{*v}, nil
	})
	add(a, http.MethodGet, "/states/{queue}/{id}/files/{name}", "get-state-file", "a file that travels with a job", func(ctx context.Context, d *desk.Desk, in *struct {
		StateIn
		Name string `path:"name" maxLength:"64"`
	},
	) (*fileOut, error) {
		v, o, err := a.server.stateOf(ctx, d, &in.StateIn)
		if err != nil {
			return nil, err
		}
		if o == nil {
			if v.Denied {
				return nil, &statusError{http.StatusForbidden, v.Why}
			}
			return nil, &statusError{http.StatusServiceUnavailable, v.Why}
		}
		i, err := state.NewInspector()
		if err != nil {
			return nil, err
		}
		defer i.Close()
		f, err := i.ReadFile(o.Data, o.Job.ID, in.Name)
		if err != nil {
			return nil, &statusError{http.StatusNotFound, fmt.Sprintf("job %s has no file %.80q", v.Job, in.Name)}
		}
		return &fileOut{"application/octet-stream", "attachment", f.Executable, f.Data}, nil
	})
}

// fetching bounds the objects that are fetched at a time, of all users and of each: an object is
// in memory as a whole. Others wait.
type fetching struct {
	all chan struct{}

	mu sync.Mutex
	of map[int]*ofUser // by user ID, those who fetch or wait
}

type ofUser struct {
	places chan struct{}
	n      int // that fetch or wait
}

const (
	mostFetched       = 16
	mostFetchedByUser = 4
)

func newFetching() *fetching {
	return &fetching{all: make(chan struct{}, mostFetched), of: map[int]*ofUser{}}
}

// begin waits until a user may fetch one more. end must follow, if it returns no error.
func (f *fetching) begin(ctx context.Context, uid int) (end func(), err error) {
	f.mu.Lock()
	u := f.of[uid]
	if u == nil {
		u = &ofUser{places: make(chan struct{}, mostFetchedByUser)}
		f.of[uid] = u
	}
	u.n++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if u.n--; u.n == 0 {
			delete(f.of, uid)
		}
	}
	select {
	case u.places <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case f.all <- struct{}{}:
		return func() { <-f.all; <-u.places; leave() }, nil
	case <-ctx.Done():
		<-u.places
		leave()
		return nil, ctx.Err()
	}
}

const notReadable = "its record is its owner's, its project's managers' and the admins' to read"

// fetchTime bounds how long a caller waits for a host.
const fetchTime = 15 * time.Second

// mostArrivals bounds how often an object is read again, because more of the job's state arrived.
const mostArrivals = 3

// stateOf returns the state of a job, and its object if the caller may read that and its holder
// could be asked.
func (s *Server) stateOf(ctx context.Context, d *desk.Desk, in *StateIn) (*stateView, *watch.Object, error) {
	if s.Hosts == nil || s.Hosts.Places() == nil {
		return nil, nil, errNotHeard
	}
	id, err := backends.ParseID(in.ID)
	if err != nil {
		return nil, nil, huma.Error400BadRequest(err.Error())
	}
	on, err := d.OnHosts(ctx, in.Queue, id)
	if err != nil {
		return nil, nil, err
	}
	places, job := s.Hosts.Places(), state.Job{Queue: in.Queue, ID: on}
	v := &stateView{Job: id.String(), Queue: in.Queue, Places: s.placesOf(places.Find(job))}
	if len(v.Places) == 0 {
		return nil, nil, errNoState
	}
	bounded, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	end, err := s.fetching.begin(bounded, d.Caller.UID)
	if err != nil {
		return nil, nil, &statusError{http.StatusTooManyRequests, "too many states of jobs are being read: ask again in a moment"}
	}
	defer end()
	// What arrived at the holder while its object was read is not in that.
	before := places.Find(job)
	o, err := places.Fetch(bounded, job)
	now := places.Find(job)
	for again := 0; err == nil && len(now) < len(before) && again < mostArrivals; again++ {
		before = now
		o, err = places.Fetch(bounded, job)
		now = places.Find(job)
	}
	v.Places, v.Moving = s.placesOf(now), tracker.Moving(now) || len(now) < len(before)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case err != nil:
		v.Moving = v.Moving || errors.Is(err, transfer.ErrMoving)
		v.Why = s.whyNot(v, err)
		return v, nil, nil
	}
	may, err := d.MayReadUse(ctx)
	if err != nil {
		return nil, nil, err
	}
	uid, err := strconv.Atoi(o.Owner.UID)
	if err != nil {
		uid = -1
	}
	if !may(in.Queue, on, uid) {
		v.Why, v.Denied = notReadable, true
		return v, nil, nil
	}
	o.Record.Spec.Env = nil
	v.Host, v.Run, v.N, v.Record = o.Host, o.At.Run, o.At.N, o.Record
	return v, o, nil
}

// whyNot says why a job's object can't be read, by the status of its holder first.
func (s *Server) whyNot(v *stateView, err error) string {
	if len(v.Places) > 0 && v.Places[0].Status != string(roster.Here) {
		p := v.Places[0]
		return fmt.Sprintf("%s, which holds it, is %s since %s", p.Host, p.Status, p.Since.In(s.Zone).Format(time.DateTime))
	}
	return err.Error()
}

func (s *Server) placesOf(all []tracker.Place) []placeView {
	views := []placeView{}
	for _, p := range all {
		v := placeView{Host: p.Host, Run: p.Run, N: p.N, Live: p.Live, Status: "unknown"}
		if h, ok := s.Hosts.Host(p.Host); ok {
			v.Status, v.Since = string(h.State), h.Since.UTC()
		}
		views = append(views, v)
	}
	return views
}
