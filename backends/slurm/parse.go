package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The fields that squeue is asked for, in this order. Each is followed by a nonce
// of the call: nothing that a user could type parts them.
const (
	fArrayJob = iota
	fArrayTask
	fState
	fReason
	fUser
	fQueue
	fPriority
	fNice
	fCPUs
	fNodes
	fMaxNodes
	fTRES
	fStart
	fSubmit
	fEligible
	fEnd
	fTimeLimit
	fTimeUsed
	fNodeList
	fReqNodes
	fAccount
	fWCKey
	fOverSubscribe
	fRestarts
	fRequeue
	fBatch
	fExit
	fComment
	fName
	fieldCount
)

var squeueFields = [fieldCount]string{
	fArrayJob: "ArrayJobID", fArrayTask: "ArrayTaskID", fState: "StateCompact", fReason: "Reason", fUser: "UserName", fQueue: "Partition",
	fPriority: "PriorityLong", fNice: "Nice", fCPUs: "NumCPUs", fNodes: "NumNodes", fMaxNodes: "MaxNodes", fTRES: "tres", fStart: "StartTime",
	fSubmit: "SubmitTime", fEligible: "EligibleTime", fEnd: "EndTime", fTimeLimit: "TimeLimit", fTimeUsed: "TimeUsed", fNodeList: "NodeList",
	fReqNodes: "ReqNodes", fAccount: "Account", fWCKey: "WCKey", fOverSubscribe: "OverSubscribe", fRestarts: "RestartCnt", fRequeue: "Requeue",
	fBatch: "BatchFlag", fExit: "exit_code", fComment: "Comment", fName: "Name",
}

// Fields of sinfo, one line for each node in each of its partitions.
const (
	nName = iota
	nCPUs
	nMemory
	nState
	nQueue
	nTier
	nodeFieldCount
)

var sinfoFields = [nodeFieldCount]string{nName: "NodeList", nCPUs: "CPUs", nMemory: "Memory", nState: "StateCompact", nQueue: "Partition", nTier: "PriorityTier"}

// format is the -O of squeue or sinfo: fields that are parted by the nonce.
func format(fields []string, nonce string) string {
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f + ":" + nonce)
	}
	return b.String()
}

// rows parts what squeue or sinfo printed into lines of n fields.
func rows(out []byte, nonce string, n int) ([][]string, error) {
	text := string(out)
	var all [][]string
	for text != "" {
		fields := make([]string, n)
		begin := text
		for i := range fields {
			field, rest, ok := strings.Cut(text, nonce)
			if !ok {
				return nil, fmt.Errorf("%d fields of %d in the line %s", i, n, shown(begin))
			}
			fields[i], text = field, rest
		}
		rest, ok := strings.CutPrefix(text, "\n")
		if !ok {
			return nil, fmt.Errorf("more than %d fields in the line %s", n, shown(begin))
		}
		all, text = append(all, fields), rest
	}
	return all, nil
}

// shown is the beginning of a text for an error.
func shown(s string) string {
	const most = 300
	return strconv.Quote(s[:min(len(s), most)])
}

// cluster is what is known of the cluster when its jobs are read.
type cluster struct {
	at      time.Time
	scale   Scale
	from    ProjectFrom
	trusted map[string]bool // users whose word on placeholders counts
	slots   map[string]int  // of each host
	low     map[string]bool // partitions whose jobs go after those of the default one
	memory  bool            // the cluster manages memory
}

// seen is a job as squeue tells it, with what is no business of callers.
type seen struct {
	backends.Job
	nodes    []string
	start    time.Time // of the run, whatever was suspended and resumed since
	eligible time.Time // may start then; zero: not known
	used     time.Duration
	factor   int64 // its priority, without Nice
	nice     int64
	holdsFor backends.ID // a placeholder's job

	// Of its details, if they were asked for.
	detailed      bool
	record        record
	before, after string // what stands around the record in its AdminComment
}

