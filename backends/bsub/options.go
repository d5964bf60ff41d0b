// Package bsub is LSF's command-line language: the grammar of bsub's options, of
// job names with index lists and of job IDs, and the lines and tables that LSF's
// commands print. What a word means on a command line is decided here and
// nowhere else; nothing is run, read or asked.
package bsub

import "github.com/allotment-hpc/allotment/backends"

// Option is one option of bsub, LSF 10.1.
type Option struct {
	Name    string // with its dash
	Arg     string // what its argument is; "" if it takes none
	Example string // a valid argument
	backends.OptionMeaning

	many  bool   // every occurrence counts, not only the last
	group string // options that replace each other; "": the name itself
	set   func(*builder, string) error
}

// setter is what an honoured option does to a job, with its argument.
type setter func(*builder, string) error

func honoured(name, arg, example, note string, set setter) Option {
	return Option{Name: name, Arg: arg, Example: example, OptionMeaning: backends.OptionMeaning{Note: note}, set: set}
}

func ignored(name, arg, example, note string) Option {
	return Option{Name: name, Arg: arg, Example: example, OptionMeaning: backends.OptionMeaning{Treatment: backends.Ignored, Note: note}}
}

func refused(name, arg, example, note string) Option {
	return Option{Name: name, Arg: arg, Example: example, OptionMeaning: backends.OptionMeaning{Treatment: backends.Refused, Note: note}}
}

// OptionsOn is Options on a queue that treats some of them, by name, in a way of
// its own (see backends.Abilities).
func OptionsOn(differ map[string]backends.OptionMeaning) []Option {
	all := Options()
	for i := range all {
		all[i].OptionMeaning = all[i].meaning(differ)
	}
	return all
}

// meaning is what the option means on a queue that treats some in a way of its own.
func (o *Option) meaning(differ map[string]backends.OptionMeaning) backends.OptionMeaning {
	if own, ok := differ[o.Name]; ok {
		return own
	}
	return o.OptionMeaning
}

