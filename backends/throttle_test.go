package backends

import (
	"slices"
	"testing"
)

func TestThrottle(t *testing.T) {
	element := func(index, limit int, state State, wait Wait) Job {
		return Job{ID: ID{Job: 7, Index: index}, State: state, Wait: wait, ArrayLimit: limit}
	}
	for name, c := range map[string]struct {
		jobs []Job
		want []Wait
	}{
		"one of three starts": {
			[]Job{element(1, 1, Pending, WaitResources), element(2, 1, Pending, WaitResources), element(3, 1, Pending, WaitResources)},
			[]Wait{WaitResources, WaitThrottle, WaitThrottle},
		},
		"none beside one that runs": {
			[]Job{element(1, 1, Pending, WaitResources), element(2, 1, Running, WaitOther)},
			[]Wait{WaitThrottle, WaitOther},
		},
		"none beside a suspended one": {
			[]Job{element(1, 1, Suspended, WaitOther), element(2, 1, Pending, WaitResources)},
			[]Wait{WaitOther, WaitThrottle},
		},
		"a stale reason does not count": {
			[]Job{element(1, 2, Done, WaitOther), element(2, 2, Pending, WaitThrottle), element(3, 2, Pending, WaitThrottle), element(4, 2, Pending, WaitThrottle)},
			[]Wait{WaitOther, WaitResources, WaitResources, WaitThrottle},
		},
		"those that wait for something else take no place": {
			[]Job{element(1, 1, Pending, WaitTime), element(2, 1, Held, WaitOther), element(3, 1, Pending, WaitThrottle)},
			[]Wait{WaitTime, WaitOther, WaitResources},
		},
		"no limit": {
			[]Job{element(1, 0, Pending, WaitThrottle)},
			[]Wait{WaitThrottle},
		},
	} {
		Throttle(c.jobs)
		var got []Wait
		for _, j := range c.jobs {
			got = append(got, j.Wait)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
