// Package report turns the ledger's history into what people read: usage, waits,
// victims and a forecast. It is pure: history in, rows out.
package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Usage is what one pool used on one day. What its project used beyond its pools
// stands with the pool that is for all its users and steps, or else in a row of its
// own; that of a project without an allocation in one for each step. Amounts are slot-hours of the time that cycles saw.
type Usage struct {
	Day        string  `json:"day"`     // 2026-11-23
	Project    string  `json:"project"` // "": of User's jobs that count under no project
	Step       string  `json:"step,omitempty"`
	User       string  `json:"user,omitempty"`
	Hosts      string  `json:"hosts,omitempty"` // the host set of the pool
	Guaranteed float64 `json:"guaranteed_slot_hours"`
	Used       float64 `json:"used_slot_hours"`
	Borrowed   float64 `json:"borrowed_slot_hours"`
	Waiting    float64 `json:"waiting_slot_hours"` // of jobs that had room in the pool and did not run
	Seen       float64 `json:"seen_hours"`         // of the day
}

// Usages sums up hours by day, project, step, user and host set, in that order. Project ""
// means every project.
func Usages(farm []ledger.FarmHour, use []ledger.UseHour, zone *time.Location, project string) []Usage {
	type key struct{ day, project, step, user, hosts string }
	seen := map[string]time.Duration{}
	for _, h := range farm {
		seen[day(h.Hour, zone)] += h.Seen
	}
	rows := map[key]*Usage{}
	for _, u := range use {
		if project != "" && u.Project != project {
			continue
		}
		k := key{day(u.Hour, zone), u.Project, u.Step, u.User, u.Hosts}
		row := rows[k]
		if row == nil {
			row = &Usage{Day: k.day, Project: k.project, Step: k.step, User: k.user, Hosts: k.hosts, Seen: seen[k.day].Hours()}
			rows[k] = row
		}
		row.Guaranteed += u.Guaranteed.Hours()
		row.Waiting += u.Waiting.Hours()
		if u.PoolID == 0 {
			row.Borrowed += u.Used.Hours()
		} else {
			row.Used += u.Used.Hours()
		}
	}
	all := make([]Usage, 0, len(rows))
	for _, row := range rows {
		row.Guaranteed, row.Used, row.Borrowed, row.Waiting, row.Seen = round(row.Guaranteed), round(row.Used), round(row.Borrowed), round(row.Waiting), round(row.Seen)
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Step, b.Step), cmp.Compare(a.User, b.User), cmp.Compare(a.Hosts, b.Hosts))
	})
	return all
}

func day(t time.Time, zone *time.Location) string { return t.In(zone).Format(time.DateOnly) }

// round keeps what a report is good for: a ten-thousandth.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
