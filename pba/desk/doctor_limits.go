package desk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// agentsTime bounds how long the doctor waits for allotd.
const agentsTime = 5 * time.Second

// limitsAgent is what is used here of a host in allotd's answer. Its texts are the host's own.
type limitsAgent struct {
	Host   string           `json:"host"`
	Status string           `json:"status"`
	Limits *supervise.Means `json:"limits"`
}

// checkLimits asks allotd by which limits the hosts' agents can keep promises (R47). Without an allotd that answers
// it remarks that this is not known.
func (d *Desk) checkLimits(ctx context.Context, e *Examined, all *findings) {
	if !d.Limits.Looks() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agentsTime)
	defer cancel()
	var answer struct {
		Hosts []limitsAgent `json:"hosts"`
	}
	if err := d.askAllotd(ctx, http.MethodGet, "ask allotd", "/api/v1/agents", nil, &answer); err != nil {
		e.remark("limits", "limits.mode is %s, and which limits work on the hosts is not known: %v", d.Limits.Mode, err)
		return
	}
	judgeMeans(d.Limits, answer.Hosts, e, all)
}

// judgeMeans finds what keeps hosts from keeping promises, and remarks what works on the others.
func judgeMeans(l settings.Limits, hosts []limitsAgent, e *Examined, all *findings) {
	var unable []string
	lacking := map[string][]string{} // hosts by resources
	well := map[string][]string{}    // and by what is said of them
	promised := map[supervise.Resource]bool{supervise.CPU: l.Slot.CPU > 0, supervise.Disk: l.Slot.Disk > 0, supervise.Network: l.Slot.Network > 0}
	for _, h := range hosts {
		if h.Status == "lost" || h.Status == "gone" {
			continue
		}
		m := h.Limits
		if m == nil {
			text := "no limits: limits.mode is off in the host's config, or its ahostd is older"
			well[text] = append(well[text], h.Host)
			continue
		}
		wrong := m.Unable && l.Mode == settings.LimitsOn
		if wrong {
			unable = append(unable, h.Host)
		}
		for _, r := range supervise.Resources() {
			if promised[r] && m.Lacks(r) {
				wrong = true
				lacking[r.String()] = append(lacking[r.String()], h.Host)
			}
		}
		if text := m.String(); !wrong {
			if m.Mode == string(l.Mode) {
				text = m.Kinds()
			}
			well[text] = append(well[text], h.Host)
		}
	}
	if len(unable) > 0 {
		all.add("limits", "start the service allotment-ahostd there, which brings it (docs/hosts.md: Promises)",
			"limits.mode is on, and ahostd only says what it would limit, as it runs without its root helper, on %s", few(unable))
	}
	for _, r := range slices.Sorted(maps.Keys(lacking)) {
		all.add("limits", "have the queue give its jobs control groups with that controller (docs/hosts.md: Promises), or set it to 0 in limits.slot",
			"%s is promised to jobs, and none of its limits takes effect on the jobs of %s", r, few(lacking[r]))
	}
	if len(hosts) == 0 {
		e.remark("limits", "limits.mode is %s, and allotd hears no ahostd", l.Mode)
	}
	e.remarkGroups("limits", well)
}

// remarkGroups remarks what holds for several hosts, most hosts first; beyond a few texts it counts the hosts.
func (e *Examined) remarkGroups(check string, hosts map[string][]string) {
	const most = 8
	texts := slices.SortedFunc(maps.Keys(hosts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(hosts[b]), len(hosts[a])), cmp.Compare(a, b))
	})
	left := 0
	for i, text := range texts {
		if i >= most {
			left += len(hosts[text])
			continue
		}
		e.remark(check, "%s: %s", few(hosts[text]), text)
	}
	if left > 0 {
		e.remark(check, "and others on %d more: `ahosts --agents -o host,limits`", left)
	}
}

func (e *Examined) remark(check, format string, args ...any) {
	e.Remarks = append(e.Remarks, Remark{check, fmt.Sprintf(format, args...)})
}
