package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func statusCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "how pools, farm and reclaims stand",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			return withSite(c.Context, p, p.open, func(s *site) error {
				shown, err := s.status(c.Context)
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

type statusJSON struct {
	At        time.Time           `json:"at"`
	Week      calendar.Week       `json:"week"`
	Mode      configfile.Mode     `json:"mode"`
	Paused    bool                `json:"paused"`
	LastCycle *ledger.CycleRecord `json:"last_cycle"` // null: there was none
	Pools     []poolJSON          `json:"pools"`
	Farm      farmJSON            `json:"farm"`
	Reclaims  []reclaimJSON       `json:"reclaims"` // open ones
	Heavy     []heavyJSON         `json:"heavy"`    // jobs that have or wait for dummy jobs
	Warnings  []string            `json:"warnings"`
}

type poolJSON struct {
	Project   string   `json:"project"`
	Step      string   `json:"step,omitempty"`
	User      string   `json:"user,omitempty"`
	Planned   int      `json:"planned"`   // slots of the allocation
	Guarantee int      `json:"guarantee"` // now: a throughput SLA may need fewer
	SLA       plan.SLA `json:"sla"`
	Jobs      int      `json:"jobs,omitempty"`     // to be done in the week
	Finished  int      `json:"finished,omitempty"` // of them
	Charged   int      `json:"charged"`
	Held      int      `json:"held"`
	Waiting   int      `json:"waiting"`
	Below     bool     `json:"below"`
}

type farmJSON struct {
	Slots         int  `json:"slots"`
	Down          int  `json:"down"`
	Running       int  `json:"running"`
	PBA           int  `json:"pba"`
	Normal        int  `json:"normal"`
	Suspended     int  `json:"suspended"`
	Guaranteed    int  `json:"guaranteed"`
	TakeBack      int  `json:"take_back"`
	Unmet         int  `json:"unmet"`
	Unpreemptable int  `json:"unpreemptable"`
	LowerThem     bool `json:"lower_unpreemptable"`
	Dummies       int  `json:"dummies"`         // slots of running dummy jobs
	DummiesWait   int  `json:"waiting_dummies"` // slots
}

type heavyJSON struct {
	Job     string `json:"job"`
	Project string `json:"project,omitempty"`
	User    string `json:"user"`
	Host    string `json:"host,omitempty"`
	Slots   int    `json:"slots"`   // in all, its own and those of its dummy jobs
	Dummies int    `json:"dummies"` // that run
	Gathers bool   `json:"gathers"`
}

type reclaimJSON struct {
	ID          int64        `json:"id"`
	Beneficiary string       `json:"beneficiary"`
	Project     string       `json:"project"`
	User        string       `json:"user"`
	Slots       int          `json:"slots"`
	Phase       plan.Phase   `json:"phase"`
	Why         string       `json:"why,omitempty"`
	Planned     time.Time    `json:"planned"`
	Victims     []victimJSON `json:"victims"`
}

type victimJSON struct {
	Job     string    `json:"job"`
	Project string    `json:"project,omitempty"`
	User    string    `json:"user"`
	Slots   int       `json:"slots"`
	Mode    string    `json:"mode"`
	Fate    plan.Fate `json:"fate,omitempty"`
}

func (s *site) status(ctx context.Context) (*statusJSON, error) {
	r, err := s.engine(true).Preview(ctx, s.now)
	if err != nil {
		return nil, err
	}
	f := r.Plan.Farm
	shown := &statusJSON{
		At: r.State.Farm.At, Week: calendar.WeekOf(s.now(), s.zone()), Mode: s.Mode, Paused: r.Rules.Paused,
		Pools: []poolJSON{}, Reclaims: []reclaimJSON{}, Heavy: showHeavy(r.Plan.Heavy, r.State.Farm), Warnings: append([]string{}, r.Plan.Warnings...),
		Farm: farmJSON{
			Slots: f.Slots, Down: f.Down, Running: f.Running, PBA: f.PBA, Normal: f.Normal, Suspended: f.Suspended,
			Guaranteed: f.Guaranteed, TakeBack: f.TakeBack, Unmet: f.Unmet, Unpreemptable: f.Unpreemptable, LowerThem: f.LowerThem,
		},
	}
	shown.Farm.Dummies, shown.Farm.DummiesWait = dummySlots(r.State.Farm)
	last, ok, err := s.ledger.LastCycle(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		shown.LastCycle = &last
	}
	planned := map[int64]int{}
	for _, a := range r.Rules.Policy.Allocations {
		planned[a.ID] = a.Guarantee
	}
	for _, p := range r.Plan.Pools {
		shown.Pools = append(shown.Pools, poolJSON{
			Project: p.Project, Step: p.Step, User: p.User,
			Planned: planned[p.ID], Guarantee: p.Guarantee,
			SLA: p.SLA, Jobs: p.Jobs, Finished: r.Plan.Memory.Throughput[p.ID].Finished,
			Charged: p.Charged, Held: p.Held, Waiting: p.Waiting, Below: p.Below,
		})
	}
	for i := range r.State.Memory.Reclaims { // as the last cycle left them
		if rc := &r.State.Memory.Reclaims[i]; rc.Phase.Open() {
			shown.Reclaims = append(shown.Reclaims, showReclaim(rc))
		}
	}
	return shown, nil
}

// dummySlots are the slots of dummy jobs.
func dummySlots(farm *backends.Farm) (running, waiting int) {
	for i := range farm.Jobs {
		switch j := &farm.Jobs[i]; {
		case !j.IsDummy():
		case j.State == backends.Running:
			running += j.Slots
		default:
			waiting += j.Slots
		}
	}
	return running, waiting
}

func showHeavy(all []plan.HeavyStatus, farm *backends.Farm) []heavyJSON {
	shown := make([]heavyJSON, len(all))
	at := map[backends.ID]*heavyJSON{}
	for i, h := range all {
		shown[i] = heavyJSON{Job: h.Job.String(), Host: h.Host, Slots: h.Need, Dummies: h.Dummies, Gathers: h.Gathers}
		at[h.Job] = &shown[i]
	}
	for i := range farm.Jobs {
		if h := at[farm.Jobs[i].ID]; h != nil {
			h.Project, h.User = farm.Jobs[i].Project, farm.Jobs[i].User
		}
	}
	return shown
}

func showReclaim(r *plan.Reclaim) reclaimJSON {
	shown := reclaimJSON{
		ID: r.ID, Beneficiary: r.Beneficiary.String(), Project: r.Project, User: r.User,
		Slots: r.Need, Phase: r.Phase, Why: r.Why, Planned: r.Planned, Victims: []victimJSON{},
	}
	for _, v := range r.Victims {
		shown.Victims = append(shown.Victims, victimJSON{
			Job: v.ID.String(), Project: v.Project, User: v.User, Slots: v.Slots, Mode: v.Mode.String(), Fate: v.Fate,
		})
	}
	return shown
}

func printStatus(out io.Writer, s *statusJSON) error {
	fmt.Fprintf(out, "Week %s, mode %s%s; %s\n", s.Week, s.Mode, ifTrue(s.Paused, ", PAUSED (pba resume)"), lastCycle(s))
	fmt.Fprintf(out, "Farm: %d slots, %d running (%d of pools, %d normal), %d suspended%s\n",
		s.Farm.Slots, s.Farm.Running, s.Farm.PBA, s.Farm.Normal, s.Farm.Suspended,
		ifTrue(s.Farm.Down > 0, fmt.Sprintf(", %d more are down", s.Farm.Down)))
	fmt.Fprintf(out, "Guaranteed %d, can be taken back now %d\n", s.Farm.Guaranteed, s.Farm.TakeBack)
	if len(s.Pools) == 0 {
		fmt.Fprintln(out, "No pools this week: pba alloc set PROJECT SLOTS")
	} else {
		t := table.New("project", "step", "user", "planned", "guarantee", "charged", "held", "waiting")
		for _, p := range s.Pools {
			t.Row(p.Project, dash(p.Step), dash(p.User), p.plan(), p.Guarantee, p.Charged, p.Held, p.Waiting)
		}
		if err := table.Print(out, table.Text, t, nil); err != nil {
			return err
		}
	}
	for _, r := range s.Reclaims {
		fmt.Fprintf(out, "Reclaim %d: %s\n", r.ID, shell.OneLine(reclaimLine(r)))
	}
	printHeavy(out, s)
	for _, w := range s.Warnings {
		fmt.Fprintf(out, "Warning: %s\n", shell.OneLine(w))
	}
	return nil
}

// printHeavy tells of each job that gathers, and sums up those that run.
func printHeavy(out io.Writer, s *statusJSON) {
	if s.Farm.Dummies+s.Farm.DummiesWait > 0 {
		fmt.Fprintf(out, "Dummy jobs: %d running, %d waiting, for %s\n", s.Farm.Dummies, s.Farm.DummiesWait, count(len(s.Heavy), "heavy job"))
	}
	for _, h := range s.Heavy {
		if !h.Gathers {
			continue
		}
		text := fmt.Sprintf("job %s of %s (%s) needs %s", h.Job, h.User, dash(h.Project), count(h.Slots, "slot"))
		if h.Host != "" {
			text += fmt.Sprintf(" on %s: %d held for it", h.Host, h.Dummies)
		}
		fmt.Fprintf(out, "Gathering: %s\n", shell.Printable(text))
	}
}

// plan is what was planned for a pool, in words.
func (p poolJSON) plan() string {
	if p.SLA != plan.Throughput {
		return strconv.Itoa(p.Planned)
	}
	return fmt.Sprintf("%d for %d of %s", p.Planned, p.Finished, count(p.Jobs, "job"))
}

func reclaimLine(r reclaimJSON) string {
	text := fmt.Sprintf("%s for job %s (%s) since %s: %s", count(r.Slots, "slot"), r.Beneficiary, r.Project, r.Planned.Local().Format("15:04:05"), r.Phase)
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

func lastCycle(s *statusJSON) string {
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
