package bsub

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Row is a job of a list, and what its queue has kept of it.
type Row struct {
	Job    *backends.Job
	Record *backends.Record // nil: none that may be read, or none is needed
	Use    *Use             // nil: it is not measured, or may not be read, or is not needed
	Now    bool             // the list is of what jobs use now, not of what they have used
}

// field is a column that ajobs -o prints, under LSF's name.
type field struct {
	name, alias string
	width       int  // LSF's own, in characters
	prose       bool // what is too long for its column loses its end, not its beginning
	record      bool // it is in the job's record
	use         bool // agents measure it
	useAlone    bool // nothing else has it
	// text returns what is printed; "" is printed as -.
	text func(c *columns, r *Row) string
	// number is what the column is sorted by; nil: the text.
	number func(c *columns, r *Row) float64
}

// columns is what the texts of a list depend on beside its jobs.
type columns struct {
	fromHost string
	zone     *time.Location
	now      time.Time
}

const listTime = "Jan _2 15:04"

func (c *columns) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(c.zone).Format(listTime)
}

// started is when a job's run began; zero: it has not.
func started(j *backends.Job) time.Time {
	if j.State == backends.Pending || j.State == backends.Held {
		return time.Time{}
	}
	return j.Started
}

// ranFor returns how long a job has run.
func (c *columns) ranFor(j *backends.Job) time.Duration {
	switch from := started(j); {
	case from.IsZero():
		return 0
	case j.State.Ended():
		return max(j.Ended.Sub(from), 0)
	case j.State == backends.Suspended:
		return j.RanFor
	default:
		return j.RanFor + max(c.now.Sub(from), 0)
	}
}

// waited returns how long a job has waited, or did before its run.
func (c *columns) waited(j *backends.Job) time.Duration {
	until := started(j)
	if until.IsZero() {
		until = c.now
	}
	return max(until.Sub(j.Submitted), 0)
}

// mustEnd is when a job's run limit ends it; zero: it has none, or does not run.
func mustEnd(j *backends.Job) time.Time {
	if j.RunLimit == 0 || j.State != backends.Running {
		return time.Time{}
	}
	return j.Started.Add(j.RunLimit - j.RanFor)
}

// lastRun is a job's present run, or its last one; nil: none is known.
func (r *Row) lastRun() *backends.RunRecord {
	if r.Record == nil || len(r.Record.Runs) == 0 {
		return nil
	}
	return &r.Record.Runs[len(r.Record.Runs)-1]
}

// measured is lastRun if it is known what it used: Slurm's record of a job lacks it.
func (r *Row) measured() *backends.RunRecord {
	if run := r.lastRun(); run != nil && (run.MaxRSS > 0 || run.User+run.System > 0) {
		return run
	}
	return nil
}

func (r *Row) spec() *backends.Spec {
	if r.Record == nil {
		return &backends.Spec{}
	}
	return &r.Record.Spec
}

// seconds is LSF's way of writing a duration.
func seconds(d time.Duration, digits int) string {
	return strconv.FormatFloat(d.Seconds(), 'f', digits, 64) + " second(s)"
}

// Command is what a job executes, as one line; "": that is not known.
func Command(s *backends.Spec) string {
	switch {
	case len(s.Command) == 3 && s.Command[0] == "/bin/sh" && s.Command[1] == "-c":
		return s.Command[2]
	case len(s.Command) > 0:
		return strings.Join(s.Command, " ")
	}
	return strings.TrimRight(string(s.Script), "\n")
}

// Progress is how far a job is, by its own words: 40% step 3 of 7; "": it does not say.
func Progress(j *backends.Job) string {
	percent, text, ok := progress(j)
	if !ok {
		return ""
	}
	return strings.TrimRight(fmt.Sprintf("%d%% %s", percent, text), " ")
}

// progressField is the column of it.
const progressField = "progress"

func progress(j *backends.Job) (percent int, text string, ok bool) {
	number, text, _ := strings.Cut(j.Progress, " ")
	percent, err := strconv.Atoi(number)
	return percent, text, err == nil
}

// ofJob is a column with a text of the job's own.
func ofJob(name, alias string, width int, text func(*backends.Job) string) field {
	return field{name: name, alias: alias, width: width, text: func(_ *columns, r *Row) string { return text(r.Job) }}
}

// ofSpec is a column with a text of what was submitted.
func ofSpec(name, alias string, width int, text func(*backends.Spec) string) field {
	return field{name: name, alias: alias, width: width, record: true, text: func(_ *columns, r *Row) string { return text(r.spec()) }}
}

func asProse(f field) field {
	f.prose = true
	return f
}

