package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/test/judge"
)

const (
	envEngine = "ALLOTMENT_TEST_ENGINE" // the test binary is pba
	envJob    = "ALLOTMENT_TEST_JOB"    // the test binary is a job that writes to this file
	envWork   = "ALLOTMENT_TEST_WORK"
	envAt     = "ALLOTMENT_TEST_KILL_AT"
	envAfter  = "ALLOTMENT_TEST_KILL_AFTER"
)

const cycle = 150 * time.Millisecond

// holdLimit is how long a victim stays held once the engine is gone.
const holdLimit = 1500 * time.Millisecond

func policy() plan.Policy {
	c := settings.Default()
	p := c.Policy()
	p.Cycle, p.PendingThreshold, p.MinRuntime = cycle, cycle, cycle
	p.HoldLimit, p.UnpreemptableShare = holdLimit, 1
	return p
}

func ledgerPath(p home.Paths) string { return filepath.Join(p.State, "ledger.db") }

func paths() home.Paths {
	dir := os.Getenv("ALLOTMENT_HOME")
	return home.Paths{Config: filepath.Join(dir, "config.yaml"), State: dir, Runtime: dir}
}

// engine runs cycles until nothing is left to be done: no job waits within its
// allocation, no reclaim is open, and every victim is released.
func engine() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := paths()
	l, err := ledger.Open(ledgerPath(p))
	if err != nil {
		return err
	}
	defer l.Close()
	client := client.Open(client.Options{Paths: p, Config: miniqConfig()})
	defer client.Close()
	g := guardFromEnv()
	e := &pba.Engine{
		Backend: queue{client, g}, Ledger: book{l, g}, Who: "test",
		Groups: (&pba.Directory{Cache: l}).Of,
		Rules: func(ctx context.Context, now time.Time) (pba.Rules, error) {
			r := pba.Rules{Policy: policy()}
			r.Policy.Projects, r.Policy.Allocations, err = l.InForce(ctx, calendar.PeriodOf(calendar.WeekOf(now, time.UTC), time.UTC), now)
			return r, err
		},
	}
	quiet := 0
	err = pba.Schedule{Every: cycle}.Run(ctx, time.Now(), func(ctx context.Context) (pba.Then, error) {
		r, err := e.Cycle(ctx, time.Now)
		if err != nil {
			return pba.Stop, err
		}
		if idle(&r) {
			quiet++
		}
		if quiet < 2 {
			return pba.GoOn, nil
		}
		return pba.Stop, nil
	})
	if err == nil && ctx.Err() != nil {
		err = errors.New("after a minute the engine still has work")
	}
	return err
}

// miniqConfig returns a config with ageing by the cycle, as pba.every would set it.
func miniqConfig() miniq.Config {
	c := miniq.DefaultConfig()
	c.Ageing.Interval = unit.Duration(cycle)
	return c
}

func idle(r *pba.Result) bool {
	if r.Note != "" || len(r.Plan.Actions) > 0 || r.State.Farm == nil {
		return false
	}
	return len(judge.OpenReclaims(&r.Plan.Memory)) == 0 &&
		!slices.ContainsFunc(r.State.Farm.Jobs, func(j backends.Job) bool {
			return j.Project == "chipA" && j.State != backends.Running
		})
}

// job works for some time, in short steps, so that the time in which it is suspended does
// not count. It records its start and its end. On SIGUSR1 it saves how far it came, and ends
// as one that has; its next run goes on from there.
func job(file string) error {
	work, err := time.ParseDuration(os.Getenv(envWork))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	if _, err := fmt.Fprintf(f, "start %s\n", os.Getenv("ALLOTMENT_REQUEUES")); err != nil {
		return err
	}
	const step = 10 * time.Millisecond
	done := time.Duration(0)
	if os.Getenv(backends.RestartedVariable) != "" {
		text, err := os.ReadFile(file + savedSuffix)
		if err != nil {
			return err
		}
		if done, err = time.ParseDuration(string(text)); err != nil {
			return err
		}
		if err := os.WriteFile(file+wentOnSuffix, nil, 0o600); err != nil {
			return err
		}
	}
	for ; done < work; done += step {
		select {
		case <-asked:
			if err := os.WriteFile(file+savedSuffix, []byte(done.String()), 0o600); err != nil {
				return err
			}
			os.Exit(backends.ExitSaved)
		case <-time.After(step):
		}
	}
	_, err = fmt.Fprintln(f, "end")
	return err
}

// Files of a job beside its own.
const (
	savedSuffix  = ".saved"
	wentOnSuffix = ".went-on"
)

// wentOn reports whether a run of a job went on where an earlier one had saved itself.
func wentOn(file string) bool {
	_, err := os.Stat(file + wentOnSuffix)
	return err == nil
}

// prepare makes the ledger of a scenario: chipA's guarantee is all slots.
func prepare(ctx context.Context, p home.Paths) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		return err
	}
	l, err := ledger.Create(ledgerPath(p))
	if err != nil {
		return err
	}
	defer l.Close()
	now := time.Now()
	by := ledger.Editor{Who: me.Username, At: now}
	if err := l.AddProject(ctx, by, ledger.Project{Name: "chipA", Group: group.Name}); err != nil {
		return err
	}
	week := calendar.WeekOf(now, time.UTC) // and the next, should Monday come meanwhile
	pool, terms := ledger.Pool{Project: "chipA"}, ledger.Terms{Slots: 3, SLA: plan.Velocity}
	_, err = l.ChangeAllocations(ctx, ledger.Edit{Editor: by, ThisWeek: week}, []ledger.Change{
		{Pool: pool, Week: week, Terms: terms},
		{Pool: pool, Week: calendar.AddWeeks(week, 1), Terms: terms},
	})
	return err
}