// Options lists every option of LSF 10.1's bsub, in the order of its manual, and
// what becomes of it on the bundled queue; then those that bsub has not.
func Options() []Option {
	const (
		limit  = "the limit is not enforced"
		csm    = "there is no Cluster Systems Manager here"
		format = "write the options on the command line or as #BSUB lines"
		ssh    = "no SSH is needed; use -I, -Ip or -Is"
		x11    = "X11 is not forwarded"
	)
	all := []Option{
		ignored("-a", "ESUB", "lint", "the site's submit filter runs, and no other"),
		refused("-alloc_flags", "FLAGS", "f", csm),
		ignored("-app", "PROFILE", "p", "there are no application profiles"),
		ignored("-ar", "", "", "jobs are not resized"),
		honoured("-B", "", "", "a mail when the job begins", setMail(func(m *backends.Mail) { m.Begin = true })),
		honoured("-b", "[[[YEAR:]MONTH:]DAY:]HH:MM", "23:30", "not started before this time; without a year, the next such time", setBegin),
		ignored("-C", "SIZE", "0", limit),
		ignored("-c", "[HH:]MM", "10", limit),
		refused("-clusters", "NAMES", "all", "there is one cluster"),
		refused("-cn_cu", "REQ", "x", csm),
		refused("-cn_mem", "SIZE", "1", csm),
		refused("-core_isolation", "N", "1", csm),
		refused("-csm", "y|n", "y", csm),
		honoured("-cwd", "DIR", "sub", "the job's working directory; it must exist", setDir),
		ignored("-D", "SIZE", "100", limit),
		refused("-data", "REQ", "x", "there is no data manager"),
		ignored("-datachk", "", "", "there is no data manager"),
		refused("-datagrp", "GROUP", "g", "there is no data manager"),
		honoured("-E", "COMMAND", "true", "a line of shell that is run before the job, as the job; unless it ends with 0 the job waits and is tried again, five times at most; with 99 the job ends at once", setExec((*builder).preExec)),
		honoured("-Ep", "COMMAND", "true", "a line of shell that is run after each run of the job, as the job, with its wait status in LSB_JOBEXIT_STAT, and LSB_JOBPEND if it goes back into the queue; 10 minutes at most, 30 s after a kill", setExec((*builder).postExec)),
		honoured("-e", "FILE", "err.%J", "standard error, appended to; %J and %I as in -o (default: with standard output)", setFile((*builder).stderr, false)),
		honoured("-env", "LIST", "all,~DISPLAY,A=1", "the job's environment: none, or a list of all, NAME, ~NAME (without it), NAME=value", setEnv),
		honoured("-eo", "FILE", "err", "as -e, overwritten", setFile((*builder).stderr, true)),
		ignored("-eptl", "[HH:]MM", "10", "jobs wait as long as they must"),
		ignored("-ext", "OPTIONS", "x", "there are no external schedulers"),
		ignored("-extsched", "OPTIONS", "x", "there are no external schedulers"),
		ignored("-F", "SIZE", "100", limit),
		refused("-f", "FILES", "a > b", "files are not copied; use paths that the job can reach"),
		ignored("-freq", "FREQUENCY", "2GHz", "clock rates are not set"),
		ignored("-G", "GROUP", "g", "the project decides, see -P"),
		honoured("-g", "JOBGROUP", "/g", "job group, a path such as /chipA/nightly, of at most 512 bytes and 16 names; ajobs -g and akill -g choose its jobs; default: LSB_DEFAULT_JOBGROUP", setGroup),
		honoured("-gpu", "-|REQ", "num=1:mode=shared:j_exclusive=yes", "GPUs of each of the job's hosts, num=N or num=N/task, where hosts have some (miniq.nodes); mode=shared, j_exclusive=yes or no, mps=no, aff=no and block=no may stand beside it, and anything else is refused", setGPU),
		honoured("-H", "", "", "held until aresume", setHold),
		ignored("-hl", "", "", limit),
		refused("-hostfile", "FILE", "hosts", "name the hosts with -m"),
		honoured("-I", "", "", "runs the job at this terminal: keys, size and signals reach it; exits with its exit code, 126 if it was killed before it started; what is no terminal here is none for the job", setScreen(Joined)),
		honoured("-Ip", "", "", "as -I; the job's output is always a terminal", setScreen(JoinedByPTY)),
		refused("-IS", "", "", ssh),
		refused("-ISp", "", "", ssh),
		refused("-ISs", "", "", ssh),
		honoured("-Is", "", "", "as -Ip: for shells", setScreen(JoinedByPTY)),
		refused("-IX", "", "", x11),
		honoured("-i", "FILE", "in.%I", "standard input; %J and %I as in -o", setFile((*builder).stdin, false)),
		refused("-is", "FILE", "in", "files are not copied; use -i"),
		honoured("-J", "NAME[INDEX_LIST]%LIMIT", "sim[1-10:3,20]%2", "name, and the indices of a job array", setName),
		honoured("-Jd", "TEXT", "a text", "description", setDescription),
		refused("-jsdl", "FILE", "f", format),
		refused("-jsdl_strict", "FILE", "f", format),
		refused("-jsm", "y|n|d", "y", csm),
		refused("-json", "FILE", "f", format),
		honoured("-K", "", "", "waits for the job and exits with its exit code; 126 if it was killed before it started", setWait),
		honoured("-k", "DIR [init=MINUTES] [MINUTES] [method=NAME]", "d init=5 10 method=x", "the job saves itself every MINUTES, as if ALLOTMENT_CHECKPOINT had every:MINUTESm; the rest is read and not used: no checkpoint is made for the job", setCheckpoint),
		ignored("-L", "SHELL", "/bin/bash", "no login shell is run; the job has its submitter's environment"),
		ignored("-Lp", "PROJECT", "p", "licences are not scheduled"),
		refused("-ln_mem", "SIZE", "1", csm),
		refused("-ln_slots", "N", "1", csm),
		honoured("-M", "SIZE", "16G", "memory that the whole job needs, and its limit; units K M G T P E; a plain number is MB (KB in LSF)", setMemory),
		honoured("-m", "HOSTS", "h1 h2", "run on one of these hosts; preferences (h1+2) are ignored with a warning", setHosts),
		ignored("-mig", "MINUTES", "10", "jobs are not migrated"),
		honoured("-N", "", "", "a mail when the job has ended, and when it is requeued", setMail(func(m *backends.Mail) { m.End = true })),
		honoured("-Ne", "", "", "a mail when the job has failed", setMail(func(m *backends.Mail) { m.Failed = true })),
		honoured("-n", "MIN[,MAX]", "4", "job slots; a range takes its minimum, with a warning", setSlots),
		refused("-network", "REQ", "x", "networks are not scheduled"),
		refused("-nnodes", "N", "1", csm),
		ignored("-notify", "EVENTS", "done", "use -B, -N and -Ne, or ALLOTMENT_NOTIFY"),
		honoured("-o", "FILE", "out.%J", "standard output, appended to; %J is the job's ID, %I its index; a directory ends in / (default: %J.out, in an array %J.%I.out)", setFile((*builder).stdout, false)),
		honoured("-oo", "FILE", "out", "as -o, overwritten", setFile((*builder).stdout, true)),
		refused("-outdir", "DIR", "d", "name the files with -o and -e"),
		honoured("-P", "PROJECT[:STEP]", "chipA:synthesis", "project, and its step", setProject),
		ignored("-p", "N", "10", limit),
		honoured("-pack", "FILE", "jobs", "each line of FILE (-: standard input) has the options and the command of one job; other options hold for all of them", setBatch),
		ignored("-ptl", "[HH:]MM", "10", "jobs wait as long as they must"),
		ignored("-Q", "CODES", "1", "jobs are not requeued for their exit code"),
		honoured("-q", "QUEUE", "normal", "queue; the first of a list, with a warning", setQueue),
		honoured("-R", "REQ", "rusage[mem=4G] span[hosts=1]", "rusage[mem=], span[hosts=1], span[hosts=-1] and span[ptile=N]; for what its hosts have rusage[gpu=1], select[] with names and comparisons joined by &&, || and !, and same[rack]; order[], cu[], affinity[] and load (select[mem>1]) are ignored with a warning", setResources),
		ignored("-rcacct", "NAME", "x", "there is no resource connector"),
		honoured("-r", "", "", "run again if its host or keeper is lost", setRerunnable),
		honoured("-rn", "", "", "never run again, and never requeued for another job", setNoRequeue),
		ignored("-rnc", "COMMAND", "true", "jobs are not resized"),
		ignored("-S", "SIZE", "100", limit),
		ignored("-s", "SIGNAL", "TERM", "queues have no run windows"),
		ignored("-sla", "NAME", "x", "the project's allocation decides, see -P"),
		ignored("-smt", "N", "2", csm),
		honoured("-sp", "PRIORITY", "10", "order among one's own jobs, from 1 to 20 (default)", setPriority),
		refused("-stage", "REQ", "x", csm),
		refused("-step_cgroup", "y|n", "y", csm),
		ignored("-T", "N", "10", limit),
		refused("-t", "[[[YEAR:]MONTH:]DAY:]HH:MM", "23:30", "give a run limit with -W"),
		ignored("-ti", "", "", "a job whose dependency can't come true waits until it is killed"),
		ignored("-tty", "", "", "there is no terminal to write to"),
		refused("-U", "RESERVATION", "r", "there are no advance reservations"),
		honoured("-u", "ADDRESS", "me@example.org", "where the mails of -B, -N and -Ne go (default: to the user); alone it is -N, too", setMailTo),
		ignored("-ul", "", "", limit),
		ignored("-v", "SIZE", "100", limit),
		honoured("-W", "[HH:]MM[/HOST]", "1:30", "run limit, wall time; the host is ignored with a warning", setRunLimit),
		ignored("-We", "[HH:]MM[/HOST]", "1:30", "estimates are not used"),
		honoured("-w", "EXPRESSION", "done(12)", "not started before other jobs are in these states", setAfter),
		ignored("-wa", "ACTION", "TERM", "no warnings are sent"),
		ignored("-wt", "[HH:]MM", "10", "no warnings are sent"),
		refused("-XF", "", "", x11),
		honoured("-x", "", "", "no other job on its hosts", setExclusive),
		refused("-yaml", "FILE", "f", format),
		ignored("-Zs", "", "", "the job runs the file as it is when it starts"),
		honoured(minOption, "LIST", "cpu=2,disk=300M", "what the whole job needs at least in each second, any of cpu=2 (cores), disk=300M (bytes read and written) and net=100M (bytes sent); as ALLOTMENT_MIN in the environment; it counts within a guarantee, up to the site's limits.most", setMinimum),
		honoured(deadlineOption, "TIME", "07:00", "when the job should have ended: 07:00 (the next such time), 2026-12-01T07:00 (both by the clock here), 2026-12-01T07:00:00Z, or +3h or +90m from now; as ALLOTMENT_DEADLINE in the environment; it counts within a guarantee, up to the site's limits.most", setDeadline),
	}
	for i := range all {
		o := &all[i]
		switch o.Name {
		case "-e", "-eo":
			o.group = "-e"
		case "-o", "-oo":
			o.group = "-o"
		case "-I", "-Ip", "-Is":
			o.group = "-I"
		case "-r", "-rn":
			o.group = "-r"
		case "-R", "-a", "-f":
			o.many = true
		}
		if o.group == "" {
			o.group = o.Name
		}
	}
	return all
}
