package grammar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
)

func app() *cli.App {
	return &cli.App{
		Name: "prog", Usage: "do things",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}}, &cli.IntFlag{Name: "secret", Hidden: true}},
		Commands: []*cli.Command{
			{Name: "set", Usage: "set it", ArgsUsage: "PROJECT SLOTS [--week WEEK]", Flags: []cli.Flag{
				&cli.StringFlag{Name: "week", Usage: "first `WEEK`"}, &cli.StringSliceFlag{Name: "host", Usage: "a `HOST`"},
				&cli.BoolFlag{Name: "dry-run"},
			}},
			{Name: "show", ArgsUsage: "[JOB...]"},
			{Name: "inner", Subcommands: []*cli.Command{{Name: "deep"}}},
			{Name: "internal", Hidden: true},
		},
	}
}

func submit() *grammar.Command {
	return &grammar.Command{Name: "sub", RunsCommand: true, Options: []grammar.Option{{Names: []string{"-q"}, Value: "QUEUE"}, {Names: []string{"-H"}}, {Names: []string{"-z"}, Value: "X", Hidden: true}}}
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		line          string // parted at blanks; the last word is being typed
		words         string
		value, prefix string
		runs          int
	}{
		{line: "prog ", words: "set show inner"},
		{line: "prog s", words: "set show"},
		{line: "prog -", words: "--verbose -v --help"},
		{line: "prog -v se", words: "set"},
		{line: "prog inner ", words: "deep"},
		{line: "prog inner deep "},
		{line: "prog unknown "},
		{line: "prog set ", value: "PROJECT"},
		{line: "prog set p ", value: "SLOTS"},
		{line: "prog set p 3 "},
		{line: "prog set p 3 --w", words: "--week"},
		{line: "prog set --week ", value: "WEEK"},
		{line: "prog set --week=20", value: "WEEK", prefix: "--week="},
		{line: "prog set --week 2026-W01 p 3 --host ", value: "HOST"},
		{line: "prog set --dry-run=", value: ""},
		{line: "prog set --dry-run ", value: "PROJECT"},
		{line: "prog set -- --", value: "PROJECT"},
		{line: "prog show ", value: "JOB"},
		{line: "prog show 1 2 ", value: "JOB"},
		{line: "sub -", words: "-q -H --help"},
		{line: "sub -q ", value: "QUEUE"},
		{line: "sub ", runs: 1},
		{line: "sub -q low -H ", runs: 4},
		{line: "sub -q low -H make ", runs: 4},
		{line: "sub -z x make -", runs: 3},
		{line: "sub -- ", runs: 2},
	} {
		words := strings.Split(c.line, " ")
		command := commands.Grammar(app())
		if words[0] == "sub" {
			command = submit()
		}
		w := command.Complete(words[1:])
		var got []string
		for _, word := range w.Words {
			got = append(got, word.Text)
		}
		if strings.Join(got, " ") != c.words || w.Value != c.value || w.Prefix != c.prefix || w.RunsFrom != c.runs {
			t.Errorf("%q: words %q, value %q, prefix %q, command from %d; want %q %q %q %d", c.line, got, w.Value, w.Prefix, w.RunsFrom, c.words, c.value, c.prefix, c.runs)
		}
	}
}

func TestSeen(t *testing.T) {
	w := commands.Grammar(app()).Complete([]string{"show", "1", "2", ""})
	if want := []string{"1", "2"}; !slices.Equal(w.Seen, want) {
		t.Errorf("seen %v, want %v", w.Seen, want)
	}
}
