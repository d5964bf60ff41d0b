// Package grammar is what can be typed at a program: its commands, options and
// arguments, taken from the program's own definition. Man pages and completions
// are made of it and of nothing else.
package grammar

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
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

// Examples is the key under which an app's Metadata has its []Example.
const Examples = "examples"

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

// Of is the grammar of an app.
func Of(app *cli.App) *Command {
	c := &Command{
		Name: app.Name, Brief: app.Usage, Description: app.Description,
		Options: optionsOf(app.Flags), Arguments: argumentsOf(app.ArgsUsage), Commands: commandsOf(app.Commands),
	}
	c.Examples, _ = app.Metadata[Examples].([]Example)
	if app.UsageText != "" {
		c.Synopsis = strings.Split(app.UsageText, "\n")
	} else if app.ArgsUsage != "" {
		c.Synopsis = []string{app.Name + " [OPTION]… " + app.ArgsUsage}
	}
	return c
}

func commandsOf(commands []*cli.Command) []*Command {
	var all []*Command
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		command := &Command{
			Name: c.Name, Brief: c.Usage, Description: c.Description,
			Options: optionsOf(c.Flags), Arguments: argumentsOf(c.ArgsUsage), Commands: commandsOf(c.Subcommands),
		}
		if c.ArgsUsage != "" {
			command.Synopsis = []string{c.Name + " " + c.ArgsUsage}
		}
		all = append(all, command)
	}
	return all
}

func optionsOf(flags []cli.Flag) []Option {
	var options []Option
	for _, f := range flags {
		documented, ok := f.(cli.DocGenerationFlag)
		if visible, is := f.(cli.VisibleFlag); !ok || is && !visible.IsVisible() {
			continue
		}
		o := Option{}
		for _, name := range f.Names() {
			o.Names = append(o.Names, dashed(name))
		}
		o.Value, o.Usage = placeholder(documented.GetUsage())
		if documented.TakesValue() {
			if o.Value == "" {
				o.Value = "VALUE"
			}
			if text := documented.GetDefaultText(); text != "" && text != "0" && text != "0s" {
				o.Default = text
			}
		} else {
			o.Value = ""
		}
		if slice, ok := f.(cli.DocGenerationSliceFlag); ok {
			o.Many = slice.IsSliceFlag()
		}
		options = append(options, o)
	}
	return options
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// placeholder takes the word in backquotes out of a usage text.
func placeholder(usage string) (value, text string) {
	before, rest, ok := strings.Cut(usage, "`")
	value, after, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "", usage
	}
	return value, before + value + after
}

// argumentsOf reads a line such as "PROJECT SLOTS [--week WEEK]" or "[JOB...]":
// what stands before the first option and before an alternative.
func argumentsOf(usage string) []Argument {
	var arguments []Argument
	for word := range strings.FieldsSeq(usage) {
		word = strings.Trim(word, "[]")
		if word == "|" || strings.HasPrefix(word, "-") {
			break
		}
		name := strings.TrimRight(word, ".…]")
		arguments = append(arguments, Argument{Name: name, Many: name != word})
	}
	return arguments
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
