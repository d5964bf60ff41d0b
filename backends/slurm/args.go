package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// launcher is the batch script of a job that has a command: its argv are the
// script's arguments, which no shell reads. The first is the umask.
const launcher = "#!/bin/sh\n" + exports + "umask \"$1\" && shift && exec \"$@\"\n"

// exports sets the variables that runs have on every queue, the number of requeues
// among them (R23).
const exports = "LSB_JOBID=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID} LSB_JOBINDEX=${SLURM_ARRAY_TASK_ID:-0} LSB_QUEUE=$SLURM_JOB_PARTITION" +
	" ALLOTMENT_REQUEUES=${SLURM_RESTART_COUNT:-0}" +
	" ALLOTMENT_JOBID=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+[$SLURM_ARRAY_TASK_ID]}; " +
	"export LSB_JOBID LSB_JOBINDEX LSB_QUEUE ALLOTMENT_JOBID ALLOTMENT_REQUEUES; " + restarted

// restarted sets ALLOTMENT_RESTARTED in a run that goes on from a checkpoint (R33): nothing in
// the environment of a queued job can be changed (22.05), so a run after a requeue asks for its job's record.
const restarted = "unset " + backends.RestartedVariable + "; test \"${SLURM_RESTART_COUNT:-0}\" = 0 || " +
	"case $(scontrol show job \"${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}\" 2>/dev/null) in " +
	"*\";" + keySaved + "=$SLURM_RESTART_COUNT;\"*) export " + backends.RestartedVariable + "=1;; esac; "

// submission is how a job is handed to sbatch.
type submission struct {
	argv   []string // sbatch, its options and the launcher's arguments
	script []byte   // on its stdin
	env    []byte   // of the job: KEY=value, each with a NUL behind; for --export-file
}

var errUnableArray = errors.New("arrays of Slurm have elements from 0 to 4194303")

// newSubmission turns a Spec into sbatch's terms, or says what of it Slurm can't do.
// others are the hosts that a job that asks for one of several must not run on.
func newSubmission(s *backends.Spec, from ProjectFrom, hosts []string) (*submission, error) {
	unable := func(what string) (*submission, error) {
		return nil, fmt.Errorf("%w: %s", backends.ErrUnable, what)
	}
	switch {
	case s.Interactive || s.Terminal != "":
		return unable("interactive jobs are srun's on Slurm")
	case s.Priority.Level() == backends.LevelLow && s.Queue == "":
		return unable("Slurm has no lowest priority but a partition of it")
	case !s.HeldUntil.IsZero():
		return unable("the engine's hold is given by the submit filter, which slurmctld itself runs")
	case s.Slots < 1 && s.Slots != 0:
		return unable(fmt.Sprintf("%d slots", s.Slots))
	case len(s.Command) == 0 && len(s.Script) == 0:
		return nil, errors.New("nothing to run")
	}
	o := arguments{argv: []string{"sbatch", "--parsable"}}
	// Slurm takes no NUL, and shows other control characters to users who list jobs.
	for _, text := range append([]string{s.Name, s.Project, s.Queue, s.Description, s.Dir, s.Stdin, s.Stdout, s.Stderr, s.Mail.To}, s.Hosts...) {
		if strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("a NUL in %q", text)
		}
	}
	jobName := s.Name
	if jobName == "" && len(s.Command) > 0 {
		jobName = path.Base(s.Command[0])
	}
	if jobName == "" {
		jobName = "sbatch"
	}
	o.add("job-name", jobName)
	o.text("partition", s.Queue)
	step := o.project(s, from)
	o.size(s)
	if err := o.resources(s); err != nil {
		return nil, err
	}
	if err := o.addHosts(s, hosts); err != nil {
		return nil, err
	}
	if err := o.files(s); err != nil {
		return nil, err
	}
	if s.RunLimit > 0 {
		o.add("time", bsub.FormatMinutes(s.RunLimit))
	}
	if !s.BeginTime.IsZero() {
		o.add("begin", formatTime(s.BeginTime))
	}
	o.flag("hold", s.Hold)
	o.flag("no-requeue", s.NoRequeue)
	o.flag("requeue", !s.NoRequeue)
	o.flag("exclusive", s.Exclusive)
	o.mail(s.Mail)
	if s.After != "" {
		after, err := dependency(s.After)
		if err != nil {
			return nil, err
		}
		o.add("dependency", after)
	}
	if s.Array != nil {
		if err := o.array(s.Array); err != nil {
			return nil, err
		}
	}
	sub := submission{env: environment(s.Env, step)}
	if len(s.Script) > 0 {
		text, err := script(s.Script, s.Umask)
		if err != nil {
			return nil, err
		}
		sub.script = text
		sub.argv = o.argv
		return &sub, nil
	}
	sub.script = []byte(launcher)
	sub.argv = append(append(o.argv, "/dev/stdin", fmt.Sprintf("%04o", s.Umask)), s.Command...)
	return &sub, nil
}

