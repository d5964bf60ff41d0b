package page

import (
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/internal/chart"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// table sets the policies side by side, a column each.
type table struct {
	Caption  string
	About    string
	Policies []string
	Groups   []group
	Long     bool // it stands alone in its row
}

// group is rows that measure one thing in one way.
type group struct {
	Name string // what, and its unit
	How  string // it was measured
	Rows []row
}

type row struct {
	Label string
	Cells []cell
}

// cell is a figure, and the same in another unit where that is easier to read.
type cell struct{ Text, Also string }

func tables(r *simulate.Result) []table {
	var policies []string
	for i := range r.Policies {
		policies = append(policies, policyName(r.Policies[i].Policy))
	}
	all := []table{withinTable(r), othersTable(r), farmTable(r), preemptionTable(r)}
	if len(r.Guarantees) > 1 {
		all = append(all, projectTable(r))
	}
	for i := range all {
		all[i].Policies = policies
	}
	return all
}

// policyRow makes a row of one figure of each policy.
func policyRow(r *simulate.Result, label string, of func(*simulate.Outcome) cell) row {
	made := row{Label: label}
	for i := range r.Policies {
		made.Cells = append(made.Cells, of(&r.Policies[i]))
	}
	return made
}

func secondsCell(s float64) cell {
	if s < 600 {
		return cell{Text: seconds(s)}
	}
	return cell{Text: seconds(s), Also: human(s)}
}

func numberCell(x float64) cell { return cell{Text: chart.Number(x)} }

func countCell(n int) cell { return cell{Text: chart.Count(n)} }

// anyPolicy reports whether of is true of any policy.
func anyPolicy(r *simulate.Result, of func(*simulate.Outcome) bool) bool {
	return slices.ContainsFunc(r.Policies, func(o simulate.Outcome) bool { return of(&o) })
}

// spread is the rows of a distribution.
func spread(r *simulate.Result, of func(*simulate.Outcome) simulate.Spread, show func(float64) cell) []row {
	return []row{
		policyRow(r, "median", func(o *simulate.Outcome) cell { return show(of(o).Median) }),
		policyRow(r, "95th percentile", func(o *simulate.Outcome) cell { return show(of(o).P95) }),
		policyRow(r, "longest", func(o *simulate.Outcome) cell { return show(of(o).Max) }),
		policyRow(r, "mean", func(o *simulate.Outcome) cell { return show(of(o).Mean) }),
	}
}

type groupOf func(*simulate.Outcome) *simulate.Group

func waitGroup(r *simulate.Result, of groupOf) group {
	return group{
		Name: "Wait, seconds", How: "from submission to the start of the run that came to its end",
		Rows: spread(r, func(o *simulate.Outcome) simulate.Spread { return of(o).Wait }, secondsCell),
	}
}

func slowdownGroup(r *simulate.Result, of groupOf) group {
	g := group{
		Name: "Bounded slowdown", How: "time from submission to the end ÷ running time, a running time below 10 s counted as 10 s; 1 is no wait",
		Rows: spread(r, func(o *simulate.Outcome) simulate.Spread { return of(o).Slowdown }, numberCell),
	}
	g.Rows[2].Label = "greatest"
	return g
}

func lossGroup(r *simulate.Result, of groupOf) group {
	return group{Name: "Loss", How: "a run that was ended for another job, and the work that it had done inside the window", Rows: []row{
		policyRow(r, "times preempted", func(o *simulate.Outcome) cell { return countCell(of(o).Preempted) }),
		policyRow(r, "lost work, slot-hours", func(o *simulate.Outcome) cell { return cell{Text: slotHours(of(o).Lost)} }),
	}}
}

func withinTable(r *simulate.Result) table {
	of := func(o *simulate.Outcome) *simulate.Group { return &o.Within }
	clock := group{
		Name: "Wait by the guarantee’s clock, seconds",
		How:  "from the first cycle that saw the job with room in its pool and eligible, to its start",
		Rows: spread(r, func(o *simulate.Outcome) simulate.Spread { return o.Within.Clock }, secondsCell),
	}
	promise := human(r.Settings.Promise)
	clock.Rows = append(clock.Rows, policyRow(r, "jobs beyond the promise", func(o *simulate.Outcome) cell { return countCell(o.Within.OverPromise) }))
	clock.How += "; the promise is " + promise + ", and more for a job too wide for one cycle’s max_victims"
	if anyPolicy(r, func(o *simulate.Outcome) bool { return o.Within.PutOff > 0 }) {
		clock.Rows = append(clock.Rows, policyRow(r, "of these, put off by max_victims_per_project", func(o *simulate.Outcome) cell { return countCell(o.Within.PutOff) }))
	}
	return table{
		Caption: "Jobs within the guarantee",
		About:   plural(r.Within, "job") + ", the same for all policies: those that would start at once behind an ideal private fence of the size of their guarantee.",
		Groups:  []group{waitGroup(r, of), clock, slowdownGroup(r, of), lossGroup(r, of)},
	}
}

func othersTable(r *simulate.Result) table {
	of := func(o *simulate.Outcome) *simulate.Group { return &o.Rest }
	return table{
		Caption: "All other jobs",
		About:   plural(r.Trace.Jobs-r.Within, "job") + ": those without a guarantee, and those beyond one.",
		Groups:  []group{waitGroup(r, of), slowdownGroup(r, of), lossGroup(r, of)},
	}
}

func farmTable(r *simulate.Result) table {
	return table{
		Caption: "The farm",
		About:   "Shares of all slots over the whole window.",
		Groups: []group{
			{Name: "Utilization, % of the slots’ time", How: "slot-seconds inside the window ÷ (slots × window)", Rows: []row{
				policyRow(r, "used", func(o *simulate.Outcome) cell { return cell{Text: percent(o.Utilization)} }),
				policyRow(r, "useful", func(o *simulate.Outcome) cell { return cell{Text: percent(o.Useful)} }),
				policyRow(r, "lost", func(o *simulate.Outcome) cell { return cell{Text: percent(o.LostShare)} }),
			}},
			{Name: "Lost work, slot-hours", How: "slot-time inside the window of runs that were ended for another job; useful are runs that came to their end, also after the window", Rows: []row{
				policyRow(r, "lost", func(o *simulate.Outcome) cell { return cell{Text: slotHours(o.LostSeconds)} }),
			}},
			{Name: "Cycles of the engine", How: "those that could not have changed anything were skipped", Rows: []row{
				policyRow(r, "run", func(o *simulate.Outcome) cell { return countCell(o.Cycles) }),
				policyRow(r, "skipped", func(o *simulate.Outcome) cell { return countCell(o.Skipped) }),
			}},
		},
	}
}

func preemptionTable(r *simulate.Result) table {
	t := table{
		Caption: "Preempted slots, and the time under the guarantee",
		Groups: []group{
			{Name: "Time under the guarantee, seconds", How: "in which a pool was under its guarantee while a job of it had waited beyond the threshold; added up over the pools", Rows: []row{
				policyRow(r, "seconds", func(o *simulate.Outcome) cell { return secondsCell(o.StarvedSeconds) }),
			}},
			{Name: "Preemptions", How: "runs that were ended or suspended for another job", Rows: []row{
				policyRow(r, "all", func(o *simulate.Outcome) cell { return countCell(o.Preemptions) }),
				policyRow(r, "suspended", func(o *simulate.Outcome) cell { return countCell(o.Suspensions) }),
			}},
			{Name: "Reclaims", How: "of slots for one waiting job within its guarantee", Rows: []row{
				policyRow(r, "all", func(o *simulate.Outcome) cell { return countCell(o.Reclaims) }),
				policyRow(r, "expired", func(o *simulate.Outcome) cell { return countCell(o.Expired) }),
			}},
			{Name: "Slots evicted ÷ slots requested", How: "requested: what the waiting jobs lacked; 1.00 is no slot more than needed", Rows: []row{
				policyRow(r, "requested", func(o *simulate.Outcome) cell { return countCell(o.Requested) }),
				policyRow(r, "evicted", func(o *simulate.Outcome) cell { return countCell(o.Evicted) }),
				policyRow(r, "evicted ÷ requested", ratio),
			}},
			{Name: "Useless evictions, jobs", How: "preempted, and no job within its guarantee started in the freed slots", Rows: []row{
				policyRow(r, "useless", func(o *simulate.Outcome) cell { return countCell(o.Useless) }),
			}},
		},
	}
	if anyPolicy(r, func(o *simulate.Outcome) bool { return o.Checked > 0 }) {
		t.Groups = append(t.Groups, group{Name: "Reclaims checked by brute force", How: "compared with every possible set of victims; a cheaper one would have freed fewer slots beyond the need", Rows: []row{
			policyRow(r, "checked", func(o *simulate.Outcome) cell { return countCell(o.Checked) }),
			policyRow(r, "cheaper sets found", func(o *simulate.Outcome) cell { return countCell(o.Cheaper) }),
		}})
	}
	return t
}

func ratio(o *simulate.Outcome) cell {
	if o.Requested == 0 {
		return cell{Text: chart.None}
	}
	return cell{Text: fmt.Sprintf("%.2f", o.Ratio)}
}

// projectTable has a group for each project, in the order of the outcomes.
func projectTable(r *simulate.Result) table {
	t := table{Caption: "By project", Long: true, About: "All jobs of each project, within its guarantee and beyond it. Waits are in seconds from submission, lost work is in slot-hours."}
	if len(r.Policies) == 0 {
		return t
	}
	for i := range r.Policies[0].Projects {
		of := func(o *simulate.Outcome) *simulate.Group {
			if i < len(o.Projects) {
				return &o.Projects[i]
			}
			return &simulate.Group{}
		}
		name := of(&r.Policies[0]).Project
		g := group{Name: "All other projects", Rows: []row{
			policyRow(r, "jobs", func(o *simulate.Outcome) cell { return countCell(of(o).Jobs) }),
			policyRow(r, "median wait", func(o *simulate.Outcome) cell { return secondsCell(of(o).Wait.Median) }),
			policyRow(r, "95th percentile", func(o *simulate.Outcome) cell { return secondsCell(of(o).Wait.P95) }),
			policyRow(r, "longest wait", func(o *simulate.Outcome) cell { return secondsCell(of(o).Wait.Max) }),
			policyRow(r, "times preempted", func(o *simulate.Outcome) cell { return countCell(of(o).Preempted) }),
			policyRow(r, "lost work", func(o *simulate.Outcome) cell { return cell{Text: slotHours(of(o).Lost)} }),
		}}
		if name != "" {
			g.Name, g.How = "Project "+printable.Text(name), "guarantee of at most "+plural(guaranteedSlots(r, name), "slot")
		}
		t.Groups = append(t.Groups, g)
	}
	return t
}

func guaranteedSlots(r *simulate.Result, project string) int {
	n := 0
	for _, g := range r.Guarantees {
		if g.Project == project {
			n += g.Slots
		}
	}
	return n
}
