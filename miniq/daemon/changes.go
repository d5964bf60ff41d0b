package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// recordEntry keeps the bodies of a step and passes what happened to the state objects.
// It runs for entries that are replayed too: writing them twice changes nothing.
func (d *daemon) recordEntry(e *entry, event manager.Event, effects []manager.Effect, result manager.Result) {
	n := &entryChanges{d: d, at: time.Unix(0, e.At), seq: e.Seq}
	switch ev := event.(type) {
	case manager.Submit:
		n.submitted(e, ev, result)
	case manager.Reopen:
		n.reopened(e, ev)
	case manager.Note:
		if result.Errors.First() == nil {
			n.noted(&ev)
		}
	case manager.Ended:
		if result.Errors.First() == nil {
			n.ended(e, ev)
		}
	case manager.RunLost:
		if result.Errors.First() == nil {
			n.put(state.Change{ID: ev.ID, RunNo: ev.Run, Event: "lost", Detail: ev.Reason, End: &state.End{ExitCode: -1, Why: "exit unknown: " + ev.Reason}})
		}
	case manager.StartFailed:
		if result.Errors.First() == nil {
			n.put(state.Change{ID: ev.ID, RunNo: ev.Run, Event: "not started", Detail: ev.Reason, End: &state.End{ExitCode: -1, Why: "not started: " + ev.Reason}})
		}
	default:
		n.acts(event, result)
	}
	for _, effect := range effects {
		n.effect(effect)
	}
	d.objects.Mark(e.Seq)
}

// entryChanges gives the changes of one entry their numbers.
type entryChanges struct {
	d   *daemon
	at  time.Time
	seq uint64
	n   int
}

func (n *entryChanges) put(c state.Change) {
	c.Seq, c.N, c.At = n.seq, n.n, n.at
	c.Detail = backends.Unescape(c.Detail)
	n.n++
	n.d.noted++
	n.d.objects.Put(c)
}

func (n *entryChanges) submitted(e *entry, ev manager.Submit, result manager.Result) {
	detail := "by " + ev.By.User
	for i, s := range result.Submitted {
		if s.Err != nil || i >= len(e.Bodies) || i < len(result.Again) && result.Again[i] {
			continue
		}
		last := n.d.submission
		again := last.is(ev.By.User, &ev.Specs[i], &e.Bodies[i])
		if !again {
			b := e.Bodies[i]
			last = &lastSubmission{user: ev.By.User, spec: ev.Specs[i], body: &b}
			n.d.submission = last
		}
		n.d.storeBody(ev.By.User, s.ID.Job, last.body, e.Seq, ev.Specs[i].Array)
		if !again {
			last.whole = &state.Submission{Owner: last.body.As.owner(ev.By.User), Spec: last.body.join(ev.Specs[i]).MapTexts(backends.Unescape)}
		}
		n.put(state.Change{ID: s.ID, Submit: last.whole, Event: "submitted", Detail: detail})
	}
}

// lastSubmission is the job that was submitted last. Many in a row are the same, and share
// what is kept of it.
type lastSubmission struct {
	user  string
	spec  backends.Spec // without the body
	body  *body
	whole *state.Submission
}

// is reports whether a job is the same as the last one; nil: there is none.
func (l *lastSubmission) is(user string, s *backends.Spec, b *body) bool {
	return l != nil && l.user == user && l.spec.Equal(s) && l.body.equal(b)
}

func (n *entryChanges) ended(e *entry, ev manager.Ended) {
	end := state.End{ExitCode: ev.ExitCode}
	detail := fmt.Sprintf("exit status %d", ev.ExitCode)
	if e.End != nil {
		end.At, end.User, end.System, end.MaxRSS, end.Why = e.End.At, e.End.User, e.End.System, e.End.MaxRSS, e.End.Text
		if e.End.Text != "" {
			detail += ": " + e.End.Text
		}
	}
	n.put(state.Change{ID: ev.ID, RunNo: ev.Run, Event: "run ended", Detail: detail, End: &end})
}

// acts records what a user asked for and got.
func (n *entryChanges) acts(event manager.Event, result manager.Result) {
	ids, what, by := subjects(event)
	for i, id := range ids {
		if i < len(result.Errors) && result.Errors[i] == nil {
			n.put(state.Change{ID: id, Event: what[i].event, Detail: strings.TrimSpace("by " + by.User + " " + what[i].detail)})
		}
	}
}

type actRecord struct{ event, detail string }

