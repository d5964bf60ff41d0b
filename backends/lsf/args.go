package lsf

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// LSF gives a job's command to a shell, appends a report to its output, and runs it in
// the environment of bsub, which is not quite the job's. So the command is always the
// same text, and what a user chose is in the environment, where no shell reads it: a
// launcher takes it from there.
//
// Each text there is escaped for printf's %b, in printable ASCII: LSF splits the
// environment that it keeps into lines.
//
// The shell that LSF starts stays: volclava 2.2 takes a job for done whose first process a
// signal ends.
const (
	jobCommand = `/bin/sh -c "$(printf %b "$ALLOTMENT_LAUNCH")"`
	launchVar  = "ALLOTMENT_LAUNCH"
	textVar    = "ALLOTMENT_TEXT_" // and the text's name
)

// launcher sets a job's own environment, umask and files, and becomes its command. text()
// gets one of the texts, file() the name of one with LSF's numbers for %J and %I.
const launcher = `text() {
	eval "t=\${ALLOTMENT_TEXT_$1-}"
	t=$(printf %bx "$t")
	t=${t%x}
	unset "ALLOTMENT_TEXT_$1"
}
file() {
	text "$1"
	n=
	while :; do
		case $t in
		*[%][JI]*) ;;
		*) break ;;
		esac
		b=${t%%[%][JI]*}
		t=${t#"$b"}
		case $t in
		%J*) n=$n$b$LSB_JOBID ;;
		*) n=$n$b${LSB_JOBINDEX:-0} ;;
		esac
		t=${t#??}
	done
	n=$n$t
}
set --
while [ $# -lt "$ALLOTMENT_TEXT_COUNT" ]; do
	text $#
	set -- "$@" "$t"
done
umask "$ALLOTMENT_TEXT_UMASK"
for v in TZ LC_ALL; do
	eval "s=\${ALLOTMENT_TEXT_$v+set}"
	if [ "$s" ]; then
		text $v
		export "$v=$t"
	else
		unset $v
	fi
done
file STDIN
exec <"$n" || exit 126
file STDOUT
if [ "${ALLOTMENT_TEXT_NEWOUT-}" ]; then exec >"$n"; else exec >>"$n"; fi || exit 126
if [ "${ALLOTMENT_TEXT_STDERR-}" ]; then
	file STDERR
	if [ "${ALLOTMENT_TEXT_NEWERR-}" ]; then exec 2>"$n"; else exec 2>>"$n"; fi || exit 126
else
	exec 2>&1
fi
ALLOTMENT_JOBID=$LSB_JOBID
if [ "${LSB_JOBINDEX:-0}" != 0 ]; then ALLOTMENT_JOBID="$LSB_JOBID[$LSB_JOBINDEX]"; fi
export ALLOTMENT_JOBID
unset ALLOTMENT_LAUNCH ALLOTMENT_TEXT_COUNT ALLOTMENT_TEXT_UMASK ALLOTMENT_TEXT_NEWOUT ALLOTMENT_TEXT_NEWERR
if [ "${ALLOTMENT_TEXT_SCRIPT+set}" ]; then
	text SCRIPT
	exec 3<<END
$t
END
	exec "$@" /dev/fd/3
fi
exec "$@"
`

// longest is the limit of an escaped text, in bytes: Linux takes 128 KiB in one variable.
const longest = 120 << 10

// submission is a job as bsub gets it.
type submission struct {
	argv []string // bsub, its options and the command
	env  []string // the job's; environment adds what every command gets
	dir  string
}

