package lsfstandin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// submit is bsub.
func (q *queue) submit(b caller, s *submission) reply {
	p := q.cfg.Params
	want := Job{
		User: b.Name, Home: b.Home, Project: p.DefaultProject, Queue: p.DefaultQueue, Group: s.Group, Profile: s.Profile, Stat: PEND, Command: s.Command,
		FromHost: q.cfg.Master, RunCWD: s.CWD, Slots: 1, Submitted: q.now.Truncate(time.Second), Priority: p.DefaultPriority(),
	}
	if s.Script {
		want.Command = scriptLine(s.Command)
	}
	for _, option := range s.Params {
		if subject, sentence := q.applyOption(&want, option); sentence != "" {
			return reply{Subject: subject, Err: sentence}
		}
	}
	if cwd, ok := s.Params.get("LSB_SUB3_CWD"); ok && cwd != "" {
		want.RunCWD = cwd
		if !strings.HasPrefix(cwd, "/") {
			want.RunCWD = strings.TrimSuffix(s.CWD, "/") + "/" + cwd
		}
	}
	want.CWD = listedDir(want.RunCWD, b.Home)
	base, array, err := bsub.ParseName(want.Name)
	if err != nil || array != nil && len(array.Indices) > p.MaxArraySize {
		return reply{Err: errName}
	}
	given := base
	if base == "" {
		base = want.Command // by which others may depend on it
	}
	spec := q.spec(&want)
	spec.Name, spec.Array = base, array
	if want.Held {
		want.Stat = PSUSP
		spec.Hold = true
	}
	w := &work{command: s.Command, script: s.Script, dir: want.RunCWD, env: s.Env, umask: s.Umask, truncate: s.Truncate, screen: s.Screen}
	spec.Hold = true // until it is in q.jobs, too: the step that starts it looks for it
	submitted := q.feed(manager.Submit{By: by(b.Name), Specs: []backends.Spec{spec}}).Submitted[0]
	if submitted.Err != nil {
		return q.refusal(&want, submitted.Err)
	}
	indices, limit := []int{0}, 0
	if array != nil {
		indices, limit = array.Indices, array.Limit
	}
	for _, index := range indices {
		j := &job{Job: want, id: backends.ID{Job: submitted.ID.Job, Index: index}, base: base, limit: limit, by: b, work: w}
		j.ID, j.Index, j.Elements = j.id.Job, index, len(indices)
		if index != 0 {
			j.Name = fmt.Sprintf("%s[%d]", given, index)
		}
		q.jobs[j.id] = j
		q.order = append(q.order, j)
	}
	q.fitResources()
	if !want.Held {
		q.feed(manager.Release{By: by(b.Name), IDs: []backends.ID{submitted.ID}})
	}
	_, named := s.Params.get("LSB_SUB_QUEUE")
	return reply{Job: submitted.ID.Job, Queue: want.Queue, Default: !named}
}

// scriptLine returns how a job whose script came on standard input is listed.
func scriptLine(script string) string {
	return strings.Join(strings.Split(strings.TrimSpace(script), "\n"), ";")
}

// listedDir returns how LSF lists a directory: below the home as $HOME.
func listedDir(dir, home string) string {
	rest, below := strings.CutPrefix(dir, home)
	if home != "" && home != "/" && below && (rest == "" || rest[0] == '/') {
		return "$HOME" + rest
	}
	return dir
}

// spec returns what the manager schedules a job by.
func (q *queue) spec(j *Job) backends.Spec {
	hosts := q.suits(j)
	if len(hosts) == len(q.cfg.Hosts) {
		hosts = nil
	}
	return backends.Spec{
		Project: j.Project, Queue: j.Queue, Priority: backends.At(backends.LevelNormal, j.Priority), Slots: j.Slots,
		Memory: j.Memory, OneHost: oneHost(j.ResReq), Hosts: hosts, BeginTime: j.Begin,
		Exclusive: j.Exclusive, After: j.Depend,
	}
}

