package slurm

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The fields that squeue is asked for, in this order. Each is followed by a nonce
// of the call: nothing that a user could type parts them.
const (
	fNumber = iota // its own, of an array's element that has started, too
	fArrayJob
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
	fMinMemory
	fStart
	fSubmit
	fEligible
	fEnd
	fTimeLimit
	fTimeUsed
	fNodeList
	fReqNodes
	fSchedNodes
	fAccount
	fWCKey
	fOverSubscribe
	fRestarts
	fRequeue
	fBatch
	fExit
	fHetJob
	fQOS
	// What it asks for, in fields next to each other: see parseRequest.
	fFeatures
	fTasks
	fPerTask
	fTasksPerNode
	fTasksPerSocket
	fTasksPerCore
	fMinCPUs
	fPerNode
	fPerJob
	fPerTaskTRES
	fPerSocket
	fCPUsPerTRES
	fContiguous
	fSwitches
	fCoreSpec
	fReservation
	fTopology
	fDisk
	fNetwork
	fBurstBuffer
	fComment
	fAdmin
	fName
	fieldCount
)

var squeueFields = [fieldCount]string{
	fNumber: "JobID", fArrayJob: "ArrayJobID", fArrayTask: "ArrayTaskID", fState: "StateCompact", fReason: "Reason", fUser: "UserName", fQueue: "Partition",
	fPriority: "PriorityLong", fNice: "Nice", fCPUs: "NumCPUs", fNodes: "NumNodes", fMaxNodes: "MaxNodes", fTRES: "tres", fMinMemory: "MinMemory", fStart: "StartTime",
	fSubmit: "SubmitTime", fEligible: "EligibleTime", fEnd: "EndTime", fTimeLimit: "TimeLimit", fTimeUsed: "TimeUsed", fNodeList: "NodeList",
	fReqNodes: "ReqNodes", fSchedNodes: "SchedNodes", fAccount: "Account", fWCKey: "WCKey", fOverSubscribe: "OverSubscribe", fRestarts: "RestartCnt", fRequeue: "Requeue",
	fBatch: "BatchFlag", fExit: "exit_code", fHetJob: "HetJobID", fQOS: "QOS",
	fFeatures: "Feature", fTasks: "NumTasks", fPerTask: "cpus-per-task", fTasksPerNode: "NtPerNode", fTasksPerSocket: "NtPerSocket", fTasksPerCore: "NtPerCore",
	fMinCPUs: "MinCpus", fPerNode: "tres-per-node", fPerJob: "tres-per-job", fPerTaskTRES: "tres-per-task", fPerSocket: "tres-per-socket", fCPUsPerTRES: "cpus-per-tres",
	fContiguous: "Contiguous", fSwitches: "ReqSwitch", fCoreSpec: "CoreSpec", fReservation: "Reservation", fTopology: "sct", fDisk: "MinTmpDisk",
	fNetwork: "Network", fBurstBuffer: "BurstBuffer",
	fComment: "Comment", fAdmin: "admin_comment", fName: "Name",
}

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

// lines parts what squeue or sinfo prints, as it comes, into lines of n fields.
type lines struct {
	nonce  []byte
	n      int
	handle func(fields []string) error // is given each line; the slice is used again

	text   []byte // that was not taken yet
	line   []byte // without what parts its fields
	ends   []int  // of the fields in line
	fields []string
}

// feed takes the lines that text completes.
func (l *lines) feed(text []byte) error {
	l.text = append(l.text, text...)
	begin := 0
	for {
		n, err := l.next(l.text[begin:])
		if n == 0 || err != nil {
			l.text = append(l.text[:0], l.text[begin:]...)
			return err
		}
		begin += n
	}
}

// next takes the line at the beginning of a text, and returns its length; 0: it is
// still to be completed.
func (l *lines) next(text []byte) (length int, err error) {
	l.line, l.ends, l.fields = l.line[:0], l.ends[:0], l.fields[:0]
	rest := text
	for range l.n {
		field, after, ok := bytes.Cut(rest, l.nonce)
		if !ok {
			return 0, nil
		}
		l.line, rest = append(l.line, field...), after
		l.ends = append(l.ends, len(l.line))
	}
	switch {
	case len(rest) == 0:
		return 0, nil
	case rest[0] != '\n':
		return 0, fmt.Errorf("more than %d fields in the line %s", l.n, shown(string(text)))
	}
	line, from := string(l.line), 0
	for _, to := range l.ends {
		l.fields, from = append(l.fields, line[from:to]), to
	}
	return len(text) - len(rest) + 1, l.handle(l.fields)
}

