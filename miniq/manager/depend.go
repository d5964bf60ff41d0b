package manager

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// condition is a Spec.After in LSF's grammar: done, ended, exit and started of
// a job number, an element 12[3] or a "name", joined by && || ! and
// parentheses; a bare job stands for done. A name means the last job that its
// owner gave it. Of an array, done, ended and started mean all elements; exit
// means that all have ended and not all were done.
type condition struct {
	root   *term
	leaves []*leaf
	jobs   []*job // that have it
	open   int    // of them, those that have not ended
	met    bool
}

// term is an operator over terms, or a leaf.
type term struct {
	op          string // && || ! or "" for a leaf
	left, right *term
	leaf        *leaf
}

// leaf is one job's part in a condition. Once Final, it stays as it is even
// when the job has been forgotten.
type leaf struct {
	Kind  string `json:"kind"`
	Job   int64  `json:"job"`
	Index int    `json:"index,omitempty"`
	Op    string `json:"op,omitempty"` // exit(job, Op Code); "": any but 0
	Code  int    `json:"code,omitempty"`
	Final bool   `json:"final,omitempty"`
	True  bool   `json:"true,omitempty"`
}

// awaitDependencies registers a job to be reviewed when its condition becomes true or
// false.
func (m *Manager) awaitDependencies(j *job) {
	c := j.work.needs
	if c == nil {
		return
	}
	c.open++
	c.jobs = append(c.jobs, j)
	if len(c.jobs) > 1 {
		return
	}
	c.met = m.evaluate(c)
	for _, l := range c.leaves {
		if l.Final { // nothing will happen to its jobs
			continue
		}
		known := m.waiters[l.Job]
		if n := len(known); n > 0 && known[n-1] == c {
			continue
		}
		if len(known) == cap(known) { // before it grows, conditions whose jobs have all ended are removed
			known = slices.DeleteFunc(known, func(c *condition) bool { return c.open == 0 })
			known = slices.Grow(known, len(known)+1)
		}
		m.waiters[l.Job] = append(known, c)
	}
}

// jobEnded frees what is known of a condition when the last job that has it has ended.
func (c *condition) jobEnded() {
	if c.open--; c.open == 0 {
		c.root, c.leaves, c.jobs = nil, nil, nil
	}
}

// wakeDependents is called when a job has started or ended.
func (m *Manager) wakeDependents(j *job) {
	conditions := m.waiters[j.id.Job]
	if len(conditions) == 0 {
		return
	}
	var open []*condition
	for _, c := range conditions {
		if c.open == 0 {
			continue
		}
		if met := m.evaluate(c); met != c.met {
			c.met = met
			m.woken = append(m.woken, c.jobs...)
		}
		if !c.decided() {
			open = append(open, c)
		}
	}
	if m.waiters[j.id.Job] = open; len(open) == 0 {
		delete(m.waiters, j.id.Job)
	}
}

func (m *Manager) satisfied(j *job) bool { return j.work.needs == nil || j.work.needs.met }

// evaluate updates every leaf, so that each that has become final is recorded.
func (m *Manager) evaluate(c *condition) bool {
	if m.freezing != nil {
		m.freezing.addLeaves(c)
	}
	for _, l := range c.leaves {
		if !l.Final {
			m.observe(l)
		}
	}
	return c.root.value()
}

// decided reports whether the condition can't change any more.
func (c *condition) decided() bool {
	return !slices.ContainsFunc(c.leaves, func(l *leaf) bool { return !l.Final })
}

func (t *term) value() bool {
	switch t.op {
	case "!":
		return !t.left.value()
	case "&&":
		return t.left.value() && t.right.value()
	case "||":
		return t.left.value() || t.right.value()
	}
	return t.leaf.True
}

// observe updates a leaf from the state of its jobs.
func (m *Manager) observe(l *leaf) {
	var ended, begun, failed bool
	code := 0
	if j := m.jobs[backends.ID{Job: l.Job, Index: l.Index}]; j != nil {
		ended, begun, failed, code = j.state.Ended(), j.run > 0, j.state == backends.Exited, j.exitCode
	} else if a := m.arrays[l.Job]; a != nil {
		ended, begun, failed, code = a.left == 0, a.begun == a.size, a.failed > 0, a.firstCode
	} else {
		return
	}
	l.update(ended, begun, failed, code)
}

// update updates a leaf from what has become of its jobs.
func (l *leaf) update(ended, begun, failed bool, code int) {
	switch l.Kind {
	case "done":
		l.True = ended && !failed
	case "ended":
		l.True = ended
	case "started":
		l.True = begun || ended
	case "exit":
		l.True = ended && failed && (l.Op == "" || compare(code, l.Op, l.Code))
	}
	l.Final = ended || l.Kind == "started" && begun
}

func compare(a int, op string, b int) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	case "!=":
		return a != b
	}
	return a == b
}

// PastEnd is the end of a job, or of an array as a whole, that the manager has dropped
// from memory (see ended.go). The writer of a Submit or a Modify whose conditions name
// such jobs looks their ends up and puts them into the event, by ID: so a journal gives
// the same queue again when those ends are kept nowhere else any more.
type PastEnd struct {
	ID       backends.ID
	Exited   bool `json:",omitempty"` // false: it is done
	ExitCode int  `json:",omitempty"`
}

