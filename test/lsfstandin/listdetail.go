package lsfstandin

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const separator = "------------------------------------------------------------------------------\n"

// details prints jobs as -l and -UF do. LSF 10.1's -l folds its lines, lava's
// does not.
func (p *page) details(jobs []*Job, how layout) {
	for i, j := range jobs {
		if i > 0 {
			p.printf("%s", separator)
		}
		p.detail(j, how)
	}
	p.printf("\n")
}

func (p *page) detail(j *Job, how layout) {
	p.printf("\n%s\n", p.folded(p.head(j), how))
	p.printf("%s\n", p.folded(p.stamp(j.Submitted)+": "+p.submission(j, how), how))
	if how == long {
		p.limits(j)
	}
	if line := p.start(j, how); line != "" {
		p.printf("%s\n", p.folded(line, how))
	}
	p.now(j, how)
	if how == unformatted {
		p.limits(j)
	}
	if j.MemUsed > 0 {
		p.printf("\n MEMORY USAGE:\n MAX MEM: %[1]s;  AVG MEM: %[1]s\n", bytesUsed(j.MemUsed))
	}
	const none = "   -     -     -     -       -     -    -     -     -      -      -  \n"
	p.printf("\n SCHEDULING PARAMETERS:\n           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem\n" +
		" loadSched" + none + " loadStop " + none)
	effective := "-"
	if !j.waits() && !j.Started.IsZero() {
		effective = p.combined(j)
	}
	p.printf("\n RESOURCE REQUIREMENT DETAILS:\n Combined: %s\n Effective: %s\n", p.combined(j), effective)
}

// head is the first paragraph. Users' text stands in it as it was typed, between
// the same < and > as everything else: that is how a name forges fields. A job
// without a name has no Job Name.
func (p *page) head(j *Job) string {
	var b strings.Builder
	field := func(what, value string) { b.WriteString(", " + what + " <" + value + ">") }
	b.WriteString("Job <" + j.listedID() + ">")
	if j.Name != "" {
		field("Job Name", j.Name)
	}
	field("User", j.User)
	field("Project", j.Project)
	field("Status", string(j.Stat))
	field("Queue", j.Queue)
	if j.Interactive {
		b.WriteString(", Interactive mode")
	}
	if j.Priority > 0 {
		field("Job Priority", strconv.Itoa(j.Priority))
	}
	field("Command", j.Command)
	if p.Cluster.Unkind.ChargedShare && slices.ContainsFunc(p.Cluster.Queues, func(q QueueConfig) bool { return q.Name == j.Queue && slices.Contains(q.Policies, "FAIRSHARE") }) {
		field("Share group charged", "/"+j.User)
	}
	if j.Description != "" {
		field("Job Description", j.Description)
	}
	return b.String()
}

// submission is what was asked for, in LSF's order.
func (p *page) submission(j *Job, how layout) string {
	var b strings.Builder
	field := func(what, value string) {
		if value != "" {
			b.WriteString(", " + what + " <" + value + ">")
		}
	}
	is := func(given bool, what string) {
		if given {
			b.WriteString(", " + what)
		}
	}
	b.WriteString("Submitted from host <" + j.FromHost + ">")
	if j.Held {
		b.WriteString(" with hold")
	}
	if !j.Begin.IsZero() {
		field("Specified Start Time", p.stamp(j.Begin))
	}
	field("CWD", j.CWD)
	field("Input File", j.Input)
	field("Output File", j.Output)
	field("Error File", j.ErrorFile)
	is(j.Exclusive, "Exclusive Execution")
	is(j.Rerunnable, "Re-runnable")
	if most := max(j.Slots, j.MaxSlots); most > 1 {
		tasks := strconv.Itoa(j.Slots)
		if most > j.Slots {
			tasks += "-" + strconv.Itoa(most)
		}
		if p.plain(how) {
			is(true, tasks+" Processors Requested")
		} else {
			is(true, tasks+" Task(s)")
		}
	}
	field("Requested Resources", j.ResReq)
	field("Dependency Condition", j.Depend)
	if len(j.Asked) > 0 {
		b.WriteString(", Specified Hosts " + bracketed(j.Asked, ", "))
	}
	if j.UserPriority > 0 {
		field("User Priority", strconv.Itoa(j.UserPriority))
	}
	return b.String() + ";"
}

