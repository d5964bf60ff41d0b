package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// jobTexts are the fields of `squeue --json` that matter here. Some of them -O lacks,
// and no user's text can be taken for another field.
type jobTexts struct {
	ID      int64  `json:"job_id"`
	Array   number `json:"array_job_id"`  // 0: none
	Task    number `json:"array_task_id"` // not set: a job by itself, or what is left of an array
	State   state  `json:"job_state"`
	User    string `json:"user_name"`
	Rank    number `json:"priority"`
	Nice    number `json:"nice"`
	Comment string `json:"comment"`
	Admin   string `json:"admin_comment"`
	Starts  number `json:"restart_cnt"`
}

// id is the job's; of what is left of an array it is the array's.
func (j *jobTexts) id() backends.ID {
	switch {
	case j.Array.value == 0 || !j.Task.set:
		return backends.ID{Job: j.ID}
	case j.Task.value == 0:
		return backends.ID{Job: j.Array.value, Index: backends.ZeroIndex}
	}
	return backends.ID{Job: j.Array.value, Index: int(j.Task.value)}
}

// name is what scontrol calls the job; an array's name means the whole.
func (j *jobTexts) name() string { return name(j.id()) }

// wholeArray reports whether the name also means jobs that have records of their own.
func (j *jobTexts) wholeArray() bool { return j.Array.value != 0 && !j.Task.set }

// saves reports whether a job was asked to save itself and is still to be requeued.
func (j *jobTexts) saves() bool {
	switch j.State {
	case "RUNNING", "SUSPENDED", "COMPLETING", "FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY": // see comesBack
		_, r, _ := splitComment(j.Admin)
		return !r.save.IsZero() && j.Starts.value < int64(r.run)
	}
	return false
}

// parseTexts reads `squeue --json`: the jobs that are not over. While one is to save itself
// it must keep its record.
func parseTexts(text []byte) ([]jobTexts, error) {
	jobs, err := parseSqueue[jobTexts](text)
	if i := slices.IndexFunc(jobs, func(j jobTexts) bool { return j.saves() }); i >= 0 {
		return nil, fmt.Errorf("job %s was asked to save itself, and is still to be requeued: `pba rebalance` does that, paused too", jobs[i].name())
	}
	return slices.DeleteFunc(jobs, func(j jobTexts) bool {
		return j.State != "PENDING" && j.State != "RUNNING" && j.State != "SUSPENDED"
	}), err
}

// parseSqueue reads what T has room for of the jobs of `squeue --json`.
func parseSqueue[T any](text []byte) ([]T, error) {
	var answer struct{ Jobs []T }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("squeue --json: %w", err)
	}
	return answer.Jobs, nil
}

// stripping is a new text for jobs.
type stripping struct{ comment, admin string }

// strip returns the jobs' texts without Allotment's part, and the jobs that get each.
// Whole arrays come first: elements' own texts are written over theirs.
func strip(jobs []jobTexts) (order []stripping, names map[stripping][]string) {
	names = map[stripping][]string{}
	for _, whole := range []bool{true, false} {
		for i := range jobs {
			j := &jobs[i]
			s := stripping{comment: userText(j.Comment), admin: siteText(j.Admin)}
			if j.wholeArray() != whole || s.comment == j.Comment && s.admin == j.Admin {
				continue
			}
			if names[s] == nil {
				order = append(order, s)
			}
			names[s] = append(names[s], j.name())
		}
	}
	return order, names
}

// splitOwn splits off the engine's own jobs, by their names.
func splitOwn(jobs []jobTexts, trusted map[string]bool) (own []string, others []jobTexts) {
	for i := range jobs {
		j := &jobs[i]
		if text := ownJob(j.Comment); trusted[j.User] && text.is() {
			own = append(own, j.name())
		} else {
			others = append(others, *j)
		}
	}
	return own, others
}

// userText is a comment without the filter's tag.
func userText(comment string) string {
	if !strings.HasPrefix(comment, backends.TagPrefix) {
		return comment
	}
	_, rest, _ := strings.Cut(comment, " ")
	return rest
}

