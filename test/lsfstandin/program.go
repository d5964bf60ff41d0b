package lsfstandin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is one run of one of the programs.
type program struct {
	name   string
	dir    string // of the cluster
	cfg    Config
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	screen io.Reader // of bsub -I: what the job writes
}

// Main runs the program that args[0] names, and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{name: filepath.Base(args[0]), stdin: stdin, stdout: stdout, stderr: stderr}
	if p.name == "lsfstandin" {
		return p.manage(args[1:])
	}
	p.dir = os.Getenv("LSF_ENVDIR")
	cfg, err := ReadConfig(p.dir)
	if err != nil {
		return p.fail("%s: LSF_ENVDIR names no cluster: %v", p.name, err)
	}
	p.cfg = cfg
	args = args[1:]
	if len(args) > 0 && args[0] == "-V" {
		if (p.name != "bsub" && p.name != "bmod") || !cfg.Unkind.EmptyVersion {
			fmt.Fprintln(p.stdout, cfg.version())
		}
		return 0
	}
	switch p.name {
	case "bsub":
		return p.bsub(args)
	case "bmod":
		return p.bmod(args)
	case "bkill", "bstop", "bresume":
		return p.control(args)
	case "brequeue":
		return p.brequeue(args)
	case "brun":
		return p.brun(args)
	case "btop":
		return p.btop("btop", "top", args)
	case "bbot":
		return p.btop("bbot", "bottom", args)
	case "bjobs", "bhosts", "bmgroup", "bqueues", "lshosts", "lsid", "bparams":
		return p.list(args)
	}
	return p.fail("lsfstandin: it has no program %s", p.name)
}

// fail prints a line on standard error and returns the exit code of a program that fails.
func (p *program) fail(format string, args ...any) int {
	fmt.Fprintf(p.stderr, format+"\n", args...)
	return 255
}

const usageOfStandIn = "usage: lsfstandin init DIR [lava|lsf10] | serve DIR | away DIR DURATION | host DIR HOST open|close|down | stop DIR"

// manage is lsfstandin itself.
func (p *program) manage(args []string) int {
	var err error
	switch {
	case len(args) >= 2 && args[0] == "init":
		err = initialize(args[1], args[2:])
	case len(args) >= 2 && args[0] == "serve":
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer cancel()
		if len(args) > 2 { // its standard input closes when the process that needs it has ended
			go func() {
				_, _ = io.Copy(io.Discard, p.stdin)
				cancel()
			}()
		}
		err = Serve(ctx, args[1])
	case len(args) == 2 && args[0] == "sweep":
		err = sweep(p.stdin, args[1])
	case len(args) == 2 && args[0] == "keep":
		err = RunJob(args[1])
	case len(args) == 3 && args[0] == "away":
		var d time.Duration
		if d, err = time.ParseDuration(args[2]); err == nil {
			err = Away(args[1], d)
		}
	case len(args) == 4 && args[0] == "host":
		c := hostChange{Name: args[2], Closed: args[3] == "close", Down: args[3] == "down"}
		err = failed(ask(args[1], request{Input: &input{Host: &c}}))
	case len(args) == 2 && args[0] == "stop":
		err = failed(ask(args[1], request{Stop: true}))
	default:
		return p.fail(usageOfStandIn)
	}
	if err != nil {
		return p.fail("lsfstandin: %v", err)
	}
	return 0
}

// initialize makes the directory of a cluster of two hosts, whose config may be
// edited before it is served.
func initialize(dir string, flavour []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var o Options
	if len(flavour) > 0 {
		o.Flavour = Flavour(flavour[0])
	}
	if o.Flavour != "" && o.Flavour != Lava && o.Flavour != LSF10 {
		return fmt.Errorf("flavour %q: want %s or %s", o.Flavour, Lava, LSF10)
	}
	c := o.config()
	c.Second = time.Second
	return Write(dir, c, program)
}

