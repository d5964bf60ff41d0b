package shell

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// valuesTimeout is how long a user who pressed the tab key waits for what only the queue
// knows. After that the answer is without it.
const valuesTimeout = 80 * time.Millisecond

// maxValues is how many values are offered: more are of no use.
const maxValues = 500

// complete prints what can stand in the last word's place, a line for each: the
// text, a tab, a note. A line that begins with a colon names what the shell knows
// better than we do (see the scripts). Whatever goes wrong, it is silent.
func complete(g *grammar.Command, shell string, words []string, out io.Writer) {
	strip := ""
	position := func(i int) int { return i }
	if shell == "bash" {
		words, strip, position = joinWords(words)
	}
	w := g.Complete(words)
	if w.RunsFrom > 0 {
		fmt.Fprintf(out, ":command %d\n", position(w.RunsFrom))
		return
	}
	answers := w.Words
	switch {
	case shellCompletes[w.Value] != "":
		fmt.Fprintln(out, ":"+shellCompletes[w.Value])
	case w.Value != "":
		answers = append(answers, valuesInTime(w, g.Name == "pba")...)
	}
	if w.Value == "USER" && strings.HasPrefix("all", w.Typed) && g.Name != "pba" {
		answers = append(answers, grammar.Candidate{Text: "all"})
	}
	for _, a := range answers {
		fmt.Fprintf(out, "%s\t%s\n", strings.TrimPrefix(w.Prefix+a.Text, strip), Printable(a.Note))
	}
}

// shellCompletes are the values that the shell itself completes best.
var shellCompletes = map[string]string{"FILE": "files", "DIR": "directories", "USER": "users", "GROUP": "groups"}

// joinWords undoes that bash parts words at = and :. strip is what bash has of
// the last word already, place says where it has a word (1 is the first).
func joinWords(words []string) (joined []string, strip string, position func(int) int) {
	var positions []int
	glue := false
	for i, word := range words {
		breaks := word != "" && strings.Trim(word, "=:") == ""
		if i > 0 && (glue || breaks) {
			joined[len(joined)-1] += word
		} else {
			joined, positions = append(joined, word), append(positions, i+1)
		}
		glue = breaks
	}
	if len(joined) > 0 {
		last := joined[len(joined)-1]
		strip = last[:strings.LastIndexAny(last, "=:")+1]
	}
	return joined, strip, func(i int) int { return positions[i-1] }
}

// valuesInTime returns values, or nil if their source is slow: a queue, a file system,
// a directory of users.
func valuesInTime(w grammar.Completion, allUsers bool) []grammar.Candidate {
	ctx, cancel := context.WithTimeout(context.Background(), valuesTimeout)
	defer cancel()
	answer := make(chan []grammar.Candidate, 1)
	go func() { answer <- values(ctx, w, allUsers) }()
	select {
	case found := <-answer:
		return found
	case <-ctx.Done():
		return nil
	}
}

func values(ctx context.Context, w grammar.Completion, allUsers bool) []grammar.Candidate {
	c, err := configfile.Load(configfile.ConvertByProgram)
	if err != nil {
		return nil
	}
	var found []grammar.Candidate
	switch w.Value {
	case "JOB", "ID":
		found = jobValues(ctx, c, w.Typed, allUsers)
	case "HOST", "HOSTS":
		found = hostValues(ctx, c)
	case "QUEUE":
		found = queueValues(ctx, c)
	case "PROJECT":
		found = projectValues(c, "", false)
	case "PROJECT[:STEP]":
		found = projectValues(c, w.Typed, true)
	case "STEP":
		found = stepValues(c)
	case "WEEK", "WEEKS":
		found = weekValues(c, time.Now())
	}
	safe := regexp.MustCompile(safeName)
	found = slices.DeleteFunc(found, func(a grammar.Candidate) bool {
		return !strings.HasPrefix(a.Text, w.Typed) || slices.Contains(w.Seen, a.Text) || !safe.MatchString(a.Text)
	})
	return found[:min(len(found), maxValues)]
}

// safeName is what a shell and a terminal take as it is. What is named otherwise
// is not offered.
const safeName = `^[A-Za-z0-9_][A-Za-z0-9_.+@:-]*(\[[0-9]+\])?$`

func readSnapshot(ctx context.Context, c configfile.Config) *backends.Snapshot {
	queue, err := configfile.Open(ctx, c)
	if err != nil {
		return nil
	}
	defer func() { _ = queue.Close() }()
	farm, err := queue.Snapshot(ctx, time.Now())
	if err != nil {
		return nil
	}
	return farm
}

