package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// maxExplained bounds the jobs that one command explains.
const maxExplained = 100

func explainCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "print why a job waits, runs, or lost its slots", ArgsUsage: "JOB...",
		Description: "JOB is a job's ID, 12 or 12[3], or its name: your own job of that name, or another user's if you have none.\n" +
			"Up to 100 JOBs are explained at once, from one snapshot of the queue.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print JSON: an object, or an array for several jobs, without those that are not known", DisableDefaultText: true},
			&cli.BoolFlag{Name: "past", Usage: "with --json: only what the ledger has of the jobs; the queue is not asked", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, -1)
			if err != nil {
				return err
			}
			if len(args) > maxExplained {
				return shell.Usagef("%d jobs: at most %d can be explained at once", len(args), maxExplained)
			}
			past := c.Bool("past")
			if past && !c.Bool("json") {
				return shell.Usagef("--past is for --json")
			}
			return p.ask(c, func(ctx context.Context, d answers) error {
				stories, err := explained(ctx, d, args, past)
				if !past {
					addStates(ctx, d, stories)
				}
				if c.Bool("json") {
					return cmp.Or(printStories(c.App.Writer, stories, len(args) > 1), err)
				}
				for i, story := range stories {
					if i > 0 {
						fmt.Fprintln(c.App.Writer)
					}
					printStory(c.App.Writer, story)
				}
				return err
			})
		},
	}
}

// explained returns the stories of the jobs that are known; the error is about the others.
func explained(ctx context.Context, d answers, args []string, past bool) ([]*desk.Story, error) {
	var failed []error
	var ids []backends.ID
	for _, arg := range args {
		if id, err := d.JobNamed(ctx, arg); err != nil {
			failed = append(failed, err)
		} else {
			ids = append(ids, id)
		}
	}
	var stories []*desk.Story
	if len(ids) > 0 {
		for _, x := range d.ExplainEach(ctx, ids, past) {
			if x.Err != nil {
				failed = append(failed, x.Err)
			} else {
				stories = append(stories, x.Story)
			}
		}
	}
	switch len(failed) {
	case 0:
		return stories, nil
	case 1:
		return stories, failed[0]
	}
	return stories, fmt.Errorf("%w; and %s", failed[0], printable.Count(len(failed)-1, "more error"))
}

func printStories(out io.Writer, stories []*desk.Story, several bool) error {
	switch {
	case several:
		return shell.PrintJSON(out, append([]*desk.Story{}, stories...))
	case len(stories) == 1:
		return shell.PrintJSON(out, stories[0])
	}
	return nil
}

func printStory(out io.Writer, t *desk.Story) {
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		rest := strings.TrimLeft(text, " ")
		fmt.Fprintln(out, text[:len(text)-len(rest)]+shell.OneLine(rest)) // an error may have several lines lines
	}
	line("Job %s of %s, project %s, %s: %s%s", t.ID, t.User, dash(backends.JoinProject(t.Project, t.Step)), printable.Count(t.Slots, "slot"), t.State, since(t))
	if t.Reason != "" && t.State != backends.Done {
		line("The queue says: %s", t.Reason)
	}
	if t.Progress != "" {
		line("Progress: %s", t.Progress)
	}
	if t.Ends != "" {
		line("Expected to end: %s.", t.Ends)
	}
	if t.Minimum != "" {
		line("Minimum: %s.", t.Minimum)
	}
	if t.Deadline != "" {
		line("Deadline: %s.", t.Deadline)
	}
	for _, limit := range t.Limited {
		line("Limited: %s.", limit)
	}
	if t.KeptOn != "" {
		line("Its state is on %s.", t.KeptOn)
	}
	for _, x := range t.Tests {
		line("  %s %s%s", yesNo(x.Passed), x.Name, ifTrue(x.Detail != "", ": "+x.Detail))
	}
	if t.Place != "" {
		line("Class %s: %s.", t.Class, t.Place)
	}
	if t.Dummies != "" {
		line("Memory: it %s.", t.Dummies)
	}
	if !t.State.Ended() && t.State != backends.Running {
		line("Priority %d in the band %s.", t.Priority, t.Band)
	}
	for _, p := range t.History {
		line("  %s  %d (%s): %s", p.At.Local().Format("15:04:05"), p.Priority, p.Band, p.Why)
	}
	if t.Waited > 0 || t.Class == "pba" && t.State == backends.Pending {
		line("Clock: it has waited %v within its pool; slots are preempted for it after %v.", seconds(t.Waited), seconds(t.Threshold))
	}
	if t.Outlook != nil {
		line("%s", t.Outlook)
	}
	printVictims(line, t)
	printActs(line, t)
}

func printVictims(line func(string, ...any), t *desk.Story) {
	for _, r := range t.Reclaims {
		if r.Beneficiary == t.ID {
			line("Reclaim %d: %s", r.ID, reclaimLine(r))
			continue
		}
		for _, v := range r.Victims {
			if v.Job == t.ID {
				line("It lost its slots (%s) at %s to job %s of project %s, reclaim %d: %s%s.", v.Mode, timeOr(r.Acted, r.Planned).Local().Format("2006-01-02 15:04:05"),
					r.Beneficiary, r.Project, r.ID, r.Phase, ifTrue(r.Why != "", ", "+r.Why))
				if v.Fate == desk.Lost {
					line("Its host went down in the midst of that: the queue ended it and did not put it back. Submit it again.")
				}
				if v.Save > 0 {
					line("It was asked to save itself within %v: %s.", seconds(v.Save), saved(v))
				}
			}
		}
	}
	if t.Preempted > 0 && !t.State.Ended() {
		line("Lost so far: %s, %.2f slot-hours of work.", printable.Count(t.Preempted, "preemption"), t.Lost/3600)
	}
	if t.Stake != "" {
		line("At stake: %s.", t.Stake)
	}
	for _, s := range t.Skipped {
		line("Not done: %s", s)
	}
	if t.State == backends.Running && t.Class == "normal" {
		if t.Spared != "" {
			line("It can't be preempted: %s.", t.Spared)
		} else {
			line("It can be preempted for a job within its pool.")
		}
	}
	if len(t.Considered) > 0 {
		line("Jobs that could be preempted for it:")
	}
	for _, c := range t.Considered {
		line("  job %s on %s, %s: %s", c.Job, c.Host, printable.Count(c.Slots, "slot"), orText(c.Spared, "could be preempted"))
	}
}

// saved says what became of a victim that was asked to save itself.
func saved(v desk.Victim) string {
	switch {
	case v.Fate == desk.Finished:
		return "it was done, and ended"
	case v.Saved == desk.Saved:
		return "it did, and lost nothing"
	case v.Saved == desk.SaveFailed:
		return "it did not"
	}
	return "it is not known yet whether it did"
}

func printActs(line func(string, ...any), t *desk.Story) {
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

func since(t *desk.Story) string {
	at := t.Submitted
	switch {
	case t.State.Ended():
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

func timeOr(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func yesNo(passed bool) string {
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
