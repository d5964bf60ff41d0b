package lsf

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// lavaFields are the fields that lava's `bjobs -json -o` is asked for: with them the
// job is found in `bjobs -UF`, which has the rest.
const lavaFields = "jobid user stat queue from_host exec_host job_name submit_time proj_name start_time finish_time"

// parseAnchors reads what `bjobs -json -o` prints with lavaFields. An element of an array
// has the array's ID there, and its index only at the end of its name; since any job may
// have such a name, parseDetails has the last word.
func parseAnchors(out []byte) ([]anchor, error) {
	records, err := parseRecords(out)
	if err != nil {
		return nil, err
	}
	anchors := make([]anchor, len(records))
	for i, r := range records {
		a, err := parseAnchor(r)
		if err != nil {
			return nil, fmt.Errorf("bjobs -json: %w, of the job %s", err, shown(fmt.Sprint(r)))
		}
		anchors[i] = a
	}
	return anchors, nil
}

func parseAnchor(r map[string]string) (anchor, error) {
	for name := range strings.SplitSeq(strings.ToUpper(lavaFields), " ") {
		if _, ok := r[name]; !ok {
			return anchor{}, fmt.Errorf("no %s", name)
		}
	}
	id, err := backends.ParseID(r["JOBID"])
	if err != nil || id.Index != 0 {
		return anchor{}, fmt.Errorf("JOBID %q is no number of a job", r["JOBID"])
	}
	a := anchor{
		id: id, name: r["JOB_NAME"], user: r["USER"], project: r["PROJ_NAME"], queue: r["QUEUE"], stat: r["STAT"], fromHost: r["FROM_HOST"],
		firstHost: dash(r["EXEC_HOST"]), submitted: r["SUBMIT_TIME"], started: dash(r["START_TIME"]), finished: dash(r["FINISH_TIME"]),
	}
	if _, index, ok := strings.Cut(a.name, "["); ok {
		if element, err := backends.ParseID(r["JOBID"] + "[" + index); err == nil && element.Index > 0 {
			a.id = element
		}
	}
	return a, nil
}

// dash returns a field's text; "-" stands for an absent one.
func dash(s string) string {
	if s = strings.TrimSpace(s); s == "-" {
		return ""
	}
	return s
}

// errUnclear means that a user's text may pass for LSF's, or that a line is unknown.
var errUnclear = errors.New("bjobs -UF is unclear")

func unclear(why, text string) error { return fmt.Errorf("%w: %s: %s", errUnclear, why, shown(text)) }

// details is what parseDetails made of a listing.
type details struct {
	jobs    []*listedJob           // in both listings and clear; in the order of the anchors
	missing []anchor               // not in the other listing: changed or forgotten meanwhile
	unclear map[backends.ID]anchor // query each of these alone, with parseDetail
}

// parseDetails reads what `bjobs -UF` prints of the jobs that the anchors name.
//
// lava prints users' texts there as they are, so that any job may hold lines that look
// like another's. A job's lines begin where the header that its anchor makes stands
// literally: no text of a user's decides which job it is and whose. A header that stands
// more than once is forged: its job is unclear, and so is each job whose lines end at one
// of these headers, since it may be the forger's, with the rest of its lines behind. A
// job whose lines are not exactly what lava prints (see parseDetail) is unclear, too.
// Unclear jobs must be queried alone, so that no other job's text is in their lines.
func parseDetails(anchors []anchor, out []byte, c *cluster) (*details, error) {
	text := string(out)
	headers := headersIn(text)
	d := &details{unclear: map[backends.ID]anchor{}}
	starts := map[int]bool{} // of all headers; true: the only one of its job
	var blocks []block
	for _, a := range anchors {
		var found []block
		for _, id := range a.ids() {
			for _, at := range headers[id.String()] {
				if a.headerLength(id, text[at:]) > 0 {
					named := a
					named.id = id
					found = append(found, block{named, at})
				}
			}
		}
		for _, b := range found {
			starts[b.start] = len(found) == 1
		}
		switch len(found) {
		case 0:
			d.missing = append(d.missing, a)
		case 1:
			blocks = append(blocks, found[0])
		default:
			d.addUnclear(a, unclear("its header stands more than once", text[found[0].start:]))
		}
	}
	ends := slices.Sorted(maps.Keys(starts))
	for _, b := range blocks {
		lines, certain := text[b.start:], true
		if next, _ := slices.BinarySearch(ends, b.start+1); next < len(ends) {
			lines, certain = text[b.start:ends[next]], starts[ends[next]]
		}
		if !certain {
			d.addUnclear(b.anchor, unclear("a header that stands more than once ends it", lines))
			continue
		}
		j, err := parseDetail(b.anchor, []byte(lines), c)
		var unknown *backends.UnknownStateError
		switch {
		case errors.As(err, &unknown):
			return nil, err
		case err != nil:
			d.addUnclear(b.anchor, err)
		default:
			d.jobs = append(d.jobs, j)
		}
	}
	return d, nil
}

