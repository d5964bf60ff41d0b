package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// The end hook is a command of the sysadmin's that is run after the end of each
// job, by the daemon's own user, once the end is on disk: at least once for each
// job, after a crash it may be run again. It never keeps the queue waiting: so
// many run at a time, others wait for them, in the order of their ends.
const (
	hooksAtATime = 4
	hookTime     = time.Minute     // then it is killed
	hookGrace    = 5 * time.Second // for those that run when the daemon stops; then they are run again
	hookBatch    = 500             // ends that are looked up at a time
	hookPause    = time.Second     // between two writes of the marks
	hookFile     = "hooked"
)

// hooks runs the end hook. It belongs to the loop.
type hooks struct {
	argv    []string
	marks   hookMarks
	queue   []backends.Job
	running int
	more    bool // the manager may know ended jobs that are not in queue
	saving  bool
	over    chan hookEnd // room for all that run
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // it lasts as long as the daemon
	tasks   sync.WaitGroup
}

type hookEnd struct {
	id  backends.ID
	err error
}

// hookMarks says which ends have had their hook: those before From and those in Taken,
// except those in Open. The file holds it.
type hookMarks struct {
	From  time.Time                 `json:"from"`
	Taken map[backends.ID]time.Time `json:"taken,omitempty"` // ended at From, or since the oldest in Open
	Open  map[backends.ID]time.Time `json:"-"`               // in the queue or running
}

// add marks an end; false: it is marked already.
func (h *hookMarks) add(j *backends.Job) bool {
	if _, known := h.Taken[j.ID]; known {
		return false
	}
	if j.Ended.After(h.From) {
		h.From = j.Ended
	}
	h.Taken[j.ID], h.Open[j.ID] = j.Ended, j.Ended
	return true
}

// saved returns the marks that the next daemon needs.
func (h *hookMarks) saved() hookMarks {
	s := hookMarks{From: h.From, Taken: map[backends.ID]time.Time{}}
	for _, at := range h.Open {
		if at.Before(s.From) {
			s.From = at
		}
	}
	for id, at := range h.Taken {
		_, open := h.Open[id]
		switch {
		case at.Before(s.From):
			delete(h.Taken, id) // it is not looked up again
		case !open:
			s.Taken[id] = at
		}
	}
	return s
}

func decodeHookMarks(data []byte) (hookMarks, error) {
	h := hookMarks{}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, err
	}
	if h.From.IsZero() {
		return h, errors.New("it names no time")
	}
	if h.Taken == nil {
		h.Taken = map[backends.ID]time.Time{}
	}
	h.Open = map[backends.ID]time.Time{}
	return h, nil
}

