package lsfstandin

import (
	"fmt"
	"strings"
)

// param is one option of a submission or a change, under the name that esub knows
// it by. These travel to the daemon, too: what esub changed is what is submitted.
type param struct {
	Key   string
	Value string
	Bare  bool // written without quotes
}

type params []param

// subReset is the value of an option that bmod takes away.
const subReset = "SUB_RESET"

// The keys, in the order of a parameter file.
var paramOrder = []string{
	"LSB_SUB_JOB_NAME", "LSB_SUB_QUEUE", "LSB_SUB_IN_FILE", "LSB_SUB_OUT_FILE", "LSB_SUB_ERR_FILE",
	"LSB_SUB_EXCLUSIVE", "LSB_SUB_NOTIFY_END", "LSB_SUB_NOTIFY_BEGIN", "LSB_SUB_RERUNNABLE",
	"LSB_SUB_DEPEND_COND", "LSB_SUB_RES_REQ", "LSB_SUB_LOGIN_SHELL", "LSB_SUB_MAIL_USER",
	"LSB_SUB_PROJECT_NAME", "LSB_SUB_INTERACTIVE", "LSB_SUB_PTY", "LSB_SUB_PTY_SHELL", "LSB_SUB_HOLD",
	"LSB_SUB2_JOB_PRIORITY", "LSB_SUB_JOB_DESCRIPTION", "LSB_SUB3_CWD", "LSB_SUB_HOSTS",
	"LSB_SUB_RLIMIT_CPU", "LSB_SUB_RLIMIT_RSS", "LSB_SUB_RLIMIT_RUN",
	"LSB_SUB_NUM_PROCESSORS", "LSB_SUB_MAX_NUM_PROCESSORS", "LSB_SUB_BEGIN_TIME", "LSB_SUB_TERM_TIME",
	"LSB_SUB_ADDITIONAL",
}

func knownParam(key string) bool {
	for _, known := range paramOrder {
		if key == known {
			return true
		}
	}
	return false
}

// get returns a parameter's value; ok: it is there, SUB_RESET included.
func (ps params) get(key string) (value string, ok bool) {
	for _, p := range ps {
		if p.Key == key {
			return p.Value, true
		}
	}
	return "", false
}

// set replaces a parameter, or adds it.
func (ps *params) set(key, value string, bare bool) {
	for i := range *ps {
		if (*ps)[i].Key == key {
			(*ps)[i] = param{key, value, bare}
			return
		}
	}
	*ps = append(*ps, param{key, value, bare})
}

// file is the parameter file that esub reads: strings in quotes, of which " alone
// is escaped.
func (ps params) file() []byte {
	var b strings.Builder
	for _, key := range append([]string{"LSB_SUB_MODIFY"}, paramOrder...) {
		for _, p := range ps {
			switch {
			case p.Key != key:
			case p.Bare:
				fmt.Fprintf(&b, "%s=%s\n", p.Key, p.Value)
			default:
				fmt.Fprintf(&b, "%s=\"%s\"\n", p.Key, strings.ReplaceAll(p.Value, `"`, `\"`))
			}
		}
	}
	return []byte(b.String())
}

// modified applies what an esub wrote into the modify file. said are the lines about what
// was ignored, for the user's terminal.
func (ps *params) modified(text string) (ignored []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || !knownParam(key):
			ignored = append(ignored, fmt.Sprintf("Unknown parameter <%s> in the modify file of esub is ignored", key))
			continue
		case strings.Contains(value, `\"`):
			ignored = append(ignored, fmt.Sprintf("Bad value of parameter <%s> in the modify file of esub is ignored", key))
			continue
		}
		bare := true
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value, bare = value[1:n-1], false
		}
		ps.set(key, value, bare)
	}
	return ignored
}
