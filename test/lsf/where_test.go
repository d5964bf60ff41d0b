package lsf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
	"github.com/allotment-hpc/allotment/test/programs"
)

// whereCase is a job of a project with room, on a full farm.
type whereCase struct {
	fillers map[string]int // jobs beside the plain ones, by their requirement
	options []string
	on      []string // hosts that it may run on
	slots   int      // that are preempted for it, one for one
	perHost int      // its slots on each host; 0: as they come
	victims string   // requirement that its victims have
	refused string   // the part of its request for which it is not served
}

// R32: jobs are preempted only where the job can run, one for one; for a request that is
// not understood none is, and pba explain names the part.
func TestWhereJobsMayRun(t *testing.T) {
	pba := filepath.Join(programs.Build(t, "pba"), "pba")
	cases := map[string]whereCase{
		"queue's HOSTS":   {options: []string{"-q", "few"}, on: []string{"h1", "h2"}, slots: 1},
		"queue's RES_REQ": {options: []string{"-q", "need", "-n", "2"}, on: []string{"h1", "h2"}, slots: 2, perHost: 2},
		"-m":              {options: []string{"-m", "h2+2 h1"}, on: []string{"h1", "h2"}, slots: 1},
		"group":           {options: []string{"-m", "pair"}, on: []string{"h1", "h2"}, slots: 1},
		"select":          {options: []string{"-R", "select[maxmem>6000 && mem>1000]"}, on: []string{"h1"}, slots: 1},
		"span[hosts=1]":   {options: []string{"-n", "3", "-R", "span[hosts=1]"}, on: []string{"h1", "h2", "h3"}, slots: 3, perHost: 3},
		"span[ptile=2]":   {options: []string{"-n", "4", "-R", "big span[ptile=2]"}, on: []string{"h1", "h2"}, slots: 4, perHost: 2},
		"cards":           {fillers: map[string]int{"rusage[card=1]": 2}, options: []string{"-R", "rusage[card=1]"}, on: []string{"h1"}, slots: 1, victims: "rusage[card=1]"},
		"or":              {options: []string{"-R", "select[big||small]"}, refused: "select[]: "},
		"affinity":        {options: []string{"-R", "affinity[core(1)]"}, refused: "affinity[core(1)]"},
	}
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		for name, c := range cases {
			t.Run(fmt.Sprintf("%s, %s", flavour, name), func(t *testing.T) {
				t.Parallel()
				newWhereTest(t, pba, flavour).check(c)
			})
		}
	}
	t.Run("lsf10, GPUs", func(t *testing.T) {
		t.Parallel()
		newWhereTest(t, pba, lsfstandin.LSF10).check(whereCase{
			fillers: map[string]int{"rusage[ngpus_physical=1]": 2}, options: []string{"-R", "rusage[ngpus_physical=1]"},
			on: []string{"h1"}, slots: 1, victims: "rusage[ngpus_physical=1]",
		})
	})
}

type whereTest struct {
	*reclaimTest
}

func newWhereTest(t *testing.T, pba string, flavour lsfstandin.Flavour) *whereTest {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 3, Slots: 4, Flavour: flavour, Second: 200 * time.Millisecond, Edit: func(c *lsfstandin.Config) {
		c.Hosts[0].Resources, c.Hosts[1].Resources = []string{"big"}, []string{"big"}
		c.Hosts[0].Has, c.Hosts[0].GPUs = map[string]int{"card": 2}, 2
		c.Hosts[0].Memory = 8 << 30
		c.Groups = map[string][]string{"pair": {"h1", "h2"}}
		c.Queues = []lsfstandin.QueueConfig{
			{Name: "normal", Priority: 30}, {Name: "few", Priority: 30, Hosts: "pair/"}, {Name: "need", Priority: 30, ResReq: "select[big] span[hosts=1]"},
		}
	}})
	w := &whereTest{&reclaimTest{T: t, Cluster: c, accounts: testAccounts(t), ctx: ctx, pba: pba, home: t.TempDir(), dir: t.TempDir()}}
	w.admin.uid = 0 // the test's own user runs the engine
	config := fmt.Sprintf("backend: lsf\nfilter: {low_queue: \"\"}\npba: {every: 1s, pending_threshold: 1s, min_runtime: 1s}\nlsf: {bin: %q, envdir: %q}\n", c.Bin(), c.EnvDir())
	if err := os.WriteFile(filepath.Join(w.home, "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	group := "root"
	if os.Getuid() != 0 {
		group = w.engineer.group
	}
	for _, args := range [][]string{{"init"}, {"project", "add", "chipa", "--group", group}, {"alloc", "set", "chipa", "6", "--weeks", "2"}} {
		w.mustPba(args...)
	}
	return w
}

func (w *whereTest) mustPba(args ...string) string {
	w.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.Fatalf("pba %s: %v: %s", args, err, out)
	}
	return string(out)
}