// newSubmission turns a Spec into bsub's terms. Its error says what this queue can't do.
// number is the job's -sp; 0: none.
func newSubmission(s *backends.Spec, f flavour, number, limitUnit int64, lowQueue string, now time.Time) (*submission, error) {
	unable := func(what string) (*submission, error) {
		return nil, fmt.Errorf("%w: %s", backends.ErrUnable, what)
	}
	switch {
	case s.Interactive || s.Terminal != "":
		return unable("interactive jobs are bsub's on LSF")
	case s.Priority.Level() == backends.LevelLow && s.Queue == "" && lowQueue == "":
		return unable("LSF has no lowest priority but a queue of it (filter.low_queue)")
	case s.Slots < 0:
		return unable(fmt.Sprintf("%d slots", s.Slots))
	case s.Mail.Failed && f != lsf10:
		return unable("lava mails about every job that ends, not about those that failed alone: use -N")
	case len(s.Command) == 0 && len(s.Script) == 0:
		return nil, errors.New("nothing to run")
	}
	if err := checkTexts(s); err != nil {
		return nil, err
	}
	o := arguments{argv: []string{"bsub"}}
	o.add("-J", jobName(s))
	queue := s.Queue
	if queue == "" && s.Priority.Level() == backends.LevelLow {
		queue = lowQueue
	}
	o.text("-q", queue)
	o.text("-P", s.Project)
	o.text("-g", s.Group)
	begin := roundBegin(s.BeginTime, now)
	hold := time.Time{}
	if begin.IsZero() { // a begin time of the owner's is not the engine's hold
		hold = roundBegin(s.HeldUntil, now)
	}
	o.text("-Jd", description(s, hold))
	if number > 0 {
		o.add("-sp", strconv.FormatInt(number, 10))
	}
	if s.Slots > 1 {
		o.add("-n", strconv.Itoa(s.Slots))
	}
	o.text("-R", requirement(s, f))
	if s.MemoryLimit > 0 {
		o.add("-M", strconv.FormatInt((s.MemoryLimit+limitUnit-1)/limitUnit, 10))
	}
	o.text("-m", strings.Join(s.Hosts, " "))
	if s.RunLimit > 0 {
		o.add("-W", bsub.FormatMinutes(s.RunLimit))
	}
	if !begin.IsZero() {
		o.add("-b", formatBegin(begin))
	}
	if !hold.IsZero() {
		o.add("-b", formatBegin(hold))
	}
	o.text("-w", s.After)
	o.flag("-H", s.Hold)
	o.flag("-r", s.Rerunnable)
	o.flag("-rn", s.NoRequeue && f == lsf10) // lava has no such option: see description
	o.flag("-x", s.Exclusive)
	o.flag("-B", s.Mail.Begin)
	o.flag("-N", s.Mail.End)
	o.flag("-Ne", s.Mail.Failed && !s.Mail.End) // -N mails about those, too
	o.text("-u", s.Mail.To)
	o.add("-o", "/dev/null") // without it LSF mails the output; the launcher writes the job's own file
	texts, err := launch(s)
	if err != nil {
		return nil, err
	}
	return &submission{argv: append(o.argv, jobCommand), env: texts, dir: s.Dir}, nil
}

type arguments struct{ argv []string }

func (o *arguments) add(option, value string) { o.argv = append(o.argv, option, value) }

func (o *arguments) text(option, value string) {
	if value != "" {
		o.add(option, value)
	}
}

func (o *arguments) flag(option string, on bool) {
	if on {
		o.argv = append(o.argv, option)
	}
}

// checkTexts rejects what LSF would change, or take for something else.
func checkTexts(s *backends.Spec) error {
	for _, text := range append([]string{s.Name, s.Project, s.Queue, s.Description, s.After, s.Mail.To, s.Group}, s.Hosts...) {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("%w: a control character in %q: LSF keeps none", backends.ErrUnable, text)
		}
		if strings.HasPrefix(text, "-") && text != s.Name && text != s.Description {
			return fmt.Errorf("%w: %q begins as an option does", backends.ErrUnable, text)
		}
	}
	for _, text := range append([]string{s.Dir, s.Stdin, s.Stdout, s.Stderr}, s.Command...) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("a NUL in %q", text)
		}
	}
	switch {
	case strings.ContainsAny(s.Name, "[]"):
		return fmt.Errorf("%w: LSF takes brackets in a name for an array's: %q", backends.ErrUnable, s.Name)
	case len(s.Description) > maxDescription:
		return fmt.Errorf("%w: a description of more than %d bytes", backends.ErrUnable, maxDescription)
	}
	for _, h := range s.Hosts {
		if h == "" || strings.ContainsAny(h, " \t+!@") {
			return fmt.Errorf("host %q: not a host name", h)
		}
	}
	return nil
}

// maxDescription is how many bytes LSF keeps of -Jd, less a tag that may be added.
const maxDescription = 4000

func jobName(s *backends.Spec) string {
	name := s.Name
	switch {
	case name != "":
	case len(s.Command) > 0 && !strings.ContainsAny(s.Command[0], "[]\n"):
		name = path.Base(s.Command[0])
	default:
		name = "job"
	}
	if s.Array == nil {
		return name
	}
	name += "[" + bsub.FormatIndices(s.Array.Indices) + "]"
	if s.Array.Limit > 0 {
		name += "%" + strconv.Itoa(s.Array.Limit)
	}
	return name
}

// description returns the job's, with a tag that says what LSF keeps nowhere else: hold
// is the begin time that is the engine's.
func description(s *backends.Spec, hold time.Time) string {
	if !s.NoRequeue && hold.IsZero() {
		return s.Description
	}
	tag, text, err := backends.ParseTag(s.Description)
	if err != nil {
		return s.Description
	}
	tag.NoRequeue = tag.NoRequeue || s.NoRequeue
	if !hold.IsZero() {
		tag.Held = hold.Unix()
	}
	return strings.TrimRight(tag.String()+" "+text, " ")
}

