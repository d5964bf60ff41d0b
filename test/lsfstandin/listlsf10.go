package lsfstandin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lsfColumns are the fields of LSF 10.1's bjobs -o that the snapshot has, their
// recommended widths and aliases as IBM lists them
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.o.1.html). "" is a value
// that is not there: - in a table.
func lsfColumns() []column {
	return []column{
		{"JOBID", 7, func(_ *page, j *Job) string { return strconv.FormatInt(j.ID, 10) }},
		{"JOBINDEX", 8, func(_ *page, j *Job) string { return strconv.Itoa(j.Index) }},
		{"STAT", 5, func(_ *page, j *Job) string { return string(j.Stat) }},
		{"USER", 7, func(_ *page, j *Job) string { return j.User }},
		{"USER_GROUP", 15, nothing},
		{"QUEUE", 10, func(_ *page, j *Job) string { return j.Queue }},
		{"JOB_NAME", 10, func(_ *page, j *Job) string { return j.listedName() }},
		{"JOB_DESCRIPTION", 17, func(_ *page, j *Job) string { return j.Description }},
		{"PROJ_NAME", 11, func(_ *page, j *Job) string { return j.Project }},
		{"APPLICATION", 13, nothing},
		{"SERVICE_CLASS", 13, nothing},
		{"JOB_GROUP", 10, nothing},
		{"JOB_PRIORITY", 12, func(_ *page, j *Job) string { return count(j.Priority) }},
		{"DEPENDENCY", 15, func(_ *page, j *Job) string { return j.Depend }},
		{"PEND_REASON", 11, func(_ *page, j *Job) string { return j.keyReason(j.waits()) }},
		// Shown only with TRACK_ELIGIBLE_PENDINFO=Y in lsb.params, which is not set.
		{"PENDSTATE", 9, nothing},
		{"SUSPEND_REASON", 50, func(_ *page, j *Job) string { return j.keyReason(j.Stat == USUSP || j.Stat == SSUSP) }},
		{"COMMAND", 15, func(_ *page, j *Job) string { return j.Command }},
		{"PIDS", 20, func(_ *page, j *Job) string { return pids(j) }},
		{"EXIT_CODE", 10, func(_ *page, j *Job) string { return count(j.ExitCode) }},
		{"EXIT_REASON", 50, func(_ *page, j *Job) string { return j.Termed }},
		{"INTERACTIVE", 11, func(_ *page, j *Job) string { return yes(j.Interactive) }},
		{"FROM_HOST", 11, func(_ *page, j *Job) string { return j.FromHost }},
		{"FIRST_HOST", 11, func(_ *page, j *Job) string { return first(j.onHosts()) }},
		{"EXEC_HOST", 11, func(_ *page, j *Job) string { return strings.Join(j.onHosts(), ":") }},
		{"NEXEC_HOST", 10, func(_ *page, j *Job) string { names, _ := slotsByHost(j.onHosts()); return count(len(names)) }},
		{"ASK_HOSTS", 30, func(_ *page, j *Job) string { return strings.Join(j.Asked, " ") }},
		{"ALLOC_SLOT", 20, func(_ *page, j *Job) string { return strings.Join(j.onHosts(), ":") }},
		{"NALLOC_SLOT", 10, func(_ *page, j *Job) string { return count(len(j.onHosts())) }},
		{"EXCLUSIVE", 13, func(_ *page, j *Job) string { return yes(j.Exclusive) }},
		{"NREQ_SLOT", 10, func(_ *page, j *Job) string { return count(j.Slots) }},
		{"SUBMIT_TIME", 15, func(p *page, j *Job) string { return p.minute(j.Submitted) }},
		{"START_TIME", 15, func(p *page, j *Job) string { return p.minuteOf(j.runStart()) }},
		{"SPECIFIED_START_TIME", 20, func(p *page, j *Job) string { return p.minuteOf(j.Begin) }},
		{"FINISH_TIME", 16, finish},
		{"RUN_TIME", 15, runTime},
		{"SLOTS", 5, func(_ *page, j *Job) string { return count(len(j.onHosts())) }},
		{"MEM", 10, func(_ *page, j *Job) string { return lsfBytes(j.MemUsed) }},
		{"MAX_MEM", 10, func(_ *page, j *Job) string { return lsfBytes(j.MemUsed) }},
		{"MEMLIMIT", 10, func(_ *page, j *Job) string { return lsfBytes(j.MemLimit << 10) }},
		{"SWAP", 10, nothing},
		{"SWAPLIMIT", 10, nothing},
		{"MIN_REQ_PROC", 12, func(_ *page, j *Job) string { return count(j.Slots) }},
		{"MAX_REQ_PROC", 12, func(_ *page, j *Job) string { return count(max(j.Slots, j.MaxSlots)) }},
		{"EFFECTIVE_RESREQ", 17, func(p *page, j *Job) string {
			if len(j.onHosts()) == 0 {
				return ""
			}
			return p.combined(j) + " "
		}},
		{"COMBINED_RESREQ", 20, func(p *page, j *Job) string { return p.combined(j) + " " }},
		{"RUNTIMELIMIT", 12, func(_ *page, j *Job) string {
			if j.RunLimit == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f", float64(j.RunLimit)/float64(time.Minute))
		}},
		{"INPUT_FILE", 10, func(_ *page, j *Job) string { return j.Input }},
		{"OUTPUT_FILE", 11, func(_ *page, j *Job) string { return j.Output }},
		{"ERROR_FILE", 10, func(_ *page, j *Job) string { return j.ErrorFile }},
		{"SUB_CWD", 10, func(_ *page, j *Job) string { return j.CWD }},
		{"EXEC_HOME", 10, func(_ *page, j *Job) string { return ifRan(j, j.Home) }},
		{"EXEC_CWD", 10, func(_ *page, j *Job) string { return ifRan(j, j.RunCWD) }},
	}
}

