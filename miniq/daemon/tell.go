package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/mail"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// A job's owner may ask for mails (Spec.Mail) and for a command (Spec.Notify) when a run of it
// begins, when it has ended, and when it went back into the queue. Both programs are run as the
// job's user, by what the system says of that user, never as another one. They keep neither the
// queue nor other users waiting: one runs at a time for each user, further ones wait, up to a bound.
// What waits when the daemon ends is dropped.
const (
	tellsAtATime = 16
	tellTime     = 30 * time.Second // then it is killed, with its process group
	tellGrace    = 5 * time.Second  // for those that run or wait when the daemon stops
	waitingTells = 1000             // of one user; further ones are dropped
	mailPeriod   = time.Hour
	mailsPerHour = 30  // of one user; the rest is summed up in one mail
	maxHeld      = 100 // lines of that mail
)

// tellEvent names what has become of a job.
type tellEvent string

const (
	jobBegan    tellEvent = "begin"
	jobEnded    tellEvent = "end"
	jobRequeued tellEvent = "requeue"
)

// tell is what a job's owner is to learn.
type tell struct {
	event tellEvent
	job   backends.Job // its texts are not escaped
	why   string       // it was requeued
	mail  bool
	to    string
	run   string   // a line of its owner's for /bin/sh; "": none
	held  []string // subjects of mails that were not sent: this one sums them up
	more  int      // others of them
}

// tellOf returns what a job's owner asked for of an event; false: nothing.
func tellOf(event tellEvent, spec *backends.Spec, j *backends.Job, why string) (tell, bool) {
	m := spec.Mail
	mailed := map[tellEvent]bool{
		jobBegan:    m.Begin,
		jobEnded:    m.End || m.Failed && j.State == backends.Exited,
		jobRequeued: m.End,
	}[event]
	t := tell{event: event, job: j.MapTexts(backends.Unescape), why: backends.Unescape(why), mail: mailed, to: m.To, run: backends.Unescape(spec.Notify)}
	return t, mailed || t.run != ""
}

// subject is the first line of a mail.
func (t *tell) subject() string {
	if len(t.held) > 0 {
		return fmt.Sprintf("%d more mails about jobs", len(t.held)+t.more)
	}
	what := "began"
	switch {
	case t.event == jobRequeued:
		what = "requeued"
	case t.event == jobEnded && t.job.State == backends.Done:
		what = "done"
	case t.event == jobEnded:
		what = fmt.Sprintf("exited with status %d", t.job.ExitCode)
	}
	return fmt.Sprintf("Job %v %s: %s", t.job.ID, what, t.job.Name)
}

// text is what the mail says.
func (t *tell) text() string {
	if len(t.held) > 0 {
		text := fmt.Sprintf("At most %d mails an hour are sent about your jobs. These were not:\n\n%s\n", mailsPerHour, strings.Join(t.held, "\n"))
		if t.more > 0 {
			text += fmt.Sprintf("and %d more\n", t.more)
		}
		return text
	}
	var b strings.Builder
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", what, printable.Text(value))
		}
	}
	j := &t.job
	line("Job", j.ID.String())
	line("Name", j.Name)
	line("Project", backends.JoinProject(j.Project, j.Step))
	line("Queue", j.Queue)
	line("Hosts", placements(j.Hosts))
	line("State", j.State.String())
	for _, at := range []struct {
		what string
		at   time.Time
	}{{"Submitted", j.Submitted}, {"Started", j.Started}, {"Ended", j.Ended}} {
		if !at.at.IsZero() {
			line(at.what, at.at.Format(time.RFC1123Z))
		}
	}
	if t.event == jobEnded {
		line("Status", fmt.Sprint(j.ExitCode))
		line("Reason", j.Reason)
	}
	if t.event == jobRequeued {
		line("Reason", t.why)
	}
	return b.String()
}

// facts is what the owner's command reads.
func (t *tell) facts() ([]byte, error) {
	j := &t.job
	stamp := func(at time.Time) *time.Time {
		if at.IsZero() {
			return nil
		}
		return &at
	}
	facts := struct {
		Event     tellEvent            `json:"event"`
		Job       string               `json:"job"`
		Name      string               `json:"name"`
		User      string               `json:"user"`
		Project   string               `json:"project"`
		Step      string               `json:"step"`
		Queue     string               `json:"queue"`
		State     string               `json:"state"`
		ExitCode  *int                 `json:"exit_code,omitempty"`
		Reason    string               `json:"reason,omitempty"`
		Requeues  int                  `json:"requeues"`
		Hosts     []backends.Placement `json:"hosts,omitempty"`
		Submitted *time.Time           `json:"submitted,omitempty"`
		Started   *time.Time           `json:"started,omitempty"`
		Ended     *time.Time           `json:"finished,omitempty"`
	}{
		t.event, j.ID.String(), j.Name, j.User, j.Project, j.Step, j.Queue, j.State.String(), nil, t.why, j.Requeues, j.Hosts,
		stamp(j.Submitted), stamp(j.Started), stamp(j.Ended),
	}
	if t.event == jobEnded {
		facts.ExitCode, facts.Reason = &j.ExitCode, j.Reason
	}
	text, err := json.Marshal(facts)
	return append(text, '\n'), err
}

