package commands_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// farm is a small program with a command tree like pba's.
func farm() *cli.App {
	set := &cli.Command{
		Name: "set", ArgsUsage: "PROJECT SLOTS",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "week", Aliases: []string{"w"}},
			&cli.IntFlag{Name: "weeks", Value: 1},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}},
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 2, 2)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%q week=%s weeks=%d verbose=%t\n", args, c.String("week"), c.Int("weeks"), c.Bool("verbose"))
			return nil
		},
	}
	fail := func(name string, err error) *cli.Command {
		return &cli.Command{Name: name, Action: func(*cli.Context) error { return err }}
	}
	return &cli.App{
		Name: "farm",
		Commands: []*cli.Command{
			{Name: "alloc", Subcommands: []*cli.Command{set}},
			fail("status", nil),
			fail("broken", errors.New("read the ledger: disk\nfull \x1b[31mred")),
			fail("dead", fmt.Errorf("list jobs: %w", backends.ErrUnreachable)),
			fail("locked", shell.TryAgain(errors.New("take the lock: held by process 7"))),
			fail("silent", &shell.ExitError{Code: 1}),
			fail("own", cli.Exit("its own code", 9)),
			{Name: "hidden", Hidden: true},
		},
	}
}

func run(app *cli.App, line ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	app.Writer, app.ErrWriter = &out, &errs
	code = commands.Main(app, append([]string{app.Name}, line...))
	return code, out.String(), errs.String()
}

func TestExitCodesAndMessages(t *testing.T) {
	tests := map[string]struct {
		line string
		code int
		want string // the whole of stderr
	}{
		"done":                 {"status", 0, ""},
		"failure":              {"broken", 1, `farm: read the ledger: disk; full \x1b[31mred`},
		"unreachable":          {"dead", 75, "farm: list jobs: the queue can't be reached"},
		"lock":                 {"locked", 75, "farm: take the lock: held by process 7"},
		"all has been said":    {"silent", 1, ""},
		"another exit code":    {"own", 1, "farm: its own code"},
		"no command":           {"", 2, "farm: no command given (known: alloc, status, broken, dead, locked, silent, own): see farm --help"},
		"unknown command":      {"stauts", 2, `farm: unknown command "stauts" (known: alloc, status, broken, dead, locked, silent, own)`},
		"unknown subcommand":   {"alloc sit set", 2, `farm: unknown command "sit" (known: set)`},
		"unknown option":       {"status --wek", 2, "farm: unknown option --wek: see farm status --help"},
		"mistyped option":      {"alloc set --wek", 2, "farm: unknown option --wek (did you mean --week?): see farm alloc set --help"},
		"no joined letters":    {"alloc set -vv", 2, "farm: unknown option -vv: see farm alloc set --help"},
		"unknown short option": {"status -x", 2, "farm: unknown option -x: see farm status --help"},
		"unknown app option":   {"--nope status", 2, "farm: unknown option --nope: see farm --help"},
		"extra argument":       {"status now", 2, `farm: unexpected argument "now": see farm status --help`},
		"help is an argument":  {"status help", 2, `farm: unexpected argument "help": see farm status --help`},
		"too few":              {"alloc set chipA", 2, "farm: too few arguments: want farm alloc set PROJECT SLOTS"},
		"too many":             {"alloc set chipA 1 2", 2, `farm: unexpected argument "2": want farm alloc set PROJECT SLOTS`},
		"value missing":        {"alloc set chipA 1 --week", 2, "farm: option --week needs a value: see farm alloc set --help"},
		"bad value":            {"alloc set chipA 1 --weeks many", 2, `farm: option --weeks: invalid value "many": parse error: see farm alloc set --help`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(farm(), strings.Fields(test.line)...)
			if code != test.code || strings.TrimSuffix(stderr, "\n") != test.want || stdout != "" {
				t.Errorf("exit code %d, want %d\ngot  %s\nwant %s\nstdout %q", code, test.code, stderr, test.want, stdout)
			}
		})
	}
}

func TestOptionsMayStandAnywhere(t *testing.T) {
	tests := map[string]string{
		"alloc set chipA 100 --week W48 --weeks 4": `["chipA" "100"] week=W48 weeks=4 verbose=false`,
		"alloc set --week=W48 chipA -v 100":        `["chipA" "100"] week=W48 weeks=1 verbose=true`,
		"alloc set chipA -5 -w W48":                `["chipA" "-5"] week=W48 weeks=1 verbose=false`,
		"alloc set -v -- chipA --week":             `["chipA" "--week"] week= weeks=1 verbose=true`,
		"alloc set set status -v":                  `["set" "status"] week= weeks=1 verbose=true`,
		"alloc set chipA - --week W":               `["chipA" "-"] week=W weeks=1 verbose=false`,
	}
	for line, want := range tests {
		code, stdout, stderr := run(farm(), strings.Fields(line)...)
		if code != 0 || strings.TrimSpace(stdout) != want {
			t.Errorf("%s\ngot  %s%s\nwant %s", line, stdout, stderr, want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	code, stdout, stderr := run(farm(), "--version")
	if want := "farm " + shell.Version + " (" + shell.Commit + ")\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("got %d, %q, %q, want %q", code, stdout, stderr, want)
	}
	code, stdout, stderr = run(farm(), "--help")
	if code != 0 || stderr != "" || !strings.HasSuffix(stdout, shell.ExitCodes) || !strings.Contains(stdout, "alloc") {
		t.Errorf("got %d, %s%s", code, stdout, stderr)
	}
	for _, n := range []int{shell.ExitOK, shell.ExitFailure, shell.ExitUsage, shell.ExitTryAgain} {
		if !strings.Contains(shell.ExitCodes, fmt.Sprintf("\n   %d ", n)) {
			t.Errorf("exit code %d is missing in the help", n)
		}
	}
	if code, stdout, _ := run(farm(), "alloc", "set", "--help"); code != 0 || !strings.Contains(stdout, "PROJECT SLOTS") {
		t.Errorf("got %d, %s", code, stdout)
	}
}

// What follows a command of the user's is that command's.
func TestRunsCommand(t *testing.T) {
	for line, want := range map[string]string{
		"-v ls -v --week x": `["ls" "-v" "--week" "x"] verbose=true`,
		"ls -- -v":          `["ls" "--" "-v"] verbose=false`,
		"-- -v ls":          `["-v" "ls"] verbose=false`,
		"sub -v":            "sub true",
		"ls sub":            `["ls" "sub"] verbose=false`,
	} {
		app := &cli.App{
			Name: "runs", ArgsUsage: "COMMAND", Metadata: map[string]any{commands.RunsCommand: true},
			Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}}},
			Commands: []*cli.Command{{Name: "sub", Flags: []cli.Flag{&cli.BoolFlag{Name: "v"}}, Action: func(c *cli.Context) error {
				_, err := fmt.Fprintln(c.App.Writer, "sub", c.Bool("v"))
				return err
			}}},
			Action: func(c *cli.Context) error {
				_, err := fmt.Fprintf(c.App.Writer, "%q verbose=%t\n", c.Args().Slice(), c.Bool("verbose"))
				return err
			},
		}
		code, stdout, stderr := run(app, strings.Fields(line)...)
		if code != 0 || strings.TrimSpace(stdout) != want {
			t.Errorf("%s: got %s%s, want %s", line, stdout, stderr, want)
		}
	}
}
