package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func statusCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show pools, farm and reclaims (preemptions under way)",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			return p.ask(c, func(ctx context.Context, d answers) error {
				shown, err := d.Status(ctx)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return shell.PrintJSON(c.App.Writer, shown)
				}
				return printStatus(c.App.Writer, shown)
			})
		},
	}
}

func printStatus(out io.Writer, s *desk.Status) error {
	fmt.Fprintf(out, "Week %s, mode %s%s; %s\n", s.Week, s.Mode, ifTrue(s.Paused, ", PAUSED (pba resume)"), lastCycle(s))
	fmt.Fprintf(out, "Farm: %d slots, %d running (%d of pools, %d normal%s), %d suspended%s\n",
		s.Farm.Slots, s.Farm.Running, s.Farm.PBA, s.Farm.Normal, ifTrue(s.Farm.Kept > 0, fmt.Sprintf(", %d kept free", s.Farm.Kept)), s.Farm.Suspended,
		ifTrue(s.Farm.Down > 0, fmt.Sprintf(", %d more are down", s.Farm.Down)))
	fmt.Fprintf(out, "Guaranteed %d, can be preempted now %d\n", s.Farm.Guaranteed, s.Farm.TakeBack)
	if len(s.Pools) == 0 {
		fmt.Fprintln(out, "No pools this week: pba alloc set PROJECT SLOTS")
	} else {
		head := []string{"project", "step", "user", "planned", "guarantee", "charged", "held", "waiting"}
		onSets := slices.ContainsFunc(s.Pools, func(p desk.PoolStatus) bool { return p.Hosts != "" })
		if onSets {
			head = append(head, "hosts")
		}
		t := table.New(head...)
		for _, p := range s.Pools {
			row := []any{p.Project, dash(p.Step), dash(p.User), planned(p), p.Guarantee, p.Charged, p.Held, p.Waiting}
			if onSets {
				row = append(row, dash(p.Hosts))
			}
			t.Row(row...)
		}
		if err := table.Print(out, table.Text, t, nil); err != nil {
			return err
		}
	}
	printThresholds(out, s)
	for _, r := range s.Reclaims {
		fmt.Fprintf(out, "Reclaim %d: %s\n", r.ID, shell.OneLine(reclaimLine(r)))
	}
	printHeavy(out, s)
	for _, u := range s.Unserved {
		fmt.Fprintf(out, "Not served: %s, as a part of the request is not understood: %s\n", printable.Count(u.Jobs, "waiting job"), shell.OneLine(u.Reason))
	}
	if s.Requests > 0 {
		fmt.Fprintf(out, "Requests: %s for you to decide: pba alloc requests\n", waits(s.Requests))
	}
	for _, p := range s.Pools {
		if p.Undone > 0 {
			pool := desk.Pool{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
			fmt.Fprintln(out, shell.Printable(fmt.Sprintf("Out of reach: %s of the %d of %s can't be done this week any more", printable.Count(p.Undone, "job"), p.Jobs, pool)))
		}
	}
	if n := len(s.Advice); n > 0 {
		fmt.Fprintf(out, "Advice: %s%s (pba report week)\n", shell.OneLine(s.Advice[0].What), ifTrue(n > 1, fmt.Sprintf("; and %d more", n-1)))
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(out, "Warning: %s\n", shell.OneLine(w))
	}
	return nil
}

// printThresholds prints the pools that are served after another time than the site's.
func printThresholds(out io.Writer, s *desk.Status) {
	for _, p := range s.Pools {
		if p.Threshold == nil {
			continue
		}
		pool := desk.Pool{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
		text := fmt.Sprintf("%s is served after %v, not %v", pool, seconds(*p.Threshold), seconds(s.Threshold))
		if *p.Threshold < s.Threshold {
			text += fmt.Sprintf(": %s may be preempted so within this hour", printable.Count(p.Early, "more slot"))
		}
		fmt.Fprintln(out, shell.Printable(text))
		if p.Standby > 0 {
			fmt.Fprintln(out, shell.Printable(fmt.Sprintf("%s has %s on standby for its next jobs, %d of them free", pool, printable.Count(p.Standby, "slot"), p.Kept)))
		}
	}
}

// printHeavy prints the number of dummy jobs, and each job that gathers.
func printHeavy(out io.Writer, s *desk.Status) {
	if s.Farm.Dummies+s.Farm.DummiesWait > 0 {
		fmt.Fprintf(out, "Dummy jobs: %d running, %d waiting, for %s\n", s.Farm.Dummies, s.Farm.DummiesWait, printable.Count(len(s.Heavy), "heavy job"))
	}
	for _, h := range s.Heavy {
		if !h.Gathers {
			continue
		}
		text := fmt.Sprintf("job %s of %s (%s) needs %s", h.Job, h.User, dash(h.Project), printable.Count(h.Slots, "slot"))
		if h.Host != "" {
			text += fmt.Sprintf(" on %s: %d held for it", h.Host, h.Dummies)
		}
		fmt.Fprintf(out, "Gathering: %s\n", shell.Printable(text))
	}
}

// planned returns the plan of a pool as text.
func planned(p desk.PoolStatus) string {
	if p.Jobs == 0 {
		return strconv.Itoa(p.Planned)
	}
	return fmt.Sprintf("%d for %d of %s", p.Planned, p.Finished, printable.Count(p.Jobs, "job"))
}

func reclaimLine(r desk.Reclaim) string {
	text := fmt.Sprintf("%s for job %s (%s) since %s: %s", printable.Count(r.Slots, "slot"), r.Beneficiary, r.Project, r.Planned.Local().Format("15:04:05"), r.Phase)
	if r.Why != "" {
		text += ", " + r.Why
	}
	for i, v := range r.Victims {
		if i == 0 {
			text += "; from"
		} else {
			text += ","
		}
		text += fmt.Sprintf(" job %s (%s, %s)", v.Job, v.Mode, v.User)
	}
	return text
}

func lastCycle(s *desk.Status) string {
	if s.LastCycle == nil {
		return "no cycle yet: pba rebalance"
	}
	return "last cycle " + s.At.Sub(s.LastCycle.Started).Round(time.Second).String() + " ago"
}

func ifTrue(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}
