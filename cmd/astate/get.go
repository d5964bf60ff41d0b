package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// stateJSON is what astate get --json prints.
type stateJSON struct {
	Job      string                   `json:"job"`
	Settings []backends.SettingRecord `json:"settings"`
	Files    []backends.FileRecord    `json:"files"`
}

func getCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "print settings", ArgsUsage: "[KEY]",
		Description: "Prints the value of one setting, or a list of all settings and files.",
		Flags: []cli.Flag{
			jobFlag(),
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 0, 1)
			if err != nil {
				return err
			}
			return p.with(c, func(k keeper) error {
				r, err := k.record(c.Context)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return printState(c, k.job(), r)
				}
				return printSetting(c, k.job(), r, args[0])
			})
		},
	}
}

func printSetting(c *cli.Context, job string, r *backends.Record, key string) error {
	i := slices.IndexFunc(r.Settings, func(s backends.SettingRecord) bool { return s.Key == key })
	switch {
	case i < 0:
		return fmt.Errorf("job %s has no setting %s", job, printable.Text(key))
	case c.Bool("json"):
		return shell.PrintJSON(c.App.Writer, r.Settings[i])
	}
	return write(c.App.Writer, r.Settings[i].Value, "\n")
}

func printState(c *cli.Context, job string, r *backends.Record) error {
	state := stateJSON{Job: job, Settings: r.Settings, Files: r.Files}
	if c.Bool("json") {
		state.Settings, state.Files = append([]backends.SettingRecord{}, r.Settings...), append([]backends.FileRecord{}, r.Files...) // as JSON: []
		return shell.PrintJSON(c.App.Writer, state)
	}
	t := table.New("kind", "name", "value")
	for _, s := range r.Settings {
		t.Row("setting", s.Key, s.Value)
	}
	for _, f := range r.Files {
		kind := "file"
		if f.Executable {
			kind = "program"
		}
		t.Row(kind, f.Name, fmt.Sprintf("%d bytes", f.Size))
	}
	return table.Print(c.App.Writer, table.Text, t, nil)
}