type arguments struct{ argv []string }

func (o *arguments) add(key, value string) { o.argv = append(o.argv, "--"+key+"="+value) }

func (o *arguments) text(key, value string) {
	if value != "" {
		o.add(key, value)
	}
}

func (o *arguments) flag(key string, on bool) {
	if on {
		o.argv = append(o.argv, "--"+key)
	}
}

// project adds the job's project in the field where the cluster looks for it. The step
// goes into the job's environment: accounts are names that the cluster may have to
// know.
func (o *arguments) project(s *backends.Spec, from ProjectFrom) (step string) {
	comment := s.Description
	project, step := backends.SplitProject(s.Project)
	switch from {
	case FromAccount:
		o.text("account", project)
	case FromWCKey:
		o.text("wckey", project)
	case FromComment:
		_, text, _ := backends.ParseTag(s.Description)
		tag := strings.TrimRight(strings.TrimSuffix(s.Description, text), " ")
		comment = strings.TrimSpace(strings.Join([]string{tag, project, text}, " "))
	}
	o.text("comment", comment)
	return step
}

// mail asks for Slurm's own mails. A job that failed has one mail: FAIL's, or END's if FAIL is
// not asked for.
func (o *arguments) mail(m backends.Mail) {
	var events []string
	if m.Begin {
		events = append(events, "BEGIN")
	}
	if m.End {
		events = append(events, "END", "REQUEUE")
	}
	if m.End || m.Failed {
		events = append(events, "FAIL")
	}
	o.text("mail-type", strings.Join(events, ","))
	if len(events) > 0 {
		o.text("mail-user", m.To)
	}
}

// size asks for slots and memory. Slurm ends a job that uses more memory than it asks
// for: a limit is asked for, too.
func (o *arguments) size(s *backends.Spec) {
	slots := max(s.Slots, 1)
	if s.OneHost || slots == 1 || s.PerHost >= slots {
		o.add("nodes", "1-1")
		o.add("ntasks", "1")
		o.add("cpus-per-task", strconv.Itoa(slots))
	} else {
		o.add("ntasks", strconv.Itoa(slots))
	}
	if per := s.PerHost; per > 0 && !s.OneHost && per < slots { // with --ntasks the most of a node (sbatch(1))
		nodes := strconv.Itoa((slots + per - 1) / per)
		o.add("nodes", nodes+"-"+nodes)
		o.add("ntasks-per-node", strconv.Itoa(per))
	}
	memory := max(s.Memory, s.MemoryLimit)
	const mega = 1 << 20
	switch {
	case memory <= 0:
	case s.OneHost || slots == 1 || s.PerHost >= slots:
		o.add("mem", strconv.FormatInt((memory+mega-1)/mega, 10)+"M")
	default:
		each := int64(mega) * int64(slots)
		o.add("mem-per-cpu", strconv.FormatInt((memory+each-1)/each, 10)+"M")
	}
}

// resources asks for GPUs and the like, of which a job gets some of each node, and for features.
// --constraint has a grammar of its own, for which these names mean nothing.
func (o *arguments) resources(s *backends.Spec) error {
	unable := func(what string) error { return fmt.Errorf("%w: %s", backends.ErrUnable, what) }
	var gres []string
	for _, a := range s.Needs {
		if !backends.IsResourceName(a.Name) || a.Count < 1 {
			return unable(fmt.Sprintf("rusage[%q=%d]", a.Name, a.Count))
		}
		gres = append(gres, a.Name+":"+strconv.Itoa(a.Count))
	}
	o.text("gres", strings.Join(gres, ","))
	if len(s.Same) > 0 {
		return unable("same[]: Slurm's features have no values: use sbatch --constraint='[a|b]' for nodes that have the same of some features, or --switches=1")
	}
	constraint := strings.Join(s.Features, "&")
	if s.Select != "" {
		read, err := backends.ParseSelection(s.Select)
		if err != nil {
			return fmt.Errorf("select[]: %w", err)
		}
		either := read.Any()
		if either == nil || len(s.Features) > 0 {
			return unable(fmt.Sprintf("select[%s]: Slurm takes the names of features, all joined by && or all by ||; choose nodes by their names with -m", s.Select))
		}
		constraint = strings.Join(either, "|")
	}
	for _, name := range s.Features {
		if !backends.IsResourceName(name) {
			return unable(fmt.Sprintf("feature %q", name))
		}
	}
	o.text("constraint", constraint)
	return nil
}

