package lsfstandin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// layout is a format of bjobs's.
type layout int

const (
	short       layout = iota
	wide               // -w
	long               // -l
	unformatted        // -UF
	custom             // -o
)

// query is a bjobs command line taken apart.
type query struct {
	layout   layout
	fields   string // of -o
	json     bool
	noHeader bool

	all, done, pending, suspended, running bool // -a -d -p -s -r

	user, queue, host, name, project string // "": any; of user the caller
	group, profile                   string
	words                            []string
	ids                              []bsub.JobArg // of words
}

// bjobs lists jobs.
func (p *page) bjobs(args []string) int {
	if slices.Contains(args, "-A") {
		return p.arrays(slices.DeleteFunc(slices.Clone(args), func(word string) bool { return word == "all" || word[0] == '-' }))
	}
	q, ok := p.query(args)
	if !ok {
		return exitFailed
	}
	for _, word := range q.words {
		id, err := bsub.ParseJobArg(word)
		if err != nil || id.All {
			return p.fail("%s: Illegal job ID.", word)
		}
		q.ids = append(q.ids, id)
	}
	var jobs []*Job
	for _, j := range p.inOrder() {
		if p.listed(j, &q) {
			jobs = append(jobs, j)
		}
	}
	missing := p.missing(jobs, &q)
	if q.json {
		return p.jobsAsJSON(jobs, missing, &q)
	}
	if len(jobs) == 0 {
		return p.noJobs(missing, &q)
	}
	if rc := p.write(jobs, &q); rc != exitOK {
		return rc
	}
	for _, word := range missing {
		p.complain("%s", notFound(word))
	}
	if len(missing) > 0 {
		return exitFailed
	}
	return exitOK
}

func (p *page) write(jobs []*Job, q *query) int {
	switch q.layout {
	case long, unformatted:
		if p.crashes(jobs) {
			return exitCrashed
		}
		p.details(jobs, q.layout)
	case custom:
		return p.columns(jobs, q)
	case short, wide:
		p.table(jobs, q)
	}
	return exitOK
}

// crashes reports whether one of the jobs has a text that is too long to print.
func (p *page) crashes(jobs []*Job) bool {
	const most = 2560
	return p.Cluster.Unkind.LongTextsCrash && p.lava() &&
		slices.ContainsFunc(jobs, func(j *Job) bool { return len(j.Command) > most || len(j.Description) > most })
}

// inOrder returns the jobs as lava lists them: started ones, pending ones, ended ones.
func (p *page) inOrder() []*Job {
	var started, pending, ended []*Job
	for i := range p.Jobs {
		j := &p.Jobs[i]
		switch {
		case j.waits():
			pending = append(pending, j)
		case j.ended():
			ended = append(ended, j)
		default:
			started = append(started, j)
		}
	}
	return slices.Concat(started, pending, ended)
}

// waits is lava's IS_PEND, ended its IS_FINISH but for a requeued job in its gap.
func (j *Job) waits() bool { return j.Stat == PEND || j.Stat == PSUSP }

func (j *Job) ended() bool {
	return (j.Stat == DONE || j.Stat == EXIT || j.Stat == ERROR || j.Stat == ZOMBI) && !j.Gone
}

// listed reports whether the query asks for the job. A query by job IDs lists jobs in any
// state, of any owner.
func (p *page) listed(j *Job, q *query) bool {
	if len(q.ids) > 0 {
		return slices.ContainsFunc(q.ids, func(id bsub.JobArg) bool { return names(id, j) })
	}
	user := q.user
	if user == "" {
		user = p.user
	}
	switch {
	case user != "all" && j.User != user,
		q.queue != "" && j.Queue != q.queue,
		q.project != "" && j.Project != q.project,
		q.group != "" && j.Group != q.group,
		q.profile != "" && j.Profile != q.profile,
		q.name != "" && !nameMatches(q.name, j),
		q.host != "" && !slices.Contains(j.ExecHosts, q.host):
		return false
	case q.all:
		return true
	case !q.done && !q.pending && !q.suspended && !q.running:
		return !j.ended() && !j.Gone
	}
	return q.done && j.ended() ||
		q.pending && j.waits() ||
		q.suspended && (j.Stat == USUSP || j.Stat == SSUSP) ||
		q.running && j.Stat == RUN
}

// names reports whether a job ID of the command line is this job's, its array's, or names
// its element.
func names(id bsub.JobArg, j *Job) bool {
	return id.Job == j.ID && (id.Indices == nil || slices.Contains(id.Indices, j.Index))
}