func parseJobs(out []byte, nonce string, c *cluster) ([]seen, error) {
	lines, err := rows(out, nonce, int(fieldCount))
	if err != nil {
		return nil, fmt.Errorf("squeue: %w", err)
	}
	jobs := make([]seen, len(lines))
	for i, line := range lines {
		if err := jobs[i].read(line, c); err != nil {
			return nil, fmt.Errorf("squeue: %w, in the line %s", err, shown(strings.Join(line, "|")))
		}
	}
	return jobs, nil
}

// read takes over the fields of one line.
func (j *seen) read(f []string, c *cluster) error {
	var failed error
	number := func(field int) int64 {
		n, err := strconv.ParseInt(f[field], 10, 64)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s %q is no number", squeueFields[field], f[field])
		}
		return n
	}
	at := func(field int) time.Time {
		t, err := parseTime(f[field])
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", squeueFields[field], err)
		}
		return t
	}
	span := func(field int) time.Duration {
		d, err := parseDuration(f[field])
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", squeueFields[field], err)
		}
		return d
	}
	hosts := func(field int) []string {
		h, err := parseHosts(f[field])
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", squeueFields[field], err)
		}
		return h
	}
	j.ID.Job = number(fArrayJob)
	if task := f[fArrayTask]; task != "N/A" {
		if j.ID.Index = int(number(fArrayTask)); j.ID.Index == 0 {
			j.ID.Index = backends.ZeroIndex
		}
	}
	j.Name, j.User, j.Queue = f[fName], f[fUser], f[fQueue]
	j.nice = number(fNice)
	if j.factor = number(fPriority); j.factor > least { // else who knows how much of Nice is in it
		j.factor += j.nice
	}
	j.Slots = int(number(fCPUs))
	j.Submitted, j.eligible = at(fSubmit), at(fEligible)
	j.RunLimit, j.used = span(fTimeLimit), span(fTimeUsed)
	j.nodes, j.Asked = hosts(fNodeList), hosts(fReqNodes)
	j.Requeues = int(number(fRestarts))
	j.Interactive = number(fBatch) == 0
	j.NoRequeue = number(fRequeue) == 0 || j.Interactive
	j.Exclusive = f[fOverSubscribe] == "NO"
	nodes, most := number(fNodes), number(fMaxNodes)
	end := at(fEnd)
	j.start = at(fStart)
	status := number(fExit)
	if failed != nil {
		return failed
	}
	if c.memory {
		var err error
		if j.Memory, err = parseTRES(f[fTRES]); err != nil {
			return err
		}
	}
	// squeue shows a limit of one node and none alike: a job that one host can hold
	// is taken to need that.
	j.OneHost = len(j.nodes) < 2 && nodes < 2 && most < 2 && (j.Slots == 1 || c.holds(j.Slots))
	j.tagged(f, c)
	if err := j.state(f[fState], f[fReason], c); err != nil {
		return err
	}
	switch {
	case j.State.Ended():
		j.Ended = end
		if len(j.nodes) > 0 { // else it was cancelled before it ran
			j.Started = j.start
		}
		j.ExitCode = exitCode(f[fState], int(status))
	case j.State == backends.Running || j.State == backends.Suspended:
		j.Started = j.start
	case j.State == backends.Pending && j.Wait == backends.WaitTime && j.Requeues == 0:
		j.BeginTime = j.eligible
	}
	if j.State == backends.Suspended {
		j.RanFor = j.used
	}
	j.Priority = c.scale.Priority(j.factor)
	if j.Priority.Level() == backends.LevelNormal && c.low[j.Queue] {
		j.Priority = backends.At(backends.LevelLow, j.Priority.Value())
	}
	return nil
}

// holds tells whether some host has so many slots.
func (c *cluster) holds(slots int) bool {
	for _, n := range c.slots {
		if n >= slots {
			return true
		}
	}
	return len(c.slots) == 0
}

