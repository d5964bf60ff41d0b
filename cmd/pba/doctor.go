package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

func doctorCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "look for what is wrong with this installation, and say what to do about it; 1: there is something",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			findings, err := examine(c.Context, p)
			if err != nil {
				return err
			}
			if err := printFindings(c.App.Writer, findings, c.Bool("json")); err != nil {
				return err
			}
			if len(findings) > 0 {
				return &shell.ExitError{Code: shell.ExitFailure}
			}
			return nil
		},
	}
}

// finding is one thing that is wrong.
type finding struct {
	Check  string `json:"check"` // what was looked at
	What   string `json:"finding"`
	Remedy string `json:"remedy"`
}

// findings grow by what checks find.
type findings []finding

func (f *findings) add(check, remedy, format string, args ...any) {
	*f = append(*f, finding{Check: check, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

func printFindings(out io.Writer, all findings, asJSON bool) error {
	if asJSON {
		return shell.PrintJSON(out, struct {
			Findings []finding `json:"findings"`
		}{append([]finding{}, all...)})
	}
	for _, f := range all {
		fmt.Fprintf(out, "%s: %s\n    %s\n", f.Check, shell.OneLine(f.What), shell.Printable(f.Remedy))
	}
	if len(all) == 0 {
		fmt.Fprintln(out, "Nothing is wrong.")
		return nil
	}
	_, err := fmt.Fprintf(out, "%s.\n", count(len(all), "finding"))
	return err
}

// examine runs all checks that can be run: what is broken hides what needs it,
// and nothing else. It changes nothing.
func examine(ctx context.Context, p process) (findings, error) {
	var all findings
	c, err := p.load()
	if err != nil {
		all.add("config", "correct that line or file; `pba init` in an empty ALLOTMENT_HOME writes a config file with every key", "%v", err)
		return all, nil
	}
	checkPrograms(p, &all)
	checkZone(c, os.Getenv("TZ"), &all)
	who, err := p.identify(c)
	if err != nil {
		all.add("roles", "see roles in docs/operate.md", "%v", err)
		return all, nil
	}
	l, err := openLedger(ledgerPath(c), who)
	if err != nil {
		all.add("ledger", ledgerRemedy(err), "%v", err)
		return all, nil
	}
	defer func() { _ = l.Close() }()
	b, err := p.open(ctx, c)
	if err != nil {
		all.add("queue", "correct `backend:` in "+c.Paths.Config, "%v", err)
		return all, nil
	}
	defer func() { _ = b.Close() }()
	s := &site{Config: c, process: p, ledger: l, backend: b, caller: who}
	for _, check := range []func(context.Context, *findings) error{
		s.checkLedger, s.checkCycles, s.checkFilter, s.checkSetup, s.checkPeople, s.checkQueue,
	} {
		if err := check(ctx, &all); err != nil {
			return all, err
		}
	}
	return all, nil
}

func ledgerRemedy(err error) string {
	switch {
	case errors.Is(err, ledger.ErrMissing):
		return "run `pba init`"
	case errors.Is(err, os.ErrPermission):
		return "run this as the user who owns it"
	case errors.Is(err, ledger.ErrLocked):
		return "see who has it open: `fuser ledger.db`"
	}
	return "see docs/operate.md, backup and restore"
}

// checkPrograms looks for the programs that are installed together.
func checkPrograms(p process, all *findings) {
	self, err := p.executable()
	if err != nil {
		return
	}
	dir := filepath.Dir(self)
	for name, without := range map[string]string{
		"esub":         "LSF submits jobs without the filter",
		"asub":         "nobody can submit jobs with it",
		"ajobs":        "nobody can look after jobs with it",
		"miniqd":       "the bundled queue can't be started",
		"miniq-keeper": "the bundled queue can't run jobs",
		"adummy":       "there are no dummy jobs",
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			continue
		}
		all.add("programs", "install all programs of one version into one directory (make install)", "%s is not beside %s: %s", name, self, without)
	}
	slices.SortFunc(*all, func(a, b finding) int { return strings.Compare(a.What, b.What) })
}

// checkZone: weeks must begin at the same instant for cron and for everybody who
// types pba.
func checkZone(c configfile.Config, tz string, all *findings) {
	if c.Timezone.OfSystem() && tz != "" {
		all.add("time zone", "write `timezone: Europe/Berlin`, or whichever it is, into "+c.Paths.Config,
			"weeks begin by the zone of whoever runs pba, here TZ=%s; cron's may be another", tz)
	}
}

// checkLedger asks SQLite.
func (s *site) checkLedger(ctx context.Context, all *findings) error {
	wrong, err := s.ledger.Check(ctx)
	if err != nil {
		return err
	}
	for _, text := range wrong {
		all.add("ledger", "stop the cycles and put a backup back: see docs/operate.md", "%s is damaged: %s", ledgerPath(s.Config), text)
	}
	return nil
}

// runCycles is the remedy for cycles that don't come.
func (s *site) runCycles() string {
	return "let cron run them: " + strings.Join(strings.Fields(cronLine(s.process, s.Config)), " ")
}

// late is how old the last cycle may be.
func (s *site) late() time.Duration { return max(time.Minute, 3*time.Duration(s.PBA.Every)) }

// checkCycles looks whether somebody runs cycles, and how they go.
func (s *site) checkCycles(ctx context.Context, all *findings) error {
	paused, err := s.ledger.Paused(ctx)
	if err != nil {
		return err
	}
	last, ran, err := s.ledger.LastCycle(ctx)
	if err != nil {
		return err
	}
	age := s.now().Sub(last.Started)
	holder := pba.Holder(s.Paths.State, pba.RunLock)
	switch {
	case paused:
		all.add("cycles", "`pba resume` lets them go on", "they are paused: nothing is promised to anybody")
	case !ran:
		all.add("cycles", s.runCycles(), "there was none yet")
	case age > s.late() && holder > 0:
		all.add("lock", fmt.Sprintf("look at that process; `kill %d` ends it, and the next cycle goes on", holder),
			"process %d holds the lock of pba rebalance, and the last cycle was %v ago", holder, age.Round(time.Second))
	case age > s.late():
		all.add("cycles", s.runCycles(), "the last one was %v ago; one is due each %v", age.Round(time.Second), s.PBA.Every)
	}
	if ran {
		s.checkLast(last, age, all)
	}
	if holder := pba.Holder(s.Paths.State, pba.EditLock); holder > 0 && s.holds(ctx, pba.EditLock) {
		all.add("lock", fmt.Sprintf("look at that process; `kill %d` ends it", holder), "process %d has held the ledger's lock for more than %v", holder, s.editWait)
	}
	return nil
}

// holds tells whether a lock stays held for as long as an edit waits for it.
func (s *site) holds(ctx context.Context, name string) bool {
	unlock, err := pba.Lock(ctx, s.Paths.State, name, s.editWait)
	if err != nil {
		return errors.Is(err, pba.ErrBusy)
	}
	unlock()
	return false
}

// checkLast looks at how the last cycle went.
func (s *site) checkLast(last ledger.CycleRecord, age time.Duration, all *findings) {
	every := time.Duration(s.PBA.Every)
	took := last.Finished.Sub(last.Started)
	switch {
	case last.Finished.IsZero() && age > s.late():
		all.add("cycles", "see what pba rebalance wrote to cron's mail or the journal; the next cycle goes on from what the ledger holds",
			"the last one, of %s, never came to its end", last.Started.Local().Format("2006-01-02 15:04:05"))
	case !last.Finished.IsZero() && took > every:
		all.add("cycles", "raise pba.every, or find out what makes the queue slow", "the last one took %v, longer than pba.every (%v)", took.Round(time.Millisecond), every)
	}
	if hold, period := time.Duration(s.PBA.HoldLimit), max(every, took); hold < 3*period {
		all.add("config", "raise pba.hold_limit to 10m or so",
			"pba.hold_limit (%v) is less than three cycles (%v each): a victim may start again before its beneficiary does", hold, period.Round(time.Second))
	}
}
