package backends

import "time"

// Queue is a name under which jobs are submitted.
type Queue struct {
	Name    string `json:"name"`
	Level   Level  `json:"level"`   // that its jobs begin at
	Default bool   `json:"default"` // for jobs that name none
	// Columns are what the queue's own bqueues prints; nil: it has none.
	Columns *QueueRow `json:"told,omitempty"`
}

// QueueRow are the columns of bqueues. Jobs are counted in slots.
type QueueRow struct {
	Priority                            int
	Status                              string // Open:Active
	Max, PerUser, PerProcessor, PerHost string // limits, "-" for none
	Jobs, Pending, Running, Suspended   int
}

// Change is what is to be different about a job; what is nil stays. Of a job that has started the
// run limit can be changed alone.
type Change struct {
	Name        *string   `json:"name,omitempty"`
	Project     *string   `json:"project,omitempty"` // with its step
	Queue       *string   `json:"queue,omitempty"`
	Description *string   `json:"description,omitempty"` // whole: the filter's tag, then the user's text
	Priority    *Priority `json:"priority,omitempty"`
	// QueuePriority is a priority in the queue's own count, as its owner gave it to
	// -sp: instead of Priority, where Abilities.CountsPriorities.
	QueuePriority *int64         `json:"queue_priority,omitempty"`
	Slots         *int           `json:"slots,omitempty"`
	Memory        *int64         `json:"memory,omitempty"` // bytes over all slots; 0: none
	MemoryLimit   *int64         `json:"memory_limit,omitempty"`
	OneHost       *bool          `json:"one_host,omitempty"`
	PerHost       *int           `json:"per_host,omitempty"`   // 0: as they come
	Hosts         *[]string      `json:"hosts,omitempty"`      // empty: any
	Needs         *[]Amount      `json:"needs,omitempty"`      // empty: none
	Features      *[]string      `json:"features,omitempty"`   // empty: none
	Select        *string        `json:"select,omitempty"`     // "": none
	Same          *[]string      `json:"same,omitempty"`       // empty: none
	RunLimit      *time.Duration `json:"run_limit,omitempty"`  // 0: none
	BeginTime     *time.Time     `json:"begin_time,omitempty"` // zero: at once
	After         *string        `json:"after,omitempty"`      // "": nothing
}

// LimitOnly reports whether the run limit is changed and nothing else.
func (c *Change) LimitOnly() bool { return c.RunLimit != nil && *c == Change{RunLimit: c.RunLimit} }

// Apply makes the change in a Spec. QueuePriority is for the queue to heed.
func (c *Change) Apply(s *Spec) {
	set(&s.Name, c.Name)
	set(&s.Project, c.Project)
	set(&s.Queue, c.Queue)
	set(&s.Description, c.Description)
	set(&s.Priority, c.Priority)
	set(&s.Slots, c.Slots)
	set(&s.Memory, c.Memory)
	set(&s.MemoryLimit, c.MemoryLimit)
	set(&s.OneHost, c.OneHost)
	set(&s.PerHost, c.PerHost)
	set(&s.Hosts, c.Hosts)
	set(&s.Needs, c.Needs)
	set(&s.Features, c.Features)
	set(&s.Select, c.Select)
	set(&s.Same, c.Same)
	set(&s.RunLimit, c.RunLimit)
	set(&s.BeginTime, c.BeginTime)
	set(&s.After, c.After)
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// Record is all that a queue has kept of a job.
type Record struct {
	Spec    Spec          `json:"spec"` // as it is now; its environment is left out
	Runs    []RunRecord   `json:"runs"`
	History []HistoryLine `json:"history"`

	Settings []SettingRecord `json:"settings,omitempty"` // by key
	Files    []FileRecord    `json:"files,omitempty"`    // by name
}

// SettingRecord is what the job, or its owner, last set under a key. Its texts are the user's own.
type SettingRecord struct {
	Key   string    `json:"key"`
	Value string    `json:"value"`
	At    time.Time `json:"at"`
	Run   int       `json:"run,omitempty"` // 0: it concerns none
	Host  string    `json:"host,omitempty"`
}

// FileRecord is a file that travels with the job.
type FileRecord struct {
	Name       string    `json:"name"`
	Size       int64     `json:"size"` // bytes
	Executable bool      `json:"executable,omitempty"`
	At         time.Time `json:"at"`
	Run        int       `json:"run,omitempty"`
	Host       string    `json:"host,omitempty"`
}

// Attachment is such a file with its content.
type Attachment struct {
	Name       string
	Executable bool
	Data       []byte
}

// RunRecord is how a run went.
type RunRecord struct {
	Run      int           `json:"run"`
	Host     string        `json:"host"`
	Started  time.Time     `json:"started"`
	Ended    time.Time     `json:"ended,omitzero"`
	ExitCode int           `json:"exit_code"`
	User     time.Duration `json:"user"` // processor time; of a run that is alive, until now
	System   time.Duration `json:"system"`
	MaxRSS   int64         `json:"max_rss"` // bytes: the most that its largest process used, or with a memory limit all together; of a run that is alive, what all use now
	Why      string        `json:"why,omitempty"`
}

// HistoryLine is one thing that happened to a job.
type HistoryLine struct {
	At     time.Time `json:"at"`
	Run    int       `json:"run,omitempty"` // 0: it concerns none
	Event  string    `json:"event"`
	Detail string    `json:"detail,omitempty"`
	Host   string    `json:"host,omitempty"` // whose agent wrote it; "": the queue did
}
