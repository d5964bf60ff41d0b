package simulate

import "time"

// Result is the result of a trace on one farm under several policies. All policies had
// the same jobs over the same window.
type Result struct {
	Trace      Source      `json:"trace"`
	Farm       FarmSize    `json:"farm"`
	Guarantees []Guarantee `json:"guarantees"`
	Settings   Settings    `json:"settings"`
	Window     Window      `json:"window"`
	Widest     int         `json:"widest_slots"` // slots from which on a job is one of the widest 1 %
	Within     int         `json:"within_jobs"`  // jobs within the guarantee: the same ones for all policies
	Policies   []Outcome   `json:"policies"`     // in the order of Setup
	Idle       []Guarantee `json:"guarantees_without_jobs,omitempty"`
	Notes      []string    `json:"notes"` // what a reader must know to understand the figures
}

// Source is the trace and what was made of it.
type Source struct {
	Name     string    `json:"name"`     // the file's, without its folder
	Format   string    `json:"format"`   // swf, sacct, lsb.acct, ledger
	Jobs     int       `json:"jobs"`     // simulated, the same ones under every policy
	Read     int       `json:"read"`     // jobs of the trace that could be read, left out or not
	LeftOut  []LeftOut `json:"left_out"` // by reason, alphabetically
	BadLines []string  `json:"bad_lines"`
	Repeated int       `json:"repeated"` // times, end to end
	OneSlot  bool      `json:"one_slot"` // each job of n slots became n jobs of one
}

// LeftOut is jobs that were simulated under no policy, or not under one. The shares are of
// all jobs of the trace.
type LeftOut struct {
	Why         string  `json:"why"`
	Jobs        int     `json:"jobs"`
	JobShare    float64 `json:"job_share"`
	SlotSeconds float64 `json:"slot_seconds"`
	WorkShare   float64 `json:"slot_seconds_share"`
	Unknown     bool    `json:"slot_seconds_unknown,omitempty"` // the trace does not have them
}

// FarmSize is the farm in slots.
type FarmSize struct {
	Slots  int     `json:"slots"`
	Hosts  int     `json:"hosts"`
	Fences []Fence `json:"fences"` // what the policy dedicated fences off, by project
}

// Fence is the slots that a project's jobs run on under dedicated, and no other jobs.
type Fence struct {
	Project string `json:"project"`
	Slots   int    `json:"slots"`
}

// Guarantee is what a project, or a user or step of it, had as its largest guarantee in any week.
type Guarantee struct {
	Project string `json:"project"`
	User    string `json:"user,omitempty"`
	Step    string `json:"step,omitempty"`
	Hosts   string `json:"hosts,omitempty"` // a host set
	Slots   int    `json:"slots"`
}

// Settings are the simulation's settings. Times are in seconds.
type Settings struct {
	Cycle            float64 `json:"cycle_seconds"`
	PendingThreshold float64 `json:"pending_threshold_seconds"`
	MinRuntime       float64 `json:"min_runtime_seconds"`
	Headroom         float64 `json:"headroom"`
	ScaleArrivals    float64 `json:"scale_arrivals"`
	OnDemand         *Saving `json:"checkpoint,omitempty"`       // jobs that save their work when they are asked to
	Periodic         *Saving `json:"checkpoint_every,omitempty"` // jobs that do so by themselves
	Suspend          float64 `json:"suspend_share"`              // of the jobs, drawn by Seed: their users chose suspension
	KillSeconds      float64 `json:"kill_seconds"`               // most time that a killed job takes to end; drawn by Seed
	Promise          float64 `json:"promise_seconds"`            // the threshold + 2 cycles + the time to free slots
	Seed             uint64  `json:"seed"`
}

// Saving is the part of the jobs, drawn by Seed, that save their work. Times are in seconds.
type Saving struct {
	Share   float64 `json:"share"`
	Seconds float64 `json:"seconds"`         // that it takes to save; of Settings.Periodic: from one checkpoint to the next
	Restore float64 `json:"restore_seconds"` // before a run goes on
}

// Window is the time that utilization and losses are counted over: from the
// first submission to the last, which no policy influences.
type Window struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Seconds float64   `json:"seconds"`
}

// The policies.
const (
	FIFO      = "fifo"      // no guarantee at all
	Dedicated = "dedicated" // hosts fenced off for each project: its jobs there and nowhere else
	PBA       = "pba"       // Allotment
	Seconds   = "pba-0s"    // Allotment with a pending_threshold of 0s for each project that has a guarantee
)