// end says what is wrong with a text that ends here.
func (l *lines) end() error {
	if len(l.text) == 0 {
		return nil
	}
	return fmt.Errorf("%d fields of %d in the line %s", bytes.Count(l.text, l.nonce), l.n, shown(string(l.text)))
}

// rows parts what sinfo printed.
func rows(out []byte, nonce string, n int) (all [][]string, err error) {
	l := lines{nonce: []byte(nonce), n: n, handle: func(fields []string) error {
		all = append(all, slices.Clone(fields))
		return nil
	}}
	if err := l.feed(out); err != nil {
		return nil, err
	}
	return all, l.end()
}

// shown is a text for an error: of a long one its beginning and its end.
func shown(s string) string {
	const most = 150
	if len(s) <= 2*most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + " … " + strconv.Quote(s[len(s)-most:])
}

// cluster is what is known of the cluster when its jobs are read.
type cluster struct {
	at      time.Time
	scale   Scale
	from    ProjectFrom
	trusted map[string]bool // users whose jobs can be placeholders and dummy jobs
	slots   map[string]int  // of each host
	low     map[string]bool // partitions whose jobs go after those of the default one
	memory  bool            // the cluster manages memory
	array   int             // no array has an index so high

	requests map[string]*request // by the fields that show them
}

// listedJob is a job as squeue shows it, with fields that callers don't see.
type listedJob struct {
	backends.Job
	nodes    []string
	start    time.Time // of the run, whatever was suspended and resumed since
	eligible time.Time // may start then; zero: not known
	used     time.Duration
	factor   int64 // its priority, without Nice
	nice     int64
	holdsFor backends.ID       // a placeholder's job
	rank     backends.Priority // that a dummy job is to have once it is released
	each     int64             // bytes asked for each slot or each node of several: its details say which
	request  *request
	least    int    // hosts that it must have, of a pending job
	most     int    // hosts: a limit of its owner's, or what squeue reckons where there is none
	state    string // in Slurm's short words
	offers   bool   // its owner says that it saves itself after a signal
	exited   int    // the status that its last run exited with; 128 and more: it did not
	share    string // its OverSubscribe
	account  string
	qos      string

	// From its details, if they were asked for.
	detailed      bool
	record        record   // its pin is known without them
	excluded      []string // hosts, by its owner
	licences      string   // that it waits for or has, if it is detailed
	before, after string   // what stands around the record in its AdminComment
	returning     bool     // it has ended and is to be requeued (see save.go); shown as pending
	forgotten     bool     // slurmctld lost its record
}

// Shown is the job as callers see it.
func (j *listedJob) Shown() *backends.Job { return &j.Job }

// jobLines parts what squeue prints into jobs of a cluster.
func jobLines(nonce string, c *cluster, jobs *[]*listedJob) *lines {
	return &lines{nonce: []byte(nonce), n: int(fieldCount), handle: func(fields []string) error {
		tasks, limit, err := parseTasks(fields[fArrayTask], c.array)
		if err != nil {
			return fmt.Errorf("%w, in the line %s", err, shown(strings.Join(fields, "|")))
		}
		number, err := parseNumber(fields[fNumber])
		if err != nil {
			return fmt.Errorf("%s: %w, in the line %s", squeueFields[fNumber], err, shown(strings.Join(fields, "|")))
		}
		var j listedJob
		if err := j.parseFields(fields, c); err != nil {
			return fmt.Errorf("%w, in the line %s", err, shown(strings.Join(fields, "|")))
		}
		j.ArrayLimit = limit
		if len(tasks) == 1 && tasks[0] != 0 && j.State != backends.Pending && j.State != backends.Held {
			j.HostNumber = number
		}
		for _, index := range tasks {
			element := j
			element.ID.Index = index
			*jobs = append(*jobs, &element)
		}
		return nil
	}}
}

