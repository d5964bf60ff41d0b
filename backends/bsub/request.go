package bsub

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/mail"
)

// Context is what a submission takes from the process that asks for it.
type Context struct {
	Now   time.Time // in the user's zone
	Dir   string    // absolute
	Env   []string  // KEY=value
	Umask uint32
	// Options are those that the queue treats in a way of its own, by name.
	Options map[string]backends.OptionMeaning
	// QueuePriorities: -sp takes what the queue itself does.
	QueuePriorities bool
	// Resources: the queue heeds Spec.Needs, Features, Select and Same.
	Resources bool
}

// Request is a submission as its user wrote it.
type Request struct {
	Spec     backends.Spec
	Warnings []string // one line each, safe to print
	Wait     bool     // -K: until it has ended
	Screen   Screen
}

// Screen says whether a job is joined to its owner's terminal.
type Screen uint8

// The ways of joining.
const (
	NoScreen    Screen = iota
	Joined             // -I: with a pseudo-terminal for those of its standard files that are a terminal
	JoinedByPTY        // -Ip, -Is: with one for its output in any case
)

// maxName is LSF's own limit on names and command lines.
const maxName = 4094

// Request makes the submission. Where the line has no command, script is the job:
// its #BSUB lines are options too, and those of the command line win.
//
// A command of one word that holds blanks or shell characters is its user's own
// line of shell and runs as /bin/sh -c LINE. Several words are run as they are,
// argument by argument. (LSF joins them and has a shell read the result, so that
// quoted arguments fall apart.)
func (l Line) Request(script []byte, c Context) (Request, error) {
	b := builder{Context: c, slots: 1}
	b.spec = backends.Spec{Dir: c.Dir, Env: slices.Clone(c.Env), Umask: c.Umask}
	if len(l.Command) == 0 {
		embedded, err := ScanScript(script)
		if err != nil {
			return Request{}, err
		}
		l.addDefaults(embedded)
		b.spec.Script = script
	} else if err := b.command(l.Command); err != nil {
		return Request{}, err
	}
	for _, note := range l.warnings {
		b.warn("%s", note)
	}
	for _, u := range effective(l.uses) {
		if err := b.apply(u); err != nil {
			return Request{}, err
		}
	}
	if err := b.defaultGroup(); err != nil {
		return Request{}, err
	}
	if err := b.finish(); err != nil {
		return Request{}, err
	}
	return Request{Spec: b.spec, Warnings: b.warnings, Wait: b.wait, Screen: b.screen}, nil
}

// builder gathers a Spec from options.
type builder struct {
	Context
	spec          backends.Spec
	warnings      []string
	slots         int
	limit         int64 // -M
	queuePriority int64 // -sp, in the queue's own count; 0: none
	usage         usage // -R
	gpus          int   // -gpu; 0: none
	gpusPerTask   bool
	wait          bool // -K
	screen        Screen
	saves         time.Duration // -k: the job saves itself so often; 0: not said
	minimum       backends.Minimum
	deadline      time.Time
}

func (b *builder) warn(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !slices.Contains(b.warnings, line) {
		b.warnings = append(b.warnings, line)
	}
}

// apply carries one option out, or says why not.
func (b *builder) apply(u use) error {
	honoured, warning, err := u.resolve(b.Options)
	switch {
	case err != nil:
		return err
	case !honoured:
		b.warn("%s", warning)
	default:
		if err := u.opt.set(b, u.value); err != nil {
			return fmt.Errorf("option %s: %w", u.opt.Name, err)
		}
	}
	return nil
}

// command takes the words after the options.
func (b *builder) command(words []string) error {
	if err := checkCommand(words); err != nil {
		return err
	}
	if len(words) == 1 && strings.ContainsAny(words[0], " \t\n\r|&;<>()$`\\\"'*?[]#~=%!{}^") {
		b.spec.Command = []string{"/bin/sh", "-c", words[0]}
	} else {
		b.spec.Command = slices.Clone(words)
	}
	b.spec.Name = label(strings.Join(words, " "))
	return nil
}

