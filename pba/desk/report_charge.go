package desk

import (
	"context"
	"fmt"

	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Charges is what groups are charged for what they used (R46).
type Charges struct {
	Period
	Currency string          `json:"currency,omitempty"`
	Charges  []report.Charge `json:"charges"`
	Total    report.Charged  `json:"total"`
}

// ChargeKeys are what the rows of charges can be grouped by.
var ChargeKeys = []By{report.ByWeek, report.ByDay, report.ByDepartment, report.ByProject, report.ByUser, report.ByStep, report.ByPlan}

// Charge reports what groups are charged, by the prices that the config has now; without groups,
// projects. Each group has a row for each of its service plans.
func (d *Desk) Charge(ctx context.Context, p Period, by []By) (*Charges, error) {
	if len(d.Prices.Plans) == 0 {
		return nil, fmt.Errorf("report charges: there are no prices: name a service plan, its price and the default in %s, such as prices: {default: standard, plans: {standard: {slot_hour: 1.00}}}", d.Paths.Config)
	}
	h, err := d.history(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	prices := report.Prices{Plans: map[string]unit.Price{}, Default: d.Prices.Default, Projects: d.Prices.Projects, Departments: map[string]string{}}
	for name, plan := range d.Prices.Plans {
		prices.Plans[name] = *plan.SlotHour
	}
	for name, projects := range d.Prices.Departments {
		for _, project := range projects {
			prices.Departments[project] = name
		}
	}
	if len(by) == 0 {
		by = []By{report.ByProject}
	}
	rows, total := report.Charges(h, by, p.Project, prices)
	return &Charges{p, d.Prices.Currency, rows, total}, d.requireProject(ctx, p.Project, len(rows) > 0)
}

// chargeColumns returns the columns of groups: the service plan is always one, the last.
func chargeColumns(by []By) []By {
	if len(by) == 0 {
		by = []By{report.ByProject}
	}
	var keys []By
	for _, key := range by {
		if key != report.ByPlan {
			keys = append(keys, key)
		}
	}
	return append(keys, report.ByPlan)
}

// Table returns the report's rows. The currency is in the names of the columns.
func (c *Charges) Table(by []By) Table {
	by = chargeColumns(by)
	price, amount := "price", "amount"
	if c.Currency != "" {
		price, amount = "price_"+c.Currency, "amount_"+c.Currency
	}
	t := Table{Columns: columnsOf(by, "slot_hours", price, amount)}
	for _, r := range c.Charges {
		t.rowOf(cellsOf(r.Key, by), inHundredths(r.SlotHours), r.Price.String(), r.Amount.String())
	}
	return t
}

// TotalRow returns the row of the sum, for rows with these groups.
func (c *Charges) TotalRow(by []By) []string {
	row := make([]string, len(chargeColumns(by)))
	for i := range row {
		row[i] = "-"
	}
	row[0] = "(all)"
	return append(row, inHundredths(c.Total.SlotHours), "-", c.Total.Amount.String())
}