// ofNumber is a column of numbers; one of 0 is printed if zero.
func ofNumber(name, alias string, width int, zero bool, number func(*backends.Job) int) field {
	return field{
		name: name, alias: alias, width: width,
		text: func(_ *columns, r *Row) string {
			if n := number(r.Job); n != 0 || zero {
				return strconv.Itoa(n)
			}
			return ""
		},
		number: func(_ *columns, r *Row) float64 { return float64(number(r.Job)) },
	}
}

// ofTime is a column of times.
func ofTime(name string, width int, at func(*backends.Job) time.Time) field {
	return field{
		name: name, width: width,
		text:   func(c *columns, r *Row) string { return c.at(at(r.Job)) },
		number: func(_ *columns, r *Row) float64 { return float64(at(r.Job).Unix()) },
	}
}

// ofRun is a column of what the last run used.
func ofRun(name string, width int, number func(*backends.RunRecord) float64, text func(*backends.RunRecord) string) field {
	return field{
		name: name, width: width, record: true,
		text: func(_ *columns, r *Row) string {
			if run := r.measured(); run != nil {
				return text(run)
			}
			return ""
		},
		number: func(_ *columns, r *Row) float64 {
			if run := r.measured(); run != nil {
				return number(run)
			}
			return -1
		},
	}
}

func ofProcessorTime(name string, width int, used func(*backends.RunRecord) time.Duration) field {
	return ofRun(name, width, func(r *backends.RunRecord) float64 { return used(r).Seconds() },
		func(r *backends.RunRecord) string { return seconds(used(r), 1) })
}

func ofMemory(name string) field {
	f := ofRun(name, 15, func(r *backends.RunRecord) float64 { return float64(r.MaxRSS) },
		func(r *backends.RunRecord) string { return size(r.MaxRSS) })
	return ofUse(name, f.width, &f)
}