// addUnclear notes that a job's lines are unclear.
func (d *details) addUnclear(a anchor, why error) {
	a.why = why
	d.unclear[a.id] = a
}

// block is where a job's lines begin.
type block struct {
	anchor
	start int
}

// headersIn returns where jobs' headers may begin, by the ID in them.
func headersIn(text string) map[string][]int {
	const begins = "\nJob <"
	found := map[string][]int{}
	for at := 0; ; {
		i := strings.Index(text[at:], begins)
		if i < 0 {
			return found
		}
		at += i
		if id, _, ok := strings.Cut(text[at+len(begins):min(at+len(begins)+40, len(text))], ">"); ok {
			found[id] = append(found[id], at)
		}
		at += len(begins)
	}
}

// ids returns the IDs that the other listing may have for a job: an element's of an
// array, or a job's with such a name.
func (a *anchor) ids() []backends.ID {
	if a.id.Index == 0 {
		return []backends.ID{a.id}
	}
	return []backends.ID{a.id, {Job: a.id.Job}}
}

// headerLength returns the length of the literal header of a job that a text begins with; 0: it
// does not. A job without a name has none there.
func (a *anchor) headerLength(id backends.ID, text string) int {
	rest := ", User <" + a.user + ">, Project <" + a.project + ">,"
	for _, header := range []string{"\nJob <" + id.String() + ">, Job Name <" + a.name + ">" + rest, "\nJob <" + id.String() + ">" + rest} {
		if strings.HasPrefix(text, header) {
			return len(header)
		}
	}
	return 0
}

// pattern returns an expression that is compiled on first use: every asub links this
// package, whatever its queue is.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

const (
	ufTime     = `[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d`
	ufPriority = `(?: Job Priority <(\d+)>,)?`
	ufCommand  = ` Command(?:\(Spooled\))? <`
)

var (
	ufStatus    = pattern(` Status <([A-Z]+)>, Queue <([^<>\n]*)>,( Interactive(?: pseudo-terminal)?(?: shell)? mode,)?` + ufPriority + ufCommand)
	ufSubmitted = pattern(`\n(` + ufTime + `): Submitted from host <`)
	ufTasks     = pattern(`, (\d+)(?:-\d+)? Task\(s\)(?:, (?:Requested Resources|Dependency Condition|Login Shell|Pre-execute Command|Specified Hosts|Signal Value|User Priority) <|;$)`)
	ufHosts     = pattern(`, Specified Hosts ((?:<[^<>, ]+>, )*<[^<>, ]+>)$`)
	ufOwnRank   = pattern(`, User Priority <(\d+)>$`)
	ufSignal    = pattern(`, Signal Value <\d+>$`)
	ufBegin     = pattern(`^, Specified Start Time <(` + ufTime + `)>`)
	ufTerm      = pattern(`^, Specified Termination Time <` + ufTime + `>`)

	ufReserved = pattern(`^` + ufTime + `: Reserved <\d+> job slots? on host(?:\(s\))?(?: <[^<>]+>)+;$`)
	ufPlanned  = pattern(`^` + ufTime + `: Will be started;$`)
	ufStarted  = pattern(`^(` + ufTime + `):(?:  ?\[(\d+)\] (?:started|dispatched to)| (?:Started|Dispatched to)) (\d+) Task\(s\) on Host\(s\)((?: <[^<> ]+>)+), Allocated (\d+) Slot\(s\) on Host\(s\)((?: <[^<> ]+>)+)(, .*)?;$`)
	ufUsage    = pattern(`^` + ufTime + `: Resource usage collected\.(?: The CPU time used is \d+ seconds\.)?(?: MEM: \d+ [KMGT]bytes)?(?: SWAP: \d+ [KMGT]bytes;)?(?: PGID: \d+; PIDs: [\d ]*;)*( SUSPENDING REASONS:)?$`)
	ufEnded    = pattern(`^(` + ufTime + `): (?:Done successfully|Completed <(?:done|exit)>|Exited(?: with exit code (\d+)| by signal (\d+))?)(?:[.; ].*)?$`)
	ufZombie   = pattern(`^` + ufTime + `: Termination request issued; the job will be killed once the host is ok;$`)
	ufLimits   = pattern(`^( [A-Z]+LIMIT *)+$`)
	ufValues   = pattern(`^ *[\d.]+( |$)[\d. KMGTmin]*$`)
	ufMemory   = pattern(`^ MAX MEM: \d+ [KMGT]bytes;  AVG MEM: \d+ [KMGT]bytes$`)
)

