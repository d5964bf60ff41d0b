package bsub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// usage is what is honoured of a resource requirement string.
type usage struct {
	memory  int64 // bytes
	perTask bool  // of each slot, not of the whole job
	oneHost bool
	perHost int // span[ptile=N]; 0: not said

	needs    []backends.Amount // rusage[NAME=N], by name
	features []string          // select[NAME]
}

// setResources reads a resource requirement: sections such as rusage[…] and
// span[…]; text outside of them selects hosts. A later string's sections replace
// an earlier one's.
func setResources(b *builder, v string) error {
	if strings.ContainsAny(v, "{}") {
		return fmt.Errorf("%q: compound and alternative requirements are not possible here", v)
	}
	rest := v
	for {
		rest = strings.TrimLeft(rest, " \t\n&")
		if rest == "" {
			return nil
		}
		name, body, tail, err := section(rest)
		if err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
		rest = tail
		switch name {
		case "rusage":
			err = b.rusage(body)
		case "span":
			err = b.span(body)
		case "select":
			b.selection(body, "select[]")
		case "order", "same", "cu", "affinity":
			b.warn("option -R: %s[] is ignored: hosts are chosen by slots and memory; name hosts with -m", name)
		case "":
			b.selection(strings.TrimRight(body, " \t\n&"), body)
		default:
			err = fmt.Errorf("unknown section %s[]; want select, order, rusage, span, same, cu or affinity", Visible(name))
		}
		if err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
	}
}

// section parts the first section from the rest: its name, what is between its
// brackets, and what follows. Text without brackets has no name.
func section(s string) (name, body, rest string, err error) {
	open := strings.IndexByte(s, '[')
	if open < 0 {
		if strings.Contains(s, "]") {
			return "", "", "", fmt.Errorf("] without [")
		}
		return "", s, "", nil
	}
	start := open
	for start > 0 && isNameByte(s[start-1]) {
		start--
	}
	if start == open {
		return "", "", "", fmt.Errorf("[ without a section's name")
	}
	if start > 0 {
		return "", strings.TrimSpace(s[:start]), s[start:], nil
	}
	depth := 0
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return s[:open], s[open+1 : i], s[i+1:], nil
			}
		}
	}
	return "", "", "", fmt.Errorf("%s[ is not closed", s[:open])
}

func isNameByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// selection reads features with && between them: select[big && fast]. What else stands
// there is ignored with a warning, as all of it is where the queue has no features.
func (b *builder) selection(body, text string) {
	if !b.Resources || strings.Contains(body, "||") {
		b.warn("option -R: %s is ignored: hosts are chosen by slots and memory; name hosts with -m", Visible(text))
		return
	}
	for term := range strings.SplitSeq(body, "&&") {
		switch term = strings.TrimSpace(term); {
		case !backends.IsResourceName(term):
			b.warn("option -R: select[%s] is ignored: hosts are chosen by slots, memory, resources and features; name hosts with -m", Visible(term))
		case !slices.Contains(b.usage.features, term):
			b.usage.features = append(b.usage.features, term)
		}
	}
}

// loads are LSF's own load indices and the keywords of rusage[], which are no resources here.
func loads() []string {
	return []string{"r15s", "r1m", "r15m", "ut", "pg", "io", "ls", "it", "swp", "tmp", "duration", "decay"}
}

// need reads NAME=N, or NAME=N/host: so many units of each host.
func (b *builder) need(name, value string) error {
	count, per, _ := strings.Cut(value, "/")
	n, err := parseNumber(strings.TrimSpace(count), 1, maxSlots)
	if err != nil {
		return fmt.Errorf("%s=%s: %w", name, Visible(value), err)
	}
	if per != "" && per != "host" {
		return fmt.Errorf("%s=%s: want nothing or /host after the number: a resource is taken of each host", name, Visible(value))
	}
	b.usage.needs = slices.DeleteFunc(b.usage.needs, func(a backends.Amount) bool { return a.Name == name })
	b.usage.needs = append(b.usage.needs, backends.Amount{Name: name, Count: n})
	return nil
}

// rusage reads mem=SIZE among resources parted by commas or colons. SIZE is of
// the whole job; SIZE/task is of each slot.
func (b *builder) rusage(body string) error {
	for item := range strings.FieldsFuncSeq(body, func(r rune) bool { return r == ',' || r == ':' || r == '&' }) {
		key, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if key = strings.TrimSpace(key); key == "" {
			continue
		}
		if b.Resources && ok && key != "mem" && backends.IsResourceName(key) && !slices.Contains(loads(), key) {
			if err := b.need(key, strings.TrimSpace(value)); err != nil {
				return err
			}
			continue
		}
		if key != "mem" || !ok {
			b.warn("option -R: rusage[%s] is ignored: only mem is managed", Visible(key))
			continue
		}
		number, per, _ := strings.Cut(strings.TrimSpace(value), "/")
		size, err := ParseSize(number)
		if err != nil {
			return err
		}
		switch per {
		case "", "job", "host", "task":
		default:
			return fmt.Errorf("mem=%s: want /job or /task after the size", Visible(value))
		}
		if per == "host" {
			b.warn("option -R: rusage[mem=%s] is taken for the whole job", Visible(value))
		}
		b.usage.memory, b.usage.perTask = size, per == "task"
	}
	return nil
}

// span reads hosts=1, hosts=-1 and ptile=N.
func (b *builder) span(body string) error {
	key, value, _ := strings.Cut(strings.TrimSpace(body), "=")
	value = strings.TrimSpace(value)
	switch n, err := strconv.Atoi(value); {
	case key == "hosts" && n == 1:
		b.usage.oneHost = true
	case key == "hosts" && n == -1:
		b.usage.oneHost = false
	case key == "ptile" && err == nil && n < 1:
		return fmt.Errorf("span[%s]: want 1 or more", Visible(body))
	case key == "ptile" && err == nil:
		b.usage.perHost = n
	default:
		b.warn("option -R: span[%s] is ignored: want hosts=1 or nothing", Visible(body))
	}
	return nil
}
