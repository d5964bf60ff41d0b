package main

import (
	"fmt"

	"github.com/allotment-hpc/allotment/pba/simulate"
)

// check returns the properties of a correct engine that the scene breaks.
func (s *scene) check() []error {
	var broken []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Errorf("%s: %s", s.Title, fmt.Sprintf(format, args...)))
		}
	}
	fifo, dedicated, ours := s.outcome(simulate.FIFO), s.outcome(simulate.Dedicated), s.outcome(simulate.PBA)
	want(ours.Within.OverPromise == 0, "%d jobs within the guarantee waited beyond the promise (longest by the guarantee's clock: %.0f s; put off by max_victims_per_project: %d)",
		ours.Within.OverPromise, ours.Within.Clock.Max, ours.Within.PutOff)
	want(ours.Cheaper == 0, "%d of %d reclaims freed more slots beyond the need than they had to", ours.Cheaper, ours.Checked)
	want(ours.Useless == 0, "%d useless evictions", ours.Useless)
	want(ours.Within.Jobs+ours.Rest.Jobs == fifo.Within.Jobs+fifo.Rest.Jobs, "%d jobs ran under pba, %d under fifo", ours.Within.Jobs+ours.Rest.Jobs, fifo.Within.Jobs+fifo.Rest.Jobs)
	b := &s.bounds
	if b.asUseful > 0 {
		want(ours.Useful >= fifo.Useful-b.asUseful, "useful utilization is %.1f %%, without a guarantee %.1f %%", 100*ours.Useful, 100*fifo.Useful)
	}
	if b.lost > 0 {
		want(ours.LostShare <= b.lost, "%.2f %% of the farm is lost, more than %.1f %%", 100*ours.LostShare, 100*b.lost)
	}
	if b.exact {
		want(ours.Requested > 0 && ours.Requested == ours.Evicted, "%d slots were evicted for %d that were requested", ours.Evicted, ours.Requested)
		want(ours.Useful >= dedicated.Useful+0.05, "useful utilization is %.1f %%, dedicated %.1f %%: not 5 points more", 100*ours.Useful, 100*dedicated.Useful)
	}
	if b.ends {
		want(ours.Rest.Widest.Max < s.Result.Window.Seconds, "the wide job's last run began %.0f s after its submission, when the last job had come", ours.Rest.Widest.Max)
	}
	return broken
}

// outcome returns the result of one policy.
func (s *scene) outcome(policy string) *simulate.Outcome {
	for i := range s.Result.Policies {
		if s.Result.Policies[i].Policy == policy {
			return &s.Result.Policies[i]
		}
	}
	return &simulate.Outcome{Policy: policy}
}