// subjects returns the jobs that an event is about and what it does to each.
func subjects(event manager.Event) (ids []backends.ID, what []actRecord, by manager.By) {
	add := func(id backends.ID, event, detail string) {
		ids, what = append(ids, id), append(what, actRecord{event, detail})
	}
	each := func(list []backends.ID, event string) {
		for _, id := range list {
			add(id, event, "")
		}
	}
	acts := func(list []backends.Act, event string) {
		for _, a := range list {
			detail := until(a.Until) + " " + a.Mark
			if event == "requeue" && a.Save.OnDemand() {
				detail += " asked to save its work: " + a.Save.String()
			}
			add(a.ID, event, strings.TrimSpace(detail))
		}
	}
	switch ev := event.(type) {
	case manager.Kill:
		by = ev.By
		each(ev.IDs, "kill")
	case manager.KillNow:
		by = ev.By
		each(ev.IDs, "kill")
	case manager.Requeue:
		by = ev.By
		acts(ev.Acts, "requeue")
	case manager.Suspend:
		by = ev.By
		acts(ev.Acts, "suspend")
	case manager.Resume:
		by = ev.By
		each(ev.IDs, "resume")
	case manager.Hold:
		by = ev.By
		each(ev.IDs, "hold")
	case manager.Release:
		by = ev.By
		each(ev.IDs, "release")
	case manager.Move:
		by = ev.By
		for _, id := range ev.IDs {
			add(id, "move", "to queue "+ev.Queue)
		}
	case manager.Reorder:
		by = ev.By
		for _, id := range ev.IDs {
			add(id, "reorder", reordered(ev))
		}
	case manager.Modify:
		by = ev.By
		for _, id := range ev.IDs {
			add(id, "modify", describeChange(&ev.Change))
		}
	case manager.SetPriority:
		by = ev.By
		for _, r := range ev.Rankings {
			add(r.ID, "rank", fmt.Sprintf("%s %d", r.Priority.Level(), r.Priority.Value()))
		}
	case manager.Pin:
		by = ev.By
		for _, p := range ev.Pins {
			add(p.ID, "pin", strings.Join(p.Hosts, " "))
		}
	case manager.HoldUntil:
		by = ev.By
		for _, h := range ev.Holds {
			add(h.ID, "hold", until(h.Until))
		}
	case manager.Reserve:
		by = ev.By
		for _, r := range ev.Reservations {
			add(r.ID, "reserve", strings.Join(r.Hosts, " "))
		}
	}
	return ids, what, by
}

// reordered says where jobs were put, for a job's history.
func reordered(e manager.Reorder) string {
	where := "from the first"
	if e.Bottom {
		where = "from the last"
	}
	return fmt.Sprintf("to place %d %s among its owner's", e.Position, where)
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "until " + t.UTC().Format(time.RFC3339)
}

// effect records an effect that the manager decided.
func (n *entryChanges) effect(effect manager.Effect) {
	switch e := effect.(type) {
	case manager.StartRun:
		host := e.Hosts[0].Host
		n.put(state.Change{ID: e.ID, RunNo: e.Run, Event: "start", Detail: "on " + placements(e.Hosts), Begin: &state.Begin{Host: host}})
	case manager.StopRun:
		n.put(state.Change{ID: e.ID, RunNo: e.Run, Event: "stopped"})
	case manager.ContinueRun:
		n.put(state.Change{ID: e.ID, RunNo: e.Run, Event: "continued"})
	case manager.Notice:
		n.put(state.Change{ID: e.ID, RunNo: e.Run, Event: "notice", Detail: e.Text})
	case manager.Finished:
		n.finished(&e.Job)
		if e.Array != nil {
			n.finished(e.Array)
		}
		n.d.dropBody(e.Job.ID.Job)
	case manager.Reopened:
		n.put(state.Change{ID: e.ID, Event: reopenEvent, Detail: "by " + e.By + " after it had ended"})
	case manager.Forgotten:
		n.forgotten(e.IDs)
	case manager.KillRun, manager.WakeAt:
	}
}

func (n *entryChanges) finished(j *backends.Job) {
	final := j.MapTexts(backends.Unescape)
	n.put(state.Change{ID: j.ID, Event: j.State.String(), Detail: j.Reason, Final: &final})
}

