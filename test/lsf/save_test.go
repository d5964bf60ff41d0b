package lsf

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// counter is a job that counts on from where its last run saved itself. The verb is what it does
// when it is asked to.
const counter = `cd %s; n=0; test ! -e state || n=$(cat state)
trap 'echo asked >>asked; %s' USR1
echo $n >>starts
while test ! -e over; do n=$((n + 1)); echo $n >now; sleep 0.05; done`

// saver is a cluster with a counting job of a user's own that an administrator's engine asks
// to save itself.
type saver struct {
	*testing.T
	*lsfstandin.Cluster
	*lsf.Client
	dir string
	was backends.Job // its first run
}

func newSaver(t *testing.T, flavour lsfstandin.Flavour, clean time.Duration, whenAsked string) *saver {
	p := testAccounts(t)
	s := &saver{T: t, dir: publicDir(t)}
	s.Cluster = lsfstandin.New(t, lsfstandin.Options{
		Hosts: 1, Slots: 2, Flavour: flavour, Second: 200 * time.Millisecond, Admins: p.admins(),
		Edit: func(c *lsfstandin.Config) { c.Params.CleanPeriod = clean },
	})
	if err := os.Chmod(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	config := lsf.DefaultConfig()
	config.Bin, config.EnvDir = s.Bin(), s.EnvDir()
	s.Client = lsf.Open(lsf.Options{Config: config, Record: filepath.Join(t.TempDir(), "lsf-jobs.json")})
	script := filepath.Join(s.dir, "counter")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+fmt.Sprintf(counter, s.dir, whenAsked)+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tag := backends.Tag{Checkpoint: backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute}}
	if _, message, rc := s.RunAs(p.engineer.uid, p.engineer.gid, "bsub", "-Jd", tag.String(), "-o", "/dev/null", script); rc != 0 {
		t.Fatal(message)
	}
	s.await("its first steps", func() bool { n, err := strconv.Atoi(s.read("now")); return err == nil && n > 2 })
	s.was = s.job()
	return s
}

func (s *saver) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name)) // it may not be there yet
	return strings.Join(strings.Fields(string(text)), " ")
}

func (s *saver) await(what string, is func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			out, _, _ := s.Cluster.Run("bjobs", "-u", "all", "-a", "-w")
			s.Fatalf("waited for %s: %+v\nit started at %q\n%s", what, s.job(), s.read("starts"), out)
		}
	}
}

func (s *saver) job() backends.Job {
	s.Helper()
	jobs, err := s.Jobs(s.Context(), []backends.ID{{Job: 1}})
	if err != nil {
		s.Fatal(err)
	}
	if len(jobs) == 0 {
		return backends.Job{} // it is forgotten
	}
	return jobs[0]
}

func (s *saver) reconcile() {
	s.Helper()
	if err := s.Abilities().Reconcile(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// ask asks the job to save itself.
func (s *saver) ask(wait time.Duration, until time.Time) {
	s.Helper()
	act := backends.Act{ID: s.was.ID, Started: s.was.Started, Until: until, Mark: "r1", Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: wait}}
	if err := s.Requeue(s.Context(), []backends.Act{act}).First(); err != nil {
		s.Fatal(err)
	}
	if j := s.job(); j.Mark != "r1" || j.State == backends.Running && !j.Ending {
		s.Errorf("it was asked, and is shown as %+v", j)
	}
	s.await("its trap", func() bool { return s.read("asked") != "" })
}

// awaitJob reconciles until so holds of the job.
func (s *saver) awaitJob(what string, so func(backends.Job) bool) backends.Job {
	s.Helper()
	var j backends.Job
	s.await(what, func() bool {
		s.reconcile()
		j = s.job()
		return so(j)
	})
	return j
}

// end lets the job end.
func (s *saver) end() {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "over"), nil, 0o644); err != nil {
		s.Fatal(err)
	}
	s.awaitJob("its end", func(j backends.Job) bool { return j.State == backends.Done })
}

func onFlavours(t *testing.T, test func(*testing.T, lsfstandin.Flavour)) {
	for _, flavour := range []lsfstandin.Flavour{lsfstandin.Lava, lsfstandin.LSF10} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			test(t, flavour)
		})
	}
}