// addHosts names hosts. Slurm gives a job all hosts of its list, so that one of several is
// asked for by excluding the others.
func (o *arguments) addHosts(s *backends.Spec, hosts []string) error {
	for _, h := range s.Hosts {
		if !slices.Contains(hosts, h) {
			return fmt.Errorf("host %q: no such host", h)
		}
	}
	if len(s.Hosts) == 1 {
		o.add("nodelist", s.Hosts[0])
		return nil
	}
	if others := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return slices.Contains(s.Hosts, h) }); len(s.Hosts) > 0 && len(others) > 0 {
		o.add("exclude", strings.Join(others, ","))
	}
	return nil
}

// files names the job's files. %J and %I become Slurm's %A and %a.
func (o *arguments) files(s *backends.Spec) error {
	o.text("chdir", s.Dir)
	index := "%a"
	if s.Array == nil {
		index = "0" // Slurm would write 4294967294
	}
	for _, f := range []struct{ key, file string }{{"input", s.Stdin}, {"output", s.Output()}, {"error", s.Stderr}} {
		name, err := fileName(f.file, index)
		if err != nil {
			return err
		}
		if name == "" && f.key == "input" {
			name = "/dev/null"
		}
		o.text(f.key, name)
	}
	truncates := s.Truncate.Stdout
	switch {
	case s.Stderr == "" || s.Truncate.Stderr == s.Truncate.Stdout || s.Output() == s.Stderr:
	case s.Stdout == "": // the default output file is new
		truncates = s.Truncate.Stderr
	default:
		return fmt.Errorf("%w: Slurm overwrites both output and error file or appends to both", backends.ErrUnable)
	}
	mode := "append"
	if truncates {
		mode = "truncate"
	}
	o.add("open-mode", mode)
	return nil
}