// lsfAliases are the other names of fields.
func lsfAliases() map[string]string {
	return map[string]string{
		"ID": "JOBID", "UGROUP": "USER_GROUP", "NAME": "JOB_NAME", "DESCRIPTION": "JOB_DESCRIPTION",
		"PROJ": "PROJ_NAME", "PROJECT": "PROJ_NAME", "APP": "APPLICATION", "SLA": "SERVICE_CLASS",
		"GROUP": "JOB_GROUP", "PRIORITY": "JOB_PRIORITY", "CMD": "COMMAND", "SSTART_TIME": "SPECIFIED_START_TIME",
		"ERESREQ": "EFFECTIVE_RESREQ", "CRESREQ": "COMBINED_RESREQ",
	}
}

func nothing(*page, *Job) string { return "" }

func yes(is bool) string {
	if is {
		return "Y"
	}
	return "N"
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// onHosts are the hosts of the job's slots, nil while it waits.
func (j *Job) onHosts() []string {
	if j.waits() {
		return nil
	}
	return j.ExecHosts
}

func (j *Job) runStart() time.Time {
	if j.waits() {
		return time.Time{}
	}
	return j.Started
}

func ifRan(j *Job, text string) string {
	if len(j.onHosts()) == 0 {
		return ""
	}
	return text
}

func (p *page) minuteOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return p.minute(t)
}

// keyReason returns the one reason that -o shows: the job's own, or that hosts have
// different ones.
func (j *Job) keyReason(asked bool) string {
	if !asked || len(j.Reasons) == 0 {
		return ""
	}
	if len(j.Reasons) > 1 && j.Reasons[0].Hosts > 0 {
		return "Individual host based reasons"
	}
	return j.Reasons[0].line()
}

// finish returns a job's end, or for a running job with a run limit its latest end. With
// a run limit an L follows.
func finish(p *page, j *Job) string {
	switch {
	case j.ended() && j.RunLimit > 0 && !j.Started.IsZero():
		return p.minuteOf(j.Ended) + " L"
	case j.ended():
		return p.minuteOf(j.Ended)
	case j.RunLimit > 0 && !j.runStart().IsZero():
		return p.minute(j.Started.Add(j.RunLimit)) + " L"
	}
	return ""
}

func runTime(p *page, j *Job) string {
	start := j.runStart()
	if start.IsZero() {
		return "0 second(s)"
	}
	end := p.Now
	if j.ended() {
		end = j.Ended
	}
	return fmt.Sprintf("%d second(s)", int64(end.Sub(start)/time.Second))
}

// lsfBytes is a size with the largest unit that fits and at most two decimals
// (bjobs.o.1.html: the default unit "automatically adjusts").
func lsfBytes(n int64) string {
	if n == 0 {
		return ""
	}
	value, unit := float64(n)/1024, "Kbytes"
	for _, larger := range []string{"Mbytes", "Gbytes", "Tbytes"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, larger
	}
	text := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", value), "0"), ".")
	return text + " " + unit
}

// lsfChosen reads "jobid stat: queue:- project:10 mem:12 delimiter='^'". Field
// names are not case-sensitive. Units (mem:12:G) are passed over.
func (p *page) lsfChosen(format string) (all []chosen, between string, rc int) {
	between = " "
	if before, after, found := strings.Cut(format, "delimiter="); found {
		if len(after) < 3 || after[0] != '\'' && after[0] != '"' || after[2] != after[0] {
			p.complain("Bad delimiter in the format string: give one character between quotes.")
			return nil, "", exitFailed
		}
		between, format = after[1:2], before+after[3:]
	}
	columns, aliases := lsfColumns(), lsfAliases()
	for _, word := range strings.Fields(format) {
		parts := strings.Split(word, ":")
		name := strings.ToUpper(parts[0])
		if other, ok := aliases[name]; ok {
			name = other
		}
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
		if i < 0 {
			p.complain("<%s> in the format string is not a valid field name.", word)
			return nil, "", exitFailed
		}
		c := chosen{column: columns[i]}
		if len(parts) > 1 {
			c.width = c.column.width
			width, right := strings.CutPrefix(parts[1], "-")
			c.right = right
			if width != "" {
				n, err := strconv.Atoi(width)
				if err != nil || n < 1 || n > 4096 {
					p.complain("<%s> in the format string has no valid width.", word)
					return nil, "", exitFailed
				}
				c.width = n
			}
		}
		all = append(all, c)
	}
	return all, between, exitOK
}
