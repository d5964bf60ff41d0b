package esub

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/nearest"
)

// Request is a submission, whatever the queuing system.
type Request struct {
	User        string
	UID         int64
	Groups      []int64 // numbers of all the user's groups; nil: not known, then the test is left to the engine
	Project     string  // as typed, with its step; "": none
	Queue       string  // "": the default
	Slots       int     // 0: one
	Memory      int64   // bytes that the job needs; 0: not said
	Preempt     string  // ALLOTMENT_PREEMPT
	Checkpoint  string  // ALLOTMENT_CHECKPOINT
	Minimum     string  // ALLOTMENT_MIN
	Deadline    string  // ALLOTMENT_DEADLINE
	SavedByLSF  bool    // bsub -k: LSF makes checkpoints of it
	Description string  // the user's own text
	Interactive bool
	Exclusive   bool
	NoRequeue   bool
	Delayed     bool  // its owner gave it a begin time
	Begin       int64 // that time (UNIX seconds); 0: none, or not known
	Priority    int64 // its priority (-sp), in the queue's own count; 0: not said
	ByEngine    bool  // pba ranks a job

	Modify     bool // a pending job is changed (bmod): only what is given counts
	HasProject bool // of a Modify: the project is given, or taken away
}

// Decision is what becomes of a job. The zero Decision lets it through as it is.
type Decision struct {
	Reject   bool
	Queue    string            // goes here instead; "": stays where it is
	Priority backends.Priority // is submitted with this; 0: with what it has
	Hold     time.Time         // does not start before: the engine's hold; zero: none
	Mark     bool              // the filter leaves a mark: see MarkName
	Tag      backends.Tag
	Describe bool     // Description replaces the user's text
	Text     string   // the user's text without a tag that isn't ours
	Messages []string // for the user, a line each, without control characters
}

// Description is the tag and the user's text, as it stands in the job.
func (d *Decision) Description() string {
	switch {
	case d.Tag == backends.Tag{}:
		return d.Text
	case d.Text == "":
		return d.Tag.String()
	}
	return d.Tag.String() + " " + d.Text
}

// Reasons not to trust a snapshot that is whole.
var (
	ErrStale    = errors.New("out of date")
	ErrMismatch = errors.New("snapshot and generation do not belong together")
)

// Decide runs the tests of R1 in their order and decides what becomes of a job. An
// error means that the snapshot can't be relied upon: the job goes through as it is
// (R3). ErrMismatch may be a moment between two renames: read again.
func Decide(req Request, r *Reader, g Generation, now time.Time) (Decision, error) {
	s := r.Settings()
	if g.Snapshot != r.Identity() {
		return Decision{}, ErrMismatch
	}
	if g.At.IsZero() {
		return Decision{}, fmt.Errorf("%w: pba rebalance has not run yet", ErrStale)
	}
	if age, most := now.Sub(g.At), time.Duration(s.StaleAfter); age > most || age < -most {
		return Decision{}, fmt.Errorf("%w: pba wrote it last at %s", ErrStale, g.At.UTC().Format(time.RFC3339))
	}
	s.Observe = s.Observe || g.Observe
	if req.Modify {
		return decideChange(req, r, s)
	}
	own := req.Queue
	if own == "" {
		own = s.DefaultQueue
	}
	d := Decision{Text: withoutTag(req.Description)}
	if managed(s, own) {
		if err := decideNew(&d, req, own, r, &g, s, now); err != nil {
			return Decision{}, err
		}
		d.hold(req, own, s, now)
	}
	d.Describe = d.Description() != req.Description
	return d, nil
}

