package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/lease/client"
	"github.com/allotment-hpc/allotment/split/leased"
	"github.com/allotment-hpc/allotment/split/worker"
)

// wordBring SLOTS is what jobs of asplit serve run without a COMMAND: they bring slots for asplit --from-here.
const wordBring = "__bring"

// envWorker names the worker by which a job of asplit serve joins.
const envWorker = "ASPLIT_WORKER"

func bringCommand(p process) *cli.Command {
	return &cli.Command{
		Name: wordBring, Hidden: true, ArgsUsage: "SLOTS",
		Action: func(c *cli.Context) error {
			slots, err := strconv.Atoi(c.Args().First())
			at, known := client.FromEnvironment(os.Getenv)
			if err != nil || slots < 1 || slots > maxSlots || c.NArg() != 1 || !known {
				return shell.Usagef("want SLOTS; only asplit serve runs it")
			}
			program, err := p.taskProgram()
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("find this host's name: %w", err)
			}
			return p.stand(c.Context, func(ctx context.Context, log func(string)) error {
				return (&worker.Bringer{Name: os.Getenv(envWorker), Host: host, Slots: slots, Task: program, Log: log}).Run(ctx, at)
			})
		},
	}
}

// openLeased opens the slots of the manager that this process belongs to.
func openLeased(slots int) (*leased.Queue, error) {
	at, known := client.FromEnvironment(os.Getenv)
	if !known {
		return nil, errors.New("--from-here: no asplit serve is known here: call it within a job or task of one, or set " + client.EnvSocket)
	}
	return leased.Open(at, slots)
}
