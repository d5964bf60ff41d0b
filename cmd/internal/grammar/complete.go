package grammar

import (
	"slices"
	"strings"
)

// Completion is what can stand at the end of an unfinished command line.
type Completion struct {
	Typed    string      // what is there of it already
	Prefix   string      // stands before what is completed: --project= of --project=ch
	Words    []Candidate // options and subcommands, those that Typed begins
	Value    string      // what else: JOB, QUEUE, FILE …; "": nothing
	Seen     []string    // what stands in Value's place already, where there may be several
	RunsFrom int         // > 0: a command of its own begins at this word (1: the first after the program)
}

// Candidate is one way to go on.
type Candidate struct{ Text, Note string }

// Complete says what can stand in the place of the last word, of those after
// the program's name.
func (c *Command) Complete(words []string) Completion {
	if len(words) == 0 {
		words = []string{""}
	}
	last := len(words) - 1
	w := Completion{Typed: words[last]}
	options, arguments := true, []string(nil)
	for i := 0; i < last; i++ {
		word := words[i]
		switch {
		case options && word == "--":
			options = false
		case options && len(word) > 1 && word[0] == '-':
			if o := c.option(word); o != nil && o.Value != "" {
				if i+1 == last {
					w.Value = o.Value
					return w
				}
				i++
			}
		case c.RunsCommand:
			w.RunsFrom = i + 1
			return w
		default:
			if sub := c.command(word); sub != nil && len(arguments) == 0 {
				return sub.Complete(words[i+1:])
			}
			arguments = append(arguments, word)
		}
	}
	if options && strings.HasPrefix(w.Typed, "-") {
		return c.completeOption(w)
	}
	if c.RunsCommand {
		w.RunsFrom = last + 1
		return w
	}
	return c.completeArgument(w, arguments)
}

func (c *Command) completeOption(w Completion) Completion {
	if name, value, ok := strings.Cut(w.Typed, "="); ok {
		if o := c.option(name); o != nil && o.Value != "" && strings.HasPrefix(name, "--") {
			w.Prefix, w.Typed, w.Value = name+"=", value, o.Value
		}
		return w
	}
	for _, o := range c.Options {
		if o.Hidden {
			continue
		}
		for _, name := range o.Names {
			w.add(name, o.Usage)
		}
	}
	w.add("--help", "show help")
	return w
}

func (c *Command) completeArgument(w Completion, before []string) Completion {
	if len(before) == 0 {
		for _, sub := range c.Commands {
			w.add(sub.Name, sub.Brief)
		}
	}
	for i, argument := range c.Arguments {
		if i == len(before) || argument.Many && i < len(before) {
			w.Value = argument.Name
			if argument.Many {
				w.Seen = before[i:]
			}
			break
		}
	}
	return w
}

func (w *Completion) add(text, note string) {
	if strings.HasPrefix(text, w.Typed) && !slices.ContainsFunc(w.Words, func(c Candidate) bool { return c.Text == text }) {
		w.Words = append(w.Words, Candidate{text, note})
	}
}