// decideNew tests a new job for a managed queue, and marks it.
func decideNew(d *Decision, req Request, own string, r *Reader, g *Generation, s Settings, now time.Time) error {
	d.clip(req, s)
	_, d.Tag.Step = backends.SplitProject(req.Project)
	d.Tag.Memory = req.Memory
	d.Tag.NoRequeue = s.TagNoRequeue && req.NoRequeue
	mode, warning := preemptMode(req.Preempt)
	d.Tag.Preempt = mode
	checkpoint, wrong, tooLong := readCheckpoint(req.Checkpoint, s)
	d.Tag.Checkpoint = checkpoint
	minimum, unread := readMinimum(req.Minimum)
	d.Tag.Minimum = minimum
	deadline, late := readDeadline(req.Deadline, now)
	d.Tag.Deadline = deadline
	if s.Observe || r.Projects() == 0 {
		return nil // nothing is planned yet, or the filter only observes
	}
	for _, line := range []string{warning, wrong, startsAnew(req, mode), unread, late} {
		if line != "" {
			d.Messages = append(d.Messages, line)
		}
	}
	if d.Reject = tooLong; tooLong {
		return nil
	}
	v, err := judge(req, r, g, s)
	if err != nil {
		return err
	}
	d.Mark = v.mark
	v = d.limitFixed(v, req, mode, s, g, now)
	switch {
	case v.why == "":
		if v.next && own != s.LowQueue {
			d.Priority = s.NextInLine
		}
	case v.answer == Reject:
		d.Reject = true
		d.Messages = append(d.Messages, v.why)
	case v.answer == Pass:
		d.Messages = append(d.Messages, v.why)
	default:
		d.Messages = append(d.Messages, v.why+lower(d, own, s.LowQueue))
	}
	return nil
}

// clip lowers a priority that an owner chose to the default, where the queue takes any
// number: above that are the ranks that pba sets (R13).
func (d *Decision) clip(req Request, s Settings) {
	if most := s.MostRank; most > 0 && req.Priority > most && !req.ByEngine && !s.Observe {
		d.Priority = backends.Priority(most)
		d.Messages = append(d.Messages, fmt.Sprintf("-sp %d: only pba may set more than %d, the default: %d is used", req.Priority, most, most))
	}
}

// lower sends a job to the lowest queue and says where it went.
func lower(d *Decision, own, low string) string {
	d.Tag.Low = true
	if low == "" {
		return "; it runs last"
	}
	if own != low {
		d.Queue, d.Tag.Queue = low, own
	}
	return "; it goes to queue " + printable(low)
}

// decideChange tests a change of a pending job. The job's ID is not known
// here, so that its tag and queue are left to the engine: a bad project is only
// said, or refused.
func decideChange(req Request, r *Reader, s Settings) (Decision, error) {
	d := Decision{Text: withoutTag(req.Description)}
	d.Describe = d.Text != req.Description
	d.clip(req, s)
	if !req.HasProject || s.Observe || r.Projects() == 0 {
		return d, nil
	}
	v, err := judge(req, r, &Generation{}, s)
	if err != nil || v.why == "" {
		return d, err
	}
	d.Reject = v.answer == Reject
	d.Messages = append(d.Messages, v.why)
	return d, nil
}

// verdict is the outcome of the tests: why a job failed, if it did, and what is
// to become of it; or whether it is next in line, fits a pool, full or not, and is marked.
type verdict struct {
	why    string
	answer Answer
	next   bool
	fits   bool
	mark   bool
}

// judge runs R1's tests in order. A failure that passes without a word has no why.
func judge(req Request, r *Reader, g *Generation, s Settings) (verdict, error) {
	name, step := backends.SplitProject(req.Project)
	if name == "" {
		if s.OnUntagged == Pass {
			return verdict{}, nil
		}
		return verdict{why: "no project: submit with -P PROJECT", answer: s.OnUntagged}, nil
	}
	p, first, ok, err := r.Find(name)
	if err != nil {
		return verdict{}, err
	}
	shown := "-P " + printable(name)
	switch {
	case !ok:
		hint, err := nearby(name, r)
		return verdict{why: shown + ": no project of that name" + hint + ": correct it", answer: s.OnFailure}, err
	case p.GID != Unknown && req.Groups != nil && !slices.Contains(req.Groups, p.GID):
		return verdict{why: shown + ": you are not in its group " + printable(p.Group) + ": ask to be added, then log in anew", answer: s.OnFailure}, nil
	case step != "" && len(p.Steps) > 0 && !slices.Contains(p.Steps, step):
		return verdict{why: shown + ": no step " + printable(step) + ": it has " + printable(strings.Join(p.Steps, ", ")), answer: s.OnFailure}, nil
	}
	matched, next, fits := false, false, false
	for i, pool := range p.Pools {
		if !matches(pool, req, step) {
			continue
		}
		matched = true
		if max(req.Slots, 1) <= pool.Slots {
			fits, next = true, next || g.Below(first+i)
		}
	}
	if !matched && s.OnNoPool != Pass {
		return verdict{why: shown + ": no slots are planned for you there this week: ask its manager", answer: s.OnNoPool}, nil
	}
	return verdict{next: next, fits: fits, mark: matched && p.Mark}, nil
}

