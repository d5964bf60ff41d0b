package slurm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/judge"
)

// How many rounds are played, unless ALLOTMENT_ROUNDS says otherwise, and how many waves of
// members' jobs a round has.
const (
	defaultRounds = 6
	waves         = 2
)

// What the promise of these rounds is made of (R14), see promise. Cycles follow each other at
// once, and one that requeues jobs takes until these may start again, 3 s and a little; Slurm
// starts batch jobs on a tick of a second.
const (
	roundThreshold = 2 * time.Second
	roundCycle     = 5 * time.Second
	roundFreeing   = 10 * time.Second
	roundHandOver  = time.Minute // from an eviction to the start that it was for, at most
	roundPatience  = time.Minute // from one start in a wave to the next
)

func newRoundsSite(t *testing.T) *testSite {
	var nodes []string
	for _, h := range roundFarm {
		line := fmt.Sprintf("CPUs=%d RealMemory=16384 Feature=%s", h.Slots, h.feature)
		if h.GPUs > 0 {
			line += fmt.Sprintf(" Gres=gpu:%d", h.GPUs)
		}
		nodes = append(nodes, line)
	}
	s := newFarmSite(t, cluster.Options{
		Nodes: len(nodes), Each: nodes, Conf: []string{"SlurmctldDebug=verbose", "AccountingStorageTRES=gres/gpu"},
		Queues: []string{
			"PartitionName=main Nodes=node[1-6] Default=YES MaxTime=INFINITE DefaultTime=1-0 State=UP",
			"PartitionName=small Nodes=node[1-2] MaxTime=INFINITE DefaultTime=1-0 State=UP",
			"PartitionName=large Nodes=node[3-6] MaxTime=INFINITE DefaultTime=1-0 State=UP",
		},
	}, roundFixed)
	s.configure(fmt.Sprintf("s/pending_threshold: 1s/pending_threshold: %s/", roundThreshold))
	s.configure("s/max_victims_per_project: 100/max_victims_per_project: 10000/")
	return s
}

// submitted is a request of a member's that was submitted.
type submitted struct {
	request
	id       string
	accepted bool // an empty farm would start it, as sbatch --test-only says
}

// typed returns the words after sbatch for a request.
func (q *request) typed(account string) []string {
	return append([]string{"--account=" + account}, q.options...)
}

func (q *request) submit(s *testSite, p *person, account string) string {
	s.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=/dev/null"}, q.typed(account)...)
	d := s.as(p, nil, append(argv, fmt.Sprintf("--wrap=exec sleep %d", cmp.Or(q.seconds, 3600)))...)
	if d.code != 0 {
		s.Fatalf("sbatch %q: %d: %s", q.options, d.code, d.errors)
	}
	return d.out
}

// engine runs cycles of pba until the test ends, one a second or one after the other, and
// notes how long they take: on a busy machine that is longer.
type engine struct {
	sync.Mutex
	cycles []engineCycle
}

type engineCycle struct{ from, to time.Time }

func startEngine(s *testSite) *engine {
	s.Helper()
	log, err := os.Create(filepath.Join(s.dir, "engine.log"))
	s.must(err)
	e := &engine{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	program := filepath.Join(builtPrograms(s.T), "pba")
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cycle := engineCycle{from: time.Now()}
			fmt.Fprintf(log, "%s\n", cycle.from.Format("15:04:05.000"))
			cmd := exec.Command(program, "rebalance", "--verbose")
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "SLURM_CONF=" + filepath.Join(s.dir, "slurm.conf"), "ALLOTMENT_HOME=" + s.state, "TZ=UTC"}
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Run(); err != nil {
				fmt.Fprintln(log, err)
			}
			timer := time.NewTimer(time.Until(cycle.from.Add(time.Second)))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			cycle.to = time.Now()
			e.Lock()
			e.cycles = append(e.cycles, cycle)
			e.Unlock()
		}
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); s.Failed() && err == nil {
			s.Logf("the engine wrote: %s", text[max(len(text)-400_000, 0):])
		}
	})
	return e
}