// plain reports whether this is lava's -l, which words some things unlike its -UF and LSF
// 10.1.
func (p *page) plain(how layout) bool { return how == long && p.lava() }

func bracketed(texts []string, between string) string {
	return "<" + strings.Join(texts, ">"+between+"<") + ">"
}

// start is the line of a job that has run, "" of another. A run whose process is
// not known yet has been dispatched only.
func (p *page) start(j *Job, how layout) string {
	if j.waits() || j.Started.IsZero() || len(j.ExecHosts) == 0 {
		return ""
	}
	at := j.Started
	if at.Before(j.Submitted) {
		at = j.Submitted
	}
	did, element := "Started", ""
	dispatched := j.PGID == 0 && !j.ended()
	if dispatched {
		did = "Dispatched"
	}
	if j.Index > 0 {
		element = fmt.Sprintf("[%d] ", j.Index)
		did = strings.ToLower(did)
		if dispatched && p.lava() {
			element = " " + element
		}
	}
	hosts := bracketed(p.hostList(j), " ")
	n := len(j.ExecHosts)
	var where string
	switch {
	case !p.plain(how):
		if dispatched {
			did += " to"
		}
		where = fmt.Sprintf("%d Task(s) on Host(s) %s, Allocated %[1]d Slot(s) on Host(s) %[2]s", n, hosts)
	case dispatched:
		where = "to " + hosts
	case n > 1:
		where = fmt.Sprintf("on %d Hosts/Processors %s", n, hosts)
	default:
		where = "on " + hosts
	}
	line := fmt.Sprintf("%s: %s%s %s", p.stamp(at), element, did, where)
	if j.Home != "" {
		line += ", Execution Home <" + j.Home + ">"
	}
	if j.RunCWD != "" {
		line += ", Execution CWD <" + j.RunCWD + ">"
	}
	return line + ";"
}

// hostList is where a job runs, a host for each slot, or a host with its slots.
func (p *page) hostList(j *Job) []string {
	if !p.Cluster.Unkind.ShortHostList || len(j.ExecHosts) < 2 || !p.lava() {
		return j.ExecHosts
	}
	names, counts := slotsByHost(j.ExecHosts)
	for i, n := range counts {
		names[i] = fmt.Sprintf("%d*%s", n, names[i])
	}
	return names
}

// now prints what became of the job.
func (p *page) now(j *Job, how layout) {
	switch j.Stat {
	case PEND, PSUSP:
		p.printf(" PENDING REASONS:\n")
		p.reasons(j)
	case RUN:
		p.usage(j, how)
	case USUSP, SSUSP:
		p.usage(j, how)
		p.printf(" SUSPENDING REASONS:\n")
		p.reasons(j)
	case DONE:
		p.printf("%s: Done successfully.%s\n", p.stamp(j.Ended), j.cpu())
	case EXIT, ERROR:
		outcome := "Exited"
		if j.ExitCode > 0 {
			outcome = fmt.Sprintf("Exited with exit code %d.", j.ExitCode)
		}
		p.printf("%s: %s%s\n", p.stamp(j.Ended), outcome, j.cpu())
		if j.Termed != "" && !p.lava() {
			p.printf("%s: Completed <exit>; %s.\n", p.stamp(j.Ended), j.Termed)
		}
	case ZOMBI:
		p.printf("%s: Termination request issued; the job will be killed once the host is ok;", p.stamp(j.Ended))
	case UNKWN, WAIT:
	}
}

func (j *Job) cpu() string {
	if len(j.ExecHosts) == 0 {
		return ""
	}
	return " The CPU time used is 0.0 seconds."
}

// usage is what the job's processes use, once that was measured. The snapshot has no
// swap: it is printed as large as the memory.
func (p *page) usage(j *Job, how layout) {
	if j.MemUsed == 0 {
		return
	}
	var pids []string
	for _, pid := range j.PIDs {
		pids = append(pids, strconv.Itoa(pid))
	}
	used, list := bytesUsed(j.MemUsed), strings.Join(pids, " ")
	if how == unformatted {
		p.printf("%s: Resource usage collected. MEM: %s SWAP: %s; PGID: %d; PIDs: %s;\n", p.stamp(p.Now), used, used, j.PGID, list)
		return
	}
	indent := strings.Repeat(" ", detailIndent)
	p.printf("%s: Resource usage collected.\n%sMEM: %s;  SWAP: %s\n%sPGID: %d;  PIDs: %s \n", p.stamp(p.Now), indent, used, used, indent, j.PGID, list)
}