// parseFields takes over the fields of one line.
func (j *listedJob) parseFields(f []string, c *cluster) error {
	var failed error
	number := func(field int) int64 { return valueOf(f, field, &failed, parseNumber) }
	at := func(field int) time.Time { return valueOf(f, field, &failed, parseTime) }
	span := func(field int) time.Duration { return valueOf(f, field, &failed, parseDuration) }
	hosts := func(field int) []string { return valueOf(f, field, &failed, parseHosts) }
	j.ID.Job = number(fArrayJob)
	j.Name, j.User, j.Queue = f[fName], f[fUser], f[fQueue]
	j.nice = number(fNice)
	if j.factor = number(fPriority); j.factor > least { // else an unknown part of Nice is in it
		j.factor += j.nice
	}
	j.Slots = int(number(fCPUs))
	j.Submitted, j.eligible = at(fSubmit), at(fEligible)
	j.RunLimit, j.used = span(fTimeLimit), span(fTimeUsed)
	j.nodes, j.Asked, j.Planned = hosts(fNodeList), hosts(fReqNodes), hosts(fSchedNodes)
	_, j.record, _ = splitComment(strings.TrimSuffix(absent(f[fAdmin]), " "))
	j.Requeues = int(number(fRestarts))
	j.Interactive = number(fBatch) == 0
	j.NoRequeue = number(fRequeue) == 0 || j.Interactive
	j.share = f[fOverSubscribe]
	j.Exclusive = j.share == "NO"
	j.Component = absent(f[fHetJob]) != ""
	j.account, j.qos = absent(f[fAccount]), absent(f[fQOS])
	nodes, most := number(fNodes), number(fMaxNodes)
	j.most = int(most)
	end := at(fEnd)
	j.start = at(fStart)
	status := valueOf(f, fExit, &failed, parseStatus)
	if failed != nil {
		return failed
	}
	if err := j.setMemory(f[fTRES], f[fMinMemory], c); err != nil {
		return err
	}
	if j.least, j.request = parseNodeCount(f[fTRES]), c.request(f); j.request.err != nil {
		return j.request.err
	}
	// squeue shows a limit of one node and no limit alike: a job that fits on one host
	// counts as limited to one. Of pending jobs fitShape decides that again.
	j.OneHost = len(j.nodes) < 2 && nodes < 2 && most < 2 && (j.Slots == 1 || c.hostFits(j.Slots))
	j.setTag(f, c)
	j.state, j.exited = f[fState], exitCode(f[fState], status)
	if err := j.parseState(f[fState], f[fReason], c); err != nil {
		return err
	}
	switch {
	case j.State.Ended():
		j.Ended = end
		if len(j.nodes) > 0 { // else it was cancelled before it ran
			j.Started = j.start
		}
		j.ExitCode = j.exited
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

// valueOf is what parse reads of a field. The first failure of all is kept.
func valueOf[T any](f []string, field int, failed *error, parse func(string) (T, error)) T {
	value, err := parse(f[field])
	if err != nil && *failed == nil {
		*failed = fmt.Errorf("%s: %w", squeueFields[field], err)
	}
	return value
}

func parseNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		err = fmt.Errorf("%q is no number", s)
	}
	return n, err
}

// setMemory reads what memory a job asks for. Where the cluster doesn't manage memory,
// squeue shows the default, all of a host, for jobs that ask for none, and for jobs
// that were started only an amount for each CPU or node, without saying which (22.05).
func (j *listedJob) setMemory(tres, least string, c *cluster) (err error) {
	if j.Memory, err = parseTRES(tres); err != nil || c.memory {
		return err
	}
	each, err := parseMemory(least)
	switch {
	case err != nil:
		return err
	case each == 0:
		j.Memory = 0
	case j.Memory == 0 && j.Slots == 1:
		j.Memory = each
	case j.Memory == 0:
		j.Memory, j.each = each*int64(max(len(j.nodes), 1)), each
	}
	return nil
}

