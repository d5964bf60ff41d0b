package lsfstandin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// column is a field of bjobs -o.
type column struct {
	name  string // as it heads the column and names a JSON member
	width int    // LSF 10.1: what a bare : means
	value func(*page, *Job) string
}

// chosen is a column as -o asked for it.
type chosen struct {
	column
	width int // 0: as wide as the value is
	right bool
}

// lavaColumns are all that lava has, in the order in which its source names
// them. Its times have no year, submission times no seconds; of a job on several
// hosts it shows the first.
func lavaColumns() []column {
	return []column{
		{name: "JOBID", value: func(_ *page, j *Job) string { return strconv.FormatInt(j.ID, 10) }},
		{name: "USER", value: func(_ *page, j *Job) string { return j.User }},
		{name: "STAT", value: func(_ *page, j *Job) string { return string(j.Stat) }},
		{name: "QUEUE", value: func(_ *page, j *Job) string { return j.Queue }},
		{name: "FROM_HOST", value: func(_ *page, j *Job) string { return j.FromHost }},
		{name: "EXEC_HOST", value: func(_ *page, j *Job) string { return j.hosts()[0] }},
		{name: "JOB_NAME", value: func(_ *page, j *Job) string { return j.listedName() }},
		{name: "SUBMIT_TIME", value: func(p *page, j *Job) string { return p.minute(j.Submitted) }},
		{name: "PROJ_NAME", value: func(_ *page, j *Job) string { return j.Project }},
		{name: "CPU_USED", value: func(*page, *Job) string { return "000:00:00.00" }},
		{name: "MEM", value: func(_ *page, j *Job) string { return strconv.FormatInt(j.MemUsed/1024, 10) }},
		{name: "SWAP", value: func(*page, *Job) string { return "0" }},
		{name: "PIDS", value: func(_ *page, j *Job) string { return orDash(pids(j)) }},
		{name: "START_TIME", value: func(p *page, j *Job) string { return p.second(j.Started) }},
		{name: "FINISH_TIME", value: func(p *page, j *Job) string { return p.second(j.Ended) }},
	}
}

// second is a time as lava's -o prints starts and ends.
func (p *page) second(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return p.in(t).Format("01/02-15:04:05")
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func pids(j *Job) string {
	var all []string
	for _, pid := range j.PIDs {
		all = append(all, strconv.Itoa(pid))
	}
	return strings.Join(all, ",")
}

// columns prints jobs as -o does.
func (p *page) columns(jobs []*Job, q *query) int {
	all, between, rc := p.chosen(q.fields)
	if rc != exitOK {
		return rc
	}
	line := func(value func(chosen) string) {
		for i, c := range all {
			if i > 0 {
				p.printf("%s", between)
			}
			p.printf("%s", c.fit(value(c)))
		}
		p.printf("\n")
	}
	if !q.noHeader {
		line(func(c chosen) string { return c.name })
	}
	for _, j := range jobs {
		line(func(c chosen) string {
			value := c.value(p, j)
			switch {
			case c.name == "EXEC_HOST" && p.lava() && value == "",
				!p.lava() && value == "":
				return "-"
			}
			return value
		})
	}
	return exitOK
}

// fit pads and cuts a value to its column's width.
func (c chosen) fit(value string) string {
	switch {
	case c.width == 0:
		return value
	case len(value) > c.width && c.name == "JOB_NAME":
		return tail(value, c.width)
	case c.right:
		value = cell(value, 0, c.width)
		return strings.Repeat(" ", c.width-len(value)) + value
	}
	return cell(value, c.width, c.width)
}

// jobsAsJSON prints jobs as -o with -json does. If lava finds none, only its exit code
// says so.
func (p *page) jobsAsJSON(jobs []*Job, missing []string, q *query) int {
	type member struct{ name, value string }
	var records [][]member
	if len(jobs) > 0 {
		all, _, rc := p.chosen(q.fields)
		if rc != exitOK {
			return rc
		}
		for _, j := range jobs {
			var record []member
			seen := map[string]bool{}
			for _, c := range all {
				if !seen[c.name] {
					record = append(record, member{c.name, c.value(p, j)})
				}
				seen[c.name] = true
			}
			records = append(records, record)
		}
	}
	for _, id := range missing {
		number, _, _ := strings.Cut(id, "[")
		records = append(records, []member{{"JOBID", number}, {"ERROR", notFound(id)}})
	}
	style := lavaJSON
	if !p.lava() {
		style = lsfJSON
	}
	p.printf(style.open, style.quote("bjobs"), len(records))
	for i, record := range records {
		p.printf("%s", style.before(i))
		for k, m := range record {
			if k > 0 {
				p.printf(",\n")
			}
			p.printf(style.member, style.quote(m.name), style.quote(m.value))
		}
		p.printf("%s", style.after)
	}
	p.printf("%s", style.shut(len(records)))
	if len(jobs) == 0 && (p.lava() || len(missing) > 0) {
		return exitFailed
	}
	return exitOK
}

// jsonStyle is how a flavour lays out JSON.
type jsonStyle struct {
	open   string // command, number of jobs
	before func(record int) string
	member string
	after  string
	shut   func(records int) string
	quote  func(string) string
}

// lavaJSON is the layout of the transcripts.
var lavaJSON = jsonStyle{
	open: "{\n\t\"COMMAND\":\t%s,\n\t\"JOBS\":\t%d,\n\t\"RECORDS\":\t[",
	before: func(record int) string {
		if record > 0 {
			return ", {\n"
		}
		return "{\n"
	},
	member: "\t\t\t%s:\t%s",
	after:  "\n\t\t}",
	shut:   func(int) string { return "]\n}\n" },
	quote:  func(s string) string { return quoted(s, `"\`) },
}

// lsfJSON is the layout of answers of LSF 10.1 that users of it have published in
// the tests of their own programs; IBM's page on -json shows none
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.json.1.html).
var lsfJSON = jsonStyle{
	open: "{\n  \"COMMAND\":%s,\n  \"JOBS\":%d,\n  \"RECORDS\":[\n",
	before: func(record int) string {
		if record > 0 {
			return ",\n    {\n"
		}
		return "    {\n"
	},
	member: "      %s:%s",
	after:  "\n    }",
	shut: func(records int) string {
		if records > 0 {
			return "\n  ]\n}\n"
		}
		return "  ]\n}\n"
	},
	quote: func(s string) string { return quoted(s, `"\/`) },
}

// quoted writes a JSON string as a C program does that knows bytes and not
// characters: what is no UTF-8 stays none.
func quoted(s, escaped string) string {
	var b strings.Builder
	b.WriteByte('"')
	short := map[byte]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	for _, c := range []byte(s) {
		switch {
		case strings.IndexByte(escaped, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case short[c] != "":
			b.WriteString(short[c])
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// chosen reads the format of -o: names of columns and, in LSF 10.1, their widths
// and units, and what stands between columns.
func (p *page) chosen(format string) (all []chosen, between string, rc int) {
	if p.lava() {
		known := map[string]column{}
		for _, c := range lavaColumns() {
			known[c.name] = c
		}
		for _, word := range strings.Fields(format) {
			word = strings.ToUpper(word)
			c, ok := known[word]
			if !ok {
				p.complain("<%s> in the format string is not a valid field name.", word)
				return nil, "", exitNoField
			}
			all = append(all, chosen{column: c})
		}
		return all, " ", exitOK
	}
	return p.lsfChosen(format)
}