// Marks of the lines that lava prints at the end of a job.
const (
	ufPending    = " PENDING REASONS:"
	ufSuspending = " SUSPENDING REASONS:"
	ufScheduling = "\n SCHEDULING PARAMETERS:\n"
	ufRequired   = "\n RESOURCE REQUIREMENT DETAILS:\n"
)

// parseDetail reads the lines of one job, which begin with its header:
//
//	Job <1>, Job Name <n>, User <u>, Project <p>, Status <RUN>, Queue <q>, Job Priority <50>, Command <…>, Job Description <…>
//	Fri Nov 20 22:54:18: Submitted from host <h>, CWD <…>, Output File <…>, 2 Task(s), Requested Resources <…>, Specified Hosts <a>, <b>, User Priority <60>;
//	Fri Nov 20 22:54:20: Started 2 Task(s) on Host(s) <a> <a>, Allocated 2 Slot(s) on Host(s) <a> <a>, Execution Home <…>, Execution CWD <…>;
//	 PENDING REASONS:
//	 Job slot limit reached: 5 hosts;
//
//	 SCHEDULING PARAMETERS:
//	…
//
// Its owner chose what stands for …, and may have put anything there. What that can't
// forge is read without doubt: status, queue and priority stand before the first of these
// texts (but for a mail address: see parseHeader), hosts and slots in a line of their
// own. Such a line, and every other one, must be exactly as lava prints it, once, in
// lava's order: a text that continues on a new line either leaves a rest that is no such
// line, or makes one of them stand twice. Both are errUnclear. Only the command and the
// description may have lines of their own, since the one line that ends them must stand
// there once. What the line of submission says (slots of a pending job, exclusive, hosts,
// own priority) can be forged by the job's owner, for this job alone. The owner could
// have asked for the same, but for exclusive, which holds only on a host that bhosts
// calls closed_Excl (see doubtExclusive).
func parseDetail(a anchor, out []byte, c *cluster) (*listedJob, error) {
	text := string(out)
	var j listedJob
	rest := ""
	for _, id := range a.ids() {
		if n := a.headerLength(id, text); n > 0 {
			j.ID, rest = id, text[n:]
			break
		}
	}
	if rest == "" {
		return nil, unclear("another job's header", text)
	}
	begins := ufSubmitted().FindAllStringSubmatchIndex(rest, 2)
	ends, details := strings.Index(rest, ufScheduling), strings.Index(rest, ufRequired)
	switch {
	case len(begins) != 1 || strings.Count(rest, ufScheduling) != 1 || strings.Count(rest, ufRequired) != 1:
		return nil, unclear("lines are missing, or stand there twice", text)
	case ends < begins[0][1] || details < ends:
		return nil, unclear("the order of its lines", text)
	}
	j.Name, j.User = a.name, a.user
	submitted, body := rest[begins[0][2]:begins[0][3]], rest[begins[0][1]:ends]
	header, requirement := rest[:begins[0][0]], rest[details+len(ufRequired):]
	var err error
	if j.Submitted, err = parsePast(submitted, c.at); err != nil {
		return nil, unclear(err.Error(), text)
	}
	if err := j.parseHeader(header, a.project); err != nil {
		return nil, err
	}
	line, lines, _ := strings.Cut(body, "\n")
	if err := j.parseSubmission(line, a.fromHost, c); err != nil {
		return nil, err
	}
	limit, err := j.parseLines(strings.Split(strings.TrimSuffix(lines, "\n"), "\n"), c)
	if err != nil {
		return nil, err
	}
	combined, _, _ := strings.Cut(requirement, "\n")
	combined = strings.TrimPrefix(combined, " Combined: ")
	j.request, j.fromHost = combined, a.fromHost
	j.OneHost = j.Slots == 1 || onOneHost(combined)
	if j.Memory = usageMemory(combined, j.Slots, c); j.Memory == 0 {
		j.Memory = limit
	}
	return &j, nil
}