// mailBudget is how many mails one user got within the last hour, and what was held back.
type mailBudget struct {
	sent []time.Time // the oldest first
	held []string    // subjects
	more int         // of those beyond maxHeld
}

// take reports whether a mail may be sent now; else its subject is kept for the sum.
func (m *mailBudget) take(now time.Time, subject string) bool {
	for len(m.sent) > 0 && now.Sub(m.sent[0]) >= mailPeriod {
		m.sent = m.sent[1:]
	}
	if len(m.held) == 0 && len(m.sent) < mailsPerHour {
		m.sent = append(m.sent, now)
		return true
	}
	if len(m.held) < maxHeld {
		m.held = append(m.held, subject)
	} else {
		m.more++
	}
	return false
}

// sum returns what was held back, once: that is a mail, too.
func (m *mailBudget) sum(now time.Time) (held []string, more int) {
	held, more = m.held, m.more
	m.held, m.more, m.sent = nil, 0, append(m.sent, now)
	return held, more
}

// teller runs the programs.
type teller struct {
	reasons map[backends.ID]string // why runs were requeued whose owners asked to be told; only the daemon's loop uses it
	mu      sync.Mutex
	users   map[string]*toldUser
	running chan struct{} // has an element for each program that runs
	tasks   sync.WaitGroup
	ctx     context.Context //nolint:containedctx // it lasts as long as the daemon
	stop    context.CancelFunc
	over    bool
}

// toldUser holds the notices that wait to be sent to a user, and the budget of that user's mails.
type toldUser struct {
	waiting []tell
	busy    bool
	budget  mailBudget
	summing *time.Timer
}

func newTeller() *teller {
	t := &teller{reasons: map[backends.ID]string{}, users: map[string]*toldUser{}, running: make(chan struct{}, tellsAtATime)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// tellOwners lets the owners of jobs learn what an event has made of these. It runs in the loop.
func (d *daemon) tellOwners(event manager.Event, effects []manager.Effect, result manager.Result) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case manager.Notice:
			if e.Run > 0 && d.wantsTell(e.ID) {
				d.tells.reasons[e.ID] = e.Text
			}
		case manager.Finished:
			d.tellOwner(jobEnded, &e.Job)
		}
	}
	accepted := len(result.Errors) == 1 && result.Errors[0] == nil
	switch e := event.(type) {
	case manager.Started:
		if accepted && d.wantsTell(e.ID) {
			d.tellOf(jobBegan, e.ID)
		}
	case manager.Ended:
		if accepted && d.wantsTell(e.ID) {
			d.tellOf(jobRequeued, e.ID)
		}
	case manager.RunLost:
		if accepted && d.wantsTell(e.ID) {
			d.tellOf(jobRequeued, e.ID)
		}
	}
}

func (d *daemon) wantsTell(id backends.ID) bool {
	spec, known := d.m.Spec(id)
	return known && (spec.Mail != (backends.Mail{}) || spec.Notify != "")
}

// tellOf tells the owner of a job that has not ended.
func (d *daemon) tellOf(event tellEvent, id backends.ID) {
	for _, j := range d.m.Jobs(time.Now(), []backends.ID{id}) {
		if !j.State.Ended() {
			d.tellOwner(event, &j)
		}
	}
}

func (d *daemon) tellOwner(event tellEvent, j *backends.Job) {
	spec, known := d.m.Spec(j.ID)
	if !known {
		return
	}
	why := d.tells.reasons[j.ID]
	if event != jobBegan {
		delete(d.tells.reasons, j.ID)
	}
	if event != jobRequeued {
		why = ""
	}
	if t, wanted := tellOf(event, &spec, j, why); wanted {
		d.queueTell(t)
	}
}

// queueTell has a program run when those before it, of the same user, have ended.
func (d *daemon) queueTell(t tell) {
	d.tells.mu.Lock()
	defer d.tells.mu.Unlock()
	u := d.tells.users[t.job.User]
	if u == nil {
		u = &toldUser{}
		d.tells.users[t.job.User] = u
	}
	switch {
	case d.tells.over:
		return
	case len(u.waiting) == waitingTells:
		d.log.Warn("a mail or a notification is dropped: too many of this user's wait", "user", t.job.User, "job", t.job.ID)
		return
	}
	u.waiting = append(u.waiting, t)
	if !u.busy {
		u.busy = true
		d.tells.tasks.Go(func() { d.tellUser(u) })
	}
}

