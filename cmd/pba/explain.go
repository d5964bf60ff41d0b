package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func explainCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "why a job waits, runs, or lost its slots", ArgsUsage: "JOB",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			id, err := backends.ParseID(args[0])
			if err != nil {
				return shell.Usagef("%w", err)
			}
			return withSite(c.Context, p, p.open, func(s *site) error {
				story, err := s.explain(c.Context, id)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return shell.PrintJSON(c.App.Writer, story)
				}
				printStory(c.App.Writer, story)
				return nil
			})
		},
	}
}

// shownActs is how many of the last acts upon a job are shown.
const shownActs = 30

// story is all that is known of one job.
type story struct {
	ID         string           `json:"id"`
	User       string           `json:"user"`
	Project    string           `json:"project"`
	Step       string           `json:"step,omitempty"`
	State      backends.State   `json:"state"`
	Slots      int              `json:"slots"`
	Submitted  time.Time        `json:"submitted"`
	Started    time.Time        `json:"started,omitzero"`
	Finished   time.Time        `json:"finished,omitzero"`
	ExitCode   int              `json:"exit_code"`
	Class      string           `json:"class"`
	Pool       string           `json:"pool,omitempty"`
	Place      string           `json:"place,omitempty"`
	Dummies    string           `json:"dummies,omitempty"` // of a heavy job
	Reason     string           `json:"reason,omitempty"`  // the queue's words
	Priority   int              `json:"priority"`
	Band       string           `json:"band"`
	Waited     float64          `json:"clock_seconds"`
	Threshold  float64          `json:"pending_threshold_seconds"`
	Spared     string           `json:"spared,omitempty"`
	Tests      []testJSON       `json:"tests"`
	History    []pointJSON      `json:"priority_history"`
	Reclaims   []reclaimJSON    `json:"reclaims"`
	Skipped    []string         `json:"skipped"`
	Considered []consideredJSON `json:"considered"`
	Acts       []ledger.Act     `json:"acts"`
	victimOf   []plan.Reclaim
	ended      bool
}

type pointJSON struct {
	At       time.Time `json:"at"`
	Priority int       `json:"priority"`
	Band     string    `json:"band"`
	Why      string    `json:"why"`
}

type testJSON struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail,omitempty"`
}

type consideredJSON struct {
	Job    string `json:"job"`
	Host   string `json:"host"`
	Slots  int    `json:"slots"`
	Spared string `json:"spared,omitempty"` // why it can't be taken back; "": it can
}

// explain asks the planner of a job that the queue shows, and the ledger and the
// queue of one that has ended.
func (s *site) explain(ctx context.Context, id backends.ID) (*story, error) {
	e, err := s.explainNow(ctx, id)
	if err != nil {
		return nil, err
	}
	t := newStory(id, &e)
	if t.Acts, err = s.ledger.Acts(ctx, id, shownActs); err != nil {
		return nil, err
	}
	reclaims, err := s.ledger.ReclaimsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range reclaims {
		t.Reclaims = append(t.Reclaims, showReclaim(&reclaims[i]))
	}
	t.victimOf = reclaims
	if t.Acts == nil {
		t.Acts = []ledger.Act{}
	}
	return t, nil
}

// explainNow is what the planner says, or the ledger where the queue shows no
// such job, or can't be reached.
func (s *site) explainNow(ctx context.Context, id backends.ID) (plan.Explanation, error) {
	r, err := s.engine(true).Observe(ctx, s.now)
	if err != nil {
		if e, known := s.remembered(ctx, id); known == nil {
			return e, nil
		}
		return plan.Explanation{}, err
	}
	if e, ok := plan.Explain(r.State, r.Rules.Policy, r.State.Farm.At, id); ok {
		e.History = r.State.Memory.Jobs[id].History // without what the next cycle would write
		return e, nil
	}
	return s.remembered(ctx, id)
}

var errNobodyKnows = errors.New("neither the queue nor the ledger knows it")

// remembered tells of a job that the picture does not show.
func (s *site) remembered(ctx context.Context, id backends.ID) (plan.Explanation, error) {
	e := plan.Explanation{Threshold: time.Duration(s.PBA.PendingThreshold)}
	ended, err := s.ledger.EndedJob(ctx, id)
	if err != nil {
		return e, err
	}
	jobs, err := s.backend.Jobs(ctx, []backends.ID{id})
	if err != nil && ended == nil {
		return e, err
	}
	switch {
	case len(jobs) > 0:
		e.Job = jobs[0]
	case ended != nil:
		e.Job = ended.Job
	default:
		return e, fmt.Errorf("explain job %v: %w: see `ajobs`", id, errNobodyKnows)
	}
	if ended == nil {
		return e, nil
	}
	e.Class = "normal"
	if ended.PBA {
		e.Class = "pba"
	}
	if m := ended.Memory; m != nil {
		e.History, e.Clock, e.Requeues = m.History, m.Clock, m.Requeues
	}
	return e, nil
}