// beginHooks finds the ends that have not had their hook. Where there was no hook
// before, those from now on get it.
func (d *daemon) beginHooks() {
	path := filepath.Join(d.state, hookFile)
	if len(d.Config.EndHook) == 0 {
		_ = os.Remove(path)
		return
	}
	h := &hooks{argv: d.Config.EndHook, more: true, over: make(chan hookEnd, hooksAtATime)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	d.hooks = h
	data, err := os.ReadFile(path)
	if err == nil {
		if h.marks, err = decodeHookMarks(data); err == nil {
			if now := d.m.Now(); h.marks.From.After(now.Add(clockPause)) {
				h.marks.moveBack(now, nil) // the clock was put back, and that daemon ended before it recorded this
			}
			d.startHooks()
			return
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		d.log.Error("the end hook's marks can't be read: it is run for jobs that end from now on", "file", path, "error", err)
	}
	h.marks = hookMarks{From: d.m.Snapshot(time.Now(), time.Now()).At, Taken: map[backends.ID]time.Time{}, Open: map[backends.ID]time.Time{}}
	d.saveHookMarks()
}

// queueHook starts the hook of a job that has ended, or leaves it waiting.
func (d *daemon) queueHook() {
	if d.hooks == nil {
		return
	}
	d.hooks.more = true
	d.startHooks()
}

// startHooks starts as many as may run.
func (d *daemon) startHooks() {
	h := d.hooks
	for h.running < hooksAtATime && h.ctx.Err() == nil {
		if len(h.queue) == 0 {
			h.refill(d)
		}
		if len(h.queue) == 0 {
			return
		}
		j := h.queue[0]
		h.queue = h.queue[1:]
		h.running++
		h.tasks.Go(func() {
			err := runHook(h.ctx, h.argv, &j)
			if h.ctx.Err() == nil { // else it was cut short: the next daemon runs it again
				h.over <- hookEnd{j.ID, err}
				d.post(input{do: d.hooksEnded})
			}
		})
	}
}

// refill looks up ends that have not been looked up yet.
func (h *hooks) refill(d *daemon) {
	if !h.more {
		return
	}
	known := func(id backends.ID) bool { _, known := h.marks.Taken[id]; return known }
	ended := d.m.EndedFrom(time.Now(), h.marks.From, hookBatch, known)
	h.more = len(ended) == hookBatch
	for i := range ended {
		if h.marks.add(&ended[i]) {
			h.queue = append(h.queue, ended[i])
		}
	}
}

// hooksEnded handles hooks that have ended.
func (d *daemon) hooksEnded() {
	h := d.hooks
	h.collectEnds(d.log)
	if !h.saving {
		h.saving = true
		time.AfterFunc(hookPause, func() { d.post(input{do: d.saveHookMarks}) })
	}
	d.startHooks()
}

func (h *hooks) collectEnds(log *slog.Logger) {
	for {
		select {
		case end := <-h.over:
			h.running--
			delete(h.marks.Open, end.id)
			if end.err != nil {
				log.Warn("the end hook failed", "job", end.id, "error", end.err)
			}
		default:
			return
		}
	}
}

// saveHookMarks writes down how far they are.
func (d *daemon) saveHookMarks() {
	d.hooks.saving = false
	data, err := json.Marshal(d.hooks.marks.saved())
	if err == nil {
		err = disk.Replace(d.Disk, filepath.Join(d.state, hookFile), 0o600, data)
	}
	if err != nil {
		d.log.Error("the end hook's marks can't be written: it may be run twice for some jobs", "error", err)
	}
}

// endHooks waits for those that run. What is left is run by the next daemon.
func (d *daemon) endHooks() {
	h := d.hooks
	if h == nil {
		return
	}
	late := time.AfterFunc(hookGrace, h.stop)
	h.tasks.Wait()
	late.Stop()
	h.stop()
	h.collectEnds(d.log)
	d.saveHookMarks()
}

// runHook runs the hook for one job.
func runHook(ctx context.Context, argv []string, j *backends.Job) error {
	if err := trusted.File(argv[0]); err != nil {
		return err
	}
	_, err := command.Run(ctx, command.Command{Argv: argv, Env: hookEnvironment(j), Dir: "/", Stdout: io.Discard, Timeout: hookTime})
	return err
}

// hookEnvironment returns a hook's environment: a PATH and variables about the job.
func hookEnvironment(j *backends.Job) []string {
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	dummyFor := ""
	if j.IsDummy() {
		dummyFor = j.DummyFor.String()
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}
	for _, v := range [][2]string{
		{"JOBID", j.ID.String()},
		{"USER", j.User},
		{"NAME", j.Name},
		{"PROJECT", j.Project},
		{"STEP", j.Step},
		{"QUEUE", j.Queue},
		{"TAG", j.Tag},
		{"STATE", j.State.String()},
		{"EXIT_STATUS", strconv.Itoa(j.ExitCode)},
		{"REASON", j.Reason},
		{"SLOTS", strconv.Itoa(j.Slots)},
		{"HOSTS", strings.Join(hostOfSlots(j.Hosts), " ")},
		{"REQUEUES", strconv.Itoa(j.Requeues)},
		{"SUBMITTED", stamp(j.Submitted)},
		{"STARTED", stamp(j.Started)},
		{"ENDED", stamp(j.Ended)},
		{"DUMMY_FOR", dummyFor},
	} {
		value := strings.ReplaceAll(backends.Unescape(v[1]), "\x00", "")
		env = append(env, "ALLOTMENT_"+v[0]+"="+value)
	}
	return env
}
