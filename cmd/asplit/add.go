package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/split/task"
)

// addCommand adds items to the split whose item calls it (R56).
func addCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "add", Usage: "add items to the run whose item calls it", ArgsUsage: "[ITEM...]",
		Description: `Adds items to the asplit --adds whose item's command calls it: the words, or the lines of standard input. They are
executed after all other items, if that command ends with exit status 0; else none of them.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "null", Aliases: []string{"0"}, Usage: "items on standard input end in NUL, not in a newline", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			at := os.Getenv(task.EnvAdd)
			if at == "" {
				return errors.New("no items can be added here: only the command of an item can add some, under asplit --adds")
			}
			items := c.Args().Slice()
			if len(items) == 0 {
				if f, ok := p.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
					return shell.Usagef("no items: give them as words, or as lines of standard input")
				}
				separator := byte('\n')
				if c.Bool("null") {
					separator = 0
				}
				var err error
				if items, err = readItems(p.stdin, separator); err != nil {
					return err
				}
			}
			return task.Add(at, items)
		},
	}
}

// readItems reads items that each end in a separator; the last one may end without.
func readItems(r io.Reader, separator byte) (items []string, err error) {
	in := bufio.NewReader(io.LimitReader(r, task.MaxAdded+1))
	for read := 0; ; {
		text, err := in.ReadString(separator)
		if read += len(text); read > task.MaxAdded {
			return nil, fmt.Errorf("one item can add %d bytes of items at most: add files that list them", task.MaxAdded)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read the items: %w", err)
		}
		if err == nil {
			text = text[:len(text)-1]
		}
		if err == nil || text != "" {
			items = append(items, text)
		}
		if err != nil {
			return items, nil
		}
	}
}
