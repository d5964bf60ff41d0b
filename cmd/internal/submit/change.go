package submit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Pending is a pending job as the queue has it.
type Pending struct {
	backends.Spec
	Others bool // it is another user's: our filter asks for the groups of this process alone
}

// Change runs the filter on a change of a pending job, which is now as the queue has it, and
// returns the change as the filter wants it, with the tag that goes before a new description; or
// ErrRejected. As bmod does it, a site's filter sees what is to be different, and nothing else of
// the job. Ours tests another project as that of a new job.
func Change(ctx context.Context, now Pending, c backends.Change, opts Options) (backends.Change, error) {
	tag, text, err := backends.ParseTag(now.Description)
	if err != nil {
		tag, text = backends.Tag{}, now.Description
	}
	tagged := tag != (backends.Tag{})
	f := newFilter(opts)
	switch {
	case c.Project == nil, f.program != "":
	case now.Others: // the engine tests it
		return retag(c, tag, tagged, text), nil
	default:
		if c, err = f.changeProject(ctx, now.Spec, &tag, text, c); err != nil {
			return backends.Change{}, err
		}
		return retag(c, tag, tagged || tag != (backends.Tag{}), text), nil
	}
	f.command, f.env = "bmod", append(slices.Clip(f.env), "LSB_SUB_MODIFY=Y")
	var before backends.Spec // of which nothing is said but what the change is about
	c.Apply(&before)
	after, err := f.apply(ctx, before)
	f.output.Flush()
	if err != nil {
		return backends.Change{}, err
	}
	return retag(difference(c, before, after), tag, tagged, text), nil
}

// changeProject has our filter judge a job as if it were submitted now, in its own queue, and
// returns the change; it updates the tag. A job that fails the tests is lowered as asub lowers it; one that
// was lowered and passes goes back by the engine, since its owner can't raise it. The engine holds
// jobs whose slots are not there yet, so that the filter's hold is not begun anew.
func (f *filter) changeProject(ctx context.Context, now backends.Spec, tag *backends.Tag, text string, c backends.Change) (backends.Change, error) {
	job := now
	job.Queue, job.Description, job.Priority, job.BeginTime = cmp.Or(tag.Queue, now.Queue), text, 0, time.Time{}
	c.Apply(&job)
	f.env = append(slices.Clip(f.env), preempt+"="+tag.Preempt.String(), backends.CheckpointVariable+"="+tag.Checkpoint.String(), backends.MinimumVariable+"="+tag.Minimum.String(),
		backends.DeadlineVariable+"=") // which stays as it is, and may be over
	after, err := f.apply(ctx, job)
	f.output.Flush()
	if err != nil {
		return backends.Change{}, err
	}
	judged, described, err := backends.ParseTag(after.Description)
	if err != nil {
		return c, nil
	}
	tag.Step = judged.Step
	if c.Description != nil {
		c.Description = &described // without what would pass for a tag
	}
	if c.Priority != nil && after.Priority < *c.Priority {
		c.Priority = &after.Priority
	}
	if judged.Low {
		tag.Low, tag.Queue = true, judged.Queue
		if after.Queue != now.Queue {
			c.Queue = &after.Queue
		}
	} else if now.Queue == job.Queue {
		tag.Low, tag.Queue = false, ""
	}
	return c, nil
}

// retag updates the submit filter's tag where a change is about what it says, and puts it before
// the description of a job that has one.
func retag(c backends.Change, tag backends.Tag, tagged bool, text string) backends.Change {
	if c.Description == nil && c.Project == nil && c.Memory == nil {
		return c
	}
	if c.Description != nil {
		text = *c.Description
	}
	if c.Project != nil {
		_, tag.Step = backends.SplitProject(*c.Project)
	}
	if c.Memory != nil {
		tag.Memory = *c.Memory
	}
	described := text
	if tagged {
		described = strings.TrimSuffix(tag.String()+" "+text, " ")
	}
	c.Description = &described
	return c
}

// difference is a change with what the filter made different.
func difference(c backends.Change, before, after backends.Spec) backends.Change {
	setIfChanged(&c.Name, before.Name, after.Name)
	setIfChanged(&c.Project, before.Project, after.Project)
	setIfChanged(&c.Queue, before.Queue, after.Queue)
	setIfChanged(&c.Description, before.Description, after.Description)
	setIfChanged(&c.Priority, before.Priority, after.Priority)
	setIfChanged(&c.Slots, before.Slots, after.Slots)
	setIfChanged(&c.Memory, before.Memory, after.Memory)
	setIfChanged(&c.MemoryLimit, before.MemoryLimit, after.MemoryLimit)
	setIfChanged(&c.OneHost, before.OneHost, after.OneHost)
	setIfChanged(&c.PerHost, before.PerHost, after.PerHost)
	setIfChanged(&c.RunLimit, before.RunLimit, after.RunLimit)
	setIfChanged(&c.After, before.After, after.After)
	if !slices.Equal(before.Hosts, after.Hosts) {
		c.Hosts = &after.Hosts
	}
	if !before.BeginTime.Equal(after.BeginTime) {
		c.BeginTime = &after.BeginTime
	}
	return c
}

func setIfChanged[T comparable](field **T, before, after T) {
	if before != after {
		*field = &after
	}
}