func nameMatches(pattern string, j *Job) bool {
	name := j.Name
	if j.Index > 0 && !strings.Contains(pattern, "[") {
		name, _, _ = strings.Cut(name, "[")
	}
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(name, prefix)
	}
	return name == pattern
}

// missing are the IDs of the command line, as typed, that no listed job has.
func (p *page) missing(jobs []*Job, q *query) []string {
	var all []string
	for i, id := range q.ids {
		if !slices.ContainsFunc(jobs, func(j *Job) bool { return names(id, j) }) {
			all = append(all, q.words[i])
		}
	}
	return all
}

func notFound(id string) string { return "Job <" + id + "> is not found" }

// noJobs says that nothing was found: on standard error, with 255 for IDs and
// 254 else. LSF 10.1 returns 0 for the latter unless it has
// LSB_BJOBS_CONSISTENT_EXIT_CODE=Y
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_config_ref/lsf.conf.lsb_bjobs_consistent_exit_code.5.html).
func (p *page) noJobs(missing []string, q *query) int {
	if len(missing) > 0 {
		for _, word := range missing {
			p.complain("%s", notFound(word))
		}
		return exitFailed
	}
	if q.project != "" && p.lava() {
		return p.fail("No job found in project %s", q.project)
	}
	where := ""
	switch {
	case q.queue != "" && q.host != "":
		where = " in queue <" + q.queue + "> and on host/group <" + q.host + ">"
	case q.queue != "":
		where = " in queue <" + q.queue + ">"
	case q.host != "":
		where = " on host/group <" + q.host + ">"
	}
	what := "No unfinished job found"
	switch {
	case q.name != "":
		what = notFound(q.name)
	case q.all:
		what = "No job found"
	case q.done:
		what = "No DONE/EXIT job found"
	case q.pending:
		what = "No pending job found"
	case q.suspended:
		what = "No suspended job found"
	case q.running:
		what = "No running job found"
	}
	p.complain("%s%s", what, where)
	if p.lava() {
		return exitNoJobs
	}
	return exitOK
}

// listedName is the JOB_NAME column: of a job without a name its command.
func (j *Job) listedName() string {
	if j.Name == "" {
		return j.Command
	}
	return j.Name
}

// listedID is the job as the long formats name it: 791[2].
func (j *Job) listedID() string { return backends.ID{Job: j.ID, Index: j.Index}.String() }

// table prints the tables with one line a job; without -w one more for each
// further slot's host.
func (p *page) table(jobs []*Job, q *query) {
	reasons := q.pending && !q.all && !q.done && !q.suspended && !q.running
	if !q.noHeader {
		if reasons {
			p.printf("JOBID   USER    STAT  QUEUE       FROM_HOST      JOB_NAME           SUBMIT_TIME\n")
		} else {
			p.printf("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n")
		}
	}
	for _, j := range jobs {
		switch {
		case reasons:
			p.row(j, cell(j.User, 7, 7), cell(j.Queue, 11, 11), cell(j.FromHost, 14, 14), cell(tail(j.listedName(), 20), 18, 18))
		case q.layout == wide:
			p.row(j, cell(j.User, 7, -1), cell(j.Queue, 10, -1), cell(j.FromHost, 11, -1), cell(wideHosts(j), 11, -1), cell(j.listedName(), 10, -1))
		default:
			hosts := j.hosts()
			p.row(j, cell(j.User, 7, 7), cell(j.Queue, 10, 10), cell(j.FromHost, 11, 11), cell(hosts[0], 11, 11), cell(tail(j.listedName(), 10), 10, 10))
			for _, more := range hosts[1:] {
				p.printf("%s%s\n", strings.Repeat(" ", 45), more)
			}
		}
		if q.pending && j.waits() {
			p.reasons(j)
		}
		if q.suspended && (j.Stat == USUSP || j.Stat == SSUSP) {
			p.reasons(j)
		}
	}
}

// row is a line: the ID, the user, the state, the other cells, the time.
func (p *page) row(j *Job, user string, cells ...string) {
	p.printf("%-7d %s %-5s %s %s\n", j.ID, user, j.Stat, strings.Join(cells, " "), p.minute(j.Submitted))
}

// reasons are lines that say why a job waits.
func (p *page) reasons(j *Job) {
	for _, r := range j.Reasons {
		p.printf(" %s\n", r.line())
	}
}

func (r Reason) line() string {
	switch r.Hosts {
	case 0:
		return r.Text + ";"
	case 1:
		return r.Text + ": 1 host;"
	}
	return fmt.Sprintf("%s: %d hosts;", r.Text, r.Hosts)
}

// neverRan is what stands for the hosts of a job that ended without any.
const neverRan = "   -   "