// tagged reads project, step and tag.
func (j *seen) tagged(f []string, c *cluster) {
	comment := absent(f[fComment])
	if c.trusted[j.User] {
		j.holdsFor, _ = placeholderFor(comment)
	}
	tag, text, _ := backends.ParseTag(comment)
	if strings.HasPrefix(comment, backends.TagPrefix) {
		j.Tag, _, _ = strings.Cut(comment, " ")
	}
	project := absent(f[fAccount])
	switch c.from {
	case FromWCKey:
		project = strings.TrimPrefix(absent(f[fWCKey]), "*") // a default one of its user
	case FromComment:
		project, _, _ = strings.Cut(text, " ")
	case FromAccount:
	}
	if j.Project, j.Step = backends.SplitProject(project); j.Step == "" {
		j.Step = tag.Step
	}
}

func absent(s string) string {
	if s == "(null)" || s == "N/A" {
		return ""
	}
	return s
}

// state reads Slurm's state and, of a pending job, what it waits for.
func (j *seen) state(state, reason string, c *cluster) error {
	j.Reason = absent(reason)
	switch state {
	case "PD", "RQ", "RF", "SE", "RH", "RV":
		j.State = backends.Pending
	case "R", "CF", "SO", "RS", "SI", "ST":
		j.State = backends.Running
	case "CG":
		j.State, j.Ending = backends.Running, true
	case "S":
		j.State = backends.Suspended
	case "CD":
		j.State = backends.Done
	case "CA", "F", "TO", "NF", "BF", "DL", "OOM", "PR", "LF":
		j.State = backends.Exited
	default:
		return &backends.UnknownStateError{Text: state}
	}
	if j.State != backends.Pending {
		return nil
	}
	// Reasons lag behind: what can be told by the times is.
	switch {
	case strings.HasPrefix(reason, "JobHeld") || state == "RH" || state == "SE":
		j.State = backends.Held
	case j.eligible.After(c.at):
		j.Wait = backends.WaitTime
	default:
		j.Wait = waits[reason]
	}
	return nil
}

// waits are the reasons whose meaning is known; any other is WaitOther (R14).
// "None" is the reason of a job that the scheduler hasn't come to yet.
var waits = map[string]backends.Wait{
	"None":                     backends.WaitResources,
	"Resources":                backends.WaitResources,
	"Priority":                 backends.WaitResources,
	"BeginTime":                backends.WaitTime,
	"Dependency":               backends.WaitDependency,
	"DependencyNeverSatisfied": backends.WaitDependency,
	"JobArrayTaskLimit":        backends.WaitThrottle,
}

// exitCode reads a wait status; who was ended from outside was killed, whatever
// status its script left behind.
func exitCode(state string, status int) int {
	const killed, terminated = 128, 15
	switch code := status >> 8 & 0xff; {
	case status&0x7f != 0:
		return killed + status&0x7f
	case code != 0 || state == "CD":
		return code
	}
	return killed + terminated
}

// parseTime reads seconds of Unix time, which SLURM_TIME_FORMAT asks for.
func parseTime(s string) (time.Time, error) {
	switch s {
	case "N/A", "NONE", "Unknown", "None", "":
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, fmt.Errorf("%q is no time in seconds", s)
	}
	return unix(s), nil
}

// parseDuration reads days-hours:minutes:seconds; no limit is 0.
func parseDuration(s string) (time.Duration, error) {
	switch s {
	case "UNLIMITED", "NOT_SET", "Partition_Limit", "INVALID", "N/A", "":
		return 0, nil
	}
	bad := fmt.Errorf("%q is no duration", s)
	days, rest, hasDays := strings.Cut(s, "-")
	var total int64
	if hasDays {
		d, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, bad
		}
		total = int64(d) * 24
	} else {
		rest = s
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, bad
	}
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return 0, bad
		}
		if i > 0 {
			total *= 60
		}
		total += int64(n)
	}
	if total > int64(math.MaxInt64/time.Second) {
		return 0, bad
	}
	return time.Duration(total) * time.Second, nil
}

