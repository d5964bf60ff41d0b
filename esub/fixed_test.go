package esub

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A job that can't be preempted is held from the start, whatever begin time its owner gave
// (R22).
func TestFixedJobsAreHeldAtSubmission(t *testing.T) {
	now := time.Unix(1_795_000_000, 0)
	limit := 10 * time.Minute
	far, soon := now.Add(24*time.Hour).Unix(), now.Add(time.Minute).Unix()
	noRequeue := func(r *Request) { r.NoRequeue = true }
	for name, c := range map[string]struct {
		request  func(*Request)
		settings func(*Settings)
		full     bool // the pool has no room
		want     string
		hold     time.Time
		begin    int64
		reject   bool
	}{
		"a job that can be preempted":     {},
		"not to be requeued":              {request: noRequeue, full: true, want: "a job that is not to be requeued can't be preempted", hold: now.Add(limit)},
		"with room in its pool":           {request: noRequeue, hold: now.Add(limit)},
		"begins soon":                     {request: func(r *Request) { r.NoRequeue, r.Delayed, r.Begin = true, true, soon }, full: true, want: "pba starts it", hold: now.Add(limit), begin: soon},
		"begins later than the hold":      {request: func(r *Request) { r.NoRequeue, r.Delayed, r.Begin = true, true, far }, full: true, want: "pba starts it", hold: time.Unix(far, 0), begin: far},
		"interactive":                     {request: func(r *Request) { r.Interactive = true }, full: true, want: "else submit it as a batch job", hold: now.Add(limit)},
		"interactive, its pool has room":  {request: func(r *Request) { r.Interactive = true }},
		"exclusive":                       {request: func(r *Request) { r.Exclusive = true }, full: true, want: "without -x", hold: now.Add(limit)},
		"suspend, which frees nothing":    {request: func(r *Request) { r.Preempt = "suspend" }, full: true, want: "unset it", hold: now.Add(limit)},
		"suspend":                         {request: func(r *Request) { r.Preempt = "suspend" }, settings: func(s *Settings) { s.SuspendFrees = true }, full: true},
		"lowered as well":                 {request: func(r *Request) { r.NoRequeue, r.Project = true, "" }, want: "no project", hold: now.Add(limit)},
		"wider than the share":            {request: func(r *Request) { r.NoRequeue, r.Slots = true, 9 }, want: "may hold 3 slots of the farm: ask for fewer than these 9", reject: true},
		"wider, but fits a pool":          {request: func(r *Request) { r.NoRequeue, r.Slots = true, 4 }, full: true, want: "pba starts it", hold: now.Add(limit)},
		"observed only":                   {request: noRequeue, settings: func(s *Settings) { s.Observe = true }},
		"where they are not held":         {request: noRequeue, settings: func(s *Settings) { s.HoldFixed = 0 }, full: true, want: "already hold their share"},
		"a queue that is not managed":     {request: func(r *Request) { r.NoRequeue, r.Queue = true, "other" }, settings: func(s *Settings) { s.Queues = []string{"normal"} }},
		"refused for another reason":      {request: func(r *Request) { r.NoRequeue, r.Project = true, "nix" }, settings: func(s *Settings) { s.OnFailure = Reject }, want: "no project of that name", reject: true},
		"heavy, and not to be requeued":   {request: func(r *Request) { r.NoRequeue, r.Memory = true, 1<<40 }, settings: func(s *Settings) { s.Heavy = Heavy{Hold: time.Minute, Share: 1} }, full: true, want: "pba starts it", hold: now.Add(limit)},
		"a forged tag of a plain project": {request: func(r *Request) { r.Description = "allotment:1;fixed=1;held=9; text" }},
	} {
		t.Run(name, func(t *testing.T) {
			policy := Policy{Settings: Settings{Config: DefaultConfig(), HoldFixed: limit, NextInLine: 7}, Projects: []Project{{Name: "chipA", GID: Unknown, Pools: []Pool{{ID: 1, Slots: 4}}}}}
			if c.settings != nil {
				c.settings(&policy.Settings)
			}
			snapshot := Encode(policy)
			r, err := Open(bytes.NewReader(snapshot), int64(len(snapshot)))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := EncodeGeneration(snapshot, Standing{At: now, FixedShare: 3, LowerUnpreemptable: true, Below: map[int64]bool{1: !c.full}})
			if err != nil {
				t.Fatal(err)
			}
			g, err := OpenGeneration(encoded)
			if err != nil {
				t.Fatal(err)
			}
			req := Request{User: "ann", Project: "chipA", Queue: "normal"}
			if c.request != nil {
				c.request(&req)
			}
			d, err := Decide(req, r, g, now)
			if err != nil {
				t.Fatal(err)
			}
			if said := strings.Join(d.Messages, "\n"); !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("it says %q, want %q", said, c.want)
			}
			if d.Reject != c.reject || !d.Hold.Equal(c.hold) || d.Tag.Begin != c.begin {
				t.Errorf("rejected %t, held until %v, begins %d; want %t, %v, %d", d.Reject, d.Hold, d.Tag.Begin, c.reject, c.hold, c.begin)
			}
			if held := !c.hold.IsZero(); d.Tag.Fixed != held || held && d.Tag.Held != c.hold.Unix() {
				t.Errorf("tag %q", d.Tag)
			}
			tag, _, err := backends.ParseTag(d.Description())
			if err != nil || tag != d.Tag {
				t.Errorf("the tag %q reads %+v, %v", d.Description(), tag, err)
			}
		})
	}
}