// jobValues returns the user's own unfinished jobs, the latest first; all users' for
// root, or if no own job fits. An array's elements show where its ID is followed by a
// bracket.
func jobValues(ctx context.Context, c configfile.Config, typed string, allUsers bool) []grammar.Candidate {
	farm := readSnapshot(ctx, c)
	if farm == nil {
		return nil
	}
	// Dummy jobs are not acted on by hand.
	wanted := func(j *backends.Job) bool { return !j.IsDummy() }
	if own := userName(); !allUsers && own != "" && os.Geteuid() != 0 {
		if found := jobIDs(farm, typed, func(j *backends.Job) bool { return wanted(j) && j.User == own }); len(found) > 0 {
			return found
		}
	}
	return jobIDs(farm, typed, wanted)
}

func jobIDs(farm *backends.Snapshot, typed string, wanted func(*backends.Job) bool) []grammar.Candidate {
	elements := strings.Contains(typed, "[")
	var found []grammar.Candidate
	seen := map[backends.ID]bool{}
	for i := len(farm.Jobs) - 1; i >= 0; i-- {
		j := &farm.Jobs[i]
		id, note := j.ID, j.State.String()
		if id.Index != 0 && !elements {
			id, note = backends.ID{Job: id.Job}, "array"
		}
		if wanted(j) && !seen[id] && strings.HasPrefix(id.String(), typed) {
			seen[id] = true
			found = append(found, grammar.Candidate{Text: id.String(), Note: note})
		}
	}
	return found
}

// userName is "" where the directory of users has no answer.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

func hostValues(ctx context.Context, c configfile.Config) []grammar.Candidate {
	farm := readSnapshot(ctx, c)
	if farm == nil {
		return nil
	}
	var found []grammar.Candidate
	for _, h := range farm.Hosts {
		found = append(found, grammar.Candidate{Text: h.Name, Note: h.State.String()})
	}
	return found
}

// queueValues are the queue's own where it can list them, and those that the
// config names.
func queueValues(ctx context.Context, c configfile.Config) []grammar.Candidate {
	names := append(slices.Clone(c.Queues), c.Filter.LowQueue)
	if backend, err := configfile.Open(ctx, c); err == nil {
		defer func() { _ = backend.Close() }()
		if list := backend.Abilities().Queues; list != nil {
			queues, _ := list(ctx)
			for _, q := range queues {
				names = append(names, q.Name)
			}
		}
	}
	slices.Sort(names)
	var found []grammar.Candidate
	for _, name := range slices.Compact(names) {
		found = append(found, grammar.Candidate{Text: name})
	}
	return found
}

// projectValues are the projects of the snapshot that the submit filter reads,
// those that one may submit for if own; behind a colon the project's steps.
func projectValues(c configfile.Config, typed string, own bool) []grammar.Candidate {
	r := readPolicy(c)
	if r == nil {
		return nil
	}
	groups, err := os.Getgroups()
	all := !own || err != nil || os.Geteuid() == 0
	project, _, wantsStep := strings.Cut(typed, ":")
	var found []grammar.Candidate
	for i := range r.Projects() {
		p, err := r.At(i)
		switch {
		case err != nil:
			return nil
		case !all && p.GID != esub.Unknown && !slices.Contains(groups, int(p.GID)) && int(p.GID) != os.Getegid():
		case !wantsStep:
			found = append(found, grammar.Candidate{Text: p.Name})
		case p.Name == project:
			for _, step := range p.Steps {
				found = append(found, grammar.Candidate{Text: backends.JoinProject(p.Name, step)})
			}
		}
	}
	return found
}

// stepValues are the steps of all projects.
func stepValues(c configfile.Config) []grammar.Candidate {
	r := readPolicy(c)
	if r == nil {
		return nil
	}
	var found []grammar.Candidate
	for i := range r.Projects() {
		p, err := r.At(i)
		if err != nil {
			return nil
		}
		for _, step := range p.Steps {
			if !slices.Contains(found, grammar.Candidate{Text: step}) {
				found = append(found, grammar.Candidate{Text: step})
			}
		}
	}
	return found
}

// weekValues are the weeks that may be planned.
func weekValues(c configfile.Config, now time.Time) []grammar.Candidate {
	var found []grammar.Candidate
	for i := range c.PBA.Horizon + 1 {
		found = append(found, grammar.Candidate{Text: calendar.WeekOf(now.In(c.Timezone.Location()).AddDate(0, 0, 7*i), c.Timezone.Location()).String()})
	}
	return found
}
