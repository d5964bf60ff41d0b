package submit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/esub"
)

// option joins one of LSF's parameters with a Spec. get gives "" where the job
// doesn't say it; set takes what a filter wrote, "" to take the option away.
type option struct {
	key  string
	bare bool
	get  func(s *backends.Spec) string
	set  func(s *backends.Spec, value string) error // nil: a filter can't change it
}

// kilobyte is what a plain -M counts in, as LSF has it by default.
const kilobyte = 1 << 10

var errNumber = errors.New("want a whole number, zero or more")

// options are the parameters in the order in which bsub writes them.
func options() []option {
	return []option{
		{"LSB_SUB_JOB_NAME", false, jobName, setJobName},
		text("LSB_SUB_QUEUE", func(s *backends.Spec) *string { return &s.Queue }),
		text("LSB_SUB_IN_FILE", func(s *backends.Spec) *string { return &s.Stdin }),
		text("LSB_SUB_OUT_FILE", func(s *backends.Spec) *string { return &s.Stdout }),
		text("LSB_SUB_ERR_FILE", func(s *backends.Spec) *string { return &s.Stderr }),
		flag("LSB_SUB_EXCLUSIVE", func(s *backends.Spec) *bool { return &s.Exclusive }),
		flag("LSB_SUB_INTERACTIVE", func(s *backends.Spec) *bool { return &s.Interactive }),
		{"LSB_SUB_RERUNNABLE", true, rerunnable, setRerunnable},
		text("LSB_SUB_DEPEND_COND", func(s *backends.Spec) *string { return &s.After }),
		{"LSB_SUB_RES_REQ", false, resources, setResources},
		text("LSB_SUB_PROJECT_NAME", func(s *backends.Spec) *string { return &s.Project }),
		flag("LSB_SUB_HOLD", func(s *backends.Spec) *bool { return &s.Hold }),
		number("LSB_SUB2_JOB_PRIORITY", func(s *backends.Spec) int64 { return int64(s.Priority) }, func(s *backends.Spec, n int64) { s.Priority = backends.Priority(n) }),
		text("LSB_SUB_JOB_DESCRIPTION", func(s *backends.Spec) *string { return &s.Description }),
		{"LSB_SUB_HOSTS", false, hosts, func(s *backends.Spec, value string) error { s.Hosts = strings.Fields(value); return nil }},
		number("LSB_SUB_RLIMIT_RSS", func(s *backends.Spec) int64 { return (s.Memory + kilobyte - 1) / kilobyte }, setMemory),
		number("LSB_SUB_RLIMIT_RUN", func(s *backends.Spec) int64 { return int64((s.RunLimit + time.Second - 1) / time.Second) }, func(s *backends.Spec, n int64) { s.RunLimit = time.Duration(n) * time.Second }),
		number("LSB_SUB_NUM_PROCESSORS", func(s *backends.Spec) int64 { return int64(s.Slots) }, func(s *backends.Spec, n int64) { s.Slots = max(int(n), 1) }),
		{"LSB_SUB_MAX_NUM_PROCESSORS", true, func(s *backends.Spec) string { return decimal(int64(s.Slots)) }, nil},
		number("LSB_SUB_BEGIN_TIME", beginTime, setBeginTime),
		{"LSB_SUB_COMMAND_LINE", false, func(s *backends.Spec) string { return strings.Join(s.Command, " ") }, nil},
	}
}

// setMemory keeps a limit where there was one.
func setMemory(s *backends.Spec, n int64) {
	s.Memory = n * kilobyte
	if s.MemoryLimit > 0 {
		s.MemoryLimit = s.Memory
	}
}

func text(key string, field func(*backends.Spec) *string) option {
	return option{key, false, func(s *backends.Spec) string { return *field(s) }, func(s *backends.Spec, value string) error {
		*field(s) = value
		return nil
	}}
}

func flag(key string, field func(*backends.Spec) *bool) option {
	return option{key, true, func(s *backends.Spec) string {
		if *field(s) {
			return "Y"
		}
		return ""
	}, func(s *backends.Spec, value string) error {
		*field(s) = value == "Y" || value == "y"
		return nil
	}}
}

func number(key string, get func(*backends.Spec) int64, put func(*backends.Spec, int64)) option {
	return option{key, true, func(s *backends.Spec) string { return decimal(get(s)) }, func(s *backends.Spec, value string) error {
		if value == "" {
			put(s, 0)
			return nil
		}
		const most = 1 << 32 // times any unit here it overflows nothing
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > most {
			return errNumber
		}
		put(s, n)
		return nil
	}}
}