func (w *whereTest) bsub(name string, options ...string) {
	w.Helper()
	if out, message, rc := w.Cluster.Run(slices.Concat([]string{"bsub", "-J", name}, options, []string{"sleep", "600"})...); rc != 0 {
		w.Fatalf("bsub %s: %d: %s%s", options, rc, out, message)
	}
}

func (w *whereTest) jobs() map[string]lsfstandin.Job {
	w.Helper()
	snapshot, err := w.Snapshot()
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]lsfstandin.Job{}
	for _, j := range snapshot.Jobs {
		all[j.Name] = j
	}
	return all
}

func (w *whereTest) check(c whereCase) {
	w.Helper()
	left := 12
	fill := func(n int, options ...string) {
		for range n {
			w.bsub(fmt.Sprintf("filler%d", left), options...)
			left--
		}
		w.await("fillers to run", func() bool { return w.count(lsfstandin.RUN) == 12-left })
	}
	for requirement, n := range c.fillers {
		fill(n, "-R", requirement)
	}
	fill(left) // h1 first: elsewhere the least valued victims are, which started last
	before := w.jobs()
	w.bsub("wanted", append([]string{"-P", "chipa"}, c.options...)...)
	stop := farm.StartForTest(w.T, w.command("rebalance", "--every", "1s", "--for", "10m", "--verbose"))
	if c.refused != "" {
		w.bsub("plain", "-P", "chipa") // is served all the same
		w.await("the plain job", func() bool { return w.jobs()["plain"].Stat == lsfstandin.RUN })
		c.slots = 1
		if out := w.mustPba("explain", fmt.Sprint(w.jobs()["wanted"].ID)); !strings.Contains(out, c.refused) {
			w.Errorf("pba explain: %s", out)
		}
	} else {
		w.await("its start", func() bool { return w.jobs()["wanted"].Stat == lsfstandin.RUN })
	}
	w.await("the ledger to be settled", func() bool { return len(w.memory().Reclaims) > 0 && len(judge.OpenReclaims(w.memory())) == 0 })
	stop()
	w.judgeWhere(c, before)
}

// judgeWhere reads from the queue and the ledger who lost slots, and where the job runs.
func (w *whereTest) judgeWhere(c whereCase, before map[string]lsfstandin.Job) {
	w.Helper()
	now, slots := w.jobs(), 0
	taken := judge.Victims(w.memory())
	for name, was := range before {
		victim := slices.Contains(taken, fmt.Sprint(was.ID))
		if requeued := now[name].Requeued > 0 || now[name].Stat != lsfstandin.RUN; requeued != victim {
			w.Errorf("%s, in the ledger a victim: %v, is %s", name, victim, now[name].Stat)
		}
		if !victim {
			continue
		}
		slots++
		if c.on != nil && !slices.Contains(c.on, was.ExecHosts[0]) {
			w.Errorf("%s lost its slot of %s, where the job can't run", name, was.ExecHosts[0])
		}
		if was.ResReq != c.victims {
			w.Errorf("%s lost its slot, which frees nothing that the job needs: %s", name, was.ResReq)
		}
	}
	if slots != c.slots {
		w.Errorf("%d slots were preempted for %d", slots, c.slots)
	}
	if c.refused != "" {
		if now["wanted"].Stat != lsfstandin.PEND {
			w.Errorf("the job that is not served is %s", now["wanted"].Stat)
		}
		return
	}
	on := map[string]int{}
	for _, h := range now["wanted"].ExecHosts {
		on[h]++
	}
	for host, n := range on {
		if !slices.Contains(c.on, host) || c.perHost > 0 && n != c.perHost {
			w.Errorf("the job runs on %v", on)
		}
	}
}
