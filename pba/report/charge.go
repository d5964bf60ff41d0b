package report

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Prices are what slots cost (R46).
type Prices struct {
	Plans       map[string]unit.Price // of a slot-hour, by service plan
	Default     string                // the plan of projects without one, and of what runs without a project
	Projects    map[string]string     // plans
	Departments map[string]string     // by project
}

// planOf returns a project's service plan.
func (p *Prices) planOf(project string) string {
	if plan, ok := p.Projects[project]; ok && project != "" {
		return plan
	}
	return p.Default
}

// Charge is what one group used under one service plan, and what it is charged. Slots beyond a
// guarantee cost as much as those within it; what was guaranteed and not used costs nothing.
type Charge struct {
	Key
	SlotHours float64    `json:"slot_hours"`
	Millis    int64      `json:"slot_milliseconds"` // the same, exactly as it is recorded
	Price     unit.Price `json:"price"`             // of a slot-hour
	Amount    Amount     `json:"amount"`
}

// Charged is the sum of charges: its milliseconds and its amount are exactly those of the rows,
// added up.
type Charged struct {
	SlotHours float64 `json:"slot_hours"`
	Millis    int64   `json:"slot_milliseconds"`
	Amount    Amount  `json:"amount"`
}

// Amount is an amount of money in hundredths of the currency's unit: 1250 is 12.50.
type Amount int64

// String writes the amount with two decimal places.
func (a Amount) String() string { return fmt.Sprintf("%d.%02d", int64(a)/100, int64(a)%100) }

// MarshalText writes the amount as String does: a reader of JSON must not make a float of it.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Charges returns what groups are charged, in their order, one row for each of their service
// plans, and the sum. Project "" means every project. What was used is what UsesBy says of the
// same groups, within guarantees and beyond.
//
// The sum is the exact amount, rounded once, to hundredths, half up: it is the same by whatever
// groups. The rows are rounded so that they add up to it: each is its exact amount rounded down,
// and one more for as many rows as are missing, those with the largest remainders first. So no
// row is a hundredth or more away from its exact amount.
func Charges(h History, by []By, project string, prices Prices) ([]Charge, Charged) {
	if !slices.Contains(by, ByPlan) {
		by = append(slices.Clone(by), ByPlan)
	}
	groups, _ := h.sumUp(by, project, func(k Key) Key {
		k.Plan, k.Department = prices.planOf(k.Project), prices.Departments[k.Project]
		return k.only(by)
	})
	rows := []Charge{}
	var sum Charged
	for k, s := range groups {
		c := Charge{Key: k, Millis: millis(s.used) + millis(s.borrowed), Price: prices.Plans[k.Plan]}
		if c.Millis == 0 {
			continue
		}
		c.SlotHours = hoursOf(c.Millis)
		sum.Millis += c.Millis
		rows = append(rows, c)
	}
	sum.SlotHours = hoursOf(sum.Millis)
	slices.SortFunc(rows, func(a, b Charge) int { return a.Compare(b.Key) })
	sum.Amount = apportion(rows)
	return rows, sum
}

func millis(s ledger.SlotTime) int64 { return time.Duration(s).Milliseconds() }

func hoursOf(millis int64) float64 {
	return round(float64(millis) / float64(time.Hour.Milliseconds()))
}

// priceParts is the number of products of a slot-millisecond and a ten-thousandth in a hundredth
// of the currency's unit for an hour.
var priceParts = big.NewInt(time.Hour.Milliseconds() * 100)

// apportion sets the rows' amounts, and returns their sum.
func apportion(rows []Charge) Amount {
	exact := new(big.Int)
	remainders := make([]*big.Int, len(rows))
	order := make([]int, len(rows))
	var down Amount
	for i := range rows {
		// The product passes 64 bits: a year of 10,000 slots is 3·10¹⁴ milliseconds.
		product := new(big.Int).Mul(big.NewInt(rows[i].Millis), big.NewInt(int64(rows[i].Price)))
		exact.Add(exact, product)
		amount, remainder := new(big.Int).QuoRem(product, priceParts, new(big.Int))
		rows[i].Amount, remainders[i], order[i] = Amount(amount.Int64()), remainder, i
		down += rows[i].Amount
	}
	half := new(big.Int).Rsh(priceParts, 1)
	sum := Amount(exact.Quo(exact.Add(exact, half), priceParts).Int64())
	slices.SortStableFunc(order, func(a, b int) int { return remainders[b].Cmp(remainders[a]) })
	for _, i := range order[:sum-down] {
		rows[i].Amount++
	}
	return sum
}