// refusal returns LSF's sentence for what the manager does not take.
func (q *queue) refusal(j *Job, err error) reply {
	switch {
	case errors.Is(err, backends.ErrUnknownJob):
		return reply{Subject: j.Depend, Err: errNoJob}
	case j.Depend != "" && strings.Contains(err.Error(), "dependency"):
		return reply{Subject: j.Depend, Err: errSyntax}
	case strings.Contains(err.Error(), "slots"):
		if j.Memory > 0 && j.Slots <= q.mostSlots() {
			return reply{Err: errUsage}
		}
		return reply{Err: errTooMany}
	}
	return reply{Err: errArgument}
}

func (q *queue) mostSlots() int {
	most := 0
	for _, h := range q.cfg.Hosts {
		most = max(most, h.Slots)
	}
	return most
}

// applyOption applies one option to a job. A sentence says what is wrong, subject with what.
func (q *queue) applyOption(j *Job, p param) (subject, sentence string) {
	reset := p.Bare && p.Value == subReset
	value := p.Value
	if reset {
		value = ""
	}
	yes := value == "Y" || value == "y"
	switch p.Key {
	case "LSB_SUB_JOB_NAME":
		j.Name = value
	case "LSB_SUB_QUEUE":
		if j.Queue = value; value == "" {
			j.Queue = q.cfg.Params.DefaultQueue
		}
		// bsub -q takes a list; of queues that are all alike LSF takes the first.
		j.Queue, _, _ = strings.Cut(strings.TrimSpace(j.Queue), " ")
		if !slices.ContainsFunc(q.cfg.Queues, func(c QueueConfig) bool { return c.Name == j.Queue }) {
			return value, errNoQueue
		}
	case "LSB_SUB_IN_FILE":
		j.Input = value
	case "LSB_SUB_OUT_FILE":
		j.Output = value
	case "LSB_SUB_ERR_FILE":
		j.ErrorFile = value
	case "LSB_SUB_EXCLUSIVE":
		j.Exclusive = yes
	case "LSB_SUB_RERUNNABLE":
		j.Rerunnable = yes
	case "LSB_SUB_INTERACTIVE", "LSB_SUB_PTY":
		j.Interactive = yes
	case "LSB_SUB_HOLD":
		j.Held = yes
	case "LSB_SUB_DEPEND_COND":
		j.Depend = value
	case "LSB_SUB_RES_REQ":
		memory, ok := q.rusage(value)
		if !ok {
			return "", errResReq
		}
		j.ResReq, j.Memory = value, memory
	case "LSB_SUB_PROJECT_NAME":
		if j.Project = value; value == "" {
			j.Project = q.cfg.Params.DefaultProject
		}
	case "LSB_SUB_JOB_DESCRIPTION":
		j.Description = value
	case "LSB_SUB2_JOB_PRIORITY":
		return "", q.applyPriority(j, value, reset)
	case "LSB_SUB_HOSTS":
		j.Asked = nil
		for _, name := range strings.Fields(value) {
			name = strings.TrimSuffix(name, "!")
			if _, wrong := q.hostsListed([]string{name}); wrong != "" {
				return wrong, errHost
			}
			j.Asked = append(j.Asked, name)
		}
	case "LSB_SUB_BEGIN_TIME":
		if reset && q.cfg.Unkind.BeginNeverClears {
			value = strconv.FormatInt(neverClears, 10)
		}
		return "", q.applyNumber(j, p.Key, value)
	default:
		return "", q.applyNumber(j, p.Key, value)
	}
	return "", ""
}

// neverClears is the begin time that bmod -bn leaves (Unkind.BeginNeverClears).
const neverClears = 1<<32 - 2

// applyPriority is -sp.
func (q *queue) applyPriority(j *Job, value string, reset bool) string {
	most := q.cfg.Params.MaxUserPriority
	if reset {
		j.Priority, j.UserPriority = q.cfg.Params.DefaultPriority(), 0
		return ""
	}
	if most == 0 {
		return errNoPriority
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return errPriority
	}
	j.Priority, j.UserPriority = n, n
	return ""
}

