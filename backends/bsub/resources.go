package bsub

import (
	"errors"
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

	needs    []backends.Amount     // rusage[NAME=N], by name
	features []string              // select[NAME]
	selects  []*backends.Selection // what else select[] says, all of which must hold
	same     []string              // same[NAME:NAME]
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
			err = b.selection(body, "select[]")
		case "same":
			err = b.same(body)
		case "order", "cu", "affinity":
			b.warn("option -R: %s[] is ignored: hosts are chosen by slots and memory; name hosts with -m", name)
		case "":
			err = b.selection(strings.TrimRight(body, " \t\n&"), body)
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

// selection reads a condition on hosts: select[big && (fast || ncpus >= 8)]. Names that && joins
// are the job's features. What it says of a host's load now is ignored with a warning, as all of
// it is where the queue has no features.
func (b *builder) selection(body, text string) error {
	if !b.Resources {
		b.warn("option -R: %s is ignored: hosts are chosen by slots and memory; name hosts with -m", Visible(text))
		return nil
	}
	s, err := backends.ParseSelection(body)
	if err != nil {
		return fmt.Errorf("select[]: %w", err)
	}
	for _, part := range s.All() {
		name := part.Feature()
		switch {
		case part.Mentions(nowLeft()) && part.Plain():
			b.warn("option -R: select[%s] is ignored: hosts are chosen by slots, memory, resources and features; name hosts with -m", Visible(part.String()))
		case part.Mentions(nowLeft()):
			return fmt.Errorf("select[%s]: what a host has left now is not asked for here: ask for memory with rusage[mem=SIZE], and leave the rest out", Visible(part.String()))
		case name == "":
			b.usage.selects = append(b.usage.selects, part)
		case !slices.Contains(b.usage.features, name):
			b.usage.features = append(b.usage.features, name)
		}
	}
	return nil
}

// nowLeft are names of what a host has left now.
func nowLeft() []string {
	return append(loads(), "mem", "slots", "status", "cpu", "login", "idle", "swap")
}

// condition writes the conditions that all must hold.
func condition(all []*backends.Selection) string {
	var parts []string
	for _, s := range all {
		text := s.String()
		if len(all) > 1 && !s.Plain() {
			text = "(" + text + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " && ")
}

// same reads names with colons between them: same[rack:model].
func (b *builder) same(body string) error {
	if !b.Resources {
		b.warn("option -R: same[] is ignored: hosts are chosen by slots and memory; name hosts with -m")
		return nil
	}
	b.usage.same = nil
	for name := range strings.SplitSeq(body, ":") {
		if name = strings.TrimSpace(name); !backends.IsResourceName(name) {
			return fmt.Errorf("same[%s]: want the names of features or resources, with colons between them", Visible(body))
		}
		if !slices.Contains(b.usage.same, name) {
			b.usage.same = append(b.usage.same, name)
		}
	}
	return nil
}

// setGPU reads what LSF's -gpu takes: num=N[/host|/task], and what else can be kept. A job has the
// GPUs that are counted for it alone.
func setGPU(b *builder, v string) error {
	if !b.Resources {
		return errors.New("GPUs are not managed")
	}
	b.gpus, b.gpusPerTask = 1, false
	if v = strings.TrimSpace(v); v == "-" {
		return nil
	}
	for item := range strings.SplitSeq(v, ":") {
		key, value, _ := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		var possible string
		switch key {
		case "num":
			count, per, _ := strings.Cut(value, "/")
			n, err := parseNumber(count, 1, maxSlots)
			if err != nil {
				return fmt.Errorf("num=%s: %w", Visible(value), err)
			}
			if per != "" && per != "host" && per != "task" {
				return fmt.Errorf("num=%s: want nothing, /host or /task after the number", Visible(value))
			}
			b.gpus, b.gpusPerTask = n, per == "task"
			continue
		case "mode":
			possible = "shared"
		case "mps", "aff", "block":
			possible = "no"
		case "j_exclusive":
			if value == "no" { // it is of no consequence
				continue
			}
			possible = "yes"
		case "gmodel", "gmem", "gtile", "gvendor", "nvlink", "glink", "gi":
			return fmt.Errorf("%s: kinds of GPUs are not told apart: ask for hosts that have them with -R 'select[FEATURE]'", key)
		default:
			return fmt.Errorf("%s: want num=N, and perhaps mode=shared, j_exclusive=yes, mps=no, aff=no or block=no, with colons between them", Visible(key))
		}
		if value != possible {
			return fmt.Errorf("%s=%s: GPUs are counted, and not set up: %s=%s alone is possible", key, Visible(value), key, possible)
		}
	}
	return nil
}

// finishGPUs adds the GPUs of -gpu to what the job takes of each of its hosts.
func (b *builder) finishGPUs() error {
	const gpu = "gpu"
	n := b.gpus
	switch per := b.spec.PerHost; {
	case n == 0:
		return nil
	case !b.gpusPerTask:
	case b.spec.OneHost:
		n *= b.slots
	case per > 0 && b.slots%per == 0:
		n *= per
	default:
		return errors.New("option -gpu: num=N/task: a job on several hosts needs the same number of slots on each of them: add -R 'span[ptile=N]'")
	}
	if i := slices.IndexFunc(b.usage.needs, func(a backends.Amount) bool { return a.Name == gpu }); i >= 0 {
		if asked := b.usage.needs[i].Count; asked != n {
			return fmt.Errorf("option -gpu: %d GPUs of each host, and -R says rusage[gpu=%d]: leave one of them out", n, asked)
		}
		return nil
	}
	if n > maxSlots {
		return fmt.Errorf("option -gpu: %d GPUs of each host: too many", n)
	}
	b.usage.needs = append(b.usage.needs, backends.Amount{Name: gpu, Count: n})
	return nil
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
	case err == nil && n > maxSlots:
		return fmt.Errorf("span[%s]: too large", Visible(body))
	case key == "hosts" && n == 1:
		b.usage.oneHost, b.usage.perHost = true, 0
	case key == "hosts" && n == -1:
		b.usage.oneHost, b.usage.perHost = false, 0
	case key == "ptile" && err == nil && n < 1:
		return fmt.Errorf("span[%s]: want 1 or more", Visible(body))
	case key == "ptile" && err == nil:
		b.usage.oneHost, b.usage.perHost = false, n
	default:
		return fmt.Errorf("span[%s]: want hosts=1, hosts=-1 or ptile=N", Visible(body))
	}
	return nil
}
