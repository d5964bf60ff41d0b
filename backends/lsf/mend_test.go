package lsf_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// A job whose host dies during its requeue is put back after its end if the queue can do
// that, else reported as lost, once. Other jobs are not touched.
func TestRequeueOnADeadHost(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"brequeue -e puts it back": false, "brequeue -e refuses": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ofMinutes(t, stays)
			c := lsfstandin.New(t, lsfstandin.Options{
				Hosts: 2, Slots: 2, RootMaySubmit: true, Second: 50 * time.Millisecond,
				Edit: func(c *lsfstandin.Config) { c.Unkind.ExitedStayEnded = stays },
			})
			e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
			id, other := e.submit("h1"), e.submit("h1")
			was := e.await(id, "its run", is(backends.Running))
			e.await(other, "its run", is(backends.Running))
			since := time.Now()
			c.SetHost("h1", false, true)
			if err := e.Requeue(t.Context(), []backends.Act{{ID: id, Started: was.Started, Until: time.Now().Add(time.Hour), Mark: "r1"}}).First(); err != nil {
				t.Fatal(err)
			}
			if stays {
				j := e.await(id, "it to be given up", func(j backends.Job) bool { return j.State.Ended() })
				farm, err := e.Snapshot(t.Context(), time.Now().Add(-time.Minute)) // a cycle that began long after its end
				if err != nil || !j.Lost || j.Mark != "r1" || !j.Started.Equal(was.Started) || len(farm.Ended) != 1 || farm.Ended[0].ID != id || !farm.Ended[0].Lost {
					t.Errorf("%v: %+v, ended %+v: want it lost", err, j, farm.Ended)
				}
				if time.Since(since) < 30*time.Second {
					t.Errorf("given up after %v", time.Since(since))
				}
				return
			}
			j := e.await(id, "it to be back", func(j backends.Job) bool { return j.State == backends.Pending && !j.Ending })
			if j.Requeues != 1 || j.HeldUntil.IsZero() || j.Mark != "r1" || j.Lost {
				t.Errorf("%+v", j)
			}
			c.SetHost("h1", false, false)
			if j := e.await(other, "it to be seen again", is(backends.Running)); j.Requeues != 0 {
				t.Errorf("%+v", j)
			}
		})
	}
}
