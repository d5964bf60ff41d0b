package desk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Finding is one thing that is wrong.
type Finding struct {
	Check  string `json:"check"` // what was checked
	What   string `json:"finding"`
	Remedy string `json:"remedy"`
}

// findings grow by what checks find.
type findings []Finding

func (f *findings) add(check, remedy, format string, args ...any) {
	*f = append(*f, Finding{Check: check, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Remark is worth knowing, and nothing is wrong.
type Remark struct {
	Check string `json:"check"`
	What  string `json:"remark"`
}

// Examined is what Examine found.
type Examined struct {
	Findings []Finding `json:"findings"`
	Remarks  []Remark  `json:"remarks,omitempty"`
	Requests int       `json:"requests_to_answer"` // open requests for slots that the caller may grant or decline: nothing is wrong
}

// Examine runs all checks that can be run: what is broken hides what needs it,
// and nothing else. It changes nothing.
func Examine(ctx context.Context, sys System) (*Examined, error) {
	e := &Examined{}
	all, err := e.examine(ctx, sys)
	e.Findings = append([]Finding{}, all...)
	return e, err
}

func (e *Examined) examine(ctx context.Context, sys System) (findings, error) {
	var all findings
	c, err := sys.Load()
	if err != nil {
		all.add("config", "correct that line or file; `pba init` in an empty ALLOTMENT_HOME writes a config file with every key", "%v", err)
		return all, nil
	}
	checkPrograms(sys, &all)
	checkZone(c, os.Getenv("TZ"), &all)
	who, err := sys.Identify(c)
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
	b, err := sys.Open(ctx, c)
	if err != nil {
		all.add("queue", "correct `backend:` in "+c.Paths.Config, "%v", err)
		return all, nil
	}
	defer func() { _ = b.Close() }()
	d := &Desk{Config: c, Caller: who, sys: sys, ledger: l, queue: b}
	for _, check := range []func(context.Context, *findings) error{
		d.checkLedger, d.checkCycles, d.checkFilter, d.checkSetup, d.checkPlanUsers, d.checkOwnTerms, d.checkQueue,
	} {
		if err := check(ctx, &all); err != nil {
			return all, err
		}
	}
	d.checkLimits(ctx, e, &all)
	e.Requests, err = d.requestsToAnswer(ctx)
	return all, err
}

func ledgerRemedy(err error) string {
	switch {
	case errors.Is(err, ledger.ErrMissing):
		return "run `pba init`"
	case errors.Is(err, os.ErrPermission):
		return "run this as the user who owns it"
	case errors.Is(err, ledger.ErrLocked):
		return "see which process has it open: `fuser ledger.db`"
	}
	return "see docs/operate.md, backup and restore"
}

// checkPrograms checks that the programs that belong together are installed.
func checkPrograms(sys System, all *findings) {
	self, err := sys.Executable()
	if err != nil {
		return
	}
	dir := filepath.Dir(self)
	for name, without := range map[string]string{
		"esub":         "LSF submits jobs without the filter",
		"asub":         "users can't submit jobs",
		"ajobs":        "users can't list jobs",
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
	slices.SortFunc(*all, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
}

// checkZone: weeks must begin at the same instant for cron and for each user of pba.
func checkZone(c configfile.Config, tz string, all *findings) {
	if c.Timezone.OfSystem() && tz != "" {
		all.add("time zone", "write `timezone: Europe/Berlin`, or whichever it is, into "+c.Paths.Config,
			"weeks begin in the time zone of the process that runs pba, here TZ=%s; cron's may be another", tz)
	}
}

// checkLedger asks SQLite.
func (d *Desk) checkLedger(ctx context.Context, all *findings) error {
	wrong, err := d.ledger.Check(ctx)
	if err != nil {
		return err
	}
	for _, text := range wrong {
		all.add("ledger", "stop the cycles and put a backup back: see docs/operate.md", "%s is damaged: %s", ledgerPath(d.Config), text)
	}
	return nil
}

// runCycles is the remedy for cycles that don't come.
func (d *Desk) runCycles() string {
	return "let cron run them: " + strings.Join(strings.Fields(d.cronLine()), " ")
}

// late returns the age beyond which the last cycle is overdue.
func (d *Desk) late() time.Duration { return max(time.Minute, 3*time.Duration(d.PBA.Every)) }

// checkCycles checks that cycles run, and how they go.
func (d *Desk) checkCycles(ctx context.Context, all *findings) error {
	paused, err := d.ledger.Paused(ctx)
	if err != nil {
		return err
	}
	last, ran, err := d.ledger.LastCycle(ctx)
	if err != nil {
		return err
	}
	age := d.Now().Sub(last.Started)
	holder := pba.Holder(d.Paths.State, pba.RunLock)
	switch {
	case paused:
		all.add("cycles", "run `pba resume` to continue them", "they are paused: no guarantee is enforced")
	case !ran:
		all.add("cycles", d.runCycles(), "no cycle has run yet")
	case age > d.late() && holder > 0:
		all.add("lock", fmt.Sprintf("inspect that process; `kill %d` ends it, and the next cycle goes on", holder),
			"process %d holds the lock of pba rebalance, and the last cycle was %v ago", holder, age.Round(time.Second))
	case age > d.late():
		all.add("cycles", d.runCycles(), "the last one was %v ago; one is due each %v", age.Round(time.Second), d.PBA.Every)
	}
	if ran {
		d.checkLast(last, age, all)
	}
	if holder := pba.Holder(d.Paths.State, pba.EditLock); holder > 0 && d.staysHeld(ctx, pba.EditLock) {
		all.add("lock", fmt.Sprintf("inspect that process; `kill %d` ends it", holder), "process %d has held the ledger's lock for more than %v", holder, d.sys.EditWait)
	}
	return nil
}

// staysHeld reports whether a lock stays held for as long as an edit waits for it.
func (d *Desk) staysHeld(ctx context.Context, name string) bool {
	unlock, err := pba.Lock(ctx, d.Paths.State, name, d.sys.EditWait)
	if err != nil {
		return errors.Is(err, pba.ErrBusy)
	}
	unlock()
	return false
}

// checkLast checks how the last cycle went.
func (d *Desk) checkLast(last ledger.CycleRecord, age time.Duration, all *findings) {
	every := time.Duration(d.PBA.Every)
	took := last.Finished.Sub(last.Started)
	switch {
	case last.Finished.IsZero() && age > d.late():
		all.add("cycles", "see what pba rebalance wrote to cron's mail or the journal; the next cycle goes on from what the ledger holds",
			"the last one, of %s, never came to its end", last.Started.Local().Format("2006-01-02 15:04:05"))
	case !last.Finished.IsZero() && took > every:
		all.add("cycles", "raise pba.every, or find out what makes the queue slow", "the last one took %v, longer than pba.every (%v)", took.Round(time.Millisecond), every)
	}
	if hold, period := time.Duration(d.PBA.HoldLimit), max(every, took); hold < 3*period {
		all.add("config", "raise pba.hold_limit to 10m or so",
			"pba.hold_limit (%v) is less than three cycles (%v each): a victim may start again before its beneficiary does", hold, period.Round(time.Second))
	}
}
