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
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

type rebalanceOptions struct {
	dryRun   bool
	every    time.Duration
	runFor   time.Duration
	verbose  bool
	json     bool
	repeated bool
}

func rebalanceCommand(p process) *cli.Command {
	every, runFor := &duration{}, &duration{}
	return &cli.Command{
		Name: "rebalance", Usage: "look at the queue, plan, act, record; what cron or a service runs",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done and why; change nothing", DisableDefaultText: true},
			&cli.GenericFlag{Name: "every", Value: every, Usage: "a cycle each `DURATION` (with --for: pba.every)"},
			&cli.GenericFlag{Name: "for", Value: runFor, Usage: "end after `DURATION`"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print each action and its reason", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, one document a cycle", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			o := rebalanceOptions{
				dryRun: c.Bool("dry-run"), every: time.Duration(every.value), runFor: time.Duration(runFor.value),
				verbose: c.Bool("verbose"), json: c.Bool("json"),
			}
			o.repeated = o.every > 0 || o.runFor > 0
			switch {
			case o.dryRun && o.repeated:
				return shell.Usagef("--dry-run is one cycle: leave --every and --for out")
			case o.runFor > 0 && o.every > o.runFor:
				return shell.Usagef("--every %v is longer than --for %v", o.every, o.runFor)
			}
			return rebalance(c.Context, p, o, c.App.Writer)
		},
	}
}

func rebalance(ctx context.Context, p process, o rebalanceOptions, out io.Writer) error {
	if o.dryRun {
		return withSite(ctx, p, p.open, func(s *site) error { return dryRun(ctx, s, o, out) })
	}
	start := p.now()
	c, err := p.load()
	if err != nil {
		return err
	}
	if err := p.adminOnly(c, "rebalance"); err != nil {
		return err
	}
	period := time.Duration(c.PBA.Every)
	if o.every > 0 {
		period = o.every
	}
	schedule := pba.Schedule{For: o.runFor}
	if o.repeated {
		schedule.Every = period
	}
	if schedule.For > 0 && schedule.Every > schedule.For {
		return shell.Usagef("--for %v is shorter than a cycle (pba.every: %v)", schedule.For, schedule.Every)
	}
	unlock, err := pba.Lock(ctx, c.Paths.State, pba.RunLock, period)
	if errors.Is(err, pba.ErrBusy) {
		if o.verbose {
			fmt.Fprintln(out, "Another pba rebalance is at work: nothing to do.")
		}
		return nil
	}
	if err != nil {
		return missingDirectory(c, err)
	}
	defer unlock()
	log := newJournal(c.Log, p.stderr, o)
	err = schedule.Run(ctx, start, func(ctx context.Context) (bool, error) {
		err := withSite(ctx, p, p.open, func(s *site) error { return oneCycle(ctx, s, o, log, out) })
		again := errors.Is(err, backends.ErrUnreachable) || errors.Is(err, pba.ErrBusy) || errors.Is(err, ledger.ErrLocked)
		if err != nil && again && o.repeated {
			log.failed(err)
			return true, &shell.ExitError{Code: shell.ExitTryAgain}
		}
		return err == nil, err
	})
	if o.repeated && errors.Is(ctx.Err(), context.Canceled) {
		return nil // who runs it asked it to end, and between two actions it did
	}
	return err
}

// missingDirectory says what to do where nobody has run pba init.
func missingDirectory(c configfile.Config, err error) error {
	if l, openErr := ledger.Open(ledgerPath(c)); openErr != nil {
		return openErr
	} else if err := l.Close(); err != nil {
		return err
	}
	return err
}

// oneCycle is one rebalance, while no edit goes on.
func oneCycle(ctx context.Context, s *site, o rebalanceOptions, log *journal, out io.Writer) error {
	return s.locked(ctx, s.Paths.State, func() error {
		start := s.now()
		r, err := s.engine(false).Cycle(ctx, s.now)
		if printErr := printCycle(out, &r, o); err == nil && printErr != nil {
			err = printErr
		}
		if err != nil {
			return err
		}
		if o.repeated {
			log.cycle(&r, s.now().Sub(start))
			return nil
		}
		return r.Failed()
	})
}

func dryRun(ctx context.Context, s *site, o rebalanceOptions, out io.Writer) error {
	r, err := s.engine(true).Preview(ctx, s.now)
	if err != nil {
		return err
	}
	o.verbose = true
	return printCycle(out, &r, o)
}