// hosts is the EXEC_HOST column without -w: a host for each slot.
func (j *Job) hosts() []string {
	switch {
	case j.waits():
		return []string{""}
	case len(j.ExecHosts) == 0:
		return []string{neverRan}
	}
	return j.ExecHosts
}

func wideHosts(j *Job) string {
	if j.waits() {
		return "   -    "
	}
	return strings.Join(j.hosts(), ":")
}

// query reads a bjobs command line as the flavour's program does.
func (p *page) query(args []string) (query, bool) {
	if p.lava() {
		return p.lavaQuery(args)
	}
	return p.lsfQuery(args)
}

// lavaQuery reads args as lava's program does, with getopt and the option string
// VladpsrwWgRAhJ:q:u:m:N:P:SU:o:j: — of -UF it sees -U with the argument F, of
// -json -j with son. Options may follow job IDs.
func (p *page) lavaQuery(args []string) (query, bool) {
	var q query
	usage := func() (query, bool) {
		p.complain(`Usage: bjobs [-h] [-V] [-w |-l |-UF] [-a] [-d] [-p] [-s] [-r] [-o] [-json] [-A]
             [-m host_name] [-q queue_name] [-u user_name | -u all]
             [-P project_name] [-N host_spec]
             [-J name_spec] [jobId | "jobId[idxList]" ...]`)
		return query{}, false
	}
	text := map[byte]*string{'J': &q.name, 'q': &q.queue, 'u': &q.user, 'm': &q.host, 'P': &q.project, 'o': &q.fields}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		if word == "--" {
			q.words = append(q.words, args...)
			break
		}
		if len(word) < 2 || word[0] != '-' {
			q.words = append(q.words, word)
			continue
		}
		for letters := word[1:]; letters != ""; {
			letter := letters[0]
			letters = letters[1:]
			if q.flag(letter) {
				continue
			}
			if !strings.ContainsRune("JqumPoNUj", rune(letter)) {
				if strings.ContainsRune("WgRAhS", rune(letter)) {
					p.complain("bjobs: the stand-in has no -%c", letter)
				} else {
					p.complain("bjobs: invalid option -- '%c'", letter)
				}
				return usage()
			}
			value := letters
			letters = ""
			if value == "" {
				if len(args) == 0 {
					p.complain("bjobs: option requires an argument -- '%c'", letter)
					return usage()
				}
				value, args = args[0], args[1:]
			}
			switch {
			case text[letter] != nil:
				if *text[letter] != "" || value == "" {
					return usage()
				}
				*text[letter] = value
			case letter == 'U' && value == "F":
				q.layout = unformatted
			case letter == 'j' && value == "son":
				q.json = true
			default:
				return usage()
			}
		}
	}
	if q.fields != "" {
		if q.layout != short {
			return usage()
		}
		q.layout = custom
	}
	if q.json && q.layout != custom {
		return usage()
	}
	return q, true
}

// flag sets what an option of one letter, without argument, means; false for
// other letters.
func (q *query) flag(letter byte) bool {
	switch letter {
	case 'a':
		q.all = true
	case 'd':
		q.done = true
	case 'p':
		q.pending = true
	case 's':
		q.suspended = true
	case 'r':
		q.running = true
	case 'w':
		q.layout = wide
	case 'l':
		if q.layout != unformatted {
			q.layout = long
		}
	default:
		return false
	}
	return true
}

// lsfQuery reads args as LSF 10.1's program does: words for options, several
// letters in one word
// (ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.1.html).
func (p *page) lsfQuery(args []string) (query, bool) {
	var q query
	text := map[string]*string{"-J": &q.name, "-q": &q.queue, "-u": &q.user, "-m": &q.host, "-P": &q.project, "-o": &q.fields, "-g": &q.group, "-app": &q.profile}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		target := text[word]
		switch {
		case target != nil && len(args) == 0:
			p.complain("bjobs: option %s requires an argument", word)
			return query{}, false
		case target != nil:
			*target, args = args[0], args[1:]
		case word == "-json":
			q.json = true
		case word == "-noheader":
			q.noHeader = true
		case word == "-UF":
			q.layout = unformatted
		case word == "-X":
		case len(word) < 2 || word[0] != '-':
			q.words = append(q.words, word)
		default:
			for _, letter := range []byte(word[1:]) {
				if !q.flag(letter) {
					p.complain("bjobs: Illegal option -- %s", word[1:])
					return query{}, false
				}
			}
		}
	}
	switch {
	case q.json && q.noHeader:
		// ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.json.1.html
		p.complain("bjobs: -json and -noheader exclude each other")
		return query{}, false
	case q.fields != "":
		q.layout = custom
	}
	q.json = q.json && q.layout == custom // without -o it has no effect
	return q, true
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