// awaitCycle waits until a whole cycle has passed: the filter knows which pools have room now.
func (e *engine) awaitCycle(s *testSite) {
	s.Helper()
	begun := time.Now()
	s.await("a cycle", func() bool {
		e.Lock()
		defer e.Unlock()
		return len(e.cycles) > 0 && e.cycles[len(e.cycles)-1].from.After(begun)
	})
}

// promise returns how long a job may wait that could start from a time on (R14): the
// threshold, 2 cycles, and the time to free its slots. A cycle is as long as the longest that
// began in that time.
func (e *engine) promise(from time.Time) time.Duration {
	e.Lock()
	defer e.Unlock()
	cycle := roundCycle
	for _, c := range e.cycles {
		if c.to.After(from) && c.from.Before(from.Add(roundThreshold+2*cycle+roundFreeing)) {
			cycle = max(cycle, c.to.Sub(c.from))
		}
	}
	return roundThreshold + 2*cycle + max(roundFreeing, cycle)
}

// shapeResult adds up what Slurm's records say of a shape.
type shapeResult struct {
	jobs, requested, evicted, late int
	longest                        time.Duration
}

// rounds is what is played, and what came of it.
type rounds struct {
	*testSite
	members  []roundMember
	engine   *engine
	accepted map[string]bool
	shapes   map[string]*shapeResult
	starts   int // of members' jobs that an empty farm accepts
	useless  int
	evicted  int
}

type roundMember struct {
	person
	project string
	pool    int
}

// R14, R15, R32: random rounds of mixed shapes, judged from sacct and slurmctld's log alone:
// each eviction serves a member's job, and members' jobs start within the promise. SEED and
// ALLOTMENT_ROUNDS say what is played.
func TestRounds(t *testing.T) {
	cluster.Needed(t)
	count := setting(t, "ALLOTMENT_ROUNDS", defaultRounds)
	seed := setting(t, "SEED", int(time.Now().Unix()))
	r := rounds{testSite: newRoundsSite(t), accepted: map[string]bool{}, shapes: map[string]*shapeResult{}}
	for _, m := range []roundMember{{project: "chipA", pool: 9}, {project: "chipB", pool: 6}} {
		m.person = r.addMember(m.project, m.pool)
		r.members = append(r.members, m)
	}
	r.carol = addPerson(t, "c")
	r.addAccount("other", r.carol)
	r.do("rebalance")
	r.engine = startEngine(r.testSite)
	for i := range count {
		r.play(i, uint64(seed+i))
	}
	r.noLuaErrors()
	r.report()
	if late := r.late(); late*20 > r.starts {
		t.Errorf("%d of %d jobs that an empty farm accepts started later than promised", late, r.starts)
	}
	if r.useless > 0 {
		t.Errorf("%d of %d evictions were useless", r.useless, r.evicted)
	}
}

func setting(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: it must be a number", variable, text)
	}
	return n
}

// accepts reports whether an empty farm would start a request.
func (r *rounds) accepts(m *roundMember, q *request) bool {
	r.Helper()
	key := m.project + strings.Join(q.options, " ")
	yes, known := r.accepted[key]
	if !known {
		argv := append([]string{"sbatch", "--test-only"}, q.typed(m.project)...)
		d := r.as(&m.person, nil, append(argv, "--wrap=true")...)
		yes = d.code == 0
		if r.accepted[key] = yes; !yes {
			r.Logf("an empty farm does not accept %q: %s", q.options, d.errors)
		}
	}
	return yes
}