// parseHeader reads what follows the project in a job's header.
func (j *listedJob) parseHeader(header, project string) error {
	at := ufStatus().FindStringSubmatchIndex(header)
	switch {
	case at != nil && at[0] == 0:
	case at != nil && strings.HasPrefix(header, " Mail <") && header[at[0]-2:at[0]] == ">," && len(ufStatus().FindAllStringIndex(header, 2)) == 1:
		// The mail address is the owner's text, and the only one before the status.
	default:
		return unclear("no status", header)
	}
	part := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return header[at[2*i]:at[2*i+1]]
	}
	j.Queue = part(2)
	j.Interactive = part(3) != ""
	j.NoRequeue = j.Interactive // brequeue refuses it
	if priority := part(4); priority != "" {
		n, err := strconv.ParseInt(priority, 10, 32)
		if err != nil {
			return unclear("Job Priority", header)
		}
		j.priority = n
	}
	_, description, described := cutLast(header[at[1]:], ">, Job Description <")
	if !described || !strings.HasSuffix(description, ">") {
		description = ">"
	}
	j.setTag(project, strings.TrimSuffix(description, ">"))
	return j.parseState(part(1))
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// parseSubmission reads the line of submission from behind "Submitted from host <".
func (j *listedJob) parseSubmission(line, fromHost string, c *cluster) error {
	rest, ok := strings.CutPrefix(line, fromHost+">")
	if !ok || !strings.HasSuffix(rest, ";") {
		return unclear("the line of its submission", line)
	}
	rest, j.held = strings.CutPrefix(rest, " with hold")
	if m := ufBegin().FindStringSubmatch(rest); m != nil {
		at, err := parseNear(m[1], c.at)
		if err != nil {
			return unclear(err.Error(), line)
		}
		j.BeginTime, rest = at, rest[len(m[0]):]
	}
	rest = rest[len(ufTerm().FindString(rest)):]
	if !strings.HasPrefix(rest, ", CWD <") {
		return unclear("the line of its submission", line)
	}
	j.Slots = 1
	if tasks := ufTasks().FindAllStringSubmatch(rest, 2); len(tasks) > 1 {
		return unclear("two numbers of tasks", line)
	} else if len(tasks) == 1 {
		n, err := strconv.ParseUint(tasks[0][1], 10, 20)
		if err != nil || n < 1 {
			return unclear("a number of tasks", line)
		}
		j.Slots = int(n)
	}
	j.Exclusive = strings.Contains(rest, ", Exclusive Execution")
	rest = strings.TrimSuffix(rest, ";")
	if m := ufOwnRank().FindStringSubmatch(rest); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err != nil {
			return unclear("User Priority", line)
		}
		j.userPriority, rest = n, strings.TrimSuffix(rest, m[0])
	}
	rest = strings.TrimSuffix(rest, ufSignal().FindString(rest))
	if m := ufHosts().FindStringSubmatch(rest); m != nil {
		j.Asked = inBrackets(m[1])
	}
	return nil
}

// inBrackets are the names in "<a>, <b>" or " <a> <b>".
func inBrackets(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("<>, ", r) })
}