func fileName(file, index string) (string, error) {
	if strings.Contains(file, `\`) {
		return "", fmt.Errorf("%w: Slurm takes no backslash in the name of a job's file: %q", backends.ErrUnable, file)
	}
	var b strings.Builder
	for i := 0; i < len(file); i++ {
		switch {
		case file[i] != '%':
			b.WriteByte(file[i])
		case strings.HasPrefix(file[i:], "%J"):
			b.WriteString("%A")
			i++
		case strings.HasPrefix(file[i:], "%I"):
			b.WriteString(index)
			i++
		default:
			b.WriteString("%%")
		}
	}
	return b.String(), nil
}

// fileFacts are what the patterns in a file's name stand for.
type fileFacts struct {
	own              string // number of the job, of an element of an array its own
	id               backends.ID
	name, user, host string
}

// expandFile replaces the patterns of a file's name as Slurm does for a batch script (sbatch(1),
// "filename pattern"): a number in them is the least number of digits. A name with a backslash
// has none.
func expandFile(name string, f fileFacts) string {
	if strings.Contains(name, `\`) {
		return strings.ReplaceAll(name, `\`, "")
	}
	const mostDigits = 10
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		at, width := i+1, 0
		for at < len(name) && name[at] >= '0' && name[at] <= '9' && at-i <= 2 {
			width = min(width*10+int(name[at]-'0'), mostDigits)
			at++
		}
		if at == len(name) {
			b.WriteString(name[i:])
			break
		}
		number := func(text string) { b.WriteString(strings.Repeat("0", max(width-len(text), 0)) + text) }
		switch name[at] {
		case '%':
			b.WriteByte('%')
		case 'A':
			number(strconv.FormatInt(f.id.Job, 10))
		case 'a':
			number(strconv.Itoa(max(f.id.Index, 0)))
		case 'j':
			number(f.own)
		case 'n', 't', 's':
			number("0")
		case 'J':
			b.WriteString(f.own + ".batch")
		case 'N':
			b.WriteString(f.host)
		case 'u':
			b.WriteString(f.user)
		case 'x':
			b.WriteString(f.name)
		default:
			b.WriteString(name[i : at+1])
		}
		i = at
	}
	return b.String()
}

func (o *arguments) array(a *backends.Array) error {
	const last = 4194303
	if len(a.Indices) == 0 || a.Indices[0] < 0 || a.Indices[len(a.Indices)-1] > last {
		return fmt.Errorf("%w: %w", backends.ErrUnable, errUnableArray)
	}
	text := bsub.FormatIndices(a.Indices)
	if a.Limit > 0 {
		text += "%" + strconv.Itoa(a.Limit)
	}
	o.add("array", text)
	return nil
}

// stepVariable is where the submit filter finds a job's step.
const stepVariable = "ALLOTMENT_STEP"

// environment is the job's, for sbatch's --export-file. A submission from within a job
// does not inherit that job's step.
func environment(env []string, step string) []byte {
	var b bytes.Buffer
	put := func(variable string) {
		b.WriteString(variable)
		b.WriteByte(0)
	}
	for _, variable := range env {
		if strings.Contains(variable, "=") && !strings.ContainsRune(variable, 0) && !strings.HasPrefix(variable, stepVariable+"=") {
			put(variable)
		}
	}
	if step != "" {
		put(stepVariable + "=" + step)
	}
	return b.Bytes()
}

// script is a user's script with a line for exports and umask behind its #! line, if a
// shell of the sh family runs it. Others find Slurm's own variables in their
// environment. sbatch obeys #SBATCH and #PBS lines up to the first line that is no
// comment, which is that line. In other languages that may be any line: they are
// refused.
func script(text []byte, umask uint32) ([]byte, error) {
	line := fmt.Appendf(nil, "%sumask %04o\n", exports, umask)
	if !bytes.HasPrefix(text, []byte("#!")) {
		return slices.Concat([]byte("#!/bin/sh\n"), line, text), nil
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(strings.TrimPrefix(string(first), "#!"))
	if len(words) > 1 && path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) == 0 || !slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, path.Base(words[0])) {
		for l := range bytes.Lines(text) {
			if bytes.HasPrefix(l, []byte("#SBATCH")) || bytes.HasPrefix(l, []byte("#PBS")) {
				return nil, fmt.Errorf("%w: Slurm would obey the script's #SBATCH and #PBS lines: use sbatch, or take them out", backends.ErrUnable)
			}
		}
		return text, nil
	}
	return slices.Concat(first, []byte("\n"), line, rest), nil
}

// dependency turns LSF's grammar into Slurm's, as far as it goes: conditions on
// job numbers, all joined by && or all by ||.
func dependency(s string) (string, error) {
	unable := fmt.Errorf("%w: Slurm takes done, exit, ended and started of job numbers, joined by && or by ||: %q", backends.ErrUnable, s)
	and, or := strings.Contains(s, "&&"), strings.Contains(s, "||")
	separator, joint := "&&", ","
	if or {
		separator, joint = "||", "?"
	}
	if and && or {
		return "", unable
	}
	var parts []string
	for part := range strings.SplitSeq(s, separator) {
		part = strings.TrimSpace(part)
		verb, rest, called := strings.Cut(part, "(")
		arg, closed := strings.CutSuffix(rest, ")")
		if !called {
			verb, arg, closed = "done", part, true
		}
		kind, ok := map[string]string{"done": "afterok", "exit": "afternotok", "ended": "afterany", "started": "after"}[strings.TrimSpace(verb)]
		id, err := backends.ParseID(strings.Trim(strings.TrimSpace(arg), `"'`))
		if !ok || !closed || err != nil {
			return "", unable
		}
		parts = append(parts, kind+":"+name(id))
	}
	return strings.Join(parts, joint), nil
}

// parseSubmitted reads what sbatch --parsable prints: ID, or ID;cluster.
func parseSubmitted(out []byte) (backends.ID, error) {
	text := strings.TrimSpace(string(out))
	number, _, _ := strings.Cut(text, ";")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxID {
		return backends.ID{}, fmt.Errorf("sbatch: no job number in %s", shown(text))
	}
	return backends.ID{Job: n}, nil
}
