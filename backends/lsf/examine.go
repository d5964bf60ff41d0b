package lsf

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// setup is how a cluster is set up, as its commands and files say.
type setup struct {
	flavour flavour
	doubt   error // why the flavour is a guess; nil: it is known
	params  params
	queues  []queue  // nil: unknown
	noSlots []string // hosts without a number of slots
	strange []string // hosts of an unknown status, with it

	conf     map[string]string // lsf.conf; nil: it was not found
	confOpen bool              // others than root and administrators can write it
	confPath string
	admins   []string // users, of ClusterAdmins in lsf.cluster.NAME; nil: unknown
	user     string   // the user that runs the engine
	esubs    []program
	ahead    time.Duration // how far the newest job is ahead of now
	vague    []*listedJob  // jobs that have not ended and stay unclear
}

// queue is what matters of one of the cluster's queues.
type queue struct {
	name     string
	priority int // its jobs go before those of a queue with a lower one
	policies []string
	hosts    []string // the words of HOSTS; nil: not known
	requeues exitValues
	unread   string // the one of them that is not understood
	row      backends.QueueRow
}

// program is a submit filter that bsub would run at each submission.
type program struct {
	name   string // esub, esub.NAME
	file   string
	ours   bool // it is our filter
	calls  bool // it is another filter, with our name in it
	broken bool // users can't run it, or it is a broken link
	listed bool // LSB_ESUB_METHOD names it, or it is the plain esub
}

const (
	// minCleanPeriod is three cycles of the default period.
	minCleanPeriod = time.Minute
	// clockTolerance is more than listings without seconds leave uncertain.
	clockTolerance = 2 * time.Minute
)

// examine returns what is wrong with a cluster.
func examine(s *setup, by backends.Installation) []backends.Finding {
	var f findings
	f.version(s)
	f.environment(s)
	f.user(s)
	f.priorities(s)
	f.filter(s, by)
	matter := slices.DeleteFunc(slices.Clone(s.queues), func(q queue) bool { return !by.Uses(q.name) })
	f.order(matter, by.Low)
	f.policies(matter)
	f.queueHosts(matter)
	f.hosts(s.noSlots, s.strange)
	f.times(s, by.Cycle)
	f.saves(matter)
	f.unclear(s.vague)
	return f
}

type findings []backends.Finding

func (f *findings) add(remedy, format string, args ...any) {
	*f = append(*f, backends.Finding{What: fmt.Sprintf(format, args...), Remedy: remedy})
}

// version reports an unknown version: its output may be in no transcript or manual.
func (f *findings) version(s *setup) {
	if s.doubt != nil {
		f.add("compare what `bjobs -V` and `lsid` print with docs/lsf.md, versions; watch the first cycles in observe mode", "%s", guessWarning(s.flavour, s.doubt))
	}
}

// environment checks lsf.conf: little is known without it, and much is decided by it.
func (f *findings) environment(s *setup) {
	switch {
	case s.conf == nil:
		f.add("name its directory in the config file: `lsf: {envdir: DIRECTORY}`", "lsf.conf is not to be found: what it says of units, administrators and filters is not known")
	case s.confOpen:
		f.add("give it to root or the primary LSF administrator, chmod 644", "%s can be written by others: they decide which filter is asked", s.confPath)
	}
}

// user checks the engine's user: only administrators may rank, hold and requeue others'
// jobs. On lava root is one; on LSF 10.1 it is not, unless lsf.conf says LSF_ROOT_USER=Y,
// which IBM wants to be temporary
// (https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_config_ref/lsf.conf.lsf_root_user.5.html).
// mbatchd refuses root's submissions unless LSF_ROOT_REX is set, whatever its value
// (volclava 2.2; IBM: its default allows root no execution).
func (f *findings) user(s *setup) {
	if s.user != "root" {
		if s.admins != nil && !slices.Contains(s.admins, s.user) {
			f.add(handOverRemedy(s.admins)+", or add "+s.user+" to ClusterAdmins in lsf.cluster.NAME, then `lsadmin reconfig` and `badmin mbdrestart`",
				"%s runs the engine and is not an LSF administrator: only LSF administrators may rank, hold and requeue other users' jobs", s.user)
		}
		return
	}
	_, submits := s.conf["LSF_ROOT_REX"]
	switch {
	case s.flavour == lsf10 && !slices.Contains(s.admins, "root") && !yes(s.conf["LSF_ROOT_USER"]):
		f.add(handOverRemedy(s.admins), "root runs the engine: LSF 10.1 denies root everything without LSF_ROOT_USER=Y, which IBM means to be temporary")
	case !submits:
		f.add(handOverRemedy(s.admins)+", or set LSF_ROOT_REX=local in lsf.conf, then `badmin mbdrestart`",
			"root runs the engine: LSF refuses root's submissions without LSF_ROOT_REX, so that no dummy job is placed")
	}
}

