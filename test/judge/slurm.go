package judge

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run is a run of a job in Slurm's own records. Its amounts are those of all its hosts.
type Run struct {
	Job         string // as sacct writes it: 12, or 12_3
	Account     string
	From, To    time.Time // zero To: it goes on
	Requeued    bool      // it ended because the job was requeued
	Hosts       []string
	Slots, GPUs int
}

// Records are what sacct and slurmctld's log say of a cluster's jobs.
type Records struct {
	Runs      []Run                // in order of their starts
	Submitted map[string]time.Time // by number of a job or array
}

// SacctFields are what ReadRecords needs of `sacct --allocations --duplicates --parsable2
// --noheader`, with times in seconds since 1970.
const SacctFields = "JobID,Account,State,Start,End,NodeList,AllocTRES"

var logged = regexp.MustCompile(`^\[([^\]]+)\] .*?(?:(Requeuing) JobId=|_slurm_rpc_(submit)_batch_job: JobId=|(?:sched: (Allocate)|(Started)) JobId=|(job_signal: 9 of running|_job_complete:) JobId=)(\d+(?:_\d+)?)\b`)

// ReadRecords reads what sacct printed, and slurmctld's log, whose times are more exact and
// in this process's zone. It returns an error where the two contradict each other.
func ReadRecords(sacct, log string) (Records, error) {
	r := Records{Submitted: map[string]time.Time{}}
	starts, requeues, ends := map[string][]time.Time{}, map[string][]time.Time{}, map[string][]time.Time{}
	for line := range strings.Lines(log) {
		m := logged.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := time.ParseInLocation("2006-01-02T15:04:05.999", m[1], time.Local)
		if err != nil {
			return r, fmt.Errorf("slurmctld's log: %w", err)
		}
		switch id := m[7]; {
		case m[2] != "":
			requeues[id] = append(requeues[id], at)
		case m[3] != "":
			r.Submitted[id] = at
		case m[6] != "":
			ends[id] = append(ends[id], at)
		default:
			starts[id] = append(starts[id], at)
		}
	}
	for line := range strings.Lines(sacct) {
		run, started, err := readRun(strings.TrimRight(line, "\n"))
		if err != nil {
			return r, err
		}
		if started {
			r.Runs = append(r.Runs, run)
		}
	}
	slices.SortStableFunc(r.Runs, func(a, b Run) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Job, b.Job)) })
	runs, ended := map[string]int{}, map[string]int{}
	for i := range r.Runs {
		run := &r.Runs[i]
		if n := runs[run.Job]; n < len(starts[run.Job]) {
			run.From = starts[run.Job][n]
		}
		runs[run.Job]++
		if n := ended[run.Job]; run.Requeued && n < len(requeues[run.Job]) {
			run.To = requeues[run.Job][n]
		}
		if run.Requeued {
			ended[run.Job]++
		} else if !run.To.IsZero() {
			run.To = exactEnd(run, ends[run.Job])
		}
	}
	for _, x := range []struct {
		what   string
		counts map[string]int
		log    map[string][]time.Time
	}{{"starts", runs, starts}, {"requeues", ended, requeues}} {
		jobs := slices.Collect(maps.Keys(x.log))
		for _, job := range slices.Sorted(slices.Values(slices.AppendSeq(jobs, maps.Keys(x.counts)))) {
			if x.counts[job] != len(x.log[job]) {
				return r, fmt.Errorf("job %s: sacct has %d %s, slurmctld's log %d", job, x.counts[job], x.what, len(x.log[job]))
			}
		}
	}
	slices.SortStableFunc(r.Runs, func(a, b Run) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Job, b.Job)) })
	return r, nil
}

// exactEnd returns when a run ended by itself or was killed, by the log if that has it: sacct's
// whole seconds may be before the start.
func exactEnd(run *Run, logged []time.Time) time.Time {
	for _, at := range logged {
		if !at.Before(run.From) && at.Sub(run.To).Abs() < 1500*time.Millisecond {
			return at
		}
	}
	if run.To.Before(run.From) {
		return run.From
	}
	return run.To
}

