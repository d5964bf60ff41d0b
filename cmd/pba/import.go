package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/config"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

type importOptions struct {
	file   string
	dryRun bool
	yes    bool
}

func importCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "apply a plan that `pba alloc export` wrote and somebody changed; shows what changes, and asks",
		ArgsUsage: "FILE (-: standard input)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "only check it and show what would change", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yes", Usage: "apply it without asking", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			o := importOptions{file: args[0], dryRun: c.Bool("dry-run"), yes: c.Bool("yes")}
			if o.dryRun && o.yes {
				return shell.Usagef("--dry-run and --yes exclude each other")
			}
			if !o.dryRun && !o.yes && (o.file == "-" || !term.IsTerminal(int(os.Stdin.Fd()))) {
				return shell.Usagef("nobody can be asked, since standard input is no terminal: look at it with --dry-run, then apply it with --yes")
			}
			return withSite(c.Context, p, p.openAndStart, func(s *site) error { return importPlan(c.Context, s, o, os.Stdin, c.App.Writer) })
		},
	}
}

// maxPlanFile is more than any plan has.
const maxPlanFile = 64 << 20

// readPlanFile reads the plan.
func (s *site) readPlanFile(file string, stdin io.Reader) (string, []byte, error) {
	if file == "-" {
		content, err := io.ReadAll(io.LimitReader(stdin, maxPlanFile))
		return "standard input", content, err
	}
	if err := mayName(s.Config, s.caller, "read the plan"); err != nil {
		return "", nil, fmt.Errorf("%w; a plan comes by standard input, too: sudo … pba alloc import --yes - <%s", err, file)
	}
	content, err := readNamed(s.Config, s.caller, "read the plan", file, maxPlanFile)
	return file, content, err
}

func importPlan(ctx context.Context, s *site, o importOptions, stdin io.Reader, out io.Writer) error {
	name, content, err := s.readPlanFile(o.file, stdin)
	if err != nil {
		return err
	}
	f, err := pba.ReadPlan(name, content)
	if err != nil {
		return err
	}
	for i, project := range f.Projects {
		if err := s.checkProject(ctx, project); errors.Is(err, ledger.ErrUnknownProject) {
			return &config.Error{File: name, Line: f.ProjectLines[i], Why: err.Error()}
		} else if err != nil {
			return err
		}
	}
	differences, err := s.differences(ctx, f)
	if err != nil {
		return err
	}
	if len(differences) == 0 {
		fmt.Fprintln(out, "Nothing to change: it is planned as the file says.")
		return nil
	}
	changes := changesOf(differences)
	p, err := s.planner(ctx, changes)
	if err == nil {
		err = p.rehearse(ctx, changes, differences)
	}
	if err != nil {
		return inFile(name, f, err)
	}
	printDifferences(out, differences)
	if o.dryRun {
		return nil
	}
	if err := s.mayWrite(); err != nil {
		return err
	}
	if !o.yes && !agreed(stdin, out) {
		fmt.Fprintln(out, "Nothing is changed.")
		return nil
	}
	err = s.edit(ctx, func() error {
		again, err := s.differences(ctx, f)
		if err != nil {
			return err
		}
		if !slices.Equal(again, differences) {
			return errors.New("import: the plan was changed by somebody else meanwhile: nothing is applied; look at it again")
		}
		if err := p.checkAll(ctx, changes); err != nil {
			return err
		}
		return s.ledger.ChangeAllocations(ctx, p.edit(), changes)
	})
	if err != nil {
		return inFile(name, f, err)
	}
	fmt.Fprintf(out, "Applied: %s.\n", count(len(changes), "change"))
	return nil
}

// differences are what a plan would change now.
func (s *site) differences(ctx context.Context, f *pba.PlanFile) ([]pba.Difference, error) {
	planned, err := s.ledger.Allocations(ctx, f.From, f.To)
	if err != nil {
		return nil, err
	}
	return f.Compare(planned), nil
}

func changesOf(differences []pba.Difference) []ledger.Change {
	all := make([]ledger.Change, len(differences))
	for i, d := range differences {
		all[i] = d.Change
	}
	return all
}

// rehearse is all that would be checked, without changing anything.
func (p *planner) rehearse(ctx context.Context, changes []ledger.Change, differences []pba.Difference) error {
	if err := p.checkAll(ctx, changes); err != nil {
		return err
	}
	sums := map[calendar.Week]ledger.Sums{}
	for _, d := range differences {
		week, ok := sums[d.Week]
		if !ok {
			planned, err := p.s.ledger.Allocations(ctx, d.Week, d.Week)
			if err != nil {
				return err
			}
			for _, a := range planned {
				week.Before += a.Slots
			}
			week.After = week.Before
		}
		week.After += d.Slots - d.Was.Slots
		sums[d.Week] = week
	}
	for _, c := range changes {
		if err := p.fits(c, sums[c.Week]); err != nil {
			return err
		}
	}
	return nil
}

// inFile adds to an error of one change where the file says it.
func inFile(name string, f *pba.PlanFile, err error) error {
	var e *changeError
	if !errors.As(err, &e) {
		return err
	}
	if line, ok := f.Lines[e.change]; ok {
		return &config.Error{File: name, Line: line, Why: err.Error()}
	}
	return &config.Error{File: name, Why: fmt.Sprintf("it takes back %s in %s: %v", e.change.Pool, e.change.Week, err)}
}

func printDifferences(out io.Writer, all []pba.Difference) {
	for _, d := range all {
		who := d.Week.String() + " " + shell.Printable(d.Pool.String()) + ": "
		switch {
		case d.Was.Slots == 0:
			fmt.Fprintf(out, "+ %s%s\n", who, promise(d.Terms))
		case d.Slots == 0:
			fmt.Fprintf(out, "- %s%s\n", who, promise(d.Was))
		default:
			fmt.Fprintf(out, "~ %s%s, was %s\n", who, promise(d.Terms), promise(d.Was))
		}
	}
}

// agreed asks.
func agreed(stdin io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "Apply this? [y/N] ")
	answer, err := bufio.NewReader(stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(out)
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
