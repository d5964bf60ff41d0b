package bsub

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Line is a bsub command line taken apart into options and the job's command.
type Line struct {
	Help    bool // -h, -help, --help
	Version bool // -V, --version
	Advise  bool // --advise: nothing is submitted
	Command []string

	uses     []use
	warnings []string
}

// use is one occurrence of an option.
type use struct {
	opt     *Option
	value   string
	revoked bool // bmod -bn
}

// effective are the uses that count, in their order: of options that replace each other the
// last one alone.
func effective(uses []use) []use {
	last := map[string]int{}
	for i, u := range uses {
		last[u.opt.group] = i
	}
	var count []use
	for i, u := range uses {
		if u.opt.many || last[u.opt.group] == i {
			count = append(count, u)
		}
	}
	return count
}

// resolve is what the option means on a queue, with a warning where it is ignored there, or
// why it can't be used.
func (u use) resolve(own map[string]backends.OptionMeaning) (honoured bool, warning string, err error) {
	if strings.ContainsRune(u.value, 0) {
		return false, "", fmt.Errorf("option %s: its argument holds a NUL character", u.opt.Name)
	}
	switch meaning := u.opt.meaning(own); meaning.Treatment {
	case backends.Refused:
		return false, "", fmt.Errorf("option %s is not possible on this queue: %s", u.opt.Name, meaning.Note)
	case backends.Ignored:
		return false, fmt.Sprintf("option %s is ignored: %s", u.opt.Name, meaning.Note), nil
	case backends.Honoured:
	}
	return true, "", nil
}

// Scan reads the words that follow bsub's own name. The options end at the
// first word that is none; the rest is the job's command and kept as it is.
//
// An option's argument is the next word or, as LSF allows, joined to it (-n4);
// flags may be joined (-Hx). A word that could be read in two ways (-Jdaily) is
// an error, and one where letters follow an option's letter (-qnormal) is noted
// as a warning, since a mistyped long option would read the same.
func Scan(args []string) (Line, error) { return scan(args, nil) }

// scan is Scan, and knows -bn and the like of the options that are revocable.
func scan(args, revocable []string) (Line, error) {
	var line Line
	options := optionTable(Options())
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			line.Command = args[1:]
			return line, nil
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			line.Command = args
			return line, nil
		}
		switch word {
		case "-h", "-help", "--help":
			line.Help = true
			args = args[1:]
			continue
		case "-V", "--version":
			line.Version = true
			args = args[1:]
			continue
		case AdviseOption:
			line.Advise = true
			args = args[1:]
			continue
		}
		if name := strings.TrimSuffix(word, "n"); name != word && slices.Contains(revocable, name) {
			line.uses = append(line.uses, use{opt: options.named(name), revoked: true})
			args = args[1:]
			continue
		}
		used, err := line.option(options, args)
		if err != nil {
			return Line{}, err
		}
		args = args[used:]
	}
	return line, nil
}

// option reads the option at the head of args and returns how many words it took.
func (l *Line) option(options optionTable, args []string) (int, error) {
	word := args[0]
	switch name, value, joined := strings.Cut(word, "="); {
	case word == batchOption:
		word = packOption
	case joined && name == batchOption:
		l.uses = append(l.uses, use{opt: options.named(packOption), value: value})
		return 1, nil
	case joined && inEnvironment(name):
		l.uses = append(l.uses, use{opt: options.named(name), value: value})
		return 1, nil
	}
	if o := options.named(word); o != nil {
		if o.Arg == "" {
			l.uses = append(l.uses, use{opt: o})
			return 1, nil
		}
		if len(args) < 2 {
			return 0, fmt.Errorf("option %s needs an argument: %s %s", word, word, o.Arg)
		}
		l.uses = append(l.uses, use{opt: o, value: args[1]})
		return 2, nil
	}
	flags := cluster(options, word)
	joined := prefixes(options, word)
	switch {
	case len(flags) > 0 && len(joined) == 0:
		for _, o := range flags {
			l.uses = append(l.uses, use{opt: o})
		}
		return 1, nil
	case len(joined) == 1 && len(flags) == 0:
		o := joined[0]
		value := word[len(o.Name):]
		if c := value[0] | 0x20; 'a' <= c && c <= 'z' {
			l.warnings = append(l.warnings, fmt.Sprintf("%s is read as %s %s", Visible(word), o.Name, Visible(value)))
		}
		l.uses = append(l.uses, use{opt: o, value: value})
		return 1, nil
	case len(joined) > 1:
		short, long := joined[0], joined[1]
		return 0, fmt.Errorf("option %s can mean %s %s or %s %s; put a blank after the option's name",
			Visible(word), short.Name, Visible(word[len(short.Name):]), long.Name, Visible(word[len(long.Name):]))
	}
	return 0, fmt.Errorf("unknown option %s; see --help", Visible(word))
}

// cluster reads -Hx as -H -x; nil if any of its letters is no flag.
func cluster(options optionTable, word string) []*Option {
	var flags []*Option
	for _, letter := range word[1:] {
		o := options.named("-" + string(letter))
		if o == nil || o.Arg != "" {
			return nil
		}
		flags = append(flags, o)
	}
	return flags
}

// prefixes are the options with an argument that word begins with, shortest
// first.
func prefixes(options optionTable, word string) []*Option {
	var found []*Option
	for n := 2; n < len(word); n++ {
		if o := options.named(word[:n]); o != nil && o.Arg != "" && !inEnvironment(o.Name) {
			found = append(found, o)
		}
	}
	return found
}

// optionTable is all options. Few are looked up in it, so it has no index.
type optionTable []Option

// named returns an option by its name, nil if there is none.
func (t optionTable) named(name string) *Option {
	for i := range t {
		if t[i].Name == name {
			return &t[i]
		}
	}
	return nil
}

// addDefaults lays the options of a script below those of the command line, which
// win where both have one.
func (l *Line) addDefaults(script Line) {
	given := map[string]bool{}
	for _, u := range l.uses {
		given[u.opt.group] = true
	}
	var below []use
	for _, u := range script.uses {
		if !given[u.opt.group] {
			below = append(below, u)
		}
	}
	l.uses = append(below, l.uses...)
	l.warnings = append(script.warnings, l.warnings...)
}
