package backends

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Names, paths and environments are bytes; JSON is UTF-8. On the wire and on
// disk a byte that is not UTF-8 stands as the private-use character
// U+10FF00 + byte, and so do the bytes of such a character itself: any text
// survives, and ordinary text stays as it is.
const escapes = 0x10FF00

// Escape makes any text valid UTF-8.
func Escape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || r >= escapes {
			for i := range n {
				b.WriteRune(escapes + rune(s[i]))
			}
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func plain(s string) bool {
	from := 0
	for from < len(s) && s[from] < utf8.RuneSelf {
		from++
	}
	for _, r := range s[from:] {
		if r == utf8.RuneError || r >= escapes {
			return false // U+FFFD itself passes through Escape unchanged
		}
	}
	return true
}

// Unescape is the inverse of Escape.
func Unescape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= escapes {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// MapTexts is the Spec with f applied to each of its texts. A list that f does
// not change is shared with s.
func (s Spec) MapTexts(f func(string) string) Spec {
	for _, p := range []*string{&s.Name, &s.Project, &s.Queue, &s.Description, &s.Dir, &s.Stdin, &s.Stdout, &s.Stderr, &s.Terminal, &s.After, &s.Select, &s.PreExec, &s.PostExec, &s.Mail.To, &s.Group, &s.Notify} {
		*p = f(*p)
	}
	for _, p := range []*[]string{&s.Hosts, &s.Features, &s.Same, &s.Command, &s.Env} {
		*p = mapTexts(*p, f)
	}
	s.Needs = mapAmounts(s.Needs, f)
	return s
}

// Size is about how many bytes the Spec takes: its texts, script and array indices.
func (s *Spec) Size() int {
	const number = 8
	n := len(s.Script)
	s.MapTexts(func(text string) string { n += len(text); return text })
	if s.Array != nil {
		n += number * len(s.Array.Indices)
	}
	return n
}

// MapTexts is the Change with f applied to each of its texts.
func (c Change) MapTexts(f func(string) string) Change {
	for _, p := range []**string{&c.Name, &c.Project, &c.Queue, &c.Description, &c.After, &c.Select} {
		if *p != nil {
			text := f(**p)
			*p = &text
		}
	}
	for _, p := range []**[]string{&c.Hosts, &c.Features, &c.Same} {
		if *p != nil {
			list := append([]string{}, mapTexts(**p, f)...) // JSON's null would be no change
			*p = &list
		}
	}
	if c.Needs != nil {
		needs := append([]Amount{}, mapAmounts(*c.Needs, f)...)
		c.Needs = &needs
	}
	return c
}

// MapTexts is the Job with f applied to each of its texts.
func (j Job) MapTexts(f func(string) string) Job {
	for _, p := range []*string{&j.Name, &j.User, &j.Project, &j.Step, &j.Queue, &j.Group, &j.Tag, &j.Reason, &j.Mark, &j.Unserved, &j.Progress} {
		*p = f(*p)
	}
	for _, p := range []*[]string{&j.Asked, &j.Pinned, &j.Planned, &j.Keeps} {
		*p = mapTexts(*p, f)
	}
	return j
}

// MapTexts is the Record with f applied to each of its texts, in place but for its Spec.
func (r *Record) MapTexts(f func(string) string) {
	r.Spec = r.Spec.MapTexts(f)
	for i := range r.History {
		r.History[i].Detail = f(r.History[i].Detail)
	}
	for i := range r.Runs {
		r.Runs[i].Why = f(r.Runs[i].Why)
	}
	for i := range r.Settings {
		r.Settings[i].Value = f(r.Settings[i].Value)
	}
}

// mapAmounts is mapTexts for names.
func mapAmounts(list []Amount, f func(string) string) []Amount {
	for i, a := range list {
		if f(a.Name) != a.Name {
			list = slices.Clone(list)
			for ; i < len(list); i++ {
				list[i].Name = f(list[i].Name)
			}
			return list
		}
	}
	return list
}

// mapTexts copies no list that f leaves as it is: environments are long, and few
// texts are changed.
func mapTexts(list []string, f func(string) string) []string {
	for i, text := range list {
		if f(text) != text {
			list = slices.Clone(list)
			for ; i < len(list); i++ {
				list[i] = f(list[i])
			}
			return list
		}
	}
	return list
}