// handOverRemedy returns the remedy by which an administrator other than root runs the engine.
func handOverRemedy(admins []string) string {
	to := "an LSF administrator"
	if i := slices.IndexFunc(admins, func(name string) bool { return name != "root" }); i >= 0 {
		to = "the LSF administrator " + admins[i]
	}
	return "give state directory (chown -R) and cron line to " + to + " (docs/lsf.md: the engine's user)"
}

func yes(value string) bool { return value == "y" || value == "Y" }

// priorities checks the range of priorities: all ranks are within the users' own range,
// since LSF refuses what is beyond it even from administrators.
func (f *findings) priorities(s *setup) {
	set := fmt.Sprintf("set MAX_USER_PRIORITY=%d in lsb.params, then `badmin reconfig`", goodMost)
	scale := newScale(s.params)
	switch lost := scale.lost(); {
	case scale.most == 0:
		f.add(set, "MAX_USER_PRIORITY is not set: no job can be ranked, so that nothing is guaranteed")
	case scale.unable() != nil:
		f.add(set, "MAX_USER_PRIORITY is %d: above the default of %d there is no room for the ranks, so that nothing is guaranteed", scale.most, scale.normal)
	case lost != "":
		f.add(set, "MAX_USER_PRIORITY is %d, %d of it above the default: %s", scale.most, scale.most-scale.normal, lost)
	}
	if s.params.overTime {
		f.add("take it out of lsb.params, then `badmin reconfig`", "JOB_PRIORITY_OVER_TIME is set: waiting jobs grow into the ranks of others by themselves")
	}
}

// filter checks that bsub runs our filter once: it runs LSF_SERVERDIR/esub and the
// esub.NAME of each NAME in LSB_ESUB_METHOD.
func (f *findings) filter(s *setup, by backends.Installation) {
	if s.conf == nil {
		return
	}
	dir := s.conf["LSF_SERVERDIR"]
	if dir == "" {
		f.add("set it in lsf.conf", "LSF_SERVERDIR is not in lsf.conf: where LSF looks for filters is not known")
		return
	}
	ours := by.Filter
	if ours == "" {
		ours = "ESUB"
	}
	var asked []program
	var plain, chained *program
	for i := range s.esubs {
		p := &s.esubs[i]
		switch p.name {
		case "esub":
			plain = p
		case "esub." + chainName:
			chained = p
		}
		switch {
		case p.listed && p.broken:
			f.add("correct it: chmod 755, or link it anew", "not every user can run %s: LSF submits jobs without it", p.file)
			return
		case p.listed && (p.ours || p.calls):
			asked = append(asked, *p)
		}
	}
	methods := s.conf[methodKey]
	switch {
	case len(asked) == 1:
	case len(asked) > 1:
		f.add("keep one of them", "LSF asks the filter twice, as %s and %s: what the first one changed the second takes for the user's wish", asked[0].name, asked[1].name)
	case chained != nil && chained.ours:
		f.add(listMethod(methods), "LSF does not ask %s: it is not in LSB_ESUB_METHOD of lsf.conf: jobs are neither tested nor tagged", chained.file)
	case plain != nil:
		f.add(fmt.Sprintf("ln -s %s %s, then %s (docs/lsf.md: a filter of your own)", ours, path.Join(dir, "esub."+chainName), listMethod(methods)),
			"LSF does not ask our filter at submission, but %s: jobs are neither tested nor tagged", plain.file)
	default:
		f.add(fmt.Sprintf("ln -s %s %s", ours, path.Join(dir, "esub")), "LSF does not ask our filter at submission: jobs are neither tested nor tagged")
	}
}

const (
	chainName = "allotment" // esub.allotment
	methodKey = "LSB_ESUB_METHOD"
)

func listMethod(methods string) string {
	return fmt.Sprintf("set %s=%q in lsf.conf", methodKey, strings.TrimSpace(methods+" "+chainName))
}

// order checks the queues' priorities: LSF looks at them before any job's.
func (f *findings) order(used []queue, low string) {
	byPriority := func(a, b queue) int { return cmp.Compare(a.priority, b.priority) }
	others := slices.DeleteFunc(slices.Clone(used), func(q queue) bool { return q.name == low })
	if len(others) == 0 {
		return
	}
	least, most := slices.MinFunc(others, byPriority), slices.MaxFunc(others, byPriority)
	if most.priority > least.priority {
		f.add("name in `queues:` those alone whose jobs share the farm, with one PRIORITY in lsb.queues",
			"queues %s (PRIORITY %d) and %s (%d): jobs of the first go before all of the second, those of pools too", most.name, most.priority, least.name, least.priority)
	}
	for _, q := range used {
		if q.name == low && q.priority >= least.priority {
			f.add(fmt.Sprintf("set PRIORITY=%d or less for it in lsb.queues, then `badmin reconfig`", least.priority-1),
				"queue %s, where lowered jobs go, has PRIORITY %d, and %s has %d: it is no lower", q.name, q.priority, least.name, least.priority)
		}
	}
}

