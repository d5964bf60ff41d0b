package miniq

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// To encoding/json a type costs as much as all that can be in it, once in each process:
// for the submission of one job and its answer a tenth of what an asub takes. So what most
// of them have is written and read here. All else is left to encoding/json, a field of
// Spec that is not named here as well.

// usualSubmission returns the JSON of a submission; false: a job has more than most.
func usualSubmission(s *submission) ([]byte, bool) {
	m := members{'{'}
	m.number("v", int64(s.Version))
	m.text("op", string(s.Op))
	m.name("specs")
	m = append(m, '[')
	for i := range s.Specs {
		if i > 0 {
			m = append(m, ',')
		}
		if !m.usualSpec(s.Specs[i]) {
			return nil, false
		}
	}
	m = append(m, ']')
	m.text("key", s.Key)
	return append(m, '}'), len(s.Specs) > 0
}

// members is JSON that ends within an object. As encoding/json is asked to, it omits
// members without a value.
type members []byte

// usualSpec appends a job; false: it has more than most.
func (m *members) usualSpec(s Spec) bool {
	*m = append(*m, '{')
	m.text("Name", take(&s.Name))
	m.text("Project", take(&s.Project))
	m.text("Queue", take(&s.Queue))
	m.text("Description", take(&s.Description))
	m.number("Priority", int64(take(&s.Priority)))
	m.number("Slots", int64(take(&s.Slots)))
	m.number("Memory", take(&s.Memory))
	m.number("MemoryLimit", take(&s.MemoryLimit))
	m.flag("OneHost", take(&s.OneHost))
	m.flag("Hold", take(&s.Hold))
	m.flag("Rerunnable", take(&s.Rerunnable))
	m.text("After", take(&s.After))
	m.number("RunLimit", int64(take(&s.RunLimit)))
	m.number("Umask", int64(take(&s.Umask)))
	m.text("Dir", take(&s.Dir))
	m.text("Stdin", take(&s.Stdin))
	m.text("Stdout", take(&s.Stdout))
	m.text("Stderr", take(&s.Stderr))
	m.texts("Command", take(&s.Command))
	m.number("variables", int64(take(&s.Variables)))
	*m = append(*m, '}')
	return reflect.ValueOf(s).IsZero()
}

// take returns a field, and clears it.
func take[T any](field *T) T {
	value := *field
	*field = *new(T)
	return value
}

func (m *members) name(name string) {
	if last := (*m)[len(*m)-1]; last != '{' {
		*m = append(*m, ',')
	}
	*m = append(append(append(*m, '"'), name...), `":`...)
}

func (m *members) number(name string, value int64) {
	if value != 0 {
		m.name(name)
		*m = strconv.AppendInt(*m, value, 10)
	}
}

func (m *members) flag(name string, value bool) {
	if value {
		m.name(name)
		*m = append(*m, "true"...)
	}
}

func (m *members) text(name, value string) {
	if value != "" {
		m.name(name)
		m.quote(value)
	}
}

func (m *members) texts(name string, values []string) {
	if values == nil {
		return
	}
	m.name(name)
	*m = append(*m, '[')
	for i, value := range values {
		if i > 0 {
			*m = append(*m, ',')
		}
		m.quote(value)
	}
	*m = append(*m, ']')
}

func (m *members) quote(text string) {
	const hex = "0123456789abcdef"
	b := append(*m, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	*m = append(b, '"')
}

// usualAnswer reads the answer to the submission of one job that was accepted; false: it is
// another one.
func usualAnswer(body []byte) (*Response, bool) {
	rest, ours := strings.CutPrefix(string(body), `{"v":`+strconv.Itoa(Version)+`,"submitted":[{"id":"`)
	number, rest, _ := strings.Cut(rest, `","queue":"`)
	queue, rest, whole := strings.Cut(rest, `"}]}`)
	var id backends.ID
	if !ours || !whole || rest != "" || !literal(queue) || id.UnmarshalText([]byte(number)) != nil {
		return nil, false
	}
	return &Response{Version: Version, Submitted: []Submission{{ID: id, Queue: queue}}}, true
}

// literal reports whether a text stands as it is in JSON, and is ASCII.
func literal(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
