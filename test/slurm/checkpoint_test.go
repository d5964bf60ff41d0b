package slurm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// counter counts from what it has saved, writes that to a file when it begins, and saves it
// when it is asked to. Its file is of its job's number.
const counter = `#!/bin/bash
#SBATCH --output=/dev/null
n=$(cat $SLURM_JOB_ID.saved 2>/dev/null || echo 0)
trap 'echo $n >$SLURM_JOB_ID.saved; exit 85' USR1
echo $n >>$SLURM_JOB_ID.begun
while :; do n=$((n+1)); sleep 0.1; done
`

// R33: a pool's jobs get slots of jobs that save themselves, as the filter wrote into their
// tags. These lose nothing, come back, and go on where they were.
func TestVictimsSaveThemselves(t *testing.T) {
	s := newSmallSite(t)
	script := filepath.Join(s.dir, "counter.sh")
	s.must(os.WriteFile(script, []byte(counter), 0o755))
	jobs := filepath.Join(s.dir, "jobs")
	s.must(os.Mkdir(jobs, 0o755))
	s.must(os.Chown(jobs, s.alice.uid, s.alice.gid))
	var savers []string
	for range 8 {
		d := s.as(&s.alice, []string{"ALLOTMENT_CHECKPOINT=SIGUSR1:20s"}, "sbatch", "--parsable", "--chdir="+jobs, script)
		if d.code != 0 {
			s.Fatalf("%+v", d)
		}
		savers = append(savers, d.out)
	}
	s.full()
	read := func(id, suffix string) []string {
		text, _ := os.ReadFile(filepath.Join(jobs, id+suffix))
		return strings.Fields(string(text))
	}
	s.engine("rebalance", "--every", "1s")
	var rush []string
	for range 3 {
		rush = append(rush, s.batch(&s.alice, nil, "--account=chipA"))
	}
	for _, id := range rush {
		s.startsSoon(id)
	}
	for _, id := range rush {
		s.root("scancel", id)
	}
	var saved []string
	s.await("the next runs of three jobs", func() bool {
		saved = nil
		for _, id := range savers {
			if len(read(id, ".begun")) == 2 {
				saved = append(saved, id)
			}
		}
		return len(saved) == 3
	})
	for _, id := range saved {
		if was, begun := read(id, ".saved"), read(id, ".begun"); len(was) != 1 || was[0] == "0" || begun[1] != was[0] {
			s.Errorf("job %s saved %q and began with %q", id, was, begun)
		}
	}
	var report struct {
		Victims []struct {
			Requeued, Saved int
			Lost            float64 `json:"lost_slot_hours"`
		}
	}
	text := s.do("report", "victims", "--json")
	s.must(json.Unmarshal([]byte(text), &report))
	if l := report.Victims; len(l) != 1 || l[0].Requeued != 3 || l[0].Saved != 3 || l[0].Lost != 0 {
		s.Errorf("%s", text)
	}
	if n, what := s.evicted(); n != 3 {
		s.Errorf("%d slots were preempted for 3:\n%s", n, what)
	}
	s.do("restore")
	s.noLuaErrors()
}
