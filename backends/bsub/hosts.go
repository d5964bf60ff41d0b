package bsub

import (
	"fmt"
	"io"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// HostUse is a host and what its slots do.
type HostUse struct {
	backends.Host
	Running         int // slots
	SystemSuspended int // slots of jobs that the engine suspended
	UserSuspended   int // slots of jobs that their owners suspended
}

// InUse is the number of slots that other jobs can't have now.
func (h HostUse) InUse(suspendFrees bool) int {
	if suspendFrees {
		return h.Running
	}
	return h.Running + h.SystemSuspended + h.UserSuspended
}

// UseHosts counts the slots that the farm's jobs hold on each host.
func UseHosts(f *backends.Snapshot) []HostUse {
	uses := make([]HostUse, len(f.Hosts))
	at := map[string]*HostUse{}
	for i, h := range f.Hosts {
		uses[i].Host = h
		at[h.Name] = &uses[i]
	}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		for _, p := range j.Hosts {
			use := at[p.Host]
			if use == nil {
				continue
			}
			switch Stat(j) {
			case "RUN":
				use.Running += p.Slots
			case "SSUSP":
				use.SystemSuspended += p.Slots
			case "USUSP":
				use.UserSuspended += p.Slots
			}
		}
	}
	return uses
}

// WriteHosts prints hosts as bhosts does. NJOBS counts suspended jobs' slots too.
func WriteHosts(w io.Writer, hosts []HostUse, wide, suspendFrees bool) error {
	var b strings.Builder
	status := 11
	if wide {
		status = 14
	}
	row := func(name, state string, columns ...any) {
		fmt.Fprintf(&b, "%-18s %-*s", name, status, state)
		for i, column := range columns {
			fmt.Fprintf(&b, " %*v", min(5+i, 6), column)
		}
	}
	row("HOST_NAME", "STATUS", "JL/U", "MAX", "NJOBS", "RUN", "SSUSP", "USUSP", "RSV")
	b.WriteString(" \n")
	for _, h := range hosts {
		name := Visible(h.Name)
		state := hostState(h, suspendFrees)
		if !wide {
			name = cutLeft(name, 18)
			state, _, _ = strings.Cut(state, "_")
		}
		row(name, state, "-", h.Slots, h.Running+h.SystemSuspended+h.UserSuspended, h.Running, h.SystemSuspended, h.UserSuspended, 0)
		b.WriteString("\n")
	}
	if wide {
		writeReasons(&b, hosts)
		writeResources(&b, hosts)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeReasons prints why hosts are closed, as far as that is known.
func writeReasons(b *strings.Builder, hosts []HostUse) {
	title := "\nHOST_NAME          WHY CLOSED\n"
	for _, h := range hosts {
		if h.Reason != "" {
			fmt.Fprintf(b, "%s%-18s %s\n", title, Visible(h.Name), Visible(h.Reason))
			title = ""
		}
	}
}

// writeResources prints what the hosts have beside slots and memory, those that have
// something.
func writeResources(b *strings.Builder, hosts []HostUse) {
	title := "\nHOST_NAME          RESOURCES\n"
	for _, h := range hosts {
		if has := strings.TrimSpace(backends.FormatAmounts(h.Has) + " " + strings.Join(h.Features, " ")); has != "" {
			fmt.Fprintf(b, "%s%-18s %s\n", title, Visible(h.Name), Visible(has))
			title = ""
		}
	}
}

func hostState(h HostUse, suspendFrees bool) string {
	switch h.State {
	case backends.HostDown:
		return "unavail"
	case backends.HostClosed:
		return "closed_Adm"
	case backends.HostUp:
	}
	if h.InUse(suspendFrees) >= h.Slots {
		return "closed_Full"
	}
	return "ok"
}