func decimal(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// encode is a job as the filter sees it. Control characters, which LSF's file
// can't hold, look like spaces to the filter; the job keeps them.
func encode(s *backends.Spec) esub.Params {
	var params esub.Params
	for _, o := range options() {
		if value := o.get(s); value != "" {
			params = append(params, esub.Param{Key: o.key, Value: oneLine(value), Bare: o.bare})
		}
	}
	return params
}

func oneLine(value string) string {
	b := []byte(value)
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

// applyChanges gives the job as a filter that saw params changed it, and a line for
// each change that can't be made.
func applyChanges(s backends.Spec, params, changes esub.Params) (_ backends.Spec, ignored []string) {
	known := options()
	for _, c := range changes {
		value := c.Value
		if c.Bare && value == "SUB_RESET" {
			value = ""
		}
		if before, _ := params.Get(c.Key); before == value {
			continue // what looks the same is the same
		}
		i := slices.IndexFunc(known, func(o option) bool { return o.key == c.Key })
		switch {
		case i < 0:
			ignored = append(ignored, c.Key+": unknown option in the modify file: ignored")
		case known[i].set == nil:
			ignored = append(ignored, c.Key+": can't be changed here: ignored")
		default:
			before := s
			if err := known[i].set(&s, value); err != nil {
				s = before
				ignored = append(ignored, fmt.Sprintf("%s=%q: %v: ignored", c.Key, value, err))
			}
		}
	}
	holdBegin(&s, params)
	return s, ignored
}

// holdBegin takes the begin time that the filter holds a job by for the engine's hold, which
// it is. The job's owner gave none, or the one that the tag repeats.
func holdBegin(s *backends.Spec, params esub.Params) {
	tag, _, err := backends.ParseTag(s.Description)
	if err != nil || tag.Held == 0 || tag.Held != beginTime(s) {
		return
	}
	var owners time.Time
	if begin, given := params.Get("LSB_SUB_BEGIN_TIME"); given {
		n, err := strconv.ParseInt(begin, 10, 64)
		if err != nil || n != tag.Begin {
			return
		}
		owners = time.Unix(n, 0)
	}
	s.HeldUntil, s.BeginTime = s.BeginTime, owners
}

// withVariable gives an environment with one variable set; env itself stays.
func withVariable(env []string, key, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); name != key {
			out = append(out, entry)
		}
	}
	return append(out, key+"="+value)
}

func jobName(s *backends.Spec) string {
	if s.Array == nil {
		return s.Name
	}
	name := s.Name + "[" + bsub.FormatIndices(s.Array.Indices) + "]"
	if s.Array.Limit > 0 {
		name += "%" + strconv.Itoa(s.Array.Limit)
	}
	return name
}

func setJobName(s *backends.Spec, value string) error {
	name, array, err := bsub.ParseName(value)
	if err == nil {
		s.Name, s.Array = name, array
	}
	return err
}

func rerunnable(s *backends.Spec) string {
	switch {
	case s.NoRequeue:
		return "N"
	case s.Rerunnable:
		return "Y"
	}
	return ""
}

func setRerunnable(s *backends.Spec, value string) error {
	s.Rerunnable, s.NoRequeue = value == "Y" || value == "y", value == "N" || value == "n"
	return nil
}

// resources has what a Spec knows of -R; its memory is the limit's line.
func resources(s *backends.Spec) string {
	switch {
	case s.OneHost && s.Slots > 1:
		return "span[hosts=1]"
	case s.PerHost > 0:
		return "span[ptile=" + strconv.Itoa(s.PerHost) + "]"
	}
	return ""
}

// slotsPerHost reads span[ptile=N]; 0: there is none.
func slotsPerHost(request string) int {
	_, rest, _ := strings.Cut(strings.ReplaceAll(request, " ", ""), "span[ptile=")
	count, _, closed := strings.Cut(rest, "]")
	n, err := strconv.Atoi(count)
	if !closed || err != nil {
		return 0
	}
	return max(n, 0)
}

func setResources(s *backends.Spec, value string) error {
	s.PerHost = slotsPerHost(value)
	s.OneHost = s.Slots <= 1 || s.PerHost >= s.Slots || strings.Contains(strings.ReplaceAll(value, " ", ""), "span[hosts=1]")
	if memory := esub.RusageMemory(value, kilobyte); memory > 0 {
		s.Memory = memory
	}
	return nil
}

func hosts(s *backends.Spec) string {
	if len(s.Hosts) == 0 {
		return ""
	}
	return strings.Join(s.Hosts, " ") + " " // as bsub writes it
}

func beginTime(s *backends.Spec) int64 {
	if s.BeginTime.IsZero() {
		return 0
	}
	return s.BeginTime.Unix()
}

func setBeginTime(s *backends.Spec, seconds int64) {
	s.BeginTime = time.Time{}
	if seconds > 0 {
		s.BeginTime = time.Unix(seconds, 0)
	}
}