// harmless are the policies that leave jobs of one queue in the order of their
// priorities (https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bqueues.1.html).
var harmless = []string{"BACKFILL", "EXCLUSIVE", "IGNORE_DEADLINE", "NO_INTERACTIVE", "ONLY_INTERACTIVE"}

// policies reports scheduling policies that may come before a job's priority in a queue.
func (f *findings) policies(used []queue) {
	for _, q := range used {
		for _, policy := range q.policies {
			switch name := strings.ToUpper(policy); {
			case slices.Contains(harmless, name):
			case strings.HasPrefix(name, "FAIRSHARE"), name == "FAIRSAHRE": // so volclava 2.2 spells it
				f.add("take FAIRSHARE out of it in lsb.queues, or leave it out of `queues:`", "queue %s has fairshare (%s): LSF orders its jobs by their users' shares, whatever their ranks", q.name, policy)
			case strings.HasPrefix(name, "APS_PRIORITY"):
				f.add("take APS_PRIORITY out of it in lsb.queues, or leave it out of `queues:`", "queue %s has absolute priorities (APS): LSF orders its jobs by them, and ranks are one factor of many", q.name)
			case strings.HasPrefix(name, "PREEMPTIVE"), strings.HasPrefix(name, "PREEMPTABLE"):
				f.add("take PREEMPTION out of it in lsb.queues, unless you want both", "queue %s: LSF preempts there by itself (%s), and knows of no guarantee", q.name, policy)
			default:
				f.add("look it up in the manual of lsb.queues: if its jobs are no longer ordered by their priorities, take it out, or leave the queue out of `queues:`",
					"queue %s has the scheduling policy %s, which is not known to keep the order of priorities", q.name, shown(policy))
			}
		}
	}
}

func (f *findings) hosts(noSlots, strange []string) {
	if len(noSlots) > 0 {
		f.add("set MXJ for each in lsb.hosts (! is the number of its processors), then `badmin reconfig`",
			"no number of slots (MAX is -), so that none is counted: %s", few("host", noSlots))
	}
	if len(strange) > 0 {
		f.add("see `bhosts -l` and LSF's manual for what it means; it is taken for closed: nothing is started there", "bhosts' STATUS is not known: %s", few("host", strange))
	}
}

// queueHosts reports queues of which it is not known where their jobs may run (R32).
func (f *findings) queueHosts(queues []queue) {
	for _, q := range queues {
		if q.unread != "" {
			f.add("name hosts, host groups, all, others or ~host there (docs/lsf.md: where a job may run), then `badmin reconfig`, or leave the queue out of queues: in the config file",
				"HOSTS of queue %s is not understood: %s: no job is preempted for its jobs", q.name, q.unread)
		}
	}
}

// few lists ten names at most, and counts the rest.
func few(kind string, names []string) string {
	const most = 10
	more := ""
	switch {
	case len(names) > most:
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
		fallthrough
	case len(names) > 1:
		kind += "s"
	}
	return kind + " " + strings.Join(names, ", ") + more
}

func (f *findings) times(s *setup, cycle time.Duration) {
	if period, least := s.params.cleanPeriod, max(minCleanPeriod, 2*cycle); period > 0 && period < least {
		f.add("set CLEAN_PERIOD=3600 in lsb.params, then `badmin reconfig`",
			"CLEAN_PERIOD is %v, less than %v: a job that ends between two cycles may be forgotten before it is counted, or before it is put back after it has saved itself", period, least)
	}
	if s.ahead > clockTolerance {
		f.add("set the clocks by one source (NTP) on this host and LSF's master", "LSF's clock is %v ahead of this host's: jobs look younger than they are", s.ahead.Round(time.Second))
	}
}

// saves reports queues whose jobs LSF itself puts back once they have saved themselves (R33):
// it holds them for nobody.
func (f *findings) saves(queues []queue) {
	for _, q := range queues {
		if q.requeues.has(backends.ExitSaved) {
			f.add("take it out in lsb.queues (docs/lsf.md: jobs that save themselves), then `badmin reconfig`",
				"REQUEUE_EXIT_VALUES of queue %s has %d, with which jobs say that they have saved themselves: LSF may start such a job again in the very slots that it is to leave", q.name, backends.ExitSaved)
		}
	}
}

