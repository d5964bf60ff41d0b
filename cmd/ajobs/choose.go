package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/nearest"
)

// choice selects jobs.
type choice struct {
	user    string // "": anyone
	queue   string
	project string // with or without its step
	host    string
	name    string // * stands for any text
	dummies bool   // dummy jobs, too

	jobGroup, profile string
	chosen            []func(*backends.Job) bool // by jobGroup and profile, as the queue knows them
}

func choiceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "u", Usage: "jobs of `USER`; all: of every user (default: your own)"},
		&cli.StringFlag{Name: "q", Usage: "jobs in `QUEUE`"},
		&cli.StringFlag{Name: "P", Usage: "jobs of `PROJECT`"},
		&cli.StringFlag{Name: "J", Usage: "jobs of this `NAME`; * stands for any text"},
	}
}

// countChoices returns the number of choiceFlags that were given.
func countChoices(c *cli.Context) int {
	n := 0
	for _, f := range choiceFlags() {
		if c.IsSet(f.Names()[0]) {
			n++
		}
	}
	return n
}

// choiceOf reads choiceFlags (and -m, where a command has it). Without -u it selects
// the jobs of the user own.
func choiceOf(c *cli.Context, own string) (choice, error) {
	for _, name := range []string{"u", "q", "P", "J", "m", "g", "app"} {
		if c.IsSet(name) && c.String(name) == "" {
			return choice{}, shell.Usagef("option -%s: empty name", name)
		}
	}
	chosen := choice{user: own, queue: c.String("q"), project: c.String("P"), host: c.String("m"), name: c.String("J"), jobGroup: c.String("g"), profile: c.String("app")}
	if chosen.jobGroup != "" {
		if err := backends.CheckGroup(chosen.jobGroup); err != nil {
			return choice{}, shell.Usagef("option -g: %w", err)
		}
	}
	switch user := c.String("u"); user {
	case "":
	case "all":
		chosen.user, chosen.dummies = "", true
	default:
		chosen.user, chosen.dummies = user, true
	}
	return chosen, nil
}

// listedBy reads which jobs a command lists: those that its arguments name, and what choiceOf reads.
// Without arguments and -u these are the user's own.
func listedBy(c *cli.Context, p process) (choice, []bsub.JobArg, error) {
	args, err := jobArgs(c.Args().Slice())
	if err != nil {
		return choice{}, nil, err
	}
	args = slices.DeleteFunc(args, func(a bsub.JobArg) bool { return a.All })
	own := ""
	if len(args) == 0 {
		own = p.user()
	}
	chosen, err := choiceOf(c, own)
	return chosen, args, err
}

// ask asks the queue which jobs are in the group, and have the profile, that are to be chosen.
func (c *choice) ask(ctx context.Context, queue backends.Backend) error {
	for _, by := range []struct {
		value, does, why string
		ask              func(context.Context, string) (func(*backends.Job) bool, error)
	}{
		{c.jobGroup, "choose jobs by their job group (-g)", "choose by -J NAME* or -P PROJECT", queue.Abilities().InGroup},
		{c.profile, "choose jobs by their application profile (-app)", "choose by -J NAME* or -P PROJECT", queue.Abilities().OfProfile},
	} {
		switch {
		case by.value == "":
			continue
		case by.ask == nil:
			return fmt.Errorf("%s: %w: %s", by.does, backends.ErrUnable, by.why)
		}
		chosen, err := by.ask(ctx, by.value)
		if err != nil {
			return err
		}
		c.chosen = append(c.chosen, chosen)
	}
	return nil
}

// Dummy jobs are chosen only where -u names a user or all: users did not submit them.
func (c choice) includes(j *backends.Job) bool {
	for _, chosen := range c.chosen {
		if !chosen(j) {
			return false
		}
	}
	return (c.dummies || !j.IsDummy()) &&
		(c.user == "" || j.User == c.user) &&
		(c.queue == "" || j.Queue == c.queue) &&
		(c.project == "" || j.Project == c.project || backends.JoinProject(j.Project, j.Step) == c.project) &&
		(c.host == "" || runsOn(j, c.host)) &&
		(c.name == "" || matches(c.name, j.Name) || matches(c.name, bsub.JobName(j)) || matches(c.name, bsub.ArrayName(j)))
}

func runsOn(j *backends.Job, host string) bool {
	for _, p := range j.Hosts {
		if p.Host == host {
			return true
		}
	}
	return false
}

// matches reports whether a text matches a pattern, in which * is any text.
func matches(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// jobArgs reads the words of a command line that name jobs, each once.
func jobArgs(words []string) ([]bsub.JobArg, error) {
	var args []bsub.JobArg
	seen := map[string]bool{}
	for _, word := range words {
		arg, err := bsub.ParseJobArg(word)
		if named, ok := bsub.JobByName(word); err != nil && ok {
			arg, err = named, nil
		}
		if err != nil {
			return nil, &shell.ExitError{Code: shell.ExitUsage, Err: err}
		}
		if !seen[word] {
			seen[word] = true
			args = append(args, arg)
		}
	}
	return args, nil
}

// idsOf returns the IDs that a user's arguments name. The queue is asked for those of parts, and
// for jobs by their names.
func idsOf(ctx context.Context, queue backends.Backend, p process, args []bsub.JobArg) ([]backends.ID, error) {
	var ids []backends.ID
	var farm *backends.Snapshot
	for _, arg := range args {
		if arg.Name != "" {
			if farm == nil {
				var err error
				if farm, err = queue.Snapshot(ctx, p.now().Add(-endedFor)); err != nil {
					return nil, err
				}
			}
			id, err := idOfName(farm, p.user(), arg.Name)
			if err != nil {
				return nil, &shell.ExitError{Code: shell.ExitFailure, Err: err}
			}
			ids = append(ids, id)
			continue
		}
		if !arg.Parted {
			ids = append(ids, arg.IDs()...)
			continue
		}
		part := queue.Abilities().Part
		if part == nil {
			return nil, shell.Usagef("%d+%d: this queue has no jobs of several parts", arg.Job, arg.Part)
		}
		id, err := part(ctx, arg.Job, arg.Part)
		if errors.Is(err, backends.ErrUnknownJob) {
			return nil, &shell.ExitError{Code: shell.ExitFailure, Err: fmt.Errorf("Job <%d+%d> is not found", arg.Job, arg.Part)} //nolint:staticcheck // LSF's words
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// idOfName returns the ID of the user's own job of a name: of an array's name the array's. Several
// jobs of the name are an error that lists them: -J and 0 act on all of them.
func idOfName(farm *backends.Snapshot, user, name string) (backends.ID, error) {
	found, known := bsub.JobsNamed(farm, user, name)
	switch len(found) {
	case 0:
		return backends.ID{}, fmt.Errorf("%s: none of your jobs has this name%s", bsub.Visible(name), bsub.Visible(nearest.Hint(name, known)))
	case 1:
		return found[0], nil
	}
	return backends.ID{}, fmt.Errorf("%s: %d of your jobs have this name: name one of them by its ID (%s), or choose all by -J", bsub.Visible(name), len(found), bsub.ListIDs(found))
}