// hostFits reports whether some host has so many slots.
func (c *cluster) hostFits(slots int) bool {
	for _, n := range c.slots {
		if n >= slots {
			return true
		}
	}
	return len(c.slots) == 0
}

// setTag reads project, step and tag.
func (j *listedJob) setTag(f []string, c *cluster) {
	comment := absent(f[fComment])
	if c.trusted[j.User] {
		text := ownJob(comment)
		if j.holdsFor, j.DummyFor, j.rank = text.holdsFor, text.dummyFor, text.rank; text.keeps != "" {
			j.DummyFor, j.Project = j.ID, text.keeps
		}
	}
	tag, text, _ := backends.ParseTag(comment)
	j.offers = tag.Checkpoint.Signal != ""
	if strings.HasPrefix(comment, backends.TagPrefix) {
		j.Tag, _, _ = strings.Cut(comment, " ")
	}
	if j.IsDummy() {
		if !c.memory {
			j.Memory = 0 // only what submitOwn must ask for
		}
		return // the account is not its project
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

// completing is the state of a job whose processes are still to leave its hosts.
const completing = "CG"

// parseState reads Slurm's state and, of a pending job, what it waits for.
func (j *listedJob) parseState(state, reason string, c *cluster) error {
	j.Reason = absent(reason)
	switch state {
	case "PD", "RQ", "RF", "SE", "RH", "RV":
		j.State = backends.Pending
	case "R", "CF", "SO", "RS", "SI", "ST":
		j.State = backends.Running
	case completing:
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
		if reason == "None" {
			j.Reason = ""
		}
		return nil
	}
	// Reasons lag behind: the times decide where they can.
	switch {
	case j.factor == 0 && reason != badConstraints || strings.HasPrefix(reason, "JobHeld") || state == "RH" || state == "SE":
		// Some that are held have another reason: "job requeued in held state" of requeuehold (22.05
		// and 24.11), and one of a launch that failed. Their priority is 0.
		j.State = backends.Held
	case j.eligible.After(c.at):
		j.Wait = backends.WaitTime
	default:
		j.Wait = waitReasons[reason]
		if reason != "None" {
			j.Considered = c.at // each update of a job makes its reason None again (22.05)
		}
	}
	return nil
}

// reserved is the reason of a job whose nodes are kept for one ahead of it, or for a
// reservation (22.05): placeJobs trusts it of no pinned job.
const reserved = "ReqNodeNotAvail, May be reserved for other job"

// badConstraints is the reason of a job that no node suits, such as one whose pin contradicts it. Slurm
// sets its priority to 0 until a node suits it (22.05): it is not held.
const badConstraints = "BadConstraints"

// throttled is the reason of an array's element that waits for others of it.
const throttled = "JobArrayTaskLimit"

// waitReasons are the reasons whose meaning is known; any other is WaitOther (R14).
// "None" is the reason of a job that the scheduler hasn't come to yet.
var waitReasons = map[string]backends.Wait{
	"None":                     backends.WaitResources,
	"Resources":                backends.WaitResources,
	"Priority":                 backends.WaitResources,
	"BeginTime":                backends.WaitTime,
	"Dependency":               backends.WaitDependency,
	"DependencyNeverSatisfied": backends.WaitDependency,
	throttled:                  backends.WaitThrottle,
	// The partition's nodes are kept for a job ahead of it, in whichever partition, or are
	// all down (22.05).
	reserved: backends.WaitResources,
	"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": backends.WaitResources,
}

// parseStatus reads a wait status, such as 256, or its two halves, such as 1:0: 22.05
// prints the one, 24.11 the other.
func parseStatus(s string) (int, error) {
	code, signal, halves := strings.Cut(s, ":")
	if !halves {
		n, err := parseNumber(s)
		return int(n), err
	}
	high, err := strconv.ParseUint(code, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is no exit code", s)
	}
	low, err := strconv.ParseUint(signal, 10, 7)
	if err != nil {
		return 0, fmt.Errorf("%q is no exit code", s)
	}
	return int(high<<8 | low), nil
}

// exitCode reads a wait status. A job that did not complete, though its script's status
// is 0, counts as killed.
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

// least is the lowest priority of a job that is not held: Nice takes none below it.
const least = 1
