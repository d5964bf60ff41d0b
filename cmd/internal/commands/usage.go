package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/nearest"
)

// errVersionShown ends a run of --version; Main turns it into success.
var errVersionShown = errors.New("version shown")

// prepare adds what all programs share to an app and to its commands.
func prepare(app *cli.App) {
	app.Version = shell.VersionText()
	app.HideVersion = true // urfave's takes -v, which is for verbose
	app.HideHelpCommand = true
	app.OnUsageError = usageError
	app.ExitErrHandler = func(*cli.Context, error) {} // exit codes are Main's
	app.CustomAppHelpTemplate = cli.AppHelpTemplate + "\n" + shell.ExitCodes
	app.Flags = append(app.Flags, &cli.BoolFlag{Name: "version", Usage: "print version and commit", DisableDefaultText: true})
	app.Before = versionBefore(app.Before)
	if len(app.Commands) > 0 && app.Action == nil {
		app.Action = needsCommand(app.Commands)
	} else {
		app.Action = checkArguments(app.Action, app.ArgsUsage)
	}
	prepareCommands(app.Commands)
}

func prepareCommands(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelpCommand = true // else an argument "help" would be a command
		c.OnUsageError = usageError
		if len(c.Subcommands) > 0 && c.Action == nil {
			c.Action = needsCommand(c.Subcommands)
		} else {
			c.Action = checkArguments(c.Action, c.ArgsUsage)
		}
		prepareCommands(c.Subcommands)
	}
}

func versionBefore(before cli.BeforeFunc) cli.BeforeFunc {
	return func(c *cli.Context) error {
		if c.Bool("version") {
			fmt.Fprintln(c.App.Writer, c.App.Name, c.App.Version)
			return errVersionShown
		}
		if before != nil {
			return before(c)
		}
		return nil
	}
}

func checkArguments(action cli.ActionFunc, argsUsage string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if argsUsage == "" && c.Args().Present() {
			return shell.Usagef("unexpected argument %q: see %s --help", c.Args().First(), fullName(c))
		}
		if action == nil {
			return cli.ShowAppHelp(c)
		}
		return action(c)
	}
}

func needsCommand(commands []*cli.Command) cli.ActionFunc {
	return func(c *cli.Context) error {
		var names []string
		for _, command := range commands {
			if !command.Hidden {
				names = append(names, command.Name)
			}
		}
		if !c.Args().Present() {
			return shell.Usagef("no command given (known: %s): see %s --help", strings.Join(names, ", "), fullName(c))
		}
		return shell.Usagef("unknown command %q (known: %s)", c.Args().First(), strings.Join(names, ", "))
	}
}

// Args are a command's positional arguments, at least and at most so many; most
// < 0: any number.
func Args(c *cli.Context, least, most int) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < least:
		return nil, shell.Usagef("too few arguments: want %s %s", fullName(c), c.Command.ArgsUsage)
	case most >= 0 && len(args) > most:
		return nil, shell.Usagef("unexpected argument %q: want %s %s", args[most], fullName(c), c.Command.ArgsUsage)
	}
	return args, nil
}

// fullName is the command as it is typed: pba alloc set.
func fullName(c *cli.Context) string {
	if c.Command != nil && c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return c.App.Name
}

// usageError rewrites an error of the flag package as one line in our style.
func usageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		text = "option " + dashed(strings.TrimPrefix(name, "-")) + " needs a value"
	} else if rest, ok := strings.CutPrefix(text, "invalid value "); ok {
		if value, rest, ok := strings.Cut(rest, " for flag -"); ok {
			name, why, _ := strings.Cut(rest, ": ")
			text = "option " + dashed(name) + ": invalid value " + value + ": " + why
		}
	}
	return shell.Usagef("%s: see %s --help", text, fullName(c))
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// optionsFirst puts each command's options before its arguments, since urfave stops
// to look for options at the first argument. What follows "--", and what looks
// like a negative number, is an argument; so is all that follows a command of the
// user's (see RunsCommand, CommandsThatRun). An option that the command does not have is an error.
func optionsFirst(app *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	ordered, positional := args[:1:1], []string(nil)
	flags, commands, runs, path := app.Flags, app.Commands, runsCommand(app), app.Name
	rest := args[1:]
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			positional = append(positional, rest...)
			break
		}
		if isOption(arg) {
			letters, err := options(flags, arg, hasClusters(app))
			if err != nil {
				return nil, shell.Usagef("%w: see %s --help", err, path)
			}
			ordered = append(ordered, letters...)
			if takesValue(flags, arg) {
				if len(rest) == 0 {
					return ordered, nil // for urfave to say what is missing
				}
				ordered, rest = append(ordered, rest[0]), rest[1:]
			}
			continue
		}
		if command := commandNamed(commands, arg); command != nil && len(positional) == 0 {
			ordered = append(ordered, arg)
			flags, commands, runs, path = command.Flags, command.Subcommands, commandRuns(app, command.Name), path+" "+command.Name
			continue
		}
		if runs {
			return append(append(ordered, "--", arg), rest...), nil // what follows is that command's
		}
		positional = append(positional, arg)
	}
	if slices.ContainsFunc(positional, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		ordered = append(ordered, "--")
	}
	return append(ordered, positional...), nil
}

func isOption(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9')
}

// options returns the options that a word stands for: itself, or where a command's letters may
// be joined, as in -rs, each of them. None of these takes a value.
func options(flags []cli.Flag, arg string, joined bool) ([]string, error) {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if name == "h" || name == "help" || flagNamed(flags, name) != nil {
		return []string{arg}, nil
	}
	var letters []string
	for _, letter := range name {
		f := flagNamed(flags, string(letter))
		if f == nil || f.TakesValue() {
			break
		}
		letters = append(letters, "-"+string(letter))
	}
	if joined && len(letters) > 1 && "-"+strings.ReplaceAll(strings.Join(letters, ""), "-", "") == arg {
		return letters, nil
	}
	var known []string
	for _, f := range flags {
		for _, n := range f.Names() {
			known = append(known, dashed(n))
		}
	}
	typed, _, _ := strings.Cut(arg, "=")
	return nil, fmt.Errorf("unknown option %s%s", typed, nearest.Hint("--"+name, append(known, "--help")))
}

func flagNamed(flags []cli.Flag, name string) cli.DocGenerationFlag {
	for _, f := range flags {
		if documented, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return documented
		}
	}
	return nil
}

func takesValue(flags []cli.Flag, arg string) bool {
	f := flagNamed(flags, strings.TrimLeft(arg, "-"))
	return f != nil && f.TakesValue()
}

func commandNamed(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}