// parseTRES reads the memory, in bytes, of "cpu=2,mem=128M,node=1".
func parseTRES(s string) (int64, error) {
	for part := range strings.SplitSeq(s, ",") {
		if size, ok := strings.CutPrefix(part, "mem="); ok {
			return parseMemory(size)
		}
	}
	return 0, nil
}

// parseMemory reads 128M or 1.50G; without a unit it is MiB, as all of Slurm's.
func parseMemory(s string) (int64, error) {
	number, shift := s, 20
	if i := strings.IndexByte("KMGTP", lastByte(s)); i >= 0 {
		number, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseFloat(number, 64)
	bytes := n * float64(int64(1)<<shift)
	if err != nil || !(n >= 0) || bytes > math.MaxInt64/2 || strings.ContainsAny(number, "xXpP_eE") {
		return 0, fmt.Errorf("%q is no size of memory", s)
	}
	return int64(bytes), nil
}

func lastByte(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// maxHosts is the most that one list of hosts may name.
const maxHosts = 1 << 16

// parseHosts reads a list such as "n1,rack[1-2]n[08-10,12]".
func parseHosts(s string) ([]string, error) {
	if absent(s) == "" {
		return nil, nil
	}
	var all []string
	depth, begin := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) && depth != 0:
			return nil, fmt.Errorf("%q is no list of hosts", s)
		case i == len(s) || s[i] == ',' && depth == 0:
			hosts, err := expandHosts(s[begin:i])
			if err != nil || len(all)+len(hosts) > maxHosts {
				return nil, fmt.Errorf("%q is no list of hosts", s)
			}
			all, begin = append(all, hosts...), i+1
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		}
		if depth < 0 || depth > 1 {
			return nil, fmt.Errorf("%q is no list of hosts", s)
		}
	}
	return all, nil
}

var errHosts = errors.New("no list of hosts")

// expandHosts reads one name with its ranges in brackets.
func expandHosts(s string) ([]string, error) {
	if s == "" {
		return nil, errHosts
	}
	head, rest, bracket := strings.Cut(s, "[")
	if !bracket {
		return []string{s}, nil
	}
	ranges, tail, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errHosts
	}
	tails := []string{""}
	if tail != "" {
		var err error
		if tails, err = expandHosts(tail); err != nil {
			return nil, err
		}
	}
	var all []string
	for r := range strings.SplitSeq(ranges, ",") {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || to < from || (to-from+1)*uint64(len(tails)) > maxHosts || len(all) > maxHosts {
			return nil, errHosts
		}
		for n := from; n <= to; n++ {
			for _, t := range tails {
				all = append(all, fmt.Sprintf("%s%0*d%s", head, len(first), n, t))
			}
		}
	}
	return all, nil
}

// parseNodes reads sinfo's lines: the hosts, and which partitions come after the
// default one's.
func parseNodes(out []byte, nonce string, memory bool) (hosts []backends.Host, queues []backends.Queue, err error) {
	lines, err := rows(out, nonce, nodeFieldCount)
	if err != nil {
		return nil, nil, fmt.Errorf("sinfo: %w", err)
	}
	known, tiers := map[string]bool{}, map[string]int64{}
	defaultTier := int64(-1)
	for _, f := range lines {
		slots, err1 := strconv.ParseUint(f[nCPUs], 10, 31)
		size, err2 := strconv.ParseInt(f[nMemory], 10, 43)
		tier, err3 := strconv.ParseInt(f[nTier], 10, 64)
		state, err := parseHostState(f[nState])
		if err = errors.Join(err1, err2, err3, err); err != nil {
			return nil, nil, fmt.Errorf("sinfo: %w, in the line %s", err, shown(strings.Join(f, "|")))
		}
		queue, isDefault := strings.CutSuffix(f[nQueue], "*")
		if _, ok := tiers[queue]; !ok && queue != "" {
			tiers[queue] = tier
			queues = append(queues, backends.Queue{Name: queue, Default: isDefault})
		}
		if isDefault {
			defaultTier = tier
		}
		if known[f[nName]] {
			continue
		}
		known[f[nName]] = true
		if !memory {
			size = 0
		}
		hosts = append(hosts, backends.Host{Name: f[nName], Slots: int(slots), Memory: size << 20, State: state})
	}
	for i := range queues {
		if tiers[queues[i].Name] < defaultTier {
			queues[i].Level = backends.LevelLow
		}
	}
	return hosts, queues, nil
}

