package supervise

import (
	"fmt"
	"testing"
	"time"
)

// between is the least and the most that a job has of a host's network, in thousands of a second.
type between struct{ least, most int64 }

// onHost is what is judged on a host in a phase.
type onHost struct {
	wants int64 // A's part there
	stays bool  // it is as before: it is judged from the first second on, else from the 10th on
	has   [3]between
}

// R47: two hosts whose networks are full, each decided for by itself. Job A runs on both, and was promised 60 % of each
// host's network. B, which runs on both, too, with two slots on each, and a third job with one slot take all they get.
// Once with rates, where each job is known to wait; and once as agents do it now: by freezing for a part of the time,
// where a job waits that sends less than its promise while the host is full.
func TestTwoFullNetworks(t *testing.T) {
	t.Run("rate", func(t *testing.T) { twoFullNetworks(t, Rate, func(*world) {}) })
	t.Run("duty", func(t *testing.T) {
		twoFullNetworks(t, Duty, func(w *world) {
			sum := int64(0)
			for i := range w.h.Jobs {
				sum += w.h.Jobs[i].Uses[Network]
			}
			for i := range w.h.Jobs {
				j := &w.h.Jobs[i]
				j.Waits[Network] = 0
				if use := j.Uses[Network]; sum >= w.real*9/10 && use > 0 && use < j.Minimum[Network] {
					j.Waits[Network] = 1
				}
			}
		})
	})
}

func twoFullNetworks(t *testing.T, rung Rung, see func(*world)) {
	t.Helper()
	const (
		all     = int64(100_000) // what a host can send in a second
		minimum = all * 60 / 100
		most    = 2 * all // of a job that takes all it gets
		settled = 10      // seconds
		used    = all * 95 / 100
	)
	// A has 95 % of its minimum at least. The 40 beyond are shared by slots: A 10, B 20, the third 10, and what is
	// limited keeps a hundredth of the host beside. Where A wants nothing nothing is limited.
	full := onHost{wants: most, has: [3]between{{57, 71}, {19, 22}, {9, 12}}}
	free := onHost{has: [3]between{{0, 0}, {49, 51}, {49, 51}}}
	stays := full
	stays.stays = true
	hosts := [2]*world{}
	for i := range hosts {
		w := &world{r: Network, real: all, wants: map[string]int64{"B": most, "third": most}}
		w.h = Host{Name: fmt.Sprint("h", i+1), Capacity: Amounts{Network: all}}
		works := Works{Network: {rung}}
		w.h.Jobs = []Job{{Name: "A", Slots: 1, Minimum: Amounts{Network: minimum}, Works: works}, {Name: "B", Slots: 2, Works: works}, {Name: "third", Slots: 1, Works: works}}
		hosts[i] = w
	}
	at := now
	for _, phase := range []struct {
		name    string
		seconds int
		hosts   [2]onHost
	}{
		{"before A begins", 20, [2]onHost{free, free}},
		{"A takes all it gets", 30, [2]onHost{full, full}},
		{"its part on h2 waits for that on h1", 30, [2]onHost{stays, free}},
		{"it goes on", 30, [2]onHost{stays, full}},
	} {
		for second := range phase.seconds {
			at = at.Add(time.Second)
			for i, w := range hosts {
				want := &phase.hosts[i]
				w.wants["A"] = want.wants
				w.run()
				see(w)
				if second >= settled || want.stays {
					sum := int64(0)
					for k, j := range w.h.Jobs {
						use := j.Uses[Network]
						sum += use
						if has := want.has[k]; use < 1000*has.least || use > 1000*has.most {
							t.Errorf("%s, %d s: %s has %d on %s, want %d to %d thousand: %+v", phase.name, second, j.Name, use, w.h.Name, has.least, has.most, w.h.Limits)
						}
					}
					if sum < used {
						t.Errorf("%s, %d s: %d of %d is used on %s: %+v", phase.name, second, sum, all, w.h.Name, w.h.Limits)
					}
				}
				w.h.Limits = Decide(&w.h, DefaultPolicy(), at).Limits
				if t.Failed() {
					return
				}
			}
		}
	}
	for _, w := range hosts {
		if len(w.h.Limits) == 0 {
			t.Errorf("nothing is limited on %s", w.h.Name)
		}
		w.h.Jobs = w.h.Jobs[1:]
		if d := Decide(&w.h, DefaultPolicy(), at.Add(time.Second)); len(d.Limits) > 0 {
			t.Errorf("A has ended: %+v", d.Limits)
		}
		w.h.Limits = nil
		if w.run(); w.h.Jobs[0].Uses[Network]+w.h.Jobs[1].Uses[Network] < used {
			t.Errorf("A has ended, and %+v use less than there is", w.h.Jobs)
		}
	}
}