// siteText is an AdminComment without the tag, and without what the engine remembers.
func siteText(comment string) string {
	head, _, rest := splitComment(comment)
	if head == "" || strings.HasPrefix(head, backends.TagPrefix) {
		return strings.TrimPrefix(rest, " ")
	}
	return head + rest
}

const (
	atOnce       = 500 // jobs in one command
	forgetRounds = 3   // arrays may split, and jobs come, meanwhile
)

// Forget removes tags, records and site factors from all jobs that have not ended, and
// ends the engine's own jobs, which would be unknown then. The node list of a running
// job can't be changed any more (22.05).
func (c *Client) Forget(ctx context.Context) (int, error) {
	jobs, err := c.texts(ctx)
	if err != nil {
		return 0, err
	}
	config, err := c.run(ctx, nil, "scontrol", "show", "config")
	if err != nil {
		return 0, err
	}
	own, jobs := splitOwn(jobs, trustedUsers(parseConfig(config)))
	for some := range slices.Chunk(own, atOnce) {
		if _, err := c.run(ctx, nil, append([]string{"scancel", "--quiet"}, some...)...); err != nil && !errors.Is(err, backends.ErrWrongState) && !errors.Is(err, backends.ErrUnknownJob) {
			return 0, err
		}
	}
	ranked, err := c.unrank(ctx, config, jobs)
	if err != nil {
		return 0, err
	}
	touched := map[int64]bool{}
	for _, id := range ranked {
		touched[id] = true
	}
	var failed error
	for range forgetRounds {
		order, names := strip(jobs)
		if len(order) == 0 {
			return len(touched), nil
		}
		for i := range jobs {
			if j := &jobs[i]; userText(j.Comment) != j.Comment || siteText(j.Admin) != j.Admin {
				touched[j.ID] = true
			}
		}
		failed = nil
		for _, s := range order {
			for some := range slices.Chunk(names[s], atOnce) {
				if _, err := c.run(ctx, nil, "scontrol", "update", "JobId="+strings.Join(some, ","), "AdminComment="+s.admin, "Comment="+s.comment); err != nil && failed == nil {
					failed = err // the next round shows whether it matters: a job may have ended
				}
			}
		}
		if jobs, err = c.texts(ctx); err != nil {
			return 0, err
		}
	}
	if order, names := strip(jobs); len(order) > 0 {
		return 0, fmt.Errorf("job %s keeps its tag: %w", names[order[0]][0], failed)
	}
	return len(touched), nil
}

// unrank sets the site factors of all jobs to 0 that have, or may have, one, and
// returns those that have one.
func (c *Client) unrank(ctx context.Context, config []byte, jobs []jobTexts) (ranked []int64, err error) {
	scale, err := NewScale(config)
	if err != nil {
		return nil, nil // then there are none
	}
	var names []string
	for i := range jobs {
		// A priority that Nice would bring below 1 is 1 (22.05).
		has := jobs[i].Rank.value > 1 && jobs[i].Rank.value+jobs[i].Nice.value >= scale.Unit
		if has {
			ranked = append(ranked, jobs[i].ID)
		}
		if has || jobs[i].Rank.value == 0 { // squeue shows 0 for held and suspended jobs
			names = append(names, jobs[i].name())
		}
	}
	for some := range slices.Chunk(names, atOnce) {
		if _, err := c.run(ctx, nil, "scontrol", "update", "JobId="+strings.Join(some, ","), "SiteFactor=0"); err != nil && !onlyEnded(err) {
			return nil, err
		}
	}
	return ranked, nil
}

// onlyEnded reports whether scontrol failed only for jobs that have ended meanwhile; it goes
// on with the others then.
func onlyEnded(err error) bool {
	stderr, ended := reconcile.ExitFailure(err)
	for line := range strings.Lines(stderr) {
		ended = ended && (strings.Contains(line, "Invalid job id") || strings.Contains(line, "already finished"))
	}
	return ended
}

func (c *Client) texts(ctx context.Context) ([]jobTexts, error) {
	text, err := c.run(ctx, nil, "squeue", "--json")
	if err != nil {
		return nil, err
	}
	return parseTexts(text)
}