func newStory(id backends.ID, e *plan.Explanation) *story {
	j := &e.Job
	priority := e.Priority
	if priority == 0 {
		priority = j.Priority
	}
	t := &story{
		ID: id.String(), User: j.User, Project: j.Project, Step: j.Step, State: j.State, Slots: j.Slots,
		Submitted: j.Submitted, Started: j.Started, Finished: j.Ended, ExitCode: j.ExitCode,
		Class: e.Class, Pool: e.Pool, Place: e.Place, Dummies: e.Dummies, Reason: j.Reason,
		Priority: priority.Value(), Band: priority.Level().String(),
		Waited: e.Clock.Seconds(), Threshold: e.Threshold.Seconds(), Spared: e.Spared,
		Tests: []testJSON{}, History: []pointJSON{}, Reclaims: []reclaimJSON{},
		Skipped: append([]string{}, e.Skipped...), Considered: []consideredJSON{}, ended: j.State.Ended(),
	}
	for _, p := range e.History {
		t.History = append(t.History, pointJSON{p.At, p.Priority.Value(), p.Priority.Level().String(), p.Why})
	}
	for _, x := range e.Tests {
		t.Tests = append(t.Tests, testJSON(x))
	}
	for _, x := range e.Considered {
		t.Considered = append(t.Considered, consideredJSON{Job: x.ID.String(), Host: x.Host, Slots: x.Slots, Spared: x.Spared})
	}
	return t
}

func printStory(out io.Writer, t *story) {
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		rest := strings.TrimLeft(text, " ")
		fmt.Fprintln(out, text[:len(text)-len(rest)]+shell.OneLine(rest)) // an error may have several
	}
	line("Job %s of %s, project %s, %s: %s%s", t.ID, t.User, dash(backends.JoinProject(t.Project, t.Step)), count(t.Slots, "slot"), t.State, since(t))
	if t.Reason != "" && !t.ended {
		line("The queue says: %s", t.Reason)
	}
	for _, x := range t.Tests {
		line("  %s %s%s", mark(x.Passed), x.Name, ifTrue(x.Detail != "", ": "+x.Detail))
	}
	if t.Place != "" {
		line("Class %s: %s.", t.Class, t.Place)
	}
	if t.Dummies != "" {
		line("Memory: it %s.", t.Dummies)
	}
	if !t.ended && t.State != backends.Running {
		line("Priority %d in the band %s.", t.Priority, t.Band)
	}
	for _, p := range t.History {
		line("  %s  %d (%s): %s", p.At.Local().Format("15:04:05"), p.Priority, p.Band, p.Why)
	}
	if t.Waited > 0 || t.Class == "pba" && t.State == backends.Pending {
		line("Clock: it has waited %v within its pool; slots are taken back for it after %v.", seconds(t.Waited), seconds(t.Threshold))
	}
	printVictims(line, t)
	printActs(line, t)
}

func printVictims(line func(string, ...any), t *story) {
	for i := range t.victimOf {
		r := &t.victimOf[i]
		if r.Beneficiary.String() == t.ID {
			line("Reclaim %d: %s", r.ID, reclaimLine(showReclaim(r)))
			continue
		}
		for _, v := range r.Victims {
			if v.ID.String() == t.ID {
				line("It lost its slots (%s) at %s to job %v of project %s, reclaim %d: %s%s.", v.Mode, latestOf(r.Acted, r.Planned).Local().Format("2006-01-02 15:04:05"),
					r.Beneficiary, r.Project, r.ID, r.Phase, ifTrue(r.Why != "", ", "+r.Why))
				if v.Fate == plan.Lost {
					line("Its host went down in the midst of that: the queue ended it and did not put it back. Submit it again.")
				}
			}
		}
	}
	for _, s := range t.Skipped {
		line("Not done: %s", s)
	}
	if t.State == backends.Running && t.Class == "normal" {
		if t.Spared != "" {
			line("It can't be taken back: %s.", t.Spared)
		} else {
			line("It can be taken back for a job that was promised its slots.")
		}
	}
	if len(t.Considered) > 0 {
		line("What could be taken back for it:")
	}
	for _, c := range t.Considered {
		line("  job %s on %s, %s: %s", c.Job, c.Host, count(c.Slots, "slot"), orText(c.Spared, "could be taken back"))
	}
}

func printActs(line func(string, ...any), t *story) {
	if len(t.Acts) > 0 {
		line("What pba did to it:")
	}
	for _, a := range t.Acts {
		text := fmt.Sprintf("  %s  %s", a.At.Local().Format("2006-01-02 15:04:05"), a.Verb)
		if a.For != (backends.ID{}) && a.For.String() != t.ID {
			text += " for " + a.For.String()
		}
		text += fmt.Sprintf(" (%s): %s", a.Outcome, a.Reason)
		if a.Error != "" {
			text += ": " + a.Error
		}
		line("%s; by %s, seen %s", text, a.Who, a.Snapshot.Local().Format("15:04:05"))
	}
}

func since(t *story) string {
	at := t.Submitted
	switch {
	case t.ended:
		text := ""
		if t.ExitCode != 0 {
			text = fmt.Sprintf(" with %d", t.ExitCode)
		}
		return text + " at " + t.Finished.Local().Format("2006-01-02 15:04:05")
	case t.State == backends.Running:
		at = t.Started
	}
	if at.IsZero() {
		return ""
	}
	return " since " + at.Local().Format("2006-01-02 15:04:05")
}

func latestOf(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func mark(passed bool) string {
	if passed {
		return "yes"
	}
	return "NO "
}

func orText(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
