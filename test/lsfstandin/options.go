package lsfstandin

import (
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends/bsub"
)

// Options that each program of the lava flavour knows, in the order in which it
// tries them: the first one that a word begins with is meant, and what is left of
// the word is its argument. So -app is -a pp, and -oo FILE is -o o with FILE for a
// command. Names that end in a bar take no argument. (The volclava sources have
// these lists; its answers to -app and -noheader are in the transcripts.)
const (
	lavaBsub = "E:T:a:w:f:k:R:m:Jd:J:L:u:is:i:o:e:Zs|n:q:b:t:sp:s:cwd:c:v:p:W:F:D:S:C:M:O:P:Ip|Is|I|r|H|x|N|B|h|V|X:K|"
	lavaBmod = "h|V|O|Tn|T:xn|x|rn|r|Bn|B|Nn|N|En|E:a:wn|w:fn|f:kn|k:Rn|R:mn|m:Jdn|Jd:Jn|J:isn|is:in|i:en|e:qn|q:bn|b:tn|t:spn|sp:sn|s:cwdn|cwd:cn|c:Wn|W:Fn|F:Dn|D:Sn|S:Cn|C:Mn|M:on|o:nn|n:un|u:Pn|P:Ln|L:Xn|X:Zsn|Zs:Z:"
)

// option is one option of a program.
type option struct {
	name string
	arg  bool
}

// use is an option as it stands on a command line.
type use struct {
	name  string // without its dash
	value string
}

// lavaOptions reads one of the lists above.
func lavaOptions(list string) []option {
	var all []option
	for list != "" {
		i := strings.IndexAny(list, ":|")
		all = append(all, option{list[:i], list[i] == ':'})
		list = list[i+1:]
	}
	return all
}

// lsfOptions are LSF 10.1's, in full words: those of bsub, or bmod's, where each
// has a form with an n that takes it back (IBM: lsf_command_ref, bmod).
func lsfOptions(modify bool) []option {
	var all []option
	for _, o := range bsub.Options() {
		name := strings.TrimPrefix(o.Name, "-")
		if strings.HasPrefix(name, "-") {
			continue // asub's own
		}
		all = append(all, option{name, o.Arg != ""})
		if modify {
			all = append(all, option{name + "n", false})
		}
	}
	if modify {
		all = append(all, option{"Z", true})
	}
	return append(all, option{"h", false}, option{"V", false})
}

// scan parts a command line into options and words. A sentence says what is wrong.
func scan(flavour Flavour, known []option, args []string) (uses []use, words []string, wrong string) {
	for len(args) > 0 {
		word := args[0]
		if len(word) < 2 || word[0] != '-' {
			break
		}
		args = args[1:]
		if word == "--" {
			break
		}
		o, value, ok := match(flavour, known, word[1:])
		if !ok {
			return nil, nil, "invalid option -- '" + word[1:2] + "'"
		}
		if o.arg && value == "" {
			if len(args) == 0 {
				return nil, nil, "option requires an argument -- '" + o.name + "'"
			}
			value, args = args[0], args[1:]
		}
		uses = append(uses, use{o.name, value})
	}
	return uses, args, ""
}

func match(flavour Flavour, known []option, word string) (o option, value string, ok bool) {
	if flavour == LSF10 {
		for _, o := range known {
			if o.name == word {
				return o, "", true
			}
		}
	}
	for _, o := range known {
		rest, is := strings.CutPrefix(word, o.name)
		if is && (rest == "" || o.arg && (flavour != LSF10 || len(o.name) == 1)) {
			return o, rest, true
		}
	}
	return option{}, "", false
}

// commandOptions is a command line of bsub or bmod, understood.
type commandOptions struct {
	params   params
	truncate [2]bool
	command  string // bmod -Z
	wait     bool
	esubs    []string // -a
	begin    time.Time
	join     bool // -I and its like
	group    string
	profile  string // -app
}