// finish settles what several options decide together.
func (b *builder) finish() error {
	if b.spec.Name == "" {
		b.spec.Name = label(firstCommand(b.spec.Script))
	}
	inDir := "%J"
	if b.spec.Array != nil {
		inDir = "%J.%I"
	}
	if strings.HasSuffix(b.spec.Stdout, "/") {
		b.spec.Stdout += inDir + ".out"
	}
	if strings.HasSuffix(b.spec.Stderr, "/") {
		b.spec.Stderr += inDir + ".err"
	}
	b.spec.Slots = b.slots
	b.spec.OneHost = b.slots == 1 || b.usage.oneHost || (b.usage.perHost > 0 && b.usage.perHost >= b.slots)
	if !b.spec.OneHost {
		b.spec.PerHost = b.usage.perHost
	}
	if err := b.finishGPUs(); err != nil {
		return err
	}
	b.spec.Needs, b.spec.Features = b.usage.needs, b.usage.features
	b.spec.Select, b.spec.Same = condition(b.usage.selects), b.usage.same
	asked := b.usage.memory
	if b.usage.perTask {
		if asked > (1<<60)/int64(b.slots) {
			return errors.New("option -R: rusage[mem]: too large")
		}
		asked *= int64(b.slots)
	}
	b.spec.Memory = max(asked, b.limit)
	if b.limit > 0 {
		b.spec.MemoryLimit = b.spec.Memory
	}
	if b.saves > 0 {
		b.addCheckpoint()
	}
	if b.minimum != (backends.Minimum{}) {
		b.replaceEntry(minimumEntry, b.minimum.String())
	}
	if !b.deadline.IsZero() {
		b.replaceEntry(deadlineEntry, backends.DeadlineText(b.deadline))
	}
	if err := b.finishMail(); err != nil {
		return err
	}
	return b.finishScreen()
}

// finishScreen settles what an interactive job can't have.
func (b *builder) finishScreen() error {
	switch {
	case b.screen == NoScreen:
		return nil
	case b.spec.Array != nil:
		return errors.New("option -I: the elements of an array can't share a terminal")
	case b.wait:
		return errors.New("option -I: it waits for the job anyway; leave -K out")
	case b.spec.PreExec != "" || b.spec.PostExec != "":
		return errors.New("option -I: an interactive job has no commands before and after it; leave -E and -Ep out")
	}
	if b.spec.Rerunnable {
		b.warn("option -r is ignored: an interactive job is never run again")
		b.spec.Rerunnable = false
	}
	return nil
}

// label makes a name of a command: in one line, since there are queues that take
// no other.
func label(command string) string {
	if !strings.ContainsFunc(command, unicode.IsControl) {
		return clip(command)
	}
	return clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, command))
}