// tellUser runs a user's programs, one after the other.
func (d *daemon) tellUser(u *toldUser) {
	for {
		d.tells.mu.Lock()
		if len(u.waiting) == 0 {
			u.busy = false
			d.tells.mu.Unlock()
			return
		}
		t := u.waiting[0]
		u.waiting = u.waiting[1:]
		if t.mail {
			t.mail = d.mayMail(u, &t)
		}
		d.tells.mu.Unlock()
		select {
		case d.tells.running <- struct{}{}:
		case <-d.tells.ctx.Done():
			continue
		}
		if err := d.runTell(&t); err != nil {
			d.log.Warn("a job's owner was not told", "job", t.job.ID, "user", t.job.User, "event", t.event, "error", err)
		}
		<-d.tells.running
	}
}

// mayMail reports whether a mail is sent now. d.tells.mu is held.
func (d *daemon) mayMail(u *toldUser, t *tell) bool {
	now := time.Now()
	if t.event == "" { // the sum of those that were not
		u.summing = nil
		t.held, t.more = u.budget.sum(now)
		return len(t.held) > 0
	}
	if u.budget.take(now, t.subject()) {
		return true
	}
	if u.summing == nil {
		sum := tell{job: backends.Job{ID: t.job.ID, User: t.job.User}, mail: true, to: t.to}
		u.summing = time.AfterFunc(mailPeriod-now.Sub(u.budget.sent[0]), func() { d.queueTell(sum) })
	}
	return false
}

// runTell sends the mail and runs the command of one event, as the job's user.
func (d *daemon) runTell(t *tell) error {
	if !t.mail && t.run == "" {
		return nil
	}
	as, spec, u, err := d.tellAs(t)
	if err != nil {
		return err
	}
	env := backends.Spec{Env: u.environ(nil)}.MapTexts(backends.Unescape).Env
	if t.mail {
		err = d.sendMail(t, as, env)
	}
	if t.run != "" {
		facts, err2 := t.facts()
		if err2 == nil {
			env := backends.Spec{Env: u.environ(spec.MapTexts(backends.Escape).Env)}.MapTexts(backends.Unescape).Env
			err2 = d.runAs(as, []string{"/bin/sh", "-c", t.run}, spec.Dir, env, facts)
		}
		err = errors.Join(err, err2)
	}
	return err
}

// tellAs returns the user that a job ran as, and its specification.
func (d *daemon) tellAs(t *tell) (*keeper.User, *backends.Spec, *knownUser, error) {
	if err := d.objects.Flush(d.tells.ctx); err != nil {
		return nil, nil, nil, err
	}
	record, err := state.Read(d.objectDir(), t.job.ID)
	if err != nil {
		return nil, nil, nil, err
	}
	owner, err := state.ReadOwner(d.objectDir(), t.job.ID)
	if err != nil {
		return nil, nil, nil, err
	}
	as, err := runAsOf(owner)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case !d.servesAll(), as == nil && t.job.User == d.user:
		return nil, &record.Spec, nil, nil
	case as == nil || as.UID == 0:
		return nil, nil, nil, errNoOwner
	}
	u := d.users.get(as.UID)
	if u.err != nil {
		return nil, nil, nil, u.err
	}
	if err := u.mayRunAs(t.job.User); err != nil {
		return nil, nil, nil, err
	}
	return u.keeperUser(as), &record.Spec, &u, nil
}

// sendMail hands a mail to the system's sendmail.
func (d *daemon) sendMail(t *tell, as *keeper.User, env []string) error {
	to := t.to
	if to == "" {
		to = t.job.User
	}
	all, err := mail.Addresses([]string{to})
	if err != nil {
		return err
	}
	program := d.Config.Sendmail
	if err := trusted.File(program); err != nil {
		return fmt.Errorf("miniq.sendmail: %w", err)
	}
	m := mail.Message{To: all, Subject: t.subject(), Date: time.Now(), Text: t.text()}
	return d.runAs(as, mail.Argv(program, all), "/", append(env, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"), m.Bytes())
}

// runAs runs a program as a user; nil: the daemon's own.
func (d *daemon) runAs(as *keeper.User, argv []string, dir string, env []string, in []byte) error {
	ctx, cancel := context.WithTimeout(d.tells.ctx, tellTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", filepath.Base(argv[0]), err)
	}
	return nil
}

// endTells gives what runs and waits a moment.
func (d *daemon) endTells() {
	late := time.AfterFunc(tellGrace, d.tells.stop)
	d.tells.mu.Lock()
	d.tells.over = true
	for _, u := range d.tells.users {
		if u.summing != nil {
			u.summing.Stop()
		}
	}
	d.tells.mu.Unlock()
	d.tells.tasks.Wait()
	late.Stop()
	d.tells.stop()
}