// readRun reads a line of sacct. A job that has not started has no run. slurmdbd may lose the
// start of a requeued run that it has the end and the hosts of (22.05): From is its end then,
// which orders the job's runs as well, until the log's start takes its place.
func readRun(line string) (run Run, started bool, err error) {
	f := strings.Split(line, "|")
	if len(f) != strings.Count(SacctFields, ",")+1 {
		return run, false, fmt.Errorf("sacct: %q", line)
	}
	run = Run{Job: f[0], Account: f[1], Requeued: f[2] == "REQUEUED"}
	if to, err := strconv.ParseInt(f[4], 10, 64); err == nil {
		run.To = time.Unix(to, 0)
	}
	switch from, err := strconv.ParseInt(f[3], 10, 64); {
	case err == nil:
		run.From = time.Unix(from, 0)
	case run.Requeued && !run.To.IsZero():
		run.From = run.To
	default: // Unknown, or None
		return run, false, nil
	}
	if run.Hosts, err = hostsOf(f[5]); err != nil {
		return run, false, err
	}
	for amount := range strings.SplitSeq(f[6], ",") {
		name, value, _ := strings.Cut(amount, "=")
		n, err := strconv.Atoi(value)
		switch name {
		case "cpu":
			run.Slots = n
		case "gres/gpu":
			run.GPUs = n
		default:
			continue
		}
		if err != nil {
			return run, false, fmt.Errorf("sacct: %q: %w", line, err)
		}
	}
	return run, len(run.Hosts) > 0, nil
}

var hostList = regexp.MustCompile(`^([^\[\],]+)(?:\[([0-9,-]+)\])?(?:,|$)`)

// hostsOf returns the hosts of a list as Slurm writes it: n1, or n[1-3,7],m.
func hostsOf(list string) (hosts []string, err error) {
	if list == "None assigned" || list == "" {
		return nil, nil
	}
	for rest := list; rest != ""; {
		m := hostList.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("a list of hosts: %q", list)
		}
		rest = rest[len(m[0]):]
		if m[2] == "" {
			hosts = append(hosts, m[1])
			continue
		}
		for part := range strings.SplitSeq(m[2], ",") {
			first, last, _ := strings.Cut(part, "-")
			from, err := strconv.Atoi(first)
			to, err2 := strconv.Atoi(cmp.Or(last, first))
			if err != nil || err2 != nil || to-from > 10000 {
				return nil, fmt.Errorf("a list of hosts: %q", list)
			}
			for n := from; n <= to; n++ {
				hosts = append(hosts, fmt.Sprintf("%s%d", m[1], n))
			}
		}
	}
	return hosts, nil
}

// Amounts are the slots and GPUs of a host, or of a run there.
type Amounts struct{ Slots, GPUs int }

// Evictions says what became of the slots of the runs that were requeued.
type Evictions struct {
	All     int
	Useless []Run       // what they left was used by no run of a beneficiary, or was not needed
	For     map[int]int // slots that were evicted for a run, by its index in Runs
}

// Evictions judges who used what the requeued runs left. Of each at least a slot or a GPU
// must have gone to a run that serves, on one of its hosts, that started within a time after
// it. None counts that was free there without the eviction, unless another run ended by itself
// meanwhile, or up to a margin before. A run of which spread
// is true has as much on each of its hosts; of others that is not known, nor what is idle
// where they ran.
func (r *Records) Evictions(serves, spread func(*Run) bool, within, margin time.Duration, farm map[string]Amounts) Evictions {
	e := Evictions{For: map[int]int{}}
	var evicted, starts []int
	for i := range r.Runs {
		if r.Runs[i].Requeued {
			evicted = append(evicted, i)
		} else if serves(&r.Runs[i]) {
			starts = append(starts, i)
		}
	}
	e.All = len(evicted)
	used := r.match(evicted, starts, within)
	needed := r.needed(serves, spread, farm)
	for _, i := range evicted {
		k, ok := used[i]
		if ok {
			e.For[k] += r.Runs[i].Slots
		}
		if !ok || !needed[i] && !r.endedBy(i, k, margin) {
			e.Useless = append(e.Useless, r.Runs[i])
		}
	}
	return e
}

// Near lists the runs on the hosts of a run that began or ended within a time of its end, one on
// each line.
func (r *Records) Near(run Run, within time.Duration) string {
	var out strings.Builder
	near := func(at time.Time) bool { return at.Sub(run.To).Abs() <= within }
	for _, x := range r.Runs {
		if (near(x.From) || near(x.To)) && slices.ContainsFunc(run.Hosts, func(h string) bool { return slices.Contains(x.Hosts, h) }) {
			fmt.Fprintf(&out, "%+v\n", x)
		}
	}
	return out.String()
}

// logSlack is how much later slurmctld logs that it requeues a job than that another one has its slots.
const logSlack = 250 * time.Millisecond