// parseHostState reads a node's compact state with its flag.
func parseHostState(s string) (backends.HostState, error) {
	base := strings.TrimRight(s, "*~#!%$@^-+")
	flags := s[len(base):]
	switch base {
	case "down", "fail", "failg", "unk", "inval", "futr", "boot", "pow_dn", "pow_up":
		return backends.HostDown, nil
	case "drain", "drng", "maint", "npc", "resv", "block", "blocked":
		if strings.Contains(flags, "*") {
			return backends.HostDown, nil
		}
		return backends.HostClosed, nil
	case "idle", "mix", "alloc", "comp", "plnd":
	default:
		return 0, fmt.Errorf("unknown state of a host %q", s)
	}
	switch {
	case strings.ContainsAny(flags, "*~%!"): // no answer; powered down, or about to be
		return backends.HostDown, nil
	case strings.ContainsAny(flags, "#$@^"): // powering up, in maintenance, to be booted
		return backends.HostClosed, nil
	}
	return backends.HostUp, nil
}

// parseAt reads the queue's clock from the first line of `scontrol show config`.
func parseAt(config []byte) (time.Time, error) {
	line, _, _ := bytes.Cut(config, []byte("\n"))
	at, ok := strings.CutPrefix(string(line), "Configuration data as of ")
	t, err := parseTime(at)
	if !ok || err != nil || t.IsZero() {
		return time.Time{}, fmt.Errorf("scontrol show config: no time in the line %s", shown(string(line)))
	}
	return t, nil
}

// detail is what squeue's lines leave out of a job.
type detail struct {
	comment   string    // its AdminComment
	suspended time.Time // when it was last suspended or resumed
	before    time.Duration
	hosts     []backends.Placement // where it is; empty: not told
	cores     map[core]bool        // that it has, or had before it was suspended
	holds     bool                 // cores, against others: it runs or is completing
}

// core is one of a host's.
type core struct{ host, socket, core string }

// parseDetail reads what `scontrol show job` prints of one job. It gives nothing
// where a user's text could pass for what is looked for.
func parseDetail(text string) (detail, bool) {
	comment, ok := onlyField(text, "AdminComment=", "\n")
	if !ok {
		return detail{}, false
	}
	suspended, ok1 := onlyField(text, "SuspendTime=", " ")
	before, ok2 := onlyField(text, "SecsPreSuspend=", " ")
	at, err1 := parseTime(suspended)
	seconds, err2 := strconv.ParseInt(before, 10, 40)
	if !ok1 || !ok2 || suspended == "" || err1 != nil || err2 != nil {
		return detail{}, false
	}
	return detail{comment: strings.TrimSuffix(comment, " "), suspended: at, before: time.Duration(seconds) * time.Second}, true
}