// nearby names the project that a mistyped name most probably means.
func nearby(name string, r *Reader) (hint string, err error) {
	known := make([]string, r.Projects())
	for i := range known {
		p, err := r.At(i)
		if err != nil {
			return "", err
		}
		known[i] = p.Name
	}
	if found := nearest.Of(name, known); found != "" {
		hint = " (did you mean " + printable(found) + "?)"
	}
	return hint, nil
}

func matches(pool Pool, req Request, step string) bool {
	if pool.Step != "" && pool.Step != step {
		return false
	}
	switch {
	case pool.User == "":
		return true
	case pool.UID != Unknown:
		return pool.UID == req.UID
	}
	return pool.User == req.User
}

func managed(s Settings, queue string) bool {
	return len(s.Queues) == 0 || queue == "" || queue == s.LowQueue || slices.Contains(s.Queues, queue)
}

func preemptMode(word string) (mode backends.Mode, warning string) {
	switch word {
	case "", backends.PreemptRequeue.String():
		return backends.PreemptRequeue, ""
	case backends.PreemptSuspend.String():
		return backends.PreemptSuspend, ""
	}
	return backends.PreemptRequeue, "ALLOTMENT_PREEMPT=" + printable(word) + ": want requeue or suspend; requeue is used"
}

// readCheckpoint reads how a job saves itself (R33). One that needs longer than the site
// allows is refused; for a text that can't be parsed it returns none. wrong says why.
func readCheckpoint(text string, s Settings) (c backends.Checkpoint, wrong string, tooLong bool) {
	c, err := backends.ParseCheckpoint(text)
	variable := backends.CheckpointVariable + "=" + printable(text) + ": "
	if err != nil {
		return backends.Checkpoint{}, variable + err.Error() + "; the job counts as one that does not save itself", false
	}
	if most := s.CheckpointMax; most > 0 && c.Wait > most {
		return backends.Checkpoint{}, fmt.Sprintf("%sit asks for %d s to save itself, and %d s are allowed: ask for no more", variable, c.Wait/time.Second, most/time.Second), true
	}
	return c, "", false
}

// readMinimum reads what a job needs at least of its hosts (R48). For a text that can't be parsed it
// returns no minimum, and wrong says why.
func readMinimum(text string) (m backends.Minimum, wrong string) {
	m, err := backends.ParseMinimum(text)
	if err != nil {
		return backends.Minimum{}, backends.MinimumVariable + "=" + printable(text) + ": " + err.Error() + "; the job has no minimum"
	}
	return m, ""
}

// readDeadline reads by when a job should have ended (R48), in UNIX seconds. For a text that can't be parsed, and a
// time in the past or too far ahead, it returns 0, and wrong says why.
func readDeadline(text string, now time.Time) (at int64, wrong string) {
	deadline, err := backends.ParseDeadline(text, now)
	switch {
	case err != nil:
		return 0, backends.DeadlineVariable + "=" + printable(text) + ": " + err.Error() + "; the job has no deadline"
	case deadline.IsZero():
		return 0, ""
	}
	return deadline.Unix(), ""
}

// startsAnew returns what the owner of a job should know that LSF makes checkpoints of: they are
// of no use once it is preempted (R33). It is "" where that is not so, and where the owner says
// how the job saves itself.
func startsAnew(req Request, mode backends.Mode) string {
	preemptable := !req.NoRequeue && !req.Interactive && !req.Exclusive
	if !req.SavedByLSF || req.Checkpoint != "" || !preemptable || mode != backends.PreemptRequeue {
		return ""
	}
	return "bsub -k: a job that is preempted starts from its beginning, not from LSF's checkpoint; if yours goes on by itself from what it saved, say how it saves, as " +
		backends.CheckpointVariable + "=every:30m"
}

// withoutTag returns a user's own text without what would pass for Allotment's tag at
// its beginning: a forged one, or one copied from another job.
func withoutTag(text string) string {
	for {
		rest, ok := strings.CutPrefix(text, "allotment:")
		if !ok || rest == "" || rest[0] < '0' || rest[0] > '9' {
			return text
		}
		_, text, _ = strings.Cut(rest, " ")
		text = strings.TrimLeft(text, " ")
	}
}

// printable shows a name on a terminal: as it is if it is plain, else quoted;
// never more than a line of it.
func printable(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	quoted := strconv.Quote(name)
	if name != "" && quoted[1:len(quoted)-1] == name {
		return name
	}
	return quoted
}