// resets are the keys that each option of bmod takes back with an n.
var resets = map[string][]string{
	"x": {"LSB_SUB_EXCLUSIVE"}, "r": {"LSB_SUB_RERUNNABLE"}, "B": {"LSB_SUB_NOTIFY_BEGIN"}, "N": {"LSB_SUB_NOTIFY_END"},
	"w": {"LSB_SUB_DEPEND_COND"}, "R": {"LSB_SUB_RES_REQ"}, "m": {"LSB_SUB_HOSTS"}, "Jd": {"LSB_SUB_JOB_DESCRIPTION"},
	"J": {"LSB_SUB_JOB_NAME"}, "i": {"LSB_SUB_IN_FILE"}, "e": {"LSB_SUB_ERR_FILE"}, "o": {"LSB_SUB_OUT_FILE"},
	"q": {"LSB_SUB_QUEUE"}, "b": {"LSB_SUB_BEGIN_TIME"}, "t": {"LSB_SUB_TERM_TIME"}, "sp": {"LSB_SUB2_JOB_PRIORITY"},
	"cwd": {"LSB_SUB3_CWD"}, "c": {"LSB_SUB_RLIMIT_CPU"}, "W": {"LSB_SUB_RLIMIT_RUN"}, "M": {"LSB_SUB_RLIMIT_RSS"},
	"n": {"LSB_SUB_NUM_PROCESSORS", "LSB_SUB_MAX_NUM_PROCESSORS"}, "u": {"LSB_SUB_MAIL_USER"}, "P": {"LSB_SUB_PROJECT_NAME"},
	"L": {"LSB_SUB_LOGIN_SHELL"},
}

// texts are the options that go into a parameter as they are.
var texts = map[string]string{
	"J": "LSB_SUB_JOB_NAME", "q": "LSB_SUB_QUEUE", "i": "LSB_SUB_IN_FILE", "o": "LSB_SUB_OUT_FILE", "e": "LSB_SUB_ERR_FILE",
	"w": "LSB_SUB_DEPEND_COND", "L": "LSB_SUB_LOGIN_SHELL", "u": "LSB_SUB_MAIL_USER", "P": "LSB_SUB_PROJECT_NAME",
	"Jd": "LSB_SUB_JOB_DESCRIPTION", "cwd": "LSB_SUB3_CWD",
}

// marks are the options that are set to Y.
var marks = map[string]string{
	"x": "LSB_SUB_EXCLUSIVE", "N": "LSB_SUB_NOTIFY_END", "B": "LSB_SUB_NOTIFY_BEGIN", "r": "LSB_SUB_RERUNNABLE", "H": "LSB_SUB_HOLD",
}

// interpret makes parameters of options. A sentence says what is wrong.
func interpret(flavour Flavour, uses []use, modify bool, now time.Time) (w commandOptions, wrong string) {
	for _, u := range uses {
		if keys, ok := resets[strings.TrimSuffix(u.name, "n")]; modify && ok && len(u.name) > 1 && strings.HasSuffix(u.name, "n") {
			for _, key := range keys {
				w.params.set(key, subReset, true)
			}
			continue
		}
		if wrong = w.interpretOne(flavour, u, now); wrong != "" {
			return w, wrong
		}
	}
	return w, ""
}