// parseLines reads what stands between submission and scheduling parameters, and
// returns the job's memory limit in bytes, 0 where it has none.
func (j *listedJob) parseLines(lines []string, c *cluster) (limit int64, err error) {
	next := func(accept func(line string) bool) bool {
		if len(lines) > 0 && accept(lines[0]) {
			lines = lines[1:]
			return true
		}
		return false
	}
	next(ufReserved().MatchString)
	next(ufPlanned().MatchString)
	var started []string
	next(func(line string) bool { started = ufStarted().FindStringSubmatch(line); return started != nil })
	runs := j.State == backends.Running || j.State == backends.Suspended
	switch {
	case started != nil && (runs || j.State.Ended()):
		if err := j.parseStarted(started, c); err != nil {
			return 0, err
		}
	case started != nil:
		return 0, unclear("it has not started, and it has", started[0])
	case runs && !j.zombie:
		return 0, unclear("it runs, but no line names its hosts", strings.Join(lines, "\n"))
	}
	suspending := false
	switch {
	case j.zombie:
		next(ufZombie().MatchString)
	case j.State.Ended():
		var m []string
		if !next(func(line string) bool { m = ufEnded().FindStringSubmatch(line); return m != nil }) {
			return 0, unclear("no end", strings.Join(lines, "\n"))
		}
		if err := j.parseEnd(m, c); err != nil {
			return 0, err
		}
	case runs:
		next(func(line string) bool {
			m := ufUsage().FindStringSubmatch(line)
			suspending = m != nil && m[1] != ""
			return m != nil
		})
		suspending = next(func(line string) bool { return !suspending && line == ufSuspending }) || suspending
		if suspending != (j.State == backends.Suspended) {
			return 0, unclear("suspended or not", strings.Join(lines, "\n"))
		}
	case !next(func(line string) bool { return line == ufPending }):
		return 0, unclear("no pending reasons", strings.Join(lines, "\n"))
	}
	if suspending || j.State == backends.Pending || j.State == backends.Held {
		var why []string
		for next(func(line string) bool {
			reason := strings.TrimSpace(line)
			ok := line != reason && reason != "" && line != ufPending && line != ufSuspending && !ufLimits().MatchString(line)
			if ok {
				why = append(why, reason)
			}
			return ok
		}) {
		}
		j.setReason(strings.Join(why, "\n"))
	}
	return j.parseLimits(lines)
}

// setReason sets why a job is pending, held or suspended.
func (j *listedJob) setReason(why string) {
	j.Reason = why
	j.byAdmin = strings.Contains(why, "suspended by LSF admin or root")
	if j.State == backends.Pending {
		j.Wait = parseWait(why)
	}
}

// parseStarted reads a match of ufStarted.
func (j *listedJob) parseStarted(m []string, c *cluster) error {
	at, err := parsePast(m[1], c.at)
	if err != nil {
		return unclear(err.Error(), m[0])
	}
	places, err := placements(inBrackets(m[6]))
	if err != nil {
		return unclear(err.Error(), m[0])
	}
	if m[2] != "" && m[2] != strconv.Itoa(j.ID.Index) || m[2] == "" && j.ID.Index != 0 {
		return unclear("another element has started", m[0])
	}
	if m[5] != strconv.Itoa(slotsOf(places)) {
		return unclear("the number of its slots", m[0])
	}
	j.Started, j.Hosts, j.Slots = at, places, slotsOf(places)
	return nil
}

// parseEnd reads a match of ufEnded.
func (j *listedJob) parseEnd(m []string, c *cluster) error {
	at, err := parsePast(m[1], c.at)
	if err != nil {
		return unclear(err.Error(), m[0])
	}
	j.Ended = at
	const killed, terminated = 128, 15
	switch {
	case j.State == backends.Done:
	case m[2] != "":
		j.ExitCode, err = strconv.Atoi(m[2])
	case m[3] != "":
		j.ExitCode, err = strconv.Atoi(m[3])
		j.ExitCode += killed
	default: // it used no time, or never ran
		j.ExitCode = killed + terminated
	}
	if err != nil || j.ExitCode > 255 {
		return unclear("its exit code", m[0])
	}
	return nil
}