// applyNumber applies the options that are numbers; "" is 0. Others are accepted
// and mean nothing here.
func (q *queue) applyNumber(j *Job, key, value string) string {
	switch key {
	case "LSB_SUB_NUM_PROCESSORS", "LSB_SUB_MAX_NUM_PROCESSORS", "LSB_SUB_BEGIN_TIME", "LSB_SUB_RLIMIT_RUN", "LSB_SUB_RLIMIT_RSS":
	default:
		return ""
	}
	if key == "LSB_SUB_RLIMIT_RSS" {
		bytes, ok := parseSize(value, q.limitUnit())
		if !ok {
			return errArgument
		}
		j.MemLimit = bytes >> 10
		return ""
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if value != "" && (err != nil || n < 0) {
		return errArgument
	}
	switch key {
	case "LSB_SUB_NUM_PROCESSORS":
		j.Slots = max(1, int(n))
	case "LSB_SUB_MAX_NUM_PROCESSORS":
		j.MaxSlots = int(n)
	case "LSB_SUB_BEGIN_TIME":
		j.Begin = time.Time{}
		if n > 0 {
			j.Begin = time.Unix(n, 0)
		}
	case "LSB_SUB_RLIMIT_RUN":
		j.RunLimit = time.Duration(n) * time.Second
	}
	return ""
}

// limitUnit is what a plain -M counts in: MB on lava, and KB on LSF 10.1 unless
// LSF_UNIT_FOR_LIMITS says otherwise (IBM: lsf_config_ref, LSF_UNIT_FOR_LIMITS).
func (q *queue) limitUnit() int64 {
	if q.cfg.Flavour == Lava {
		return 1 << 20
	}
	return unitOf(q.cfg.Params.LimitUnit, 1<<10)
}

func unitOf(name string, without int64) int64 {
	if i := strings.IndexAny("KMGTPE", strings.ToUpper(name)+" "); name != "" && i >= 0 {
		i = strings.Index("KMGTPE", strings.ToUpper(name[:1]))
		if i >= 0 {
			return 1 << (10 * (i + 1))
		}
	}
	return without
}

// parseSize reads a number with a unit of its own, or in the given one; "" is 0.
func parseSize(s string, unit int64) (bytes int64, ok bool) {
	if s == "" {
		return 0, true
	}
	s = strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B")
	if s == "" {
		return 0, false
	}
	if i := strings.IndexByte("KMGTPE", s[len(s)-1]); i >= 0 {
		unit, s = 1<<(10*(i+1)), s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n < 0 || n*float64(unit) >= 1<<62 {
		return 0, false
	}
	return int64(n * float64(unit)), true
}

// rusage is the memory that a resource requirement reserves; plain numbers are MB,
// on LSF 10.1 in LSF_UNIT_FOR_LIMITS where that is set.
func (q *queue) rusage(req string) (bytes int64, ok bool) {
	if strings.Count(req, "[") != strings.Count(req, "]") {
		return 0, false
	}
	unit := int64(1 << 20)
	if q.cfg.Flavour == LSF10 {
		unit = unitOf(q.cfg.Params.LimitUnit, unit)
	}
	_, rest, found := strings.Cut(req, "rusage[")
	if !found {
		return 0, true
	}
	section, _, _ := strings.Cut(rest, "]")
	for item := range strings.FieldsFuncSeq(section, func(r rune) bool { return strings.ContainsRune(",:&| ", r) }) {
		if value, is := strings.CutPrefix(item, "mem="); is {
			value, _, _ = strings.Cut(value, "/")
			return parseSize(value, unit)
		}
	}
	return 0, true
}

func oneHost(req string) bool {
	return strings.Contains(strings.ReplaceAll(req, " ", ""), "span[hosts=1]")
}
