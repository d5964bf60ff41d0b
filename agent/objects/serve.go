package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/state"
)

// Finder finds the job of a process of this host; false: it is of none.
type Finder func(ctx context.Context, pid int) (j measure.Job, ok bool, err error)

// Answer is what is answered of an object. Its Record stands only where it is asked for.
type Answer struct {
	Job      string           `json:"job"`
	Sequence state.Sequence   `json:"sequence"`
	Record   *backends.Record `json:"record,omitempty"`
}

// Bounds of what callers may do. A write counts one, and one more for each costOf bytes of the
// object, which is written anew.
const (
	writesPerSecond = 20
	writesAtOnce    = 100
	usersShare      = 10 // a user with many jobs has so many times as much
	costOf          = 256 << 10
	maxRates        = 10_000
	drained         = 8 << 20 // bytes of what is too much
)

type peerKey struct{}

// caller is the process at the other end of a connection.
type caller struct {
	uid, pid int
	err      error
}

// WithPeer asks the kernel once for each connection who is at its other end: http.Server calls it.
func WithPeer(ctx context.Context, conn net.Conn) context.Context {
	for {
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = w.NetConn()
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	var c caller
	if c.uid, c.err = peer.UID(u); c.err == nil {
		c.pid, c.err = peer.PID(u)
	}
	return context.WithValue(ctx, peerKey{}, c)
}

// problem is an error with its status for HTTP.
type problem struct {
	status int
	text   string
}

func (p problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return problem{status, fmt.Sprintf(format, args...)}
}

// Handle serves the objects of callers' own jobs, on a socket of this machine. self is the job of
// the calling process; another is named QUEUE/ID, by its owner or root.
//
//	GET  /v1/jobs/self                             the object: Answer
//	POST /v1/jobs/self/settings                    {"key": …, "value": …}
//	POST /v1/jobs/self/files?name=N&executable=1   the file
//	GET  /v1/jobs/self/files/NAME                  the file
func (k *Keeper) Handle(mux *http.ServeMux, find Finder) {
	for _, path := range []string{"/v1/jobs/self", "/v1/jobs/{queue}/{id}"} {
		handle := func(pattern string, do func(http.ResponseWriter, *http.Request, state.Job) error) {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				job, err := k.jobOf(r, find)
				if err == nil {
					err = do(w, r, job)
				}
				if err != nil {
					status, text := k.statusOf(err)
					if status == http.StatusServiceUnavailable { // nothing was done, and soon it can be
						w.Header().Set("Retry-After", "1")
					}
					http.Error(w, text, status)
				}
			})
		}
		handle("GET "+path, k.give)
		handle("POST "+path+"/settings", k.set)
		handle("POST "+path+"/files", k.attach)
		handle("GET "+path+"/files/{name}", k.giveFile)
	}
}

func (k *Keeper) statusOf(err error) (int, string) {
	var p problem
	switch {
	case errors.As(err, &p):
		return p.status, p.text
	case errors.Is(err, state.ErrBounds):
		return http.StatusRequestEntityTooLarge, err.Error()
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound, err.Error()
	default:
		k.o.Log.Error("serve a state object", "error", err)
		return http.StatusInternalServerError, "the job's state object can't be read or written: ahostd's log on this host says why"
	}
}

