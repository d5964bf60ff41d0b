package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
)

// dryRun prints a command line for each item, or one with the number of items where a task
// has all of its items at once.
func (p process) dryRun(c *cli.Context, d *split.Definition) error {
	out := bufio.NewWriter(printableOn(c.App.Writer))
	order := task.Order{Argv: d.Argv, Mode: d.Mode}
	items := int64(0)
	err := split.EachItem(d.Input, p.stdin, func(number int64, text string) error {
		items++
		if d.Mode != task.Each {
			return nil
		}
		_, err := fmt.Fprintln(out, quoteLine(order.Arguments(text, number)))
		return err
	})
	if err == nil && d.Mode != task.Each {
		_, err = fmt.Fprintf(out, "%s  # once a task, %s in all\n", quoteLine(d.Argv), counted(items, "item"))
	}
	if err != nil {
		return fmt.Errorf("print what would run: %w", err)
	}
	return out.Flush()
}

func quoteLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = quoteWord(word)
	}
	return strings.Join(words, " ")
}
