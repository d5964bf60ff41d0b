package bsub

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// maxOnHost is how many jobs of a host, or users of a queue, are listed.
const maxOnHost = 1000

// WriteHostDetails prints all that is known of hosts, and the jobs on them, as bhosts -l does.
func WriteHostDetails(w io.Writer, hosts []HostUse, jobs []backends.Job, suspendFrees bool) error {
	for i := range hosts {
		var b strings.Builder
		if i > 0 {
			b.WriteString("\n")
		}
		hosts[i].detail(&b, jobs, suspendFrees)
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

func (h *HostUse) detail(b *strings.Builder, jobs []backends.Job, suspendFrees bool) {
	fmt.Fprintf(b, "HOST  %s\n", Visible(h.Name))
	b.WriteString("STATUS          MAX  NJOBS    RUN  SSUSP  USUSP\n")
	fmt.Fprintf(b, "%-14s %4d %6d %6d %6d %6d\n", hostState(*h, suspendFrees), h.Slots,
		h.Running+h.SystemSuspended+h.UserSuspended, h.Running, h.SystemSuspended, h.UserSuspended)
	if h.Reason != "" {
		fmt.Fprintf(b, " WHY CLOSED: %s\n", Visible(h.Reason))
	}
	var here []*backends.Job
	memory := int64(0)
	used := map[string]int{}
	for i := range jobs {
		j := &jobs[i]
		at := slices.IndexFunc(j.Hosts, func(p backends.Placement) bool { return p.Host == h.Name })
		if at < 0 || j.State.Ended() {
			continue
		}
		here = append(here, j)
		memory += j.Memory / int64(max(j.Slots, 1)) * int64(j.Hosts[at].Slots)
		for _, need := range j.Needs {
			used[need.Name] += need.Count
		}
	}
	if h.Memory > 0 {
		fmt.Fprintf(b, "\n MEMORY: %s, jobs asked for %s\n", size(h.Memory), size(memory))
	}
	for _, a := range h.Has {
		fmt.Fprintf(b, " RESOURCE: %s=%d, jobs have %d\n", Visible(a.Name), a.Count, used[a.Name])
	}
	if len(h.Features) > 0 {
		fmt.Fprintf(b, " FEATURES: %s\n", Visible(strings.Join(h.Features, " ")))
	}
	if len(here) == 0 {
		b.WriteString(" JOBS: none\n")
		return
	}
	b.WriteString(" JOBS:\n  JOBID        USER       STAT  SLOTS QUEUE      JOB_NAME\n")
	for i, j := range here {
		if i == maxOnHost {
			fmt.Fprintf(b, "  … and %d more\n", len(here)-i)
			break
		}
		at := slices.IndexFunc(j.Hosts, func(p backends.Placement) bool { return p.Host == h.Name })
		fmt.Fprintf(b, "  %-12s %-10s %-5s %5d %-10s %s\n", j.ID, Visible(j.User), Stat(j), j.Hosts[at].Slots, Visible(j.Queue), Visible(JobName(j)))
	}
}

// WriteQueueDetails prints queues, and the slots of each user's jobs in them, as bqueues -l does.
func WriteQueueDetails(w io.Writer, queues []QueueUse, jobs []backends.Job) error {
	for i := range queues {
		var b strings.Builder
		if i > 0 {
			b.WriteString("\n")
		}
		queues[i].detail(&b, jobs)
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// userSlots are the slots of a user's jobs in a queue.
type userSlots struct {
	user                        string
	pending, running, suspended int
}

func (q *QueueUse) detail(b *strings.Builder, jobs []backends.Job) {
	r := q.Row()
	fmt.Fprintf(b, "QUEUE: %s\n", Visible(q.Name))
	if q.Default {
		b.WriteString("  -- This is the default queue.\n")
	}
	if q.Columns == nil {
		fmt.Fprintf(b, "  -- Its jobs begin at the level %s.\n", q.Level)
	}
	b.WriteString("\nPRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP\n")
	fmt.Fprintf(b, "%4d %-15s %3s %4s %4s %4s %5d %5d %5d %5d\n", r.Priority, Visible(r.Status), Visible(r.Max), Visible(r.PerUser),
		Visible(r.PerProcessor), Visible(r.PerHost), r.Jobs, r.Pending, r.Running, r.Suspended)
	users := q.users(jobs)
	if len(users) == 0 {
		b.WriteString("\n USERS: none\n")
		return
	}
	b.WriteString("\n USERS:\n  USER        PEND   RUN  SUSP\n")
	for i, u := range users {
		if i == maxOnHost {
			fmt.Fprintf(b, "  … and %d more\n", len(users)-i)
			break
		}
		fmt.Fprintf(b, "  %-10s %5d %5d %5d\n", Visible(u.user), u.pending, u.running, u.suspended)
	}
}

// users returns the users with jobs in the queue, by name.
func (q *QueueUse) users(jobs []backends.Job) []userSlots {
	var all []userSlots
	at := map[string]int{}
	for i := range jobs {
		j := &jobs[i]
		if j.Queue != q.Name || j.State.Ended() {
			continue
		}
		n, seen := at[j.User]
		if !seen {
			n = len(all)
			at[j.User] = n
			all = append(all, userSlots{user: j.User})
		}
		switch j.State {
		case backends.Pending:
			all[n].pending += j.Slots
		case backends.Running:
			all[n].running += j.Slots
		default:
			all[n].suspended += j.Slots
		}
	}
	slices.SortFunc(all, func(a, b userSlots) int { return cmp.Compare(a.user, b.user) })
	return all
}