// sweep waits until the process that ran clusters has ended, then removes the program's
// directory and the clusters that are left, which lines name with their daemons. A daemon
// ends by itself then, unless it hangs; keepers end when their cluster is gone.
func sweep(lines io.Reader, program string) error {
	var pids []int
	var dirs []string
	for {
		var pid int
		var dir string
		if _, err := fmt.Fscanln(lines, &pid, &dir); err != nil {
			break
		}
		pids, dirs = append(pids, pid), append(dirs, dir)
	}
	err := os.RemoveAll(program)
	for i, dir := range dirs {
		serves := func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[i]))
			return err == nil && strings.Contains(string(text), "serve\x00"+dir+"\x00")
		}
		for deadline := time.Now().Add(patience); serves() && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			_ = syscall.Kill(pids[i], syscall.SIGCONT)
		}
		if serves() {
			_ = syscall.Kill(pids[i], syscall.SIGKILL)
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

func failed(r reply, err error) error {
	if err == nil && r.Err != "" {
		return errors.New(r.Err)
	}
	return err
}

// ask asks the daemon; the sentence says why there is no answer.
func (p *program) ask(r request) (reply, string) {
	answer, err := ask(p.dir, r)
	switch {
	case errors.Is(err, errAway):
		fmt.Fprintln(p.stderr, p.waiting())
		return reply{}, errAway.Error()
	case err != nil:
		return reply{}, err.Error()
	}
	return answer, ""
}

// waiting returns what LSF's programs say when mbatchd does not answer. The real ones try
// again for a long time; these fail at once, as the real ones do after their tries.
func (p *program) waiting() string {
	if p.cfg.Flavour == LSF10 {
		return "LSF is down. Please wait ..." // IBM: lsf_admin, troubleshooting: common errors
	}
	return "batch system daemon not responding ... still trying"
}

// list is the listing programs.
func (p *program) list(args []string) int {
	answer, err := ask(p.dir, request{List: true})
	if err != nil {
		switch {
		case !errors.Is(err, errAway):
			return p.fail("%v", err)
		case p.name == "lsid", p.name == "lshosts":
			return p.fail("%s: LIM is down; try later", p.name)
		}
		return p.fail("%s\n%v", p.waiting(), errAway)
	}
	l := answer.Listing
	l.Now = l.Now.Local()
	stdout, stderr, rc := List(p.name, args, l, answer.User.Name)
	_, _ = p.stdout.Write(stdout)
	_, _ = p.stderr.Write(stderr)
	return rc
}

// bsub submits a job.
func (p *program) bsub(args []string) int {
	const tail = ". Job not submitted."
	known := lavaOptions(lavaBsub)
	if p.cfg.Flavour == LSF10 {
		known = lsfOptions(false)
	}
	uses, words, wrong := scan(p.cfg.Flavour, known, args)
	if wrong != "" {
		return p.fail("bsub: %s\nUsage: bsub [options] command [argument ...]", wrong)
	}
	s := submission{Umask: umask()}
	if len(words) > 0 {
		s.Command = commandLine(words)
	} else {
		text, err := io.ReadAll(p.stdin)
		embedded := scriptOptions(string(text))
		if err != nil || strings.TrimSpace(string(text)) == "" {
			return p.fail("No command is specified%s", tail)
		}
		more, _, wrong := scan(p.cfg.Flavour, known, embedded)
		if wrong != "" {
			return p.fail("bsub: %s\nUsage: bsub [options] command [argument ...]", wrong)
		}
		uses = append(more, uses...)
		s.Command, s.Script = string(text), true
	}
	w, wrong := interpret(p.cfg.Flavour, uses, false, time.Now())
	if wrong != "" {
		return p.fail("%s%s", wrong, tail)
	}
	p.defaults(&w)
	if !w.begin.IsZero() {
		fmt.Fprintln(p.stdout, "Job will be scheduled after", w.begin.Format("Mon Jan _2 15:04:05 2006"))
	}
	env, accepted := esubs(p, &w)
	if !accepted {
		return p.fail("Request aborted by esub%s", tail)
	}
	var err error
	if s.CWD, err = os.Getwd(); err != nil {
		return p.fail("%v%s", err, tail)
	}
	s.Params, s.Env, s.Truncate, s.Group, s.Profile = w.params, env, w.truncate, w.group, w.profile
	if w.join {
		screen, err := os.CreateTemp("", "bsub-screen-")
		if err != nil {
			return p.fail("%v%s", err, tail)
		}
		defer func() { _ = errors.Join(screen.Close(), os.Remove(screen.Name())) }()
		s.Screen, p.screen = screen.Name(), screen
	}
	answer, away := p.ask(request{Input: &input{Submit: &s}})
	switch {
	case away != "":
		return p.fail("%s%s", away, tail)
	case answer.Err != "":
		return p.fail("%s%s", about(answer), tail)
	}
	if os.Getenv("BSUB_QUIET") == "" {
		kind := ""
		if answer.Default {
			kind = "default "
		}
		fmt.Fprintf(p.stdout, "Job <%d> is submitted to %squeue <%s>.\n", answer.Job, kind, answer.Queue)
	}
	if w.wait || w.join {
		return p.await(answer.Job)
	}
	return 0
}

// about is a sentence with what it is about before it, as LSF has it.
func about(r reply) string {
	if r.Subject != "" {
		return r.Subject + ": " + r.Err
	}
	return r.Err
}

// defaults are those of the environment.
func (p *program) defaults(w *commandOptions) {
	if project := os.Getenv("LSB_DEFAULTPROJECT"); project != "" {
		if _, ok := w.params.get("LSB_SUB_PROJECT_NAME"); !ok {
			w.params.set("LSB_SUB_PROJECT_NAME", project, false)
		}
	}
	if w.group == "" && p.cfg.Flavour == LSF10 {
		w.group = os.Getenv("LSB_DEFAULT_JOBGROUP")
	}
	if queue := os.Getenv("LSB_DEFAULTQUEUE"); queue != "" {
		if _, ok := w.params.get("LSB_SUB_QUEUE"); !ok {
			w.params.set("LSB_SUB_QUEUE", queue, false)
		}
	}
}

// await is bsub -K and -I: until the job has ended, with its exit code. Of -I no
// more is done than that: the job's output comes here, and nothing goes to it.
func (p *program) await(id int64) int {
	fmt.Fprintln(p.stdout, "<<Waiting for dispatch ...>>")
	started := false
	for {
		answer, err := ask(p.dir, request{List: true})
		if p.screen != nil {
			_, _ = io.Copy(p.stdout, p.screen)
		}
		if err == nil {
			for _, j := range answer.Listing.Jobs {
				if j.ID != id {
					continue
				}
				if len(j.ExecHosts) > 0 && !started {
					started = true
					fmt.Fprintf(p.stdout, "<<Starting on %s>>\n", j.ExecHosts[0])
				}
				if (j.Stat == DONE || j.Stat == EXIT || j.Stat == ERROR) && !j.Gone {
					fmt.Fprintln(p.stdout, "<<Job is finished>>")
					return j.ExitCode
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// umask is the process's own.
func umask() int {
	old := syscall.Umask(0o077)
	syscall.Umask(old)
	return old
}

// scriptOptions are the words of a script's #BSUB lines.
func scriptOptions(script string) []string {
	var words []string
	for line := range strings.Lines(script) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		rest, is := strings.CutPrefix(strings.TrimSpace(rest), "BSUB")
		if !ok || !is || !strings.HasPrefix(strings.TrimSpace(rest), "-") {
			continue
		}
		words = append(words, quotedWords(rest)...)
	}
	return words
}

// quotedWords parts a line at blanks outside of quotes; a # ends it.
func quotedWords(s string) []string {
	var words []string
	var word strings.Builder
	quote, in := rune(0), false
	for _, c := range s + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == '#' && !in:
			return words
		case c == ' ' || c == '\t':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(c)
			in = true
		}
	}
	return words
}

// bmod changes a job.
func (p *program) bmod(args []string) int {
	const tail = ". Job not modified."
	known := lavaOptions(lavaBmod)
	if p.cfg.Flavour == LSF10 {
		known = lsfOptions(true)
	}
	uses, words, wrong := scan(p.cfg.Flavour, known, args)
	if wrong == "" && len(words) != 1 {
		wrong = "Job ID must be specified"
	}
	if wrong != "" {
		return p.fail("bmod: %s\nUsage: bmod [options] jobId | \"jobId[idxList]\"", wrong)
	}
	w, wrong := interpret(p.cfg.Flavour, uses, true, time.Now())
	if wrong != "" {
		return p.fail("%s%s", wrong, tail)
	}
	changed := len(w.params) > 0
	w.params.set("LSB_SUB_MODIFY", "Y", true)
	if changed {
		if _, accepted := esubs(p, &w); !accepted {
			return p.fail("Request aborted by esub%s", tail)
		}
	}
	answer, away := p.ask(request{Input: &input{Modify: &modification{Job: words[0], Params: w.params, Command: w.command}}})
	switch {
	case away != "":
		return p.fail("%s%s", away, tail)
	case answer.Err != "":
		return p.fail("%s%s", about(answer), tail)
	}
	fmt.Fprintf(p.stdout, "Parameters of job <%s> are being changed\n", words[0])
	return 0
}

// signals that bkill -s knows.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1,
	"USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "CONT": syscall.SIGCONT, "STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP,
	"WINCH": syscall.SIGWINCH, "ALRM": syscall.SIGALRM, "URG": syscall.SIGURG,
}

// choice reads the options by which bkill, bstop, bresume and brequeue choose jobs.
func (p *program) choice(args []string, more string) (a act, sent string, rc int) {
	uses, words, wrong := scan(Lava, lavaOptions(more+"J:u:q:m:g:"), args)
	if wrong == "" && len(words) == 0 {
		wrong = "Job ID or one of -m, -u, -q and -J must be specified"
		for _, u := range uses {
			if strings.Contains("Jqug", u.name) {
				wrong, words = "", []string{"0"}
			}
		}
	}
	if wrong != "" {
		return a, "", p.fail("%s: %s\nUsage: %s [options] jobId | \"jobId[idxList]\" ...", p.name, wrong, p.name)
	}
	a.Jobs = words
	for _, u := range uses {
		switch u.name {
		case "J":
			a.Name = u.value
		case "q":
			a.Queue = u.value
		case "u":
			a.All = u.value == "all"
		case "H":
			a.Hold = true
		case "r":
			a.Now = p.name == "bkill"
		case "e":
			a.Exited = p.name == "brequeue"
		case "d":
			a.Done = p.name == "brequeue"
		case "s":
			n, err := strconv.Atoi(u.value)
			if err != nil {
				n = int(signals[strings.TrimPrefix(u.value, "SIG")])
			}
			if n <= 0 || n > 64 {
				return a, "", p.fail("%s: Illegal signal value", u.value)
			}
			a.Signal, sent = n, u.value
		}
	}
	return a, sent, 0
}

// control is bkill, bstop and bresume.
func (p *program) control(args []string) int {
	more := map[string]string{"bkill": "h|V|s:r|b|d|", "bstop": "h|V|a|d|", "bresume": "h|V|d|"}[p.name]
	a, _, rc := p.choice(args, more)
	if rc != 0 {
		return rc
	}
	a.Verb = map[string]verb{"bkill": verbKill, "bstop": verbStop, "bresume": verbResume}[p.name]
	done := map[string]string{"bkill": "terminated", "bstop": "stopped", "bresume": "resumed"}[p.name]
	if a.Signal != 0 {
		done = "signaled"
	}
	return p.act(a, "Job <%s>: %s", "Job <%s> is being "+done)
}

// brequeue puts jobs back into the queue.
func (p *program) brequeue(args []string) int {
	a, _, rc := p.choice(args, "h|V|H|a|d|e|r|p|")
	if rc != 0 {
		return rc
	}
	a.Verb = verbRequeue
	return p.act(a, "Job <%s> : %s", "Job <%s> is being requeued ")
}

// act asks for an act and prints what became of each job.
func (p *program) act(a act, bad, good string) int {
	answer, away := p.ask(request{Input: &input{Act: &a}})
	if away != "" {
		answer.Results = nil
		for _, job := range a.Jobs {
			answer.Results = append(answer.Results, result{Job: job, Err: away})
		}
	}
	rc := 0
	for _, r := range answer.Results {
		switch {
		case r.Err == errJobID:
			rc = p.fail("%s: %s", r.Job, r.Err)
		case r.Err != "":
			rc = p.fail(bad, r.Job, r.Err)
		default:
			fmt.Fprintf(p.stdout, good+"\n", r.Job)
		}
	}
	return rc
}

// brun forces a job to run.
func (p *program) brun(args []string) int {
	uses, words, wrong := scan(Lava, lavaOptions("h|V|b|c|f|m:"), args)
	a := act{Verb: verbRun, Jobs: words}
	for _, u := range uses {
		if u.name == "m" {
			a.Hosts = u.value
		}
	}
	if wrong == "" && (len(words) != 1 || a.Hosts == "") {
		wrong = "a job ID and -m must be specified"
	}
	if wrong != "" {
		return p.fail("brun: %s\nUsage: brun [-h] [-V] [-b] [-f] -m \"host_name ...\" jobId | \"jobId[index]\"", wrong)
	}
	return p.act(a, "Failed to run the job%.0s: %s", "Job <%s> is being forced to run.")
}

// btop is btop and bbot: it says that a job has moved. On lava it has not, where others rank above it.
func (p *program) btop(name, from string, args []string) int {
	_, words, wrong := scan(Lava, lavaOptions("h|V|u:"), args)
	if wrong != "" || len(words) == 0 || len(words) > 2 {
		return p.fail("Usage: %s [-h] [-V] jobId | \"jobId[idxList]\" [position]", name)
	}
	position := "1"
	if len(words) == 2 {
		position = words[1]
	}
	a := act{Verb: verbTop, Jobs: words[:1]}
	answer, away := p.ask(request{Input: &input{Act: &a}})
	if away != "" {
		return p.fail("%s: %s", words[0], away)
	}
	if bad := answer.Results[0].Err; bad != "" {
		return p.fail("%s: %s", words[0], bad)
	}
	fmt.Fprintf(p.stderr, "Job <%s> has been moved to position %s from %s.\n", words[0], position, from)
	return 0
}