// unclear reports jobs that stay unclear. Most likely a text of their owners' has a line
// of its own; but this LSF may also print lines that are not known yet.
func (f *findings) unclear(vague []*listedJob) {
	if len(vague) == 0 {
		return
	}
	j, many := vague[0], ""
	if len(vague) > 1 {
		many = fmt.Sprintf(", and of %d more,", len(vague)-1)
	}
	f.add(fmt.Sprintf("look at `bjobs -UF %v`: if a text of its owner's has a line break or looks like LSF's own lines, have it submitted without; else report the line as a bug", j.ID),
		"bjobs' output for job %v of %s%s can't be distinguished from its owner's texts, so that it gets no slots of a pool: %v", j.ID, j.User, many, j.why)
}

// parseQueues reads `bqueues -w`. What a version has no column for is "-" or 0.
func parseQueues(text []byte) ([]queue, error) {
	header, lines, err := table(text, "QUEUE_NAME")
	if err != nil {
		return nil, fmt.Errorf("bqueues: %w", err)
	}
	if header["PRIO"] == 0 {
		return nil, errors.New("bqueues: no column PRIO")
	}
	all := make([]queue, 0, len(lines))
	for _, fields := range lines {
		var wrong error
		word := func(name string) string {
			at := header[name]
			if at == 0 || at >= len(fields) {
				return "-"
			}
			return fields[at]
		}
		number := func(name string) int {
			text := word(name)
			if text == "-" && name != "PRIO" {
				return 0
			}
			n, err := strconv.Atoi(text)
			if err != nil {
				wrong = fmt.Errorf("bqueues: %s is no number, in the line %s", name, shown(strings.Join(fields, " ")))
			}
			return n
		}
		row := backends.QueueRow{
			Priority: number("PRIO"), Status: word("STATUS"), Max: word("MAX"), PerUser: word("JL/U"), PerProcessor: word("JL/P"), PerHost: word("JL/H"),
			Jobs: number("NJOBS"), Pending: number("PEND"), Running: number("RUN"), Suspended: number("SUSP"),
		}
		if wrong != nil {
			return nil, wrong
		}
		all = append(all, queue{name: fields[0], priority: row.Priority, row: row})
	}
	return all, nil
}

// addPolicies adds to queues what `bqueues -l` says of how their jobs are ordered: the
// words after SCHEDULING POLICIES:. Only administrators write there; a line of a
// description begins with blanks.
func addPolicies(queues []queue, text []byte) {
	var at *queue
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "QUEUE: "); ok {
			i := slices.IndexFunc(queues, func(q queue) bool { return q.name == strings.TrimSpace(name) })
			if at = nil; i >= 0 {
				at = &queues[i]
			}
			continue
		}
		if at == nil {
			continue
		}
		if title, words, ok := strings.Cut(line, ":"); ok && strings.EqualFold(title, "SCHEDULING POLICIES") {
			at.policies = append(at.policies, strings.Fields(words)...)
		}
	}
}

// parseAdmins reads the administrators of a lsf.cluster.NAME: the words after
// ADMINISTRATORS, or MANAGER as it once was, within ClusterAdmins
// (https://www.ibm.com/support/knowledgecenter/SSWRJV_10.1.0/lsf_admin/cluster_admins_configure_lsf.html).
// Without such a section it is root.
func parseAdmins(text string) []string {
	inside := false
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && strings.EqualFold(fields[0], "Begin"):
			inside = strings.EqualFold(fields[1], "ClusterAdmins") || strings.EqualFold(fields[1], "ClusterManager")
		case len(fields) == 2 && strings.EqualFold(fields[0], "End"):
			inside = false
		case inside:
			key, value, ok := strings.Cut(line, "=")
			key = strings.TrimSpace(key)
			if ok && (strings.EqualFold(key, "Administrators") || strings.EqualFold(key, "Manager")) {
				return strings.Fields(value)
			}
		}
	}
	return []string{"root"}
}

// parseClusterName reads the cluster's name from `lsid`.
func parseClusterName(text []byte) (string, error) {
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "My cluster name is "); ok && name != "" && !strings.ContainsAny(name, "/ ") {
			return name, nil
		}
	}
	return "", fmt.Errorf("lsid: no name of a cluster in %s", shown(string(text)))
}

// parseOddHosts reads from `bhosts -w` what is odd about hosts: noSlots have "-" as MAX,
// strange an unknown STATUS.
func parseOddHosts(text []byte) (noSlots, strange []string, err error) {
	header, lines, err := table(text, "HOST_NAME")
	if err != nil {
		return nil, nil, fmt.Errorf("bhosts: %w", err)
	}
	for _, fields := range lines {
		if at := header["MAX"]; at > 0 && at < len(fields) && fields[at] == "-" {
			noSlots = append(noSlots, fields[0])
		}
		if at := header["STATUS"]; at > 0 && at < len(fields) {
			if _, known := parseHostState(fields[at]); !known {
				strange = append(strange, fields[0]+" "+shown(fields[at]))
			}
		}
	}
	return noSlots, strange, nil
}
