package backends

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selection is a condition on hosts, in the grammar of LSF's select[…]: names and comparisons
// joined by && and ||, with ! and parentheses. It is made of users' text, which is bounded.
type Selection struct {
	operator string       // "&&", "||", "!", "defined", a comparison, or "": a name alone
	of       []*Selection // of &&, || and !
	name     string
	value    string
	number   float64 // the value as a number, of maxmem in bytes
	numeric  bool    // the value is one
}

// Bounds of a Selection. LSF takes 512 characters of each option.
const (
	maxSelection      = 1024 // bytes
	maxSelectionDepth = 16
	maxSelectionTerms = 64
)

// Names of what each host is, beside what it has.
const (
	factName   = "hname"
	factSlots  = "ncpus"
	factMemory = "maxmem"
	factType   = "type"
	factModel  = "model"
)

// IsHostFact reports whether a name is that of something that every host is: of its name, slots,
// memory, type or model.
func IsHostFact(name string) bool {
	switch name {
	case factName, factSlots, factMemory, factType, factModel:
		return true
	}
	return false
}

// ParseSelection reads a condition:
//
//	big                    a feature, or a resource that is counted
//	ncpus >= 8             ncpus, maxmem (a plain number is MB), a counted resource: == != < <= > >=
//	rack == r1             hname, type, model, a feature with a value: == !=
//	type == any            any host; local, too: all hosts are of the submitter's type
//	defined(rack)          a host that has it, whatever its value
//	a && (b || !c)
//
// A comparison does not hold on a host of which the value is not known. An error says what is
// wrong where.
func ParseSelection(text string) (*Selection, error) {
	if len(text) > maxSelection {
		return nil, fmt.Errorf("%d bytes: at most %d are read", len(text), maxSelection)
	}
	p := selectionParser{text: text}
	s, err := p.either(0)
	if err == nil && p.peek() != "" {
		err = p.wrong("want && or ||")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

type selectionParser struct {
	text  string
	at    int
	terms int
}

// peek returns the next word or operator; "": there is none.
func (p *selectionParser) peek() string {
	for p.at < len(p.text) && strings.IndexByte(" \t\n", p.text[p.at]) >= 0 {
		p.at++
	}
	rest := p.text[p.at:]
	for _, operator := range []string{"&&", "||", "==", "!=", ">=", "<=", ">", "<", "!", "(", ")"} {
		if strings.HasPrefix(rest, operator) {
			return operator
		}
	}
	end := 0
	for end < len(rest) && isSelectionByte(rest[end]) {
		end++
	}
	if end == 0 && rest != "" {
		if quote := rest[0]; quote == '\'' || quote == '"' {
			if n := strings.IndexByte(rest[1:], quote); n >= 0 {
				return rest[:n+2]
			}
		}
		return rest[:1]
	}
	return rest[:end]
}

func isSelectionByte(c byte) bool {
	return c == '_' || c == '.' || c == '-' || c == '@' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// next returns the next word or operator, and goes on behind it.
func (p *selectionParser) next() string {
	word := p.peek()
	p.at += len(word)
	return word
}

// take goes on behind an operator if it is next.
func (p *selectionParser) take(operator string) bool {
	if p.peek() != operator {
		return false
	}
	p.at += len(operator)
	return true
}

// wrong is the error of what is next.
func (p *selectionParser) wrong(want string) error {
	switch word := p.peek(); word {
	case "":
		return fmt.Errorf("it ends too early: %s", want)
	case "=":
		return errors.New(`"=": a comparison is written ==`)
	default:
		return fmt.Errorf("%q: %s", word, want)
	}
}

// either reads conditions joined by ||.
func (p *selectionParser) either(depth int) (*Selection, error) {
	return p.joined("||", depth, func() (*Selection, error) {
		return p.joined("&&", depth, func() (*Selection, error) { return p.one(depth) })
	})
}

func (p *selectionParser) joined(operator string, depth int, read func() (*Selection, error)) (*Selection, error) {
	first, err := read()
	if err != nil {
		return nil, err
	}
	all := []*Selection{first}
	for p.take(operator) {
		s, err := read()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 1 {
		return first, nil
	}
	return &Selection{operator: operator, of: all}, nil
}

// one reads what && joins.
func (p *selectionParser) one(depth int) (*Selection, error) {
	if depth++; depth > maxSelectionDepth {
		return nil, fmt.Errorf("more than %d parentheses and ! within each other", maxSelectionDepth)
	}
	switch {
	case p.take("!"):
		s, err := p.one(depth)
		return &Selection{operator: "!", of: []*Selection{s}}, err
	case p.take("("):
		s, err := p.either(depth)
		if err == nil && !p.take(")") {
			err = p.wrong("want && or ||, or )")
		}
		return s, err
	}
	return p.term()
}

// term reads a name, a comparison or defined(NAME).
func (p *selectionParser) term() (*Selection, error) {
	if p.terms++; p.terms > maxSelectionTerms {
		return nil, fmt.Errorf("more than %d names", maxSelectionTerms)
	}
	if !IsResourceName(p.peek()) {
		return nil, p.wrong("want the name of a feature or a resource")
	}
	s := &Selection{name: p.next()}
	switch operator := p.peek(); operator {
	case "(":
		if s.name != "defined" {
			return nil, fmt.Errorf("%s(: want && or || before a parenthesis", s.name)
		}
		p.next()
		s.operator = s.name
		if !IsResourceName(p.peek()) {
			return nil, p.wrong("want the name of a feature or a resource")
		}
		if s.name = p.next(); !p.take(")") {
			return nil, p.wrong("want )")
		}
	case "==", "!=", ">=", "<=", ">", "<":
		p.next()
		s.operator = operator
		word := p.peek()
		s.value = strings.Trim(word, `'"`)
		if s.value == "" || !isSelectionByte(s.value[0]) || strings.ContainsFunc(s.value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, p.wrong("want a number or a value after " + operator)
		}
		p.next()
		return s, s.readNumber()
	}
	return s, nil
}

// readNumber sees whether the value is a number, and whether it can be compared so.
func (s *Selection) readNumber() error {
	digits, unit := s.value, 1.0
	if s.name == factMemory {
		digits, unit = strings.TrimSuffix(strings.ToUpper(s.value), "B"), 1<<20
		if n := len(digits); n > 0 {
			if order := strings.IndexByte("KMGTPE", digits[n-1]); order >= 0 {
				digits, unit = digits[:n-1], float64(int64(1)<<(10*(order+1)))
			}
		}
	}
	if strings.Trim(digits, "0123456789.") == "" {
		if n, err := strconv.ParseFloat(digits, 64); err == nil {
			s.number, s.numeric = n*unit, true
		}
	}
	ordered := s.operator != "==" && s.operator != "!="
	if !s.numeric && (ordered || s.name == factSlots || s.name == factMemory) {
		return fmt.Errorf("%s %s %s: want a number", s.name, s.operator, s.value)
	}
	if ordered && (s.name == factName || s.name == factType || s.name == factModel) {
		return fmt.Errorf("%s %s: want == or !=", s.name, s.operator)
	}
	return nil
}

// Holds reports whether the condition holds on a host.
func (s *Selection) Holds(h *Host) bool {
	switch s.operator {
	case "&&":
		return !slices.ContainsFunc(s.of, func(part *Selection) bool { return !part.Holds(h) })
	case "||":
		return slices.ContainsFunc(s.of, func(part *Selection) bool { return part.Holds(h) })
	case "!":
		return !s.of[0].Holds(h)
	}
	if s.always() {
		return true
	}
	f := h.fact(s.name)
	switch {
	case s.operator == "" || s.operator == "defined":
		return f.known
	case f.text != "":
		return s.operator == "==" && f.text == s.value || s.operator == "!=" && f.text != s.value
	}
	return f.counted && s.numeric && s.compares(f.number)
}

// compares reports whether a number is as the condition wants it.
func (s *Selection) compares(n float64) bool {
	switch s.operator {
	case "==":
		return n == s.number
	case "!=":
		return n != s.number
	case ">=":
		return n >= s.number
	case "<=":
		return n <= s.number
	case ">":
		return n > s.number
	}
	return n < s.number
}

// always reports whether it holds on every host: type == any.
func (s *Selection) always() bool {
	return (s.name == factType || s.name == factModel) && s.operator == "==" && (s.value == "any" || s.value == "local")
}

// fact is what a host is or has under a name: a text, a number, or a feature without a value.
type fact struct {
	known   bool
	text    string // "": it is no text
	number  float64
	counted bool // it is a number
}

func (h *Host) fact(name string) fact {
	switch name {
	case factName:
		return fact{known: true, text: h.Name}
	case factSlots:
		return fact{known: true, number: float64(h.Slots), counted: true}
	case factMemory:
		return fact{known: h.Memory > 0, number: float64(h.Memory), counted: h.Memory > 0}
	}
	for _, a := range h.Has {
		if a.Name == name {
			return fact{known: true, number: float64(a.Count), counted: true}
		}
	}
	for _, feature := range h.Features {
		if of, value, _ := strings.Cut(feature, "="); of == name {
			return fact{known: true, text: value}
		}
	}
	return fact{}
}

// Value returns what a host has under a name as a text that is the same on hosts that have the
// same; "": it has nothing, or a feature without a value.
func (h *Host) Value(name string) string {
	f := h.fact(name)
	if f.counted {
		return strconv.FormatFloat(f.number, 'f', -1, 64)
	}
	return f.text
}

// HasFeature reports whether a host has something under a name.
func (h *Host) HasFeature(name string) bool { return h.fact(name).known }

// Names returns the names in the condition that say what a host has, each once, in order.
// Those of host facts are left out, but for type and model where they are compared.
func (s *Selection) Names() []string {
	var names []string
	for part := range s.terms {
		if !part.always() && (!IsHostFact(part.name) || part.name == factType || part.name == factModel) {
			names = append(names, part.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// terms calls yield with each name and comparison.
func (s *Selection) terms(yield func(*Selection) bool) {
	s.eachTerm(yield)
}

func (s *Selection) eachTerm(yield func(*Selection) bool) bool {
	if len(s.of) == 0 {
		return yield(s)
	}
	return !slices.ContainsFunc(s.of, func(part *Selection) bool { return !part.eachTerm(yield) })
}

// Mentions reports whether the condition has one of these names.
func (s *Selection) Mentions(names []string) bool {
	for part := range s.terms {
		if slices.Contains(names, part.name) {
			return true
		}
	}
	return false
}

// All returns the conditions that && joins, and so all must hold; those that hold on every
// host are left out.
func (s *Selection) All() []*Selection {
	switch {
	case s.operator == "&&":
		var all []*Selection
		for _, part := range s.of {
			all = append(all, part.All()...)
		}
		return all
	case s.always():
		return nil
	}
	return []*Selection{s}
}

// Feature returns the name if that is all of the condition; "": it is more.
func (s *Selection) Feature() string {
	if s.operator == "" {
		return s.name
	}
	return ""
}

// Plain reports whether it is one name or comparison, with no other.
func (s *Selection) Plain() bool { return len(s.of) == 0 }

// Any returns the names of which one is enough, if || joins names alone; nil: the condition
// is another one.
func (s *Selection) Any() []string {
	if s.operator != "||" {
		return nil
	}
	var names []string
	for _, part := range s.of {
		if part.Feature() == "" {
			return nil
		}
		names = append(names, part.name)
	}
	return names
}

// String writes what ParseSelection reads.
func (s *Selection) String() string {
	var parts []string
	for _, part := range s.of {
		text := part.String()
		if part.operator == "||" || part.operator == "&&" {
			text = "(" + text + ")"
		}
		parts = append(parts, text)
	}
	switch s.operator {
	case "&&", "||":
		return strings.Join(parts, " "+s.operator+" ")
	case "!":
		return "!" + parts[0]
	case "defined":
		return "defined(" + s.name + ")"
	case "":
		return s.name
	}
	value := s.value
	if strings.ContainsFunc(value, func(r rune) bool { return r > '~' || !isSelectionByte(byte(r)) }) {
		value = "'" + value + "'"
		if strings.Contains(s.value, "'") {
			value = `"` + s.value + `"`
		}
	}
	return s.name + " " + s.operator + " " + value
}