// jobOf returns the job that a request is about, if its sender may read and write its object.
// Its object is begun if the job is new here.
func (k *Keeper) jobOf(r *http.Request, find Finder) (state.Job, error) {
	c, ok := r.Context().Value(peerKey{}).(caller)
	if !ok || c.err != nil {
		return state.Job{}, problemf(http.StatusForbidden, "jobs' state is served on ahostd's socket alone, where the kernel names the caller")
	}
	if err := k.allow(c.uid, 1); err != nil {
		return state.Job{}, err
	}
	if r.PathValue("queue") == "" {
		return k.self(r.Context(), c, find)
	}
	job, err := state.ParseJob(r.PathValue("queue") + "/" + r.PathValue("id"))
	if err != nil {
		return job, problem{http.StatusBadRequest, err.Error()}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.find(job)
	switch {
	case c.uid != 0 && (o == nil || o.User != c.uid): // what others have is not said
		return job, problemf(http.StatusForbidden, "no state object of job %v is on this host, or the job is not yours (astate where finds it)", job)
	case o == nil:
		return job, problemf(http.StatusNotFound, "no state object of job %v is on this host (astate where finds it)", job)
	}
	return job, k.spend(job, 1)
}

func (k *Keeper) self(ctx context.Context, c caller, find Finder) (state.Job, error) {
	j, ok, err := find(ctx, c.pid)
	job, kept := jobOf(&j)
	switch {
	case err != nil:
		return job, problemf(http.StatusServiceUnavailable, "find the job of process %d: %v", c.pid, err)
	case !ok || c.pid == 0:
		return job, problemf(http.StatusNotFound, "this process belongs to no job here: call it within a job of Slurm or LSF, or name the job")
	case j.Queue == measure.Miniq:
		return job, problemf(http.StatusNotFound, "job %s is of the bundled queue, which keeps its state itself", j.IDText())
	case c.uid != 0 && c.uid != j.User:
		return job, problemf(http.StatusForbidden, "job %s is another user's", j.IDText())
	case !kept:
		return job, problemf(http.StatusNotFound, "this process belongs to no job of Slurm or LSF that is known here")
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.know(job)
	k.apply(k.table.See(job, &j, now))
	if k.table.Find(job) == nil { // another job's was set aside
		k.apply(k.table.See(job, &j, now))
	}
	switch o := k.find(job); {
	case o == nil:
		return job, problemf(http.StatusServiceUnavailable, "which run of job %v this is, is not known yet", job)
	case o.User != j.User:
		return job, problemf(http.StatusForbidden, "the number of job %v is that of another user's job on this host, and no control group says that it is yours", job)
	}
	return job, k.spend(job, 1)
}

// allow counts requests of a user, and refuses what is too much.
func (k *Keeper) allow(user, n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users[user] == nil {
		k.users[user] = rate.NewLimiter(writesPerSecond*usersShare, writesAtOnce*usersShare)
	}
	if !k.users[user].AllowN(time.Now(), n) {
		return problemf(http.StatusTooManyRequests, "your jobs on this host ask and write too often: %d times a second in sum; wait, and write what matters", writesPerSecond*usersShare)
	}
	return nil
}

// spend counts requests of a job likewise. The caller has the lock.
func (k *Keeper) spend(job state.Job, n int) error {
	if k.rates[job] == nil {
		k.rates[job] = rate.NewLimiter(writesPerSecond, writesAtOnce)
	}
	if !k.rates[job].AllowN(time.Now(), min(n, writesAtOnce)) {
		return problemf(http.StatusTooManyRequests, "job %v asks and writes too often: %d times a second after %d at once, and less often if its files are large; wait, and write what matters", job, writesPerSecond, writesAtOnce)
	}
	return nil
}

// forgetRates drops limits that are not used. The caller has the lock.
func (k *Keeper) forgetRates() {
	for job, l := range k.rates {
		if l.Tokens() >= writesAtOnce || len(k.rates) > maxRates {
			delete(k.rates, job)
		}
	}
	for user, l := range k.users {
		if l.Tokens() >= writesAtOnce*usersShare || len(k.users) > maxRates {
			delete(k.users, user)
		}
	}
}

// ready reads what the table needs to know of an object before it is written, and counts what
// writing it costs.
func (k *Keeper) ready(ctx context.Context, job state.Job) error {
	k.mu.Lock()
	o := k.find(job)
	loaded, user := o != nil && o.Loaded(), measure.NoUser
	if o != nil {
		user = o.User
	}
	k.mu.Unlock()
	if info, err := os.Stat(state.Path(k.dir(job.Queue), job.ID)); err == nil {
		cost := int(info.Size() / costOf)
		k.mu.Lock()
		err = k.spend(job, cost)
		k.mu.Unlock()
		if err == nil {
			err = k.allow(user, cost)
		}
		if err != nil {
			return err
		}
	}
	if loaded || o == nil {
		return nil
	}
	object, _, err := k.Object(ctx, job)
	if err != nil {
		return err
	}
	record, _, _, err := k.inspect(job, object)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !o.Loaded() {
		o.LoadNames(record)
	}
	return nil
}

// put applies a change, and answers when it is on disk, if it is to be there.
func (k *Keeper) put(w http.ResponseWriter, r *http.Request, job state.Job, synced bool, change func(at time.Time) (Act, error)) error {
	if err := k.ready(r.Context(), job); err != nil {
		return err
	}
	k.mu.Lock()
	act, err := change(time.Now())
	a := Answer{Job: job.String()}
	if err == nil {
		k.apply([]Act{act})
		a.Sequence = k.find(job).Sequence
	}
	k.mu.Unlock()
	if err == nil && synced {
		err = k.flush(r.Context(), job.Queue)
	}
	if err != nil {
		return err
	}
	return answer(w, a)
}

func answer(w http.ResponseWriter, a Answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may be gone
	return nil
}

func (k *Keeper) set(w http.ResponseWriter, r *http.Request, job state.Job) error {
	const most = 6*(state.MaxKey+state.MaxValue) + 1<<10 // as JSON
	text, err := body(r, most)
	if err != nil {
		return err
	}
	s, err := parseSetting(text)
	if err != nil {
		return err
	}
	return k.put(w, r, job, s.Key != state.ProgressKey, func(at time.Time) (Act, error) { return k.table.Set(job, s, at) })
}

// parseSetting reads a setting, which any user may have written.
func parseSetting(text []byte) (s state.Setting, err error) {
	if json.Unmarshal(text, &s) != nil { // the error has the sender's text in it
		return s, problemf(http.StatusBadRequest, `want a setting: {"key": …, "value": …}`)
	}
	return s, bad(state.CheckSetting(s))
}

// bad is an error of the caller's, unless it is one of bounds.
func bad(err error) error {
	if err == nil || errors.Is(err, state.ErrBounds) {
		return err
	}
	return problem{http.StatusBadRequest, err.Error()}
}

func body(r *http.Request, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	switch {
	case err != nil:
		return nil, problemf(http.StatusBadRequest, "the request ended early")
	case int64(len(text)) > most:
		_, _ = io.CopyN(io.Discard, r.Body, drained) // else the caller may see a broken connection, and no answer
		return nil, problemf(http.StatusRequestEntityTooLarge, "more than %d bytes: %v", most, state.ErrBounds)
	}
	return text, nil
}

func (k *Keeper) attach(w http.ResponseWriter, r *http.Request, job state.Job) error {
	f := state.File{Name: r.URL.Query().Get("name"), Executable: r.URL.Query().Get("executable") == "1"}
	if err := bad(state.CheckFile(f)); err != nil {
		return err
	}
	var err error
	if f.Data, err = body(r, state.MaxFile); err != nil {
		return err
	}
	return k.put(w, r, job, true, func(at time.Time) (Act, error) { return k.table.Attach(job, f, at) })
}

func (k *Keeper) give(w http.ResponseWriter, r *http.Request, job state.Job) error {
	object, s, err := k.Object(r.Context(), job)
	if err != nil {
		return err
	}
	record, _, _, err := k.inspect(job, object)
	if err != nil {
		return err
	}
	return answer(w, Answer{job.String(), s, record})
}

func (k *Keeper) file(job state.Job, object []byte, name string) (state.File, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.inspector == nil {
		return state.File{}, errClosed
	}
	return k.inspector.ReadFile(object, job.ID, name)
}

func (k *Keeper) giveFile(w http.ResponseWriter, r *http.Request, job state.Job) error {
	object, _, err := k.Object(r.Context(), job)
	if err != nil {
		return err
	}
	f, err := k.file(job, object, r.PathValue("name"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(f.Data)))
	if f.Executable {
		w.Header().Set("Allotment-Executable", "1")
	}
	_, _ = w.Write(f.Data) // the client may be gone
	return nil
}