func (w *commandOptions) interpretOne(flavour Flavour, u use, now time.Time) string {
	if key, ok := texts[u.name]; ok {
		w.params.set(key, u.value, false)
		return ""
	}
	if key, ok := marks[u.name]; ok {
		w.params.set(key, "Y", true)
		return ""
	}
	switch u.name {
	case "oo":
		w.params.set("LSB_SUB_OUT_FILE", u.value, false)
		w.truncate[0] = true
	case "eo":
		w.params.set("LSB_SUB_ERR_FILE", u.value, false)
		w.truncate[1] = true
	case "rn":
		w.params.set("LSB_SUB_RERUNNABLE", "N", true)
	case "R":
		// The last one counts on lava; LSF 10.1 joins them (IBM: lsf_command_ref, bsub -R).
		if old, ok := w.params.get("LSB_SUB_RES_REQ"); ok && flavour == LSF10 {
			u.value = old + " " + u.value
		}
		w.params.set("LSB_SUB_RES_REQ", u.value, false)
	case "m":
		w.params.set("LSB_SUB_HOSTS", strings.Join(strings.Fields(u.value), " ")+" ", false)
	case "sp":
		if _, err := strconv.Atoi(u.value); err != nil {
			return errPriority
		}
		w.params.set("LSB_SUB2_JOB_PRIORITY", u.value, true)
	case "M":
		if _, ok := parseSize(u.value, 1); !ok || flavour == Lava && strings.Trim(u.value, "0123456789") != "" {
			return "Bad MEMLIMIT specification"
		}
		w.params.set("LSB_SUB_RLIMIT_RSS", u.value, true)
	case "W":
		seconds, ok := minutes(u.value)
		if !ok {
			return "Bad RUNLIMIT specification"
		}
		w.params.set("LSB_SUB_RLIMIT_RUN", strconv.Itoa(seconds), true)
	case "n":
		return w.slots(u.value)
	case "b":
		at, err := bsub.ParseBegin(u.value, now)
		if err != nil {
			return "Bad time specification"
		}
		w.begin = at
		w.params.set("LSB_SUB_BEGIN_TIME", strconv.FormatInt(at.Unix(), 10), true)
	case "a":
		w.params.set("LSB_SUB_ADDITIONAL", u.value, false)
		w.esubs = append(w.esubs, u.value)
	case "I", "Ip", "Is":
		w.join = true
		w.params.set("LSB_SUB_INTERACTIVE", "Y", true)
		if u.name != "I" {
			w.params.set("LSB_SUB_PTY", "Y", true)
		}
	case "K":
		w.wait = true
	case "g":
		w.group = u.value
	case "app":
		w.profile = u.value
	case "Z":
		w.command = u.value
	}
	return ""
}

// slots reads -n.
func (w *commandOptions) slots(value string) string {
	least, most, ranged := strings.Cut(value, ",")
	if !ranged {
		most = least
	}
	low, err := strconv.Atoi(strings.TrimSpace(least))
	high, err2 := strconv.Atoi(strings.TrimSpace(most))
	if err != nil || err2 != nil || low < 1 || high < low {
		return "The number of processors must be a positive integer"
	}
	w.params.set("LSB_SUB_NUM_PROCESSORS", strconv.Itoa(low), true)
	w.params.set("LSB_SUB_MAX_NUM_PROCESSORS", strconv.Itoa(high), true)
	return ""
}

// minutes reads [hour:]minute[/host] in seconds.
func minutes(s string) (seconds int, ok bool) {
	s, _, _ = strings.Cut(s, "/")
	hours, mins, both := strings.Cut(s, ":")
	if !both {
		hours, mins = "0", s
	}
	h, err := strconv.Atoi(hours)
	m, err2 := strconv.Atoi(mins)
	if err != nil || err2 != nil || h < 0 || m < 0 || h+m == 0 || h > 100_000 || m > 10_000_000 {
		return 0, false
	}
	return (h*60 + m) * 60, true
}

// commandLine joins the words of a command as bsub does: the first one as it is,
// those with blanks in quotes, and in others a few characters escaped. What a shell
// makes of the line is not always what its user typed, here as there.
func commandLine(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i == 0 {
			b.WriteString(word)
			continue
		}
		b.WriteByte(' ')
		switch {
		case strings.Contains(word, " ") && strings.ContainsAny(word, `"$`):
			b.WriteString("'" + word + "'")
		case strings.Contains(word, " "):
			b.WriteString(`"` + word + `"`)
		case strings.HasPrefix(word, "$"):
			b.WriteString("'" + escaped(word) + "'")
		default:
			b.WriteString(escaped(word))
		}
	}
	return b.String()
}

func escaped(word string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`, `(`, `\(`, `)`, `\)`).Replace(word)
}