// requirement returns a resource requirement: memory over all slots, which LSF reserves
// on each of a job's hosts, and how its slots lie on hosts. lava takes plain
// numbers only, of MB; LSF 10.1 takes units (IBM Spectrum LSF 10.1, administer, resource
// requirement strings, rusage section).
func requirement(s *backends.Spec, f flavour) string {
	var all []string
	if s.Memory > 0 {
		const mega = 1 << 20
		text := "rusage[mem=" + strconv.FormatInt((s.Memory+mega-1)/mega, 10)
		if f == lsf10 {
			text += "MB"
		}
		all = append(all, text+"]")
	}
	switch {
	case s.Slots <= 1:
	case s.OneHost:
		all = append(all, "span[hosts=1]")
	case s.PerHost > 0:
		all = append(all, "span[ptile="+strconv.Itoa(s.PerHost)+"]")
	}
	return strings.Join(all, " ")
}

// minimumLead is how far ahead a begin time must be at least: LSF takes one that is over when it
// reads it for next year's. A command that takes longer is ended (DefaultTimeout).
const minimumLead = 30 * time.Second

// roundBegin returns the begin time that LSF can be given for t, rounded up to a whole
// minute; zero: t is over, and none is needed.
func roundBegin(t, now time.Time) time.Time {
	if !t.After(now) {
		return time.Time{}
	}
	begin := t.UTC().Add(time.Minute - 1).Truncate(time.Minute)
	if begin.Sub(now) < minimumLead {
		begin = begin.Add(time.Minute)
	}
	return begin
}

// formatBegin returns a begin time as LSF reads it, in the zone of its command, which is UTC:
// month:day:hour:minute.
func formatBegin(t time.Time) string { return t.UTC().Format("1:2:15:04") }

// launch returns the variables that the launcher reads, and the job's own.
func launch(s *backends.Spec) ([]string, error) {
	var env []string
	var long error
	put := func(what, text string) {
		if text = escape(text); len(text) > longest {
			long = fmt.Errorf("%w: a script or an argument of %d bytes (escaped): put it into a file", backends.ErrUnable, len(text))
		}
		env = append(env, textVar+what+"="+text)
	}
	for _, variable := range s.Env {
		key, value, ok := strings.Cut(variable, "=")
		switch {
		case !ok || key == "" || strings.ContainsRune(variable, 0) || strings.HasPrefix(key, textVar) || key == launchVar:
		case key == "TZ" || key == "LC_ALL":
			put(key, value)
		default:
			env = append(env, variable)
		}
	}
	command := s.Command
	if len(s.Script) > 0 {
		command = interpreter(s.Script)
		put("SCRIPT", strings.TrimSuffix(string(s.Script), "\n"))
		if strings.ContainsRune(string(s.Script), 0) {
			return nil, errors.New("a NUL in the script")
		}
	}
	for i, word := range command {
		put(strconv.Itoa(i), word)
	}
	put("COUNT", strconv.Itoa(len(command)))
	put("UMASK", fmt.Sprintf("%04o", s.Umask))
	stdin := s.Stdin
	if stdin == "" {
		stdin = "/dev/null"
	}
	put("STDIN", stdin)
	put("STDOUT", s.Output())
	if s.Stderr != "" && s.Stderr != s.Output() {
		put("STDERR", s.Stderr)
	}
	if s.Truncate.Stdout {
		put("NEWOUT", "1")
	}
	if s.Truncate.Stderr {
		put("NEWERR", "1")
	}
	return append(env, launchVar+"="+escape(launcher)), long
}

// interpreter returns what reads a script: the words of its first line, or a shell.
func interpreter(script []byte) []string {
	line, _, _ := strings.Cut(string(script), "\n")
	if words := strings.SplitN(strings.TrimSpace(strings.TrimPrefix(line, "#!")), " ", 2); strings.HasPrefix(line, "#!") && words[0] != "" {
		for i := range words {
			words[i] = strings.TrimSpace(words[i])
		}
		return words
	}
	return []string{"/bin/sh"}
}

// escape writes a text so that printf's %b gives it back: letters, digits and a few
// others as they are, any other byte in octal.
func escape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/._-,:=+@%", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\0%03o`, c)
		}
	}
	return b.String()
}

// brunHosts returns hosts as brun takes them: for LSF 10.1 each with its number of slots
// (IBM Spectrum LSF 10.1, command reference, brun: host_name [#num_cpus]), for lava a
// name for each slot.
func brunHosts(hosts []backends.Placement, f flavour) string {
	var all []string
	for _, p := range hosts {
		switch {
		case f == lsf10 && p.Slots > 1:
			all = append(all, p.Host+"#"+strconv.Itoa(p.Slots))
		case f == lsf10:
			all = append(all, p.Host)
		default:
			for range max(p.Slots, 1) {
				all = append(all, p.Host)
			}
		}
	}
	return strings.Join(all, " ")
}