// fields are the columns that there are, in LSF's order of them as far as it has one.
func fields() []field {
	ended := func(r *Row) bool { return r.Job.State.Ended() }
	all := []field{
		{
			name: "jobid", alias: "id", width: 7,
			text:   func(_ *columns, r *Row) string { return strconv.FormatInt(r.Job.ID.Job, 10) },
			number: func(_ *columns, r *Row) float64 { return float64(r.Job.ID.Job) },
		},
		ofNumber("jobindex", "", 8, true, func(j *backends.Job) int { return max(j.ID.Index, 0) }),
		ofJob("stat", "", 5, Stat),
		ofJob("user", "", 7, func(j *backends.Job) string { return j.User }),
		ofJob("queue", "", 10, func(j *backends.Job) string { return j.Queue }),
		ofJob("job_name", "name", 10, JobName),
		asProse(ofSpec("job_description", "description", 17, func(s *backends.Spec) string {
			_, text, err := backends.ParseTag(s.Description)
			if err != nil {
				return s.Description
			}
			return text
		})),
		ofJob("proj_name", "proj", 11, func(j *backends.Job) string { return backends.JoinProject(j.Project, j.Step) }),
		ofJob("job_group", "group", 10, func(j *backends.Job) string { return j.Group }),
		ofNumber("job_priority", "priority", 12, true, func(j *backends.Job) int { return j.Priority.Value() }),
		ofJob("level", "", 8, func(j *backends.Job) string { return j.Priority.Level().String() }),
		ofSpec("dependency", "", 15, func(s *backends.Spec) string { return s.After }),
		asProse(ofSpec("command", "cmd", 15, Command)),
		asProse(ofJob("pend_reason", "", 11, func(j *backends.Job) string { return strings.TrimSuffix(j.Reason, ";") })),
		{
			name: "exit_code", width: 10,
			text: func(_ *columns, r *Row) string {
				if ended(r) {
					return strconv.Itoa(r.Job.ExitCode)
				}
				return ""
			},
			number: func(_ *columns, r *Row) float64 {
				if ended(r) {
					return float64(r.Job.ExitCode)
				}
				return -1
			},
		},
		{
			name: "exit_reason", width: 50, record: true, prose: true,
			text: func(_ *columns, r *Row) string {
				if run := r.lastRun(); run != nil && ended(r) {
					return run.Why
				}
				return ""
			},
		},
		{name: "from_host", width: 11, text: func(c *columns, _ *Row) string { return c.fromHost }},
		ofJob("first_host", "", 11, func(j *backends.Job) string {
			if len(j.Hosts) == 0 {
				return ""
			}
			return j.Hosts[0].Host
		}),
		ofJob("exec_host", "", 11, func(j *backends.Job) string {
			if len(j.Hosts) == 0 {
				return ""
			}
			return strings.Join(execHosts(j, false), ":")
		}),
		ofNumber("nexec_host", "", 10, false, func(j *backends.Job) int { return len(j.Hosts) }),
		{
			name: progressField, width: 24, prose: true,
			text: func(_ *columns, r *Row) string { return Progress(r.Job) },
			number: func(_ *columns, r *Row) float64 {
				if percent, _, ok := progress(r.Job); ok {
					return float64(percent)
				}
				return -1
			},
		},
		ofTime("submit_time", 15, func(j *backends.Job) time.Time { return j.Submitted }),
		ofTime("start_time", 15, started),
		ofTime("specified_start_time", 20, func(j *backends.Job) time.Time { return j.BeginTime }),
		{
			name: "finish_time", width: 16,
			text: func(c *columns, r *Row) string {
				if at := mustEnd(r.Job); !at.IsZero() {
					return c.at(at) + " L" // as LSF marks the end that a limit sets
				}
				return c.at(r.Job.Ended)
			},
			number: func(_ *columns, r *Row) float64 {
				if at := mustEnd(r.Job); !at.IsZero() {
					return float64(at.Unix())
				}
				return float64(r.Job.Ended.Unix())
			},
		},
		{
			name: "time_left", width: 11,
			text: func(c *columns, r *Row) string {
				at := mustEnd(r.Job)
				if at.IsZero() {
					return ""
				}
				left := max(at.Sub(c.now), 0)
				return fmt.Sprintf("%d:%02d L", int(left.Hours()), int(left.Minutes())%60)
			},
			number: func(c *columns, r *Row) float64 {
				if at := mustEnd(r.Job); !at.IsZero() {
					return at.Sub(c.now).Seconds()
				}
				return -1
			},
		},
		{
			name: "run_time", width: 15,
			text:   func(c *columns, r *Row) string { return seconds(c.ranFor(r.Job), 0) },
			number: func(c *columns, r *Row) float64 { return c.ranFor(r.Job).Seconds() },
		},
		{
			name: "pend_time", width: 12,
			text:   func(c *columns, r *Row) string { return strconv.Itoa(int(c.waited(r.Job).Seconds())) },
			number: func(c *columns, r *Row) float64 { return c.waited(r.Job).Seconds() },
		},
		ofProcessorTime("ru_utime", 12, func(r *backends.RunRecord) time.Duration { return r.User }),
		ofProcessorTime("ru_stime", 12, func(r *backends.RunRecord) time.Duration { return r.System }),
		ofProcessorTime("cpu_used", 10, func(r *backends.RunRecord) time.Duration { return r.User + r.System }),
		ofMemory("mem"),
		ofMemory("max_mem"),
		ofUse("swap", 15, &field{text: func(*columns, *Row) string { return "" }, number: func(*columns, *Row) float64 { return -1 }}),
		ofUse("io", 15, nil),
		ofUse("net", 15, nil),
		ofUse("nthreads", 8, nil),
		ofUse("gpuuse", 8, nil),
		ofUse("gpumem", 15, nil),
		ofJob("pids", "", 20, nothing), // no queue of ours has it
		ofNumber("slots", "", 5, true, func(j *backends.Job) int { return j.Slots }),
		ofNumber("nreq_slot", "", 10, true, func(j *backends.Job) int { return j.Slots }),
		ofNumber("nalloc_slot", "", 10, false, func(j *backends.Job) (n int) {
			for _, p := range j.Hosts {
				n += p.Slots
			}
			return n
		}),
		ofNumber("min_req_proc", "", 12, true, func(j *backends.Job) int { return j.Slots }),
		ofNumber("max_req_proc", "", 12, true, func(j *backends.Job) int { return j.Slots }),
		{
			name: "memlimit", width: 15, record: true,
			text: func(_ *columns, r *Row) string {
				if r.spec().MemoryLimit == 0 {
					return ""
				}
				return size(r.spec().MemoryLimit)
			},
			number: func(_ *columns, r *Row) float64 { return float64(r.spec().MemoryLimit) },
		},
		{
			name: "runtimelimit", width: 12,
			text: func(_ *columns, r *Row) string {
				if r.Job.RunLimit == 0 {
					return ""
				}
				return FormatMinutes(r.Job.RunLimit)
			},
			number: func(_ *columns, r *Row) float64 { return r.Job.RunLimit.Seconds() },
		},
		ofSpec("input_file", "", 10, func(s *backends.Spec) string { return s.Stdin }),
		ofSpec("output_file", "", 11, func(s *backends.Spec) string { return s.Stdout }),
		ofSpec("error_file", "", 10, func(s *backends.Spec) string { return s.Stderr }),
		ofSpec("sub_cwd", "", 10, func(s *backends.Spec) string { return s.Dir }),
		ofSpec("exec_cwd", "", 10, func(s *backends.Spec) string { return s.Dir }),
		ofNumber("requeues", "", 8, true, func(j *backends.Job) int { return j.Requeues }),
	}
	return append(all, pastFields()...)
}

func nothing(*backends.Job) string { return "" }
