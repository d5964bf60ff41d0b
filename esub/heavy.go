package esub

import (
	"cmp"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// hold keeps a heavy job from starting before its dummy jobs are in place (R29). The
// engine releases it then; if the engine is gone, it starts when the hold ends. A job
// that its owner starts later is left to the engine; an exclusive one has its host's
// memory to itself.
func (d *Decision) hold(req Request, own string, s Settings, now time.Time) {
	h := &s.Heavy
	if s.Observe || d.Reject || d.Tag.Fixed || req.Delayed || req.Exclusive || h.Hold <= 0 || h.Share <= 0 {
		return
	}
	need := h.need(req, cmp.Or(d.Queue, own))
	if need <= 0 || (need-1)/int64(max(req.Slots, 1)) < h.Share {
		return
	}
	d.Hold = now.Add(h.Hold).Truncate(time.Second)
	d.Tag.Held = d.Hold.Unix()
}

// need returns what a job asks for, or what the site configures for such jobs if that is
// more, in bytes.
func (h *Heavy) need(req Request, queue string) int64 {
	need := req.Memory
	project, step := backends.SplitProject(req.Project)
	for _, r := range h.Rules {
		if (r.Project == "" || r.Project == project) && (r.Step == "" || r.Step == step) && (r.Queue == "" || r.Queue == queue) {
			need = max(need, r.Memory)
		}
	}
	return need
}