// Mentions lists the jobs, arrays and elements that a condition names by number. One
// that can't be read names none.
func Mentions(after string) []backends.ID {
	_, words, err := parse(after)
	if err != nil {
		return nil
	}
	var ids []backends.ID
	for _, word := range words {
		if id, ok, err := numbered(word); ok && err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// parseCondition reads Spec.After; no condition gives nil.
func (m *Manager) parseCondition(user, text string, past []PastEnd) (*condition, error) {
	c, words, err := parse(text)
	if c == nil || err != nil {
		return nil, err
	}
	for i, l := range c.leaves {
		if err := m.resolve(l, user, words[i], past); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// parseAgain reads a condition whose jobs have been found before.
func parseAgain(text string, leaves []*leaf) (*condition, error) {
	c, _, err := parse(text)
	if err != nil {
		return nil, err
	}
	if c == nil || len(c.leaves) != len(leaves) {
		return nil, fmt.Errorf("dependency %q: not all of its jobs are known", text)
	}
	for i, l := range c.leaves {
		*l = *leaves[i]
	}
	return c, nil
}

// resolve finds the job that a word means.
func (m *Manager) resolve(l *leaf, user, word string, past []PastEnd) error {
	id, isNumber, err := numbered(word)
	if err != nil {
		return err
	}
	if !isNumber {
		name := strings.TrimPrefix(word, `"`)
		if l.Job = m.names[nameKey{user, name}]; l.Job == 0 {
			return fmt.Errorf("you have no job named %q: %w", name, backends.ErrUnknownJob)
		}
		return nil
	}
	l.Job, l.Index = id.Job, id.Index
	if len(m.find(id)) > 0 {
		return nil
	}
	i, isPast := slices.BinarySearchFunc(past, id, func(p PastEnd, id backends.ID) int { return p.ID.Compare(id) })
	switch {
	case isPast:
		l.update(true, true, past[i].Exited, past[i].ExitCode)
		return nil
	case m.Issued(id):
		return fmt.Errorf("job %s: its end is no longer on record: %w", id, backends.ErrUnknownJob)
	}
	return fmt.Errorf("job %s: %w", id, backends.ErrUnknownJob)
}

// numbered reads a word that is a job's number, not its name.
func numbered(word string) (id backends.ID, ok bool, err error) {
	text, element, isElement := strings.Cut(word, "[")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return id, false, nil
	}
	if !isElement {
		return backends.ID{Job: n}, true, nil
	}
	if id, err = backends.ParseID(word); err != nil {
		return id, true, fmt.Errorf("%q: element by element is not supported: %q", element, word)
	}
	return id, true, nil
}

// parser reads a condition, and the word that stands for the job of each leaf: its
// number, or its name with a quotation mark before it if it had one. depth guards
// against hostile nesting.
type parser struct {
	rest   string
	leaves []*leaf
	words  []string
	depth  int
}

const maxDepth = 100

// parse reads a condition, and the word of each of its leaves.
func parse(text string) (*condition, []string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, nil
	}
	p := &parser{rest: text}
	root, err := p.or()
	if err != nil {
		return nil, nil, err
	}
	if p.space(); p.rest != "" {
		return nil, nil, fmt.Errorf("can't read %q: join conditions by && or ||", p.rest)
	}
	return &condition{root: root, leaves: p.leaves}, p.words, nil
}

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\n") }

func (p *parser) consume(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) or() (*term, error) { return p.chain("||", p.and) }

func (p *parser) and() (*term, error) { return p.chain("&&", p.unary) }

func (p *parser) chain(op string, next func() (*term, error)) (*term, error) {
	left, err := next()
	for err == nil && p.consume(op) {
		var right *term
		right, err = next()
		left = &term{op: op, left: left, right: right}
	}
	return left, err
}

func (p *parser) unary() (*term, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	defer func() { p.depth-- }()
	switch {
	case p.consume("!"):
		inner, err := p.unary()
		return &term{op: "!", left: inner}, err
	case p.consume("("):
		inner, err := p.or()
		if err == nil && !p.consume(")") {
			err = errors.New("a closing parenthesis is missing")
		}
		return inner, err
	}
	return p.leaf()
}

func (p *parser) leaf() (*term, error) {
	word, err := p.word()
	if err != nil {
		return nil, err
	}
	l := &leaf{Kind: "done"}
	if p.consume("(") {
		if !slices.Contains([]string{"done", "ended", "exit", "started"}, word) {
			return nil, fmt.Errorf("%s() is not supported: use done, ended, exit or started", word)
		}
		l.Kind = word
		if word, err = p.word(); err != nil {
			return nil, err
		}
		if err := p.exitCode(l); err != nil {
			return nil, err
		}
		if !p.consume(")") {
			return nil, errors.New("a closing parenthesis is missing")
		}
	}
	p.leaves, p.words = append(p.leaves, l), append(p.words, word)
	return &term{leaf: l}, nil
}

// word reads a function's name, a job's number or name, or a quoted name.
func (p *parser) word() (string, error) {
	if p.consume(`"`) {
		name, rest, ok := strings.Cut(p.rest, `"`)
		if !ok {
			return "", errors.New("a closing quote is missing")
		}
		p.rest = rest
		return `"` + name, nil
	}
	p.space()
	n := strings.IndexAny(p.rest+" ", " \t\n()&|!,\"<>=")
	word := p.rest[:n]
	if p.rest = p.rest[n:]; word == "" {
		return "", errors.New(`a job is missing: name it by its number or as "name"`)
	}
	return word, nil
}

// exitCode reads the second argument of exit.
func (p *parser) exitCode(l *leaf) error {
	if !p.consume(",") {
		return nil
	}
	if l.Kind != "exit" {
		return fmt.Errorf("%s() takes one job", l.Kind)
	}
	l.Op = "=="
	for _, op := range []string{"<=", ">=", "==", "!=", "<", ">"} {
		if p.consume(op) {
			l.Op = op
			break
		}
	}
	word, err := p.word()
	if err != nil {
		return err
	}
	if l.Code, err = strconv.Atoi(word); err != nil {
		return fmt.Errorf("%q is not an exit code", word)
	}
	return nil
}
