// Command asplit-task is what a task of asplit runs on its host: it executes the
// task's items. It starts once for every task: it links nothing that is slow to start.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/split/task"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "asplit-task:", printable.Text(err.Error()))
		os.Exit(1)
	}
}

// run takes the split's directory and the task's number.
func run(args []string) error {
	const usage = "want DIRECTORY TASK; only asplit runs it"
	stoppable := len(args) == 3 && args[2] == task.Stoppable
	if len(args) != 2 && !stoppable {
		return fmt.Errorf("%s", usage)
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a task number: %s", args[1], usage)
	}
	if !stoppable {
		return task.Run(args[0], n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return task.RunUntil(args[0], n, ctx.Done())
}