// parsePriority reads the priority, without Nice, of a job that is pending from what
// `scontrol show job` prints of it. There is none where a user's text makes that
// unclear.
func parsePriority(text string) (int64, bool) {
	state, ok1 := onlyField(text, "\n   JobState=", " ")
	priority, ok2 := onlyField(text, "\n   Priority=", " ")
	nice, ok3 := onlyField(text, " Nice=", " ")
	q, err1 := strconv.ParseInt(priority, 10, 40)
	n, err2 := strconv.ParseInt(nice, 10, 40)
	if !ok1 || !ok2 || !ok3 || err1 != nil || err2 != nil || state != "PENDING" {
		return 0, false
	}
	if q > least {
		q += n
	}
	return q, true
}

// least is the lowest priority of a job that is not held: Nice takes none below it.
const least = 1

// onlyField is what stands between key and end, if key stands there once at most.
func onlyField(text, key, end string) (string, bool) {
	_, rest, found := strings.Cut(text, key)
	if !found {
		return "", true
	}
	if strings.Contains(rest, key) {
		return "", false
	}
	value, _, ended := strings.Cut(rest, end)
	return value, ended
}

// parseJSON reads the details of all jobs from `squeue --json`, which no text can
// deceive.
func parseJSON(out []byte) (map[backends.ID]detail, error) {
	var all struct {
		Jobs []struct {
			ID           int64  `json:"job_id"`
			ArrayJob     int64  `json:"array_job_id"`
			ArrayTask    *int64 `json:"array_task_id"`
			State        string `json:"job_state"`
			AdminComment string `json:"admin_comment"`
			PreSuspend   int64  `json:"pre_sus_time"`
			Suspended    int64  `json:"suspend_time"`
			Resources    struct {
				CPUs  int        `json:"allocated_cpus"`
				Nodes []nodeJSON `json:"allocated_nodes"`
			} `json:"job_resources"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("squeue --json: %w", err)
	}
	details := map[backends.ID]detail{}
	for i := range all.Jobs {
		j := &all.Jobs[i]
		id := backends.ID{Job: j.ID}
		if j.ArrayJob != 0 && j.ArrayTask != nil {
			if id = (backends.ID{Job: j.ArrayJob, Index: int(*j.ArrayTask)}); id.Index == 0 {
				id.Index = backends.ZeroIndex
			}
		}
		d := detail{comment: j.AdminComment, before: time.Duration(j.PreSuspend) * time.Second, hosts: placed(j.Resources.Nodes, j.Resources.CPUs)}
		switch j.State {
		case "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED":
			d.holds = true
		}
		if d.holds || j.State == "SUSPENDED" {
			d.cores = coresOf(j.Resources.Nodes)
		}
		if j.Suspended > 0 {
			d.suspended = time.Unix(j.Suspended, 0).UTC()
		}
		details[id] = d
	}
	return details, nil
}

// nodeJSON is a node of a job's, with the cores that it has there.
type nodeJSON struct {
	Name    string `json:"nodename"`
	Sockets map[string]struct {
		Cores map[string]string `json:"cores"`
	} `json:"sockets"`
}

func coresOf(nodes []nodeJSON) map[core]bool {
	all := map[core]bool{}
	for _, n := range nodes {
		for socket, s := range n.Sockets {
			for c := range s.Cores {
				all[core{n.Name, socket, c}] = true
			}
		}
	}
	return all
}

// placed turns cores into slots: all cores have as many.
func placed(nodes []nodeJSON, slots int) []backends.Placement {
	all, cores := make([]backends.Placement, len(nodes)), 0
	for i, n := range nodes {
		all[i].Host = n.Name
		for _, socket := range n.Sockets {
			all[i].Slots += len(socket.Cores)
		}
		cores += all[i].Slots
	}
	if cores == 0 {
		return nil
	}
	for i := range all {
		all[i].Slots = all[i].Slots * slots / cores
	}
	return all
}

// spread is where a job's slots may have been, where nothing tells any more: one
// on each host at least, the rest from the first host on.
func spread(hosts []string, slots int, of map[string]int) []backends.Placement {
	all := make([]backends.Placement, len(hosts))
	rest := slots - len(hosts)
	for i, h := range hosts {
		more := max(min(rest, of[h]-1), 0)
		all[i] = backends.Placement{Host: h, Slots: 1 + more}
		rest -= more
	}
	return all
}

// parseWords takes what sbatch says on stderr apart into lines without its own name.
func parseWords(stderr string) []string {
	var words []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\r\n"), "sbatch: ")
		if line = strings.TrimPrefix(line, "error: "); strings.TrimSpace(line) != "" {
			words = append(words, line)
		}
	}
	return words
}

// refusedError is a submission that was refused, in the words of who refused it.
type refusedError struct {
	text string
	kind error
}

func (e *refusedError) Error() string { return e.text }

func (e *refusedError) Unwrap() error { return e.kind }

// refusal is why sbatch failed. Its last line is Slurm's own; what stands before it
// are the words of the submit filter, where there are any, and may be a user's.
func refusal(stderr string) error {
	const head = "Batch job submission failed: "
	words := parseWords(stderr)
	if len(words) == 0 {
		return errors.New("sbatch failed and said nothing")
	}
	last := words[len(words)-1]
	cause, isVerdict := strings.CutPrefix(last, head)
	if !isVerdict || len(words) == 1 {
		return &refusedError{"sbatch: " + strings.Join(words, "; "), failure(cause)}
	}
	return &refusedError{strings.Join(words[:len(words)-1], "; "), failure(cause)}
}

// failure is what one of Slurm's commands says, as an error that callers know.
func failure(text string) error {
	for _, known := range []struct {
		says string
		err  error
	}{
		{"Invalid job id", backends.ErrUnknownJob},
		{"Invalid Job Id", backends.ErrUnknownJob},
		{"Unable to contact slurm controller", backends.ErrUnreachable},
		{"Unexpected message received", backends.ErrUnreachable}, // scontrol update, and no slurmctld (22.05)
		{"Socket timed out", backends.ErrUnreachable},
		{"Zero Bytes were transmitted", backends.ErrUnreachable},
		{"Connection refused", backends.ErrUnreachable},
		{"connection failure", backends.ErrUnreachable},
		{"Protocol authentication error", backends.ErrUnreachable},
		{"authentication", backends.ErrUnreachable},
		{"Access/permission denied", backends.ErrDenied},
		{"Invalid user id", backends.ErrDenied},
		{"already finished", backends.ErrWrongState},
		{"already completing or completed", backends.ErrWrongState},
		{"pending execution", backends.ErrWrongState},
		{"is not running", backends.ErrWrongState},
		{"not suspended", backends.ErrWrongState},
		{"already suspended", backends.ErrWrongState},
		{"running or has", backends.ErrWrongState},
		{"presently disabled", backends.ErrWrongState},
		{"Only batch jobs", backends.ErrWrongState},
	} {
		if strings.Contains(text, known.says) {
			return fmt.Errorf("%w: %s", known.err, strings.TrimSpace(text))
		}
	}
	return errors.New(strings.TrimSpace(text))
}

// parseAnswers gives each of n requests that were put to one scontrol what it said
// of it on stderr: after the i-th stands the keyword nonce+i, which scontrol does
// not know and names. A request that no keyword follows was not answered.
func parseAnswers(stderr, nonce string, n int) backends.Errors {
	errs := backends.Fail(n, fmt.Errorf("%w: scontrol did not answer", backends.ErrUnreachable))
	for i := range n {
		said, rest, ok := strings.Cut(stderr, "invalid keyword: "+nonce+strconv.Itoa(i)+"\n")
		if !ok {
			if said != "" {
				errs[i] = fmt.Errorf("%w: scontrol: %s", backends.ErrUnreachable, strings.TrimSpace(said))
			}
			break
		}
		errs[i] = nil
		if strings.TrimSpace(said) != "" {
			errs[i] = failure(said)
		}
		stderr = rest
	}
	return errs
}