// bytesUsed is a size in whole Mbytes, up to one of them in Kbytes.
func bytesUsed(n int64) string {
	if kb := n / 1024; kb <= 1024 {
		return fmt.Sprintf("%d Kbytes", kb)
	}
	return fmt.Sprintf("%d Mbytes", n>>20)
}

func (p *page) limits(j *Job) {
	if j.RunLimit > 0 {
		p.printf("\n %-24s\n%-25s\n", "RUNLIMIT", fmt.Sprintf(" %.1f min", float64(j.RunLimit)/float64(time.Minute)))
	}
	if j.MemLimit > 0 {
		p.printf("\n MEMLIMIT\n %6d K\n", j.MemLimit)
	}
}

// section finds a section of a resource requirement: rusage[mem=4].
var section = regexp.MustCompile(`(select|rusage|span)\[([^\]]*)\]`)

// combined is the resource requirement as it is shown, merged with the queue's: both
// selections hold, and of the other sections the job's own count (volclava's sources,
// lsbatch/daemons/mbd.resreq.c). A job that names its hosts, or selects by a boolean
// resource, may run on any type of host.
func (p *page) combined(j *Job) string {
	queue := p.Cluster.queue(j.Queue).ResReq
	selected, rest := selection(j.ResReq), ""
	if own := selection(queue); own != "" && selected != "" {
		selected = "(" + selected + ") && (" + own + ")"
	} else if own != "" {
		selected = own
	}
	kind := "type == local"
	if len(j.Asked) > 0 || namesBoolean(selected) {
		kind = "type == any"
	}
	switch {
	case selected == "":
		selected = kind
	case !strings.Contains(selected, "type"):
		selected = "(" + selected + ") && (" + kind + ")"
	}
	for _, name := range []string{"rusage", "span"} {
		for _, req := range []string{j.ResReq, queue} {
			found := slices.IndexFunc(section.FindAllStringSubmatch(req, -1), func(m []string) bool { return m[1] == name })
			if found < 0 {
				continue
			}
			body := section.FindAllStringSubmatch(req, -1)[found][2]
			if name == "rusage" {
				body = normalised(body)
			}
			rest += " " + name + "[" + body + "]"
			break
		}
	}
	for _, other := range []string{"same", "cu", "affinity"} {
		if _, after, ok := strings.Cut(j.ResReq, other+"["); ok {
			body, _, _ := strings.Cut(after, "]")
			rest += " " + other + "[" + body + "]"
		}
	}
	return "select[" + selected + "] order[r15s:pg]" + rest
}

// normalised writes the numbers of rusage's with two decimals.
func normalised(usage string) string {
	parts := strings.FieldsFunc(usage, func(r rune) bool { return r == ',' || r == ':' })
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			parts[i] = fmt.Sprintf("%s=%.2f", name, n)
		}
	}
	return strings.Join(parts, ",")
}

// detailWidth is where LSF 10.1's -l breaks its lines, detailIndent how it goes
// on (the examples of ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.l.1.html).
const (
	detailWidth  = 80
	detailIndent = 21
)

// folded breaks a line where the layout does.
func (p *page) folded(line string, how layout) string {
	if how != long || p.lava() {
		return line
	}
	var b strings.Builder
	width := detailWidth
	for len(line) > width {
		b.WriteString(line[:width] + "\n" + strings.Repeat(" ", detailIndent))
		line = line[width:]
		width = detailWidth - detailIndent
	}
	return b.String() + line
}

// slotsByHost counts the slots on each host, in the order of their first.
func slotsByHost(hosts []string) (names []string, counts []int) {
	for _, host := range hosts {
		if i := slices.Index(names, host); i >= 0 {
			counts[i]++
			continue
		}
		names, counts = append(names, host), append(counts, 1)
	}
	return names, counts
}
