package commands

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

// Keys of an app's Metadata.
const (
	Examples        = "examples"          // its []grammar.Example
	RunsCommand     = "runs command"      // true: its first argument, if it names no command of the app's own, begins a command line of its own
	CommandsThatRun = "commands that run" // []string: of its commands, those whose first argument begins such a line
	Clusters        = "clusters"          // true: letters of options without values may be joined, as in -rs
	OneDash         = "one dash"          // []string: options of several letters that are offered with one dash, as LSF has them
)

func hasClusters(app *cli.App) bool {
	has, _ := app.Metadata[Clusters].(bool)
	return has
}

func runsCommand(app *cli.App) bool {
	runs, _ := app.Metadata[RunsCommand].(bool)
	return runs
}

// commandRuns is runsCommand for one of an app's commands.
func commandRuns(app *cli.App, name string) bool {
	names, _ := app.Metadata[CommandsThatRun].([]string)
	return slices.Contains(names, name)
}

// Grammar is the grammar of an app.
func Grammar(app *cli.App) *grammar.Command {
	c := &grammar.Command{
		Name: app.Name, Brief: app.Usage, Description: app.Description,
		Options: optionsOf(app.Flags), Arguments: argumentsOf(app.ArgsUsage), Commands: commandsOf(app.Commands),
	}
	c.Examples, _ = app.Metadata[Examples].([]grammar.Example)
	c.RunsCommand = runsCommand(app)
	for _, command := range c.Commands {
		command.RunsCommand = commandRuns(app, command.Name)
	}
	short, _ := app.Metadata[OneDash].([]string)
	for i := range c.Options {
		for n, name := range c.Options[i].Names {
			if slices.Contains(short, strings.TrimPrefix(name, "--")) {
				c.Options[i].Names[n] = name[1:]
			}
		}
	}
	if app.UsageText != "" {
		c.Synopsis = strings.Split(app.UsageText, "\n")
	} else if app.ArgsUsage != "" {
		c.Synopsis = []string{app.Name + " [OPTION]… " + app.ArgsUsage}
	}
	return c
}

func commandsOf(commands []*cli.Command) []*grammar.Command {
	var all []*grammar.Command
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		command := &grammar.Command{
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

func optionsOf(flags []cli.Flag) []grammar.Option {
	var options []grammar.Option
	for _, f := range flags {
		documented, ok := f.(cli.DocGenerationFlag)
		if visible, is := f.(cli.VisibleFlag); !ok || is && !visible.IsVisible() {
			continue
		}
		o := grammar.Option{}
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
func argumentsOf(usage string) []grammar.Argument {
	var arguments []grammar.Argument
	for word := range strings.FieldsSeq(usage) {
		word = strings.Trim(word, "[]")
		if word == "|" || strings.HasPrefix(word, "-") {
			break
		}
		name := strings.TrimRight(word, ".…]")
		arguments = append(arguments, grammar.Argument{Name: name, Many: name != word})
	}
	return arguments
}
