// Package grammar is what can be typed at a program: its commands, options and
// arguments, as the program itself defines them. Man pages and completions
// are made of it and of nothing else.
package grammar

import (
	"slices"
)

// Command is a program or one of its subcommands.
type Command struct {
	Name        string
	Brief       string
	Synopsis    []string // as it is typed; empty: made of the rest
	Description string
	Options     []Option
	Arguments   []Argument
	Commands    []*Command
	Examples    []Example
	RunsCommand bool // the first argument begins a command line of its own
}

// Example is a command line and what it does.
type Example struct{ Line, Does string }

// Option is one option, under all its names.
type Option struct {
	Names   []string // with their dashes
	Value   string   // what its value is, such as HOST; "" if it takes none
	Usage   string
	Default string // "" if there is nothing to say
	Many    bool   // may be given several times
	Hidden  bool   // understood, but not offered
}

// Argument is what stands at one place behind the options.
type Argument struct {
	Name string // such as JOB
	Many bool   // and so do all that follow
}

// option finds an option by one of its names.
func (c *Command) option(name string) *Option {
	for i := range c.Options {
		if slices.Contains(c.Options[i].Names, name) {
			return &c.Options[i]
		}
	}
	return nil
}

func (c *Command) command(name string) *Command {
	for _, sub := range c.Commands {
		if sub.Name == name {
			return sub
		}
	}
	return nil
}
