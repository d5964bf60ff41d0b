package laws

import (
	"slices"
	"time"
)

// reduce makes a farm that breaks a law as small as it can within -rapid.shrinktime:
// whole runs of jobs first, then cycles, then whatever makes a job unusual. A
// farm is drawn with far too many dice for rapid's own shrinking.
func reduce(f farm, l law) farm {
	deadline := time.Now().Add(number[time.Duration]("rapid.shrinktime"))
	broken := func(c farm) bool { return time.Now().Before(deadline) && run(c).broken[l] != "" }
	for before := -1; before != size(f); {
		before = size(f)
		f = reduceJobs(f, broken)
		f = reduceRest(f, broken)
	}
	return f
}

func size(f farm) int {
	n := len(f.Sets) + len(f.Own) + len(f.Outages) + len(f.Jobs)*100 + len(f.Missed)*10 + len(f.Shrinks) + len(trues(f.Missed)) + len(trues(f.Again))
	for _, j := range f.Jobs {
		n += len(reduceJob(j))
	}
	return n
}

func reduceJobs(f farm, broken func(farm) bool) farm {
	for n := len(f.Jobs) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(f.Jobs); {
			c := f
			c.Jobs = slices.Delete(slices.Clone(f.Jobs), i, i+n)
			if broken(c) {
				f = c
			} else {
				i += n
			}
		}
	}
	return f
}

func reduceRest(f farm, broken func(farm) bool) farm {
	try := func(change func(*farm)) {
		c := f
		c.Jobs, c.Missed, c.Again, c.Shrinks, c.Pools = slices.Clone(f.Jobs), slices.Clone(f.Missed), slices.Clone(f.Again), slices.Clone(f.Shrinks), slices.Clone(f.Pools)
		change(&c)
		if size(c) < size(f) && broken(c) {
			f = c
		}
	}
	for len(f.Missed) > 1 {
		n := len(f.Missed)
		try(func(c *farm) { c.Missed, c.Again = c.Missed[:n-1], c.Again[:n-1] })
		if len(f.Missed) == n {
			break
		}
	}
	for i := range f.Missed {
		try(func(c *farm) { c.Missed[i] = false })
		try(func(c *farm) { c.Again[i] = false })
	}
	try(func(c *farm) { c.Shrinks = nil })
	try(func(c *farm) { c.Sets = nil })
	for i := range f.Outages {
		try(func(c *farm) {
			if i < len(c.Outages) {
				c.Outages = slices.Delete(slices.Clone(c.Outages), i, i+1)
			}
		})
	}
	try(func(c *farm) { c.Considers = considersNever })
	try(func(c *farm) { c.Own = nil })
	for i := range f.Jobs {
		for k := range reduceJob(f.Jobs[i]) {
			try(func(c *farm) {
				if simpler := reduceJob(c.Jobs[i]); k < len(simpler) {
					c.Jobs[i] = simpler[k]
				}
			})
		}
	}
	return f
}

// reduceJob lists the job's variants that lack one unusual property each.
func reduceJob(j jobCase) []jobCase {
	var all []jobCase
	add := func(differs bool, change func(*jobCase)) {
		if differs {
			c := j
			change(&c)
			all = append(all, c)
		}
	}
	add(j.Memory != 0, func(c *jobCase) { c.Memory = 0 })
	add(j.Host >= 0, func(c *jobCase) { c.Host = -1 })
	add(j.Killed != 0, func(c *jobCase) { c.Killed = 0 })
	add(j.Raised != 0, func(c *jobCase) { c.Raised, c.Claim = 0, 0 })
	add(j.Claimed, func(c *jobCase) { c.Claimed, c.Claim = false, 0 })
	add(j.Stopped != 0, func(c *jobCase) { c.Stopped = 0 })
	add(j.Saves != 0 || j.Every != 0, func(c *jobCase) { c.Saves, c.SaveTakes, c.Every = 0, 0, 0 })
	add(j.RunLimit != 0, func(c *jobCase) { c.RunLimit = 0 })
	add(j.KillDelay != 0, func(c *jobCase) { c.KillDelay = 0 })
	add(!j.OneHost, func(c *jobCase) { c.OneHost = true })
	add(j.Suspend, func(c *jobCase) { c.Suspend = false })
	add(j.NoRequeue, func(c *jobCase) { c.NoRequeue = false })
	add(j.Interactive, func(c *jobCase) { c.Interactive = false })
	add(j.Exclusive, func(c *jobCase) { c.Exclusive = false })
	add(j.Hold, func(c *jobCase) { c.Hold = false })
	add(j.GPUs != 0, func(c *jobCase) { c.GPUs = 0 })
	add(j.Big, func(c *jobCase) { c.Big = false })
	add(j.Odd, func(c *jobCase) { c.Odd = false })
	add(j.Limit != 0, func(c *jobCase) { c.Limit = 0 })
	add(j.Array != 0, func(c *jobCase) { c.Array, c.Limit = 0, 0 })
	add(j.Step != "", func(c *jobCase) { c.Step = "" })
	return all
}