// What --json prints of a plan.
type planJSON struct {
	At       time.Time     `json:"at"`
	Mode     string        `json:"mode"`
	Note     string        `json:"note,omitempty"`
	Actions  []actionJSON  `json:"actions"`
	Skipped  []skippedJSON `json:"skipped"`
	Warnings []string      `json:"warnings"`
}

type actionJSON struct {
	Verb    string `json:"verb"`
	Job     string `json:"job"`
	For     string `json:"for,omitempty"`
	Host    string `json:"host,omitempty"`
	Reason  string `json:"reason"`
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

type skippedJSON struct {
	Job    string `json:"job"`
	Reason string `json:"reason"`
}

func toJSON(r *pba.Result, dryRun bool) planJSON {
	p := planJSON{At: r.Plan.At, Mode: modeOf(r, dryRun), Note: r.Note, Actions: []actionJSON{}, Skipped: []skippedJSON{}, Warnings: r.Plan.Warnings}
	if p.Warnings == nil {
		p.Warnings = []string{}
	}
	outcomes := map[int]ledger.Outcome{}
	for _, o := range r.Outcomes {
		outcomes[o.Action] = o
	}
	for i := range r.Plan.Actions {
		a := &r.Plan.Actions[i]
		o := outcomes[i]
		p.Actions = append(p.Actions, actionJSON{
			Verb: string(a.Verb), Job: a.Job.String(), For: beneficiary(a), Host: hostOf(a, r.State.Farm),
			Reason: a.Reason, Outcome: string(o.Result), Error: o.Error,
		})
	}
	for _, s := range r.Plan.Skipped {
		p.Skipped = append(p.Skipped, skippedJSON{Job: s.Job.String(), Reason: s.Reason})
	}
	return p
}

func modeOf(r *pba.Result, dryRun bool) string {
	switch {
	case dryRun:
		return "dry-run"
	case r.Rules.Observe:
		return string(ledger.Observe)
	}
	return string(ledger.Live)
}

func beneficiary(a *plan.Action) string {
	if a.For == (backends.ID{}) {
		return ""
	}
	return a.For.String()
}

// hostOf names the hosts that an action is about, else those that its job is on.
func hostOf(a *plan.Action, farm *backends.Farm) string {
	if len(a.Hosts) > 0 {
		return strings.Join(a.Hosts, " ")
	}
	for i := range farm.Jobs {
		if farm.Jobs[i].ID != a.Job {
			continue
		}
		var names []string
		for _, p := range farm.Jobs[i].Hosts {
			names = append(names, p.Host)
		}
		return strings.Join(names, " ")
	}
	return ""
}

// printCycle prints what a cycle did. One that nobody watches says nothing.
func printCycle(out io.Writer, r *pba.Result, o rebalanceOptions) error {
	shown := toJSON(r, o.dryRun)
	if o.json {
		return shell.PrintJSON(out, shown)
	}
	if o.repeated && !o.verbose {
		return nil
	}
	if r.State.Farm == nil && r.Note == "" {
		return nil // the error says it all
	}
	fmt.Fprintln(out, headline(&shown))
	if !o.verbose {
		return nil
	}
	if len(shown.Actions) > 0 {
		t := table.New("action", "job", "for", "host", "outcome", "reason")
		for _, a := range shown.Actions {
			reason := a.Reason
			if a.Error != "" {
				reason += " (" + a.Error + ")"
			}
			t.Row(a.Verb, a.Job, dash(otherThan(a.Job, a.For)), dash(a.Host), dash(a.Outcome), reason)
		}
		if err := table.Print(out, table.Text, t, nil); err != nil {
			return err
		}
	}
	for _, s := range shown.Skipped {
		fmt.Fprintf(out, "Left out: job %s: %s\n", s.Job, shell.OneLine(s.Reason))
	}
	for _, w := range shown.Warnings {
		fmt.Fprintf(out, "Warning: %s\n", shell.OneLine(w))
	}
	return nil
}

// otherThan leaves out what only repeats.
func otherThan(job, beneficiary string) string {
	if job == beneficiary {
		return ""
	}
	return beneficiary
}

func headline(p *planJSON) string {
	at := p.At
	if at.IsZero() {
		at = time.Now()
	}
	text := at.Local().Format("15:04:05") + " "
	switch {
	case p.Note != "" && len(p.Actions) == 0:
		return text + shell.OneLine(p.Note)
	case p.Mode == "dry-run":
		text += "would do "
	case p.Mode == string(ledger.Observe):
		text += "observed, would have done "
	default:
		text += "did "
	}
	text += fmt.Sprintf("%s, %d left out", count(len(p.Actions), "action"), len(p.Skipped))
	if p.Note != "" {
		text += "; " + shell.OneLine(p.Note)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
