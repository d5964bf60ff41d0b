package web

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// Budgets of a page of a farm of 500 hosts, 10,000 jobs and 200 projects.
const (
	maxPageBytes = 300_000
	maxPageTime  = time.Second // checked by make bench-web alone
)

// Each page of a large farm is small, and asks the queue nothing. make bench-web has it be
// fast, too: the first answer, which no other visitor's has made cheap.
func TestLargeFarm(t *testing.T) {
	s := newSite(t)
	s.fillLarge()
	asked := s.queue.asked
	for _, path := range []string{"/farm", "/farm", "/farm/hosts", "/farm/project?name=p7", "/jobs?project=p7", "/jobs/150", "/reports", "/reports?kind=usage"} {
		r := httpRequest(path)
		r.Header.Set("Accept-Encoding", "gzip")
		begin := time.Now()
		w := s.do(carl, r)
		took := time.Since(begin)
		t.Logf("%-22s %6d bytes (budget %d), %v (budget %v)", path, w.Body.Len(), maxPageBytes, took.Round(time.Millisecond), maxPageTime)
		if w.Code != http.StatusOK || w.Body.Len() > maxPageBytes || os.Getenv("ALLOTMENT_BENCH") != "" && took > maxPageTime {
			t.Errorf("%s: status %d, or beyond the budget", path, w.Code)
		}
	}
	if s.queue.asked != asked {
		t.Errorf("the pages asked the queue %d times", s.queue.asked-asked)
	}
}

func (s *site) fillLarge() {
	name, group := engineer(s.t)
	for i := range 500 {
		s.queue.farm.Hosts = append(s.queue.farm.Hosts, backends.Host{Name: fmt.Sprintf("host%d", i), Slots: 16})
	}
	for i := range 10_000 {
		j := backends.Job{ID: backends.ID{Job: int64(100 + i)}, User: name, Project: fmt.Sprintf("p%d", i%200), Name: "job", Slots: 1, State: backends.Pending, Wait: backends.WaitResources, Submitted: s.now.Add(-time.Hour)}
		if i < 6000 {
			j.State, j.Started, j.Hosts = backends.Running, s.now.Add(-time.Hour), []backends.Placement{{Host: fmt.Sprintf("host%d", i%500), Slots: 1}}
		}
		s.queue.farm.Jobs = append(s.queue.farm.Jobs, j)
	}
	s.desk(func(ctx context.Context, d *desk.Desk) error {
		for i := range 200 {
			p := fmt.Sprintf("p%d", i)
			if err := d.AddProject(ctx, desk.ProjectChange{Name: p, Group: &group, Managers: &[]string{anna}}); err != nil {
				return err
			}
			if _, err := d.SetAllocation(ctx, desk.Pool{Project: p}, desk.Terms{Slots: 25}, desk.When{}, ""); err != nil {
				return err
			}
		}
		return nil
	})
	s.cycle()
}