// parseLimits reads tables of limits and of the memory used, each below an empty
// line, and returns the memory limit in bytes; 0: none. Run limits are in minutes.
func (j *listedJob) parseLimits(lines []string) (memory int64, err error) {
	for len(lines) > 0 {
		line := lines[0]
		lines = lines[1:]
		switch {
		case strings.TrimSpace(line) == "":
		case len(lines) == 0:
			return 0, unclear("a line that lava does not print", line)
		case line == " MEMORY USAGE:" && ufMemory().MatchString(lines[0]):
			lines = lines[1:]
		case ufLimits().MatchString(line) && ufValues().MatchString(lines[0]):
			values := strings.Fields(lines[0])
			for name := range strings.FieldsSeq(line) {
				if len(values) == 0 {
					return 0, unclear("limits without values", line)
				}
				value, unit := values[0], ""
				if values = values[1:]; len(values) > 0 && strings.Trim(values[0], "0123456789.") != "" {
					unit, values = values[0], values[1:]
				}
				switch name {
				case "RUNLIMIT":
					minutes, err := strconv.ParseFloat(value, 64)
					if err != nil || unit != "min" || minutes > maxMinutes {
						return 0, unclear("its run limit", lines[0])
					}
					j.RunLimit = time.Duration(minutes * float64(time.Minute)).Round(time.Second)
				case "MEMLIMIT":
					if memory, err = parseSize(value+" "+unit, 1<<10); err != nil {
						return 0, unclear("its memory limit", lines[0])
					}
				}
			}
			lines = lines[1:]
		default:
			return 0, unclear("a line that lava does not print", line)
		}
	}
	return memory, nil
}

// maxMinutes is more than any run limit; far more would overflow.
const maxMinutes = 100 * 366 * 24 * 60

// parseWide reads from `bjobs -a -w JOB`, asked for one job alone, where the job is: from
// the first fields, which its name follows.
func parseWide(out []byte) (stat, queue string, places []backends.Placement, err error) {
	header, rest, _ := strings.Cut(string(out), "\n")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if !strings.HasPrefix(header, "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME") || len(fields) < 6 {
		return "", "", nil, fmt.Errorf("bjobs -w: no job in %s", shown(string(out)))
	}
	stat, queue = fields[2], fields[3]
	if places, err = parseExecHosts(fields[5]); err != nil {
		return "", "", nil, fmt.Errorf("bjobs -w: %w, in the line %s", err, shown(line))
	}
	return stat, queue, places, nil
}

// vagueJob returns what is certain of a job that stays unclear when queried alone: what
// its anchor says, and what parseWide read. Nothing that would spare it from preemption
// is believed, and no other job has to wait for it: it is not eligible.
func vagueJob(a anchor, wide []byte, c *cluster) (*listedJob, error) {
	stat, queue, places, err := parseWide(wide)
	if err != nil {
		return nil, err
	}
	return certainJob(a, stat, queue, places, c)
}

// certainJob returns a job of which only its anchor and place are known.
func certainJob(a anchor, stat, queue string, places []backends.Placement, c *cluster) (*listedJob, error) {
	j := &listedJob{vague: true, why: a.why}
	j.ID, j.Name, j.User = a.id, a.name, a.user
	j.setTag(a.project, "")
	j.Queue, j.Hosts, j.Slots = queue, places, max(slotsOf(places), 1)
	j.OneHost = j.Slots == 1
	if err := j.parseState(stat); err != nil {
		return nil, err
	}
	var failed [3]error
	j.Submitted, failed[0] = parsePast(a.submitted, c.at)
	j.Started, failed[1] = parsePast(a.started, c.at)
	if j.State.Ended() {
		j.Ended, failed[2] = parsePast(a.finished, c.at)
	}
	if err := errors.Join(failed[:]...); err != nil {
		return nil, fmt.Errorf("bjobs -json: %w, of job %s", err, a.id)
	}
	if j.State == backends.Pending || j.State == backends.Held {
		j.Started = time.Time{}
	}
	j.Reason = "its own texts make what the queue says of it unclear"
	return j, nil
}