// clip shortens a command to a name, between characters.
func clip(s string) string {
	if len(s) <= maxName {
		return s
	}
	end := maxName
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// addCheckpoint puts how often a job saves itself into its environment, beside how it does
// so on demand. What stands there and can't be read is replaced.
func (b *builder) addCheckpoint() {
	const variable = backends.CheckpointVariable + "="
	said := ""
	for _, entry := range b.spec.Env { // the last one counts
		if text, is := strings.CutPrefix(entry, variable); is {
			said = text
		}
	}
	c, _ := backends.ParseCheckpoint(said)
	c.Every = b.saves
	b.replaceEntry(variable, c.String())
}

// replaceEntry sets a variable of the job's environment, of which all entries are replaced.
func (b *builder) replaceEntry(variable, value string) {
	isIt := func(entry string) bool { return strings.HasPrefix(entry, variable) }
	b.spec.Env = append(slices.DeleteFunc(b.spec.Env, isIt), variable+value)
}

// minimumEntry begins the entry of the environment that says what a job needs at least.
const minimumEntry = backends.MinimumVariable + "="

func setMinimum(b *builder, v string) (err error) {
	b.minimum, err = parseMinimum(v)
	return err
}

// parseMinimum reads the argument of --min, which says something.
func parseMinimum(v string) (backends.Minimum, error) {
	if v == "" {
		return backends.Minimum{}, errors.New("it is empty: say cpu=2, disk=300M or net=100M")
	}
	m, err := backends.ParseMinimum(v)
	if err != nil {
		return m, fmt.Errorf("%.64q: %w", v, err)
	}
	return m, nil
}

// deadlineEntry begins the entry of the environment that says by when a job should have ended: in a way that does
// not depend on the zone or the time of what reads it.
const deadlineEntry = backends.DeadlineVariable + "="

func setDeadline(b *builder, v string) (err error) {
	b.deadline, err = parseDeadline(v, b.Now)
	return err
}

// parseDeadline reads the argument of --deadline, which says something.
func parseDeadline(v string, now time.Time) (time.Time, error) {
	if v == "" {
		return time.Time{}, errors.New("it is empty: say 07:00, 2026-12-01T07:00, 2026-12-01T07:00:00Z or +3h")
	}
	at, err := backends.ParseDeadline(v, now)
	if err != nil {
		return at, fmt.Errorf("%.64q: %w", v, err)
	}
	return at, nil
}

// setCheckpoint reads LSF's "checkpoint_dir [init=initial_checkpoint_period]
// [checkpoint_period] [method=method_name]", with periods in minutes.
func setCheckpoint(b *builder, v string) error {
	words := strings.Fields(v)
	if len(words) == 0 {
		return errors.New("empty directory")
	}
	b.saves = 0
	for _, word := range words[1:] {
		name, value, named := strings.Cut(word, "=")
		switch {
		case named && name == "method" && value != "":
		case named && name == "init":
			if _, err := parseNumber(value, 1, maxMinutes); err != nil {
				return fmt.Errorf("init=: %w; want minutes", err)
			}
		case !named && b.saves == 0:
			n, err := parseNumber(word, 1, maxMinutes)
			if err != nil {
				return fmt.Errorf("checkpoint period: %w; want minutes", err)
			}
			b.saves = time.Duration(n) * time.Minute
		default:
			return fmt.Errorf("%q: want DIR [init=MINUTES] [MINUTES] [method=NAME]", v)
		}
	}
	return nil
}

func setBegin(b *builder, v string) (err error) {
	b.spec.BeginTime, err = ParseBegin(v, b.Now)
	return err
}

func setDir(b *builder, v string) error {
	switch {
	case v == "":
		return errors.New("empty directory")
	case strings.Contains(v, "%"):
		return fmt.Errorf("%q: patterns are not possible here; name a directory that exists", v)
	case !path.IsAbs(v):
		v = path.Join(b.Dir, v)
	}
	b.spec.Dir = path.Clean(v)
	return nil
}

// file is one of a job's standard files.
type file struct {
	path     *string
	truncate *bool
}

func (b *builder) stdin() file { return file{path: &b.spec.Stdin, truncate: new(bool)} }

func (b *builder) stdout() file {
	return file{&b.spec.Stdout, &b.spec.Truncate.Stdout}
}

func (b *builder) stderr() file {
	return file{&b.spec.Stderr, &b.spec.Truncate.Stderr}
}

func setFile(of func(*builder) file, truncate bool) func(*builder, string) error {
	return func(b *builder, v string) error {
		f := of(b)
		switch {
		case v == "":
			return errors.New("empty file name")
		case strings.HasSuffix(v, "/") && f.path == &b.spec.Stdin:
			return fmt.Errorf("%q is a directory", v)
		}
		*f.path, *f.truncate = v, truncate
		return nil
	}
}

func (b *builder) preExec() *string  { return &b.spec.PreExec }
func (b *builder) postExec() *string { return &b.spec.PostExec }

func setExec(of func(*builder) *string) setter {
	return func(b *builder, v string) error {
		switch {
		case strings.TrimSpace(v) == "":
			return errors.New("empty command")
		case len(v) > maxName:
			return fmt.Errorf("longer than %d characters: put it into a script", maxName)
		}
		*of(b) = v
		return nil
	}
}

func setMail(set func(*backends.Mail)) setter {
	return func(b *builder, _ string) error { set(&b.spec.Mail); return nil }
}

func setMailTo(b *builder, v string) error {
	if _, err := mail.Addresses([]string{v}); err != nil {
		return err
	}
	b.spec.Mail.To = v
	return nil
}

// finishMail settles what is asked for together.
func (b *builder) finishMail() error {
	if m := &b.spec.Mail; m.To != "" && !m.Begin && !m.End && !m.Failed {
		m.End = true
	}
	for _, entry := range b.spec.Env { // the last one counts
		if line, found := strings.CutPrefix(entry, backends.NotifyVariable+"="); found {
			b.spec.Notify = strings.TrimSpace(line)
		}
	}
	if len(b.spec.Notify) > maxName {
		return fmt.Errorf("%s is longer than %d characters: name a script", backends.NotifyVariable, maxName)
	}
	return nil
}

func setGroup(b *builder, v string) error {
	if err := backends.CheckGroup(v); err != nil {
		return err
	}
	b.spec.Group = v
	return nil
}

// defaultGroup takes the job group of LSB_DEFAULT_JOBGROUP, unless -g names one; where the queue has
// no job groups it means nothing.
func (b *builder) defaultGroup() error {
	const variable = "LSB_DEFAULT_JOBGROUP"
	group := ""
	for _, entry := range b.Env { // the last one counts
		if value, found := strings.CutPrefix(entry, variable+"="); found {
			group = value
		}
	}
	if group == "" || b.spec.Group != "" || b.Options["-g"].Treatment != backends.Honoured {
		return nil
	}
	if err := setGroup(b, group); err != nil {
		return fmt.Errorf("%s in the environment: %w", variable, err)
	}
	return nil
}

func setWait(b *builder, _ string) error { b.wait = true; return nil }
func setScreen(screen Screen) func(*builder, string) error {
	return func(b *builder, _ string) error {
		b.screen, b.spec.Interactive = screen, true
		return nil
	}
}

func setHold(b *builder, _ string) error       { b.spec.Hold = true; return nil }
func setExclusive(b *builder, _ string) error  { b.spec.Exclusive = true; return nil }
func setRerunnable(b *builder, _ string) error { b.spec.Rerunnable = true; return nil }
func setNoRequeue(b *builder, _ string) error  { b.spec.NoRequeue = true; return nil }

func setName(b *builder, v string) error {
	if len(v) > maxName {
		return fmt.Errorf("longer than %d characters", maxName)
	}
	if err := checkBrackets(v); err != nil {
		return err
	}
	name, array, err := ParseName(v)
	if err != nil {
		return err
	}
	if name != "" {
		b.spec.Name = name
	}
	b.spec.Array = array
	return nil
}

func setDescription(b *builder, v string) error {
	if len(v) > maxName {
		return fmt.Errorf("longer than %d characters", maxName)
	}
	b.spec.Description = v
	return nil
}

func setMemory(b *builder, v string) (err error) {
	b.limit, err = ParseSize(strings.TrimSuffix(strings.TrimSuffix(v, "!"), " "))
	return err
}

func setHosts(b *builder, v string) error {
	var hosts []string
	for word := range strings.FieldsSeq(v) {
		name, _, preferred := strings.Cut(word, "+")
		name, first := strings.CutSuffix(name, "!")
		if preferred || first {
			b.warn("option -m: %s is ignored: hosts have no order of preference", Visible(strings.TrimPrefix(word, name)))
		}
		if name == "" || strings.ContainsAny(name, "@~,") {
			return fmt.Errorf("%q: want host names with blanks between them", v)
		}
		if !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	if len(hosts) == 0 {
		return errors.New("no host named")
	}
	b.spec.Hosts = hosts
	return nil
}

func setSlots(b *builder, v string) error {
	least, most, ranged := strings.Cut(v, ",")
	n, err := parseNumber(least, 1, maxSlots)
	if err != nil {
		return fmt.Errorf("the number of slots: %w", err)
	}
	if ranged {
		m, err := parseNumber(most, 1, maxSlots)
		if err != nil {
			return fmt.Errorf("the largest number of slots: %w", err)
		}
		if m < n {
			return fmt.Errorf("%d,%d: the second number must not be smaller", n, m)
		}
		if m > n {
			b.warn("option -n: of %d to %d slots the job gets %d", n, m, n)
		}
	}
	b.slots = n
	return nil
}

func setProject(b *builder, v string) error {
	if project, _ := backends.SplitProject(v); project == "" {
		return errors.New("empty project name")
	}
	if len(v) > maxName {
		return fmt.Errorf("longer than %d characters", maxName)
	}
	b.spec.Project = v
	return nil
}

func setQueue(b *builder, v string) error {
	queues := strings.Fields(v)
	if len(queues) == 0 {
		return errors.New("empty queue name")
	}
	if len(queues) > 1 {
		b.warn("option -q: of several queues the first is taken, %s", Visible(queues[0]))
	}
	b.spec.Queue = queues[0]
	return nil
}

func setPriority(b *builder, v string) error {
	if b.QueuePriorities {
		n, err := parseNumber(v, 1, math.MaxInt32)
		b.queuePriority = int64(n)
		return err
	}
	n, err := parseNumber(v, 1, backends.DefaultValue)
	if err != nil {
		return fmt.Errorf("%w (an allotment decides what goes before others)", err)
	}
	b.spec.Priority = backends.At(backends.LevelNormal, n)
	return nil
}

func setRunLimit(b *builder, v string) (err error) {
	limit, host, scaled := strings.Cut(v, "/")
	if scaled {
		b.warn("option -W: /%s is ignored: run limits are wall time", Visible(host))
	}
	if b.spec.RunLimit, err = parseMinutes(limit); err != nil {
		return fmt.Errorf("run limit %q: %w; want minutes or hours:minutes", limit, err)
	}
	return nil
}

func setAfter(b *builder, v string) error {
	if strings.TrimSpace(v) == "" {
		return errors.New("empty dependency")
	}
	b.spec.After = v
	return nil
}

// setEnv reads none, all, NAME, ~NAME and NAME=value. Names without all choose
// those variables alone.
func setEnv(b *builder, v string) error {
	all, given := map[string]string{}, []string{}
	for _, entry := range b.Env {
		name, _, _ := strings.Cut(entry, "=")
		all[name] = entry
	}
	for part := range strings.SplitSeq(v, ",") {
		part = strings.TrimSpace(part)
		name, _, assigned := strings.Cut(strings.TrimPrefix(part, "~"), "=")
		drop := func(e string) bool { return strings.HasPrefix(e, name+"=") }
		switch {
		case name == "":
			return fmt.Errorf("%q: empty name", v)
		case part == "none":
			given = nil
		case part == "all":
			given = slices.Clone(b.Env)
		case part[0] == '~':
			given = slices.DeleteFunc(given, drop)
		case assigned:
			given = append(slices.DeleteFunc(given, drop), part)
		case all[name] != "":
			given = append(slices.DeleteFunc(given, drop), all[name])
		}
	}
	b.spec.Env = given
	return nil
}