// forgotten removes the objects of jobs, and an array's own with its last element.
func (n *entryChanges) forgotten(ids []backends.ID) {
	n.d.objects.Remove(ids...)
	arrays := make(map[int64]bool)
	for _, id := range ids {
		if id.Index > 0 {
			arrays[id.Job] = true
		}
	}
	for job := range arrays {
		if array := (backends.ID{Job: job}); n.d.m.Count([]backends.ID{array}) == 0 {
			n.d.objects.Remove(array)
		}
	}
}

func placements(list []backends.Placement) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = fmt.Sprintf("%s (%d)", p.Host, p.Slots)
	}
	return strings.Join(parts, " ")
}

// storeBody keeps a body in memory until its jobs have ended, or memory is short
// and it is in the state object.
func (d *daemon) storeBody(user string, job int64, b *body, seq uint64, array *backends.Array) {
	left := 1
	if array != nil {
		left = len(array.Indices)
	}
	d.keepBody(user, job, b, seq, left)
}

// keepBody is storeBody for a job, or an array, of which so many have not ended.
func (d *daemon) keepBody(user string, job int64, b *body, seq uint64, left int) {
	env := d.shareEnvironment(user, b)
	d.bodies[job] = &storedBody{body: b, env: env, seq: seq, left: left}
	d.bodyBytes += b.memory()
	d.young = append(d.young, job)
	for durable := d.objects.Durable(); len(d.young) > 0; d.young = d.young[1:] {
		old := d.bodies[d.young[0]]
		if old == nil {
			continue
		}
		if old.seq > durable {
			return
		}
		if d.bodyBytes > bodyMemory { // jobs that have waited for longer are likely to run first
			d.deleteBody(d.young[0], old)
		}
	}
}

func (d *daemon) dropBody(job int64) {
	b := d.bodies[job]
	if b == nil {
		return
	}
	if b.left--; b.left == 0 {
		d.deleteBody(job, b)
	}
}

func (d *daemon) deleteBody(job int64, b *storedBody) {
	delete(d.bodies, job)
	d.bodyBytes -= b.memory()
	if b.env.bodies--; b.env.bodies == 0 {
		d.bodyBytes -= b.env.size
		if d.environments[b.env.user] == b.env {
			delete(d.environments, b.env.user)
		}
	}
}

// sharedEnvironment is one that bodies share: nearly all of a user's jobs have the same
// as the job before.
type sharedEnvironment struct {
	user   string
	list   []string
	size   int
	bodies int
}

// shareEnvironment gives a body the environment of its user's body before, if it is
// the same.
func (d *daemon) shareEnvironment(user string, b *body) *sharedEnvironment {
	env := d.environments[user]
	if env == nil || !slices.Equal(env.list, b.Env) {
		env = &sharedEnvironment{user: user, list: make([]string, len(b.Env))} // requests share b.Env
		for i, e := range b.Env {
			env.list[i] = unique.Make(e).Value()
			env.size += len(e) + stringHead
		}
		d.environments[user] = env
		d.bodyBytes += env.size
	}
	b.Env = env.list
	env.bodies++
	return env
}

const (
	stringHead = 16
	bodyHead   = 320 // a storedBody, and its places in maps
)

// memory estimates what a body takes besides its environment, in bytes.
func (b *body) memory() int {
	n := bodyHead + len(b.Script) + len(b.Dir)
	for _, s := range b.Command {
		n += len(s) + stringHead
	}
	return n
}

func (b *body) size() int {
	n := len(b.Script) + len(b.Dir) + len(b.Stdin) + len(b.Stdout) + len(b.Stderr)
	for _, list := range [][]string{b.Command, b.Env} {
		for _, s := range list {
			n += len(s)
		}
	}
	return n
}

// bodyOf returns a job's body, from memory or from its state object.
func (d *daemon) bodyOf(id backends.ID) (*body, error) {
	if b := d.bodies[id.Job]; b != nil {
		return b.body, nil
	}
	return d.storedBodyOf(id)
}

// storedBodyOf returns a job's body from its state object.
func (d *daemon) storedBodyOf(id backends.ID) (*body, error) {
	record, err := state.Read(d.objectDir(), id)
	if err != nil {
		return nil, err
	}
	spec := record.Spec.MapTexts(backends.Escape)
	b := splitBody(&spec)
	if len(b.Command) == 0 && b.Script == nil {
		return nil, fmt.Errorf("read the state object of job %v: %w: its command is gone", id, state.ErrCorrupt)
	}
	owner, err := state.ReadOwner(d.objectDir(), id)
	if err == nil {
		b.As, err = runAsOf(owner)
	}
	return &b, err
}