// play plays a round, and judges it.
func (r *rounds) play(index int, seed uint64) {
	r.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	r.engine.awaitCycle(r.testSite)
	var waveRequests [waves][][]submitted
	for w := range waves {
		l := newLayout()
		for i := range r.members {
			m := &r.members[i]
			var all []submitted
			for _, q := range drawWave(random, l, m.pool) {
				all = append(all, submitted{request: q, accepted: r.accepts(m, &q)})
			}
			waveRequests[w] = append(waveRequests[w], all)
		}
	}
	begun := time.Now()
	background := map[string]request{}
	for _, q := range drawBackground(random) {
		background[q.submit(r.testSite, &r.carol, "other")] = q
	}
	r.settle()
	for w := range waves {
		if w > 0 {
			for _, m := range r.members {
				r.as(nil, nil, "scancel", "--quiet", "--user="+m.name)
			}
			r.settle()
			r.engine.awaitCycle(r.testSite)
		}
		for i := range r.members {
			for k := range waveRequests[w][i] {
				q := &waveRequests[w][i][k]
				q.id = q.submit(r.testSite, &r.members[i].person, r.members[i].project)
			}
		}
		r.awaitStarts()
	}
	r.empty()
	members := map[string]*submitted{}
	for w := range waveRequests {
		for i := range waveRequests[w] {
			for k := range waveRequests[w][i] {
				members[waveRequests[w][i][k].id] = &waveRequests[w][i][k]
			}
		}
	}
	late, useless := r.judge(begun, members, background)
	r.Logf("round %d (SEED=%d ALLOTMENT_ROUNDS=1): %d requests, %d late, %d useless evictions, %s", index+1, seed, len(members), late, useless, time.Since(begun).Round(time.Second))
}