// Outcome is the result of one policy.
type Outcome struct {
	Policy string `json:"policy"`

	CannotRun []LeftOut `json:"cannot_run"` // jobs that can never start under this policy, by reason; they count in no other figure

	Within   Group   `json:"within"`           // jobs within the guarantee
	Rest     Group   `json:"rest"`             // all other jobs
	Projects []Group `json:"projects"`         // the jobs of each project with a guarantee; the last, "": all others
	Others   []Group `json:"others,omitempty"` // of those, by project and user, of Setup.Everyone

	Utilization float64 `json:"utilization"` // 0…1 of the farm's slots over the window
	Useful      float64 `json:"useful"`      // the same, of runs that came to their end, also after the window
	LostSeconds float64 `json:"lost_slot_seconds"`
	LostShare   float64 `json:"lost_share"` // of the farm's slots over the window

	Preemptions int     `json:"preemptions"` // jobs preempted
	Suspensions int     `json:"suspensions"` // of these: suspended
	Saved       int     `json:"saved"`       // of these: requeued, with work that they had saved
	Reclaims    int     `json:"reclaims"`
	Requested   int     `json:"requested_slots"` // that beneficiaries lacked
	Evicted     int     `json:"evicted_slots"`   // that were preempted
	Ratio       float64 `json:"evicted_per_requested"`
	Useless     int     `json:"useless_evictions"` // victims in whose slots no beneficiary started
	Expired     int     `json:"expired_reclaims"`
	Checked     int     `json:"checked_reclaims"` // compared with every possible set of victims
	Cheaper     int     `json:"cheaper_found"`    // of these: another set would have freed fewer slots beyond the need
	// StarvedSeconds add up, over the pools, the time in which one was under its
	// guarantee while a job of it had waited beyond the threshold (R14's clock).
	StarvedSeconds float64 `json:"starved_seconds"`

	Cycles  int `json:"cycles"`
	Skipped int `json:"skipped_cycles"` // that could not have changed anything

	Series Series `json:"series"`
}

// Group has the figures of a set of jobs.
type Group struct {
	Project     string  `json:"project,omitempty"`
	Jobs        int     `json:"jobs"`
	Wait        Spread  `json:"wait"`        // seconds from submission to the start of the run that came to its end
	Widest      Spread  `json:"widest_wait"` // of Wait: the widest 1 % of the trace's jobs, by slots
	Clock       Spread  `json:"clock"`       // seconds by the guarantee's clock: from the first cycle that saw the job within its pool and eligible, to its start
	Slowdown    Spread  `json:"bounded_slowdown"`
	OverPromise int     `json:"over_promise"` // jobs whose clock went beyond the promise to a job so wide
	PutOff      int     `json:"put_off"`      // of these: put off by max_victims_per_project
	Lost        float64 `json:"lost_slot_seconds"`
	Preempted   int     `json:"taken_back"`                  // times
	User        string  `json:"user,omitempty"`              // of jobs without a project, in Outcome.Others
	Used        float64 `json:"used_slot_seconds,omitempty"` // of runs, in the window, of Setup.Everyone
}

// Spread is a distribution in a few numbers, which are exact to one part in a
// thousand; Max is exact.
type Spread struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
}

// Series are for charts.
type Series struct {
	Start       time.Time `json:"start"`          // the first bucket's begin
	Bucket      float64   `json:"bucket_seconds"` // of each
	Utilization []float64 `json:"utilization"`    // 0…1, mean of each bucket
	Waiting     []float64 `json:"waiting_slots"`  // slots of jobs that waited, mean of each bucket
	Pools       []Pool    `json:"pools"`          // by project; the last one, "": all others
	Waits       []WaitBin `json:"waits"`
}

// Pool is a project's slots over time, bucket by bucket.
type Pool struct {
	Project   string    `json:"project"`
	Held      []float64 `json:"held"`      // slots that its jobs ran on, mean of each bucket
	Allocated []float64 `json:"allocated"` // its guarantee
	Waiting   []float64 `json:"waiting"`   // slots of its jobs that waited
}

// WaitBin counts the jobs that waited longer than the bin before, up to Seconds;
// the last bin has no end.
type WaitBin struct {
	Seconds float64 `json:"seconds"` // 0: started at once; -1: the last bin
	Within  int     `json:"within"`  // from submission, of jobs within the guarantee
	Clock   int     `json:"clock"`   // by the guarantee's clock, of the same
	Rest    int     `json:"rest"`    // from submission, of all others
}

// Sweep is one setting of the engine varied, all else equal: for choosing defaults.
type Sweep struct {
	Setting string       `json:"setting"` // pending_threshold, min_runtime, headroom
	Default float64      `json:"default"`
	Points  []SweepPoint `json:"points"`
}

// SweepPoint is the result of policy pba at one value of a setting (seconds, or a factor).
type SweepPoint struct {
	Value   float64 `json:"value"`
	Outcome Outcome `json:"outcome"` // without its series
}