// match assigns to each eviction a start that could use a slot or a GPU of it, each of them
// once, as many as possible: by augmenting paths.
func (r *Records) match(evicted, starts []int, within time.Duration) map[int]int {
	owned := map[int][]int{} // evictions by start
	suits := func(i, k int) bool {
		wait := r.Runs[k].From.Sub(r.Runs[i].To)
		return wait >= -logSlack && wait <= within && slices.ContainsFunc(r.Runs[i].Hosts, func(h string) bool { return slices.Contains(r.Runs[k].Hosts, h) })
	}
	var add func(i int, seen map[int]bool) bool
	add = func(i int, seen map[int]bool) bool {
		for _, k := range starts {
			if seen[k] || !suits(i, k) {
				continue
			}
			seen[k] = true
			if len(owned[k]) < max(r.Runs[k].Slots, r.Runs[k].GPUs) {
				owned[k] = append(owned[k], i)
				return true
			}
			for n, other := range owned[k] {
				if add(other, seen) {
					owned[k][n] = i
					return true
				}
			}
		}
		return false
	}
	for _, i := range evicted {
		add(i, map[int]bool{})
	}
	used := map[int]int{}
	for k, all := range owned {
		for _, i := range all {
			used[i] = k
		}
	}
	return used
}

// stock is what is free on a host: idle, and left by evictions; or what starts took that was
// not free yet by the records, whose times are not exact.
type stock struct {
	idle int
	left []share
	owed []share
}

// share is a number of slots or GPUs that a run left or took.
type share struct{ run, n int }

// take uses n for a run that starts: what is idle first. It returns the evictions whose shares it
// used.
func (s *stock) take(run, n int) (from []int) {
	idle := min(n, s.idle)
	s.idle -= idle
	n -= idle
	for n > 0 && len(s.left) > 0 {
		some := min(n, s.left[0].n)
		from = append(from, s.left[0].run)
		if s.left[0].n -= some; s.left[0].n == 0 {
			s.left = s.left[1:]
		}
		n -= some
	}
	if n > 0 {
		s.owed = append(s.owed, share{run, n})
	}
	return from
}

// free adds n that a run leaves, an evicted one or not. It returns the runs that had taken some of it
// before.
func (s *stock) free(run, n int, evicted bool) (to []int) {
	for n > 0 && len(s.owed) > 0 {
		some := min(n, s.owed[0].n)
		to = append(to, s.owed[0].run)
		if s.owed[0].n -= some; s.owed[0].n == 0 {
			s.owed = s.owed[1:]
		}
		n -= some
	}
	switch {
	case n > 0 && evicted:
		s.left = append(s.left, share{run, n})
	case n > 0:
		s.idle += n
	}
	return to
}

// needed replays the records on each host, and returns the evictions of which runs that
// serve used something that was not idle.
func (r *Records) needed(serves, spread func(*Run) bool, farm map[string]Amounts) map[int]bool {
	type event struct {
		at    time.Time
		run   int
		start bool
	}
	var events []event
	for i := range r.Runs {
		events = append(events, event{r.Runs[i].From, i, true})
		if !r.Runs[i].To.IsZero() {
			events = append(events, event{r.Runs[i].To, i, false})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if c := a.at.Compare(b.at); c != 0 || a.start == b.start {
			return c
		}
		if a.start {
			return 1
		}
		return -1
	})
	slots, gpus := map[string]*stock{}, map[string]*stock{}
	for name, has := range farm {
		slots[name], gpus[name] = &stock{idle: has.Slots}, &stock{idle: has.GPUs}
	}
	needed := map[int]bool{}
	for _, x := range events {
		run := &r.Runs[x.run]
		known := len(run.Hosts) == 1 || spread(run)
		for _, h := range run.Hosts {
			if !known && slots[h] != nil { // it may have used any of what is left
				for _, rest := range slices.Concat(slots[h].left, gpus[h].left) {
					needed[rest.run] = true
				}
				slots[h], gpus[h] = nil, nil
			}
			if slots[h] == nil && run.Requeued {
				needed[x.run] = true
			}
			for _, of := range []struct {
				stock *stock
				n     int
			}{{slots[h], run.Slots / len(run.Hosts)}, {gpus[h], run.GPUs / len(run.Hosts)}} {
				switch {
				case of.stock == nil || of.n == 0:
				case x.start:
					for _, i := range of.stock.take(x.run, of.n) {
						needed[i] = needed[i] || serves(run)
					}
				default:
					for _, k := range of.stock.free(x.run, of.n, run.Requeued) {
						needed[x.run] = needed[x.run] || run.Requeued && serves(&r.Runs[k])
					}
				}
			}
		}
	}
	return needed
}

// endedBy reports whether a run ended by itself, on whichever host, between an eviction, less a
// margin, and a start: what was free then went to another job than before.
func (r *Records) endedBy(evicted, start int, margin time.Duration) bool {
	from, to := r.Runs[evicted].To.Add(-margin), r.Runs[start].From
	return slices.ContainsFunc(r.Runs, func(x Run) bool {
		return !x.Requeued && !x.To.IsZero() && !x.To.Before(from) && !x.To.After(to)
	})
}
