package backends

// Throttle sets what the waiting elements of arrays wait for, where the array has an
// ArrayLimit: as many as may still start wait for resources, the first ones in the order
// of jobs; the others wait for the throttle. The queue's own reason is not used: on Slurm it
// stays for a while after an element has ended (22.05). Suspended elements count as
// running.
func Throttle(jobs []Job) {
	left := map[int64]int{}
	for i := range jobs {
		j := &jobs[i]
		if j.ArrayLimit <= 0 {
			continue
		}
		if _, ok := left[j.ID.Job]; !ok {
			left[j.ID.Job] = j.ArrayLimit
		}
		if j.State == Running || j.State == Suspended {
			left[j.ID.Job]--
		}
	}
	for i := range jobs {
		j := &jobs[i]
		if j.ArrayLimit <= 0 || j.State != Pending || j.Wait != WaitResources && j.Wait != WaitThrottle {
			continue
		}
		j.Wait = WaitThrottle
		if left[j.ID.Job] > 0 {
			j.Wait = WaitResources
			left[j.ID.Job]--
		}
	}
}
