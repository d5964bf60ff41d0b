package lsf

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// request is what a job's resource requirement asks for (R32). It is read from the text
// that bjobs shows as Combined or COMBINED_RESREQ, in which LSF has merged those of the
// job, its application and its queue.
type request struct {
	unserved   string      // the part that is not understood; "": all is
	conditions []condition // of hosts, all of which must hold; what changes with a host's load is left out
	room       bool        // a condition on memory or slots that are left was left out
	oneHost    bool        // span[hosts=1]
	perHost    int         // span[ptile=]
	needs      []need      // numeric resources but for memory
}

// condition is one part of a select section, such as type == linux, maxmem >= 4000 or a
// boolean resource by its name.
type condition struct {
	name, operator, value string // operator "": a boolean resource
}

// need is an amount in a rusage section, for each host unless per says otherwise.
type need struct {
	name  string
	count int
	per   string // "", host, task or job
}

// longestRequest is the longest requirement that is read. LSF itself takes 512 characters
// of each option.
const longestRequest = 4096

// Resource names of LSF's own.
var (
	// loads are the load indices: they say what a host has left now, and would leave out
	// the very host that is to be emptied.
	loads = []string{"status", "r15s", "r1m", "r15m", "cpu", "ut", "pg", "io", "ls", "login", "it", "idle", "tmp", "swp", "swap"}
	// roomLeft are those that grow when jobs leave a host.
	roomLeft = []string{"mem", "slots"}
	// timings in a rusage section say how long the amounts are reserved.
	timings = []string{"duration", "decay"}
)

// parseRequest reads a resource requirement. The empty text asks for nothing.
func parseRequest(text string) request {
	var r request
	text = strings.TrimSpace(text)
	if text == "-" {
		text = ""
	}
	if len(text) > longestRequest {
		return request{unserved: "a resource requirement of more than " + strconv.Itoa(longestRequest) + " characters"}
	}
	seen := map[string]bool{}
	var same string
	for text != "" {
		name, rest, ok := strings.Cut(text, "[")
		body, rest, closed := strings.Cut(rest, "]")
		if !ok || !closed || strings.ContainsRune(body, '[') || strings.ContainsFunc(name, func(c rune) bool { return c < 'a' || c > 'z' }) {
			r.refuse("the resource requirement", text) // compound, alternative, or no requirement at all
			return r
		}
		if seen[name] {
			r.refuse("a second section", name+"["+body+"]")
		}
		seen[name] = true
		switch name {
		case "select":
			r.readSelect(body)
		case "order":
		case "rusage":
			r.readUsage(body)
		case "span":
			r.readSpan(body)
		case "same":
			same = body
		default:
			r.refuse("the section", name+"["+body+"]")
		}
		text = strings.TrimSpace(rest)
	}
	if same != "" && !r.oneHost {
		r.refuse("the section", "same["+same+"]")
	}
	return r
}

// refuse notes the first part that is not understood.
func (r *request) refuse(what, part string) {
	const most = 200
	if r.unserved == "" {
		r.unserved = what + " " + strings.ToValidUTF8(strings.TrimSpace(part[:min(len(part), most)]), "")
	}
}

// readSelect reads the conditions of a select section, which && joins.
func (r *request) readSelect(text string) {
	text = withoutParentheses(text)
	parts := splitOutside(text, "&&")
	if len(parts) > 1 {
		for _, part := range parts {
			r.readSelect(part)
		}
		return
	}
	m := selectAtom().FindStringSubmatch(text)
	if m == nil || (m[2] == "") != (m[3] == "") {
		if text != "" {
			r.refuse("in select[]:", text)
		}
		return
	}
	switch {
	case slices.Contains(roomLeft, m[1]):
		r.room = true
	case !slices.Contains(loads, m[1]):
		r.conditions = append(r.conditions, condition{m[1], m[2], strings.Trim(m[3], `'"`)})
	}
}

var selectAtom = pattern(`^([A-Za-z_][A-Za-z0-9_]*)(?:\s*(==|!=|>=|<=|>|<)\s*('[^'"]*'|"[^'"]*"|[A-Za-z0-9_.@-]+))?$`)

// withoutParentheses removes blanks and parentheses around a whole text.
func withoutParentheses(text string) string {
	for {
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "(") || !strings.HasSuffix(text, ")") {
			return text
		}
		depth := 0
		for i, c := range text {
			switch c {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 && i < len(text)-1 {
				return text
			}
		}
		if depth != 0 {
			return text
		}
		text = text[1 : len(text)-1]
	}
}

// splitOutside splits a text at a separator outside of parentheses. A text with || there
// is one part: && binds closer.
func splitOutside(text, separator string) []string {
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '(':
			depth++
		case text[i] == ')':
			depth--
		case depth == 0 && strings.HasPrefix(text[i:], "||"):
			return []string{text}
		case depth == 0 && strings.HasPrefix(text[i:], separator):
			parts = append(parts, text[from:i])
			i += len(separator) - 1
			from = i + 1
		}
	}
	return append(parts, text[from:])
}

// readUsage reads a rusage section. mem is read by usageMemory.
func (r *request) readUsage(text string) {
	if strings.Contains(text, "||") {
		r.refuse("in rusage[]:", text)
		return
	}
	timed := ""
	for item := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || c == ':' || unicode.IsSpace(c) }) {
		name, value, _ := strings.Cut(item, "=")
		switch {
		case name == "mem":
			continue
		case slices.Contains(timings, name):
			timed = item
			continue
		}
		value, per, _ := strings.Cut(value, "/")
		amount, err := strconv.ParseFloat(value, 64)
		if count := int(amount); err == nil && count >= 0 && count <= maxSlots && float64(count) == amount && (per == "" || per == "host" || per == "task" || per == "job") {
			if count > 0 {
				r.needs = append(r.needs, need{name, count, per})
			}
			continue
		}
		r.refuse("in rusage[]:", item)
	}
	if timed != "" && len(r.needs) > 0 {
		r.refuse("in rusage[]:", timed)
	}
}

// readSpan reads a span section.
func (r *request) readSpan(text string) {
	key, value, _ := strings.Cut(strings.ReplaceAll(text, " ", ""), "=")
	n, err := strconv.Atoi(value)
	switch {
	case err == nil && key == "hosts" && n == 1:
		r.oneHost = true
	case err == nil && key == "hosts" && n == -1: // it undoes that of the queue (LSF 10.1)
	case err == nil && key == "ptile" && n > 0 && n <= maxSlots:
		r.perHost = n
	default:
		r.refuse("the section", "span["+text+"]")
	}
}
