package miniq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// A job is submitted with dozens of variables, which take JSON longer than all the
// rest. So environments stand behind the JSON of a request, after a NUL byte: each
// variable as LENGTH:TEXT, one environment after the other. A request may have
// them in its JSON just as well.

// Spec is a backends.Spec on the wire, with its texts escaped.
type Spec struct {
	backends.Spec
	Variables int `json:"variables,omitempty"` // bytes behind the JSON that are Spec.Env
}

// submission is a Request without what one that submits never has; see usualSubmission.
type submission struct {
	Version int    `json:"v"`
	Op      Op     `json:"op"`
	Specs   []Spec `json:"specs,omitempty"`
	Key     string `json:"key,omitempty"`
}

// Frame returns the request as it goes over the wire.
func (r *Request) Frame() ([]byte, error) {
	if r.Op != OpSubmit {
		return AppendFrame(nil, r)
	}
	size := 1
	for i := range r.Specs {
		size += variablesSize(r.Specs[i].Env)
	}
	specs, behind := slices.Clone(r.Specs), make([]byte, 1, size)
	for i := range specs {
		before := len(behind)
		behind = appendVariables(behind, specs[i].Env)
		specs[i].Env, specs[i].Variables = nil, len(behind)-before
	}
	s := submission{r.Version, r.Op, specs, r.Key}
	if body, usual := usualSubmission(&s); usual {
		return frameOf(nil, body, behind)
	}
	return appendFrame(nil, s, behind)
}

// LastEnvironment is the environment that was decoded last: most jobs have that of one
// before, in this request or in another. Its list is shared, and must not be changed.
type LastEnvironment struct {
	environment atomic.Pointer[environment]
}

// environment is one on the wire, and its variables.
type environment struct {
	text string
	list []string
}

// maxRemembered is how long an environment that is kept for other requests may be, in bytes.
const maxRemembered = 64 << 10

// parseVariables puts what stands behind the JSON of a request where it belongs.
func (r *Request) parseVariables(behind []byte, last *LastEnvironment) error {
	env := new(environment)
	if last != nil {
		if e := last.environment.Load(); e != nil {
			env = e
		}
	}
	for i := range r.Specs {
		s := &r.Specs[i]
		if s.Variables < 0 || s.Variables > len(behind) {
			return errVariables
		}
		switch own := behind[:s.Variables]; {
		case len(own) == 0:
		case string(own) == env.text:
			s.Env = env.list
		default:
			text := string(own)
			list, err := variables(text)
			if err != nil {
				return err
			}
			env = &environment{text, list}
			if s.Env = list; last != nil && len(text) <= maxRemembered {
				last.environment.Store(env)
			}
		}
		behind, s.Variables = behind[s.Variables:], 0
	}
	if len(behind) > 0 {
		return fmt.Errorf("%w: %d bytes too many", errVariables, len(behind))
	}
	return nil
}

var errVariables = errors.New("the environments behind the request's JSON are malformed")

// variablesSize is the most that appendVariables appends for texts of usual length, in bytes.
func variablesSize(env []string) int {
	const head = len("9999:")
	n := head * len(env)
	for _, e := range env {
		n += len(e)
	}
	return n
}

func appendVariables(b []byte, env []string) []byte {
	for _, e := range env {
		b = strconv.AppendInt(b, int64(len(e)), 10)
		b = append(append(b, ':'), e...)
	}
	return b
}

// variables reads what appendVariables writes.
func variables(text string) ([]string, error) {
	env := make([]string, 0, strings.Count(text, "=")+1)
	for rest := text; rest != ""; {
		head, tail, ok := strings.Cut(rest, ":")
		n, err := strconv.ParseUint(head, 10, 31)
		if !ok || err != nil || n == 0 || n > uint64(len(tail)) || !utf8.ValidString(tail[:n]) { // texts are escaped
			return nil, errVariables
		}
		env, rest = append(env, tail[:n]), tail[n:]
	}
	return env, nil
}