// runsAgain reports whether a job is in its second run.
func runsAgain(j backends.Job) bool {
	return j.State == backends.Running && !j.Ending && j.Requeues == 1
}

// R33: a job that saves itself counts on where it was, with the same ID.
func TestSavedJobGoesOn(t *testing.T) {
	onFlavours(t, func(t *testing.T, flavour lsfstandin.Flavour) {
		s := newSaver(t, flavour, time.Hour, "echo $n >state; exit 85")
		s.ask(20*time.Second, time.Time{})
		if j := s.awaitJob("its next run", runsAgain); j.FailedSaves != 0 || j.ID != s.was.ID || j.Mark != "r1" {
			t.Errorf("%+v", j)
		}
		saved := s.read("state")
		s.await("its second start", func() bool { return s.read("starts") == "0 "+saved })
		if n, err := strconv.Atoi(saved); err != nil || n < 3 {
			t.Errorf("it saved %q", saved)
		}
		s.end()
	})
}

// A job that has saved itself is held as any victim is.
func TestSavedJobIsHeld(t *testing.T) {
	onFlavours(t, func(t *testing.T, flavour lsfstandin.Flavour) {
		s := newSaver(t, flavour, time.Hour, "exit 85")
		until := time.Now().Add(time.Hour)
		s.ask(20*time.Second, until)
		j := s.awaitJob("it to be back", func(j backends.Job) bool { return j.State == backends.Pending && !j.Ending && j.Requeues == 1 })
		listing, err := s.Cluster.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if in := listing.Jobs[0]; in.Stat != lsfstandin.PEND || in.Begin.Before(until.Truncate(time.Minute)) || !j.HeldUntil.Equal(until) {
			t.Errorf("LSF has it %s until %v, and it is shown held until %v; want it to run by itself at %v", in.Stat, in.Begin, j.HeldUntil, until)
		}
	})
}

func TestSaveThatEndsTheJob(t *testing.T) {
	onFlavours(t, func(t *testing.T, flavour lsfstandin.Flavour) {
		s := newSaver(t, flavour, time.Hour, "exit 0")
		s.ask(20*time.Second, time.Time{})
		j := s.awaitJob("its end", func(j backends.Job) bool { return j.State.Ended() })
		if s.reconcile(); j.State != backends.Done || j.Lost || s.read("starts") != "0" {
			t.Errorf("%+v, started at %s: want it done", j, s.read("starts"))
		}
	})
}

// A job that fails to save itself, or takes too long, starts anew, and the failures count.
func TestSaveFails(t *testing.T) {
	for whenAsked, wait := range map[string]time.Duration{"exit 3": 20 * time.Second, ":": time.Second} {
		t.Run(whenAsked, func(t *testing.T) {
			onFlavours(t, func(t *testing.T, flavour lsfstandin.Flavour) {
				s := newSaver(t, flavour, time.Hour, whenAsked)
				s.ask(wait, time.Time{})
				if j := s.awaitJob("its next run", runsAgain); j.FailedSaves != 1 || j.Lost {
					t.Errorf("%+v", j)
				}
				s.await("its second start", func() bool { return s.read("starts") == "0 0" })
				s.end()
			})
		})
	}
}

// A job that LSF forgets before it was put back is reported as lost, to one cycle.
func TestSavedJobIsForgotten(t *testing.T) {
	onFlavours(t, func(t *testing.T, flavour lsfstandin.Flavour) {
		s := newSaver(t, flavour, time.Second, "exit 85")
		s.ask(20*time.Second, time.Time{})
		s.await("LSF to forget it", func() bool { return s.job().ID == backends.ID{} })
		since := time.Now()
		var shown []backends.Job
		for range 3 { // cycles
			s.reconcile()
			farm, err := s.Client.Snapshot(t.Context(), since)
			if err != nil {
				t.Fatal(err)
			}
			shown, since = append(shown, farm.Ended...), farm.At
		}
		if len(shown) != 1 || shown[0].ID != s.was.ID || !shown[0].Lost || shown[0].Mark != "r1" || shown[0].User != s.was.User || shown[0].Project != s.was.Project {
			t.Errorf("%+v: want it lost, once", shown)
		}
	})
}