// settle waits until Slurm has started what fits.
func (r *rounds) settle() {
	r.Helper()
	was, since := "", time.Now()
	r.await("a farm at rest", func() bool {
		is := r.root("squeue", "--noheader", "--array", "--states=RUNNING,COMPLETING", "--format=%i %t")
		if is != was {
			was, since = is, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond && is != ""
	})
}

// awaitStarts waits until no job of a member waits, or none starts any more.
func (r *rounds) awaitStarts() {
	r.Helper()
	var names []string
	for _, m := range r.members {
		names = append(names, m.name)
	}
	pending := func() string {
		return r.root("squeue", "--noheader", "--array", "--states=PENDING", "--user="+strings.Join(names, ","), "--format=%i")
	}
	was, since := "", time.Now()
	await.Every(r.Context(), 200*time.Millisecond, func() bool {
		if is := pending(); is != was {
			was, since = is, time.Now()
		}
		return was == "" || time.Since(since) > roundPatience
	})
	if was == "" {
		return
	}
	for id := range strings.FieldsSeq(pending()) {
		if job, index, ok := strings.Cut(id, "_"); ok {
			id = job + "[" + index + "]"
		}
		_, why := r.pba("explain", id)
		r.Logf("late: %s", why)
	}
	r.Logf("the queue:\n%s", r.root("squeue", "--all", "--array", "--format=%i %P %a %t %C %N %r %n"))
}

// judge judges a round by Slurm's records.
func (r *rounds) judge(begun time.Time, members map[string]*submitted, background map[string]request) (late, useless int) {
	r.Helper()
	var records judge.Records
	var err error
	if !await.Soon(func() bool { records, err = r.records(begun, members, background); return err == nil }) {
		r.Fatal(err)
	}
	of := func(run *judge.Run) *submitted { return members[number(run.Job)] }
	farm := map[string]judge.Amounts{}
	for i, h := range roundFarm {
		farm[hostName(i)] = h.Amounts
	}
	e := records.Evictions(func(run *judge.Run) bool { return of(run) != nil }, func(run *judge.Run) bool {
		if q := of(run); q != nil {
			return q.hosts > 0
		}
		return background[number(run.Job)].hosts > 0
	}, roundHandOver, roundCycle, farm)
	r.evicted += e.All
	for _, run := range e.Useless {
		r.Errorf("a useless eviction: %+v; runs there within a minute:\n%s", run, records.Near(run, roundHandOver))
	}
	for k, slots := range e.For {
		r.shape(of(&records.Runs[k]).shape).evicted += slots
	}
	for id, q := range members {
		var runs []judge.Run
		for _, run := range records.Runs {
			switch {
			case number(run.Job) != id:
			case run.Requeued:
				r.Errorf("a member within its guarantee was evicted: %+v", run)
				useless++
			default:
				runs = append(runs, run)
			}
		}
		late += r.judgeStarts(q, records.Submitted[id], runs)
	}
	useless += len(e.Useless)
	r.useless += useless
	return late, useless
}

// judgeStarts judges when a request's job, or the elements of its array, started: an element
// of an array with a limit may start when enough of those before have ended.
func (r *rounds) judgeStarts(q *submitted, from time.Time, runs []judge.Run) (late int) {
	x := r.shape(q.shape)
	for i := range max(q.elements, 1) {
		x.jobs++
		if q.accepted {
			r.starts++
		}
		may := from
		if i >= q.atOnce() && len(runs) > i-q.atOnce() {
			ends := make([]time.Time, 0, i)
			for _, run := range runs[:min(i, len(runs))] {
				ends = append(ends, run.To)
			}
			slices.SortFunc(ends, time.Time.Compare)
			may = ends[i-q.atOnce()]
		}
		if i >= len(runs) {
			late++
			r.Logf("late: %s %q never started", q.id, q.options)
			x.requested += q.slots
			continue
		}
		x.requested += runs[i].Slots
		waited := runs[i].From.Sub(may)
		x.longest = max(x.longest, waited)
		if promise := r.engine.promise(may); waited > promise {
			late++
			r.Logf("late: %s %q waited %s, more than %s", runs[i].Job, q.options, waited, promise)
		}
	}
	if q.accepted {
		x.late += late
		return late
	}
	return 0
}

func (r *rounds) shape(name string) *shapeResult {
	if r.shapes[name] == nil {
		r.shapes[name] = &shapeResult{}
	}
	return r.shapes[name]
}

// number returns the number of a job, or of the array that it is of.
func number(job string) string {
	id, _, _ := strings.Cut(job, "_")
	return id
}

// records reads Slurm's records of a round's jobs.
func (r *rounds) records(begun time.Time, members map[string]*submitted, background map[string]request) (judge.Records, error) {
	r.Helper()
	d := r.as(nil, []string{"SLURM_TIME_FORMAT=%s"}, "sacct", "--allocations", "--duplicates", "--allusers", "--parsable2", "--noheader",
		"--starttime="+begun.Add(-time.Second).Format("2006-01-02T15:04:05"), "--format="+judge.SacctFields)
	if d.code != 0 {
		r.Fatalf("sacct: %s", d.errors)
	}
	log, err := os.ReadFile(filepath.Join(r.dir, "log", "slurmctld.log"))
	r.must(err)
	var lines strings.Builder
	for line := range strings.Lines(string(log)) {
		if _, after, ok := strings.Cut(line, "JobId="); ok {
			id := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
			if _, ours := background[id]; ours || members[id] != nil {
				lines.WriteString(line)
			}
		}
	}
	var rows strings.Builder
	for line := range strings.Lines(d.out) {
		job, _, _ := strings.Cut(line, "|")
		if _, ours := background[number(job)]; ours || members[number(job)] != nil {
			rows.WriteString(line)
		}
	}
	records, err := judge.ReadRecords(rows.String(), lines.String())
	if err != nil {
		err = fmt.Errorf("%w\nsacct:\n%sslurmctld's log:\n%s", err, rows.String(), lines.String())
	}
	return records, err
}

func (r *rounds) late() (n int) {
	for _, x := range r.shapes {
		n += x.late
	}
	return n
}

// report prints what was evicted and requested for each shape.
func (r *rounds) report() {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "shape\tjobs\tslots requested\tslots evicted\tlate\tlongest wait")
	var sum shapeResult
	for _, name := range slices.Sorted(maps.Keys(r.shapes)) {
		x := r.shapes[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", name, x.jobs, x.requested, x.evicted, x.late, x.longest.Round(100*time.Millisecond))
		sum.jobs, sum.requested, sum.evicted, sum.late = sum.jobs+x.jobs, sum.requested+x.requested, sum.evicted+x.evicted, sum.late+x.late
		sum.longest = max(sum.longest, x.longest)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\t%s\n", sum.jobs, sum.requested, sum.evicted, sum.late, sum.longest.Round(100*time.Millisecond))
	_ = w.Flush()
	r.Logf("%d evictions, %d useless; %d of %d jobs within the promise:\n%s", r.evicted, r.useless, r.starts-r.late(), r.starts, out.String())
}
