package split

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
)

// On a farm of three equal hosts one becomes slow halfway: all results are there, in
// order, and that host gets fewer items from then on.
func TestSmall(t *testing.T) {
	small(t, farm.Options{Config: "miniq:\n  nodes: [\"node1:1\", \"node2:1\", \"node3:1\"]\n"})
}

func TestSmallOnSlurm(t *testing.T) {
	cluster.Needed(t)
	small(t, farm.Options{Slurm: &farm.Slurm{Nodes: 3, Slots: 1}})
}

// slowedItem is an item of 20 ms, or 200 ms on node2 after the middle one: much longer, also
// on a busy machine.
const slowedItem = `[ $1 = %d ] && touch slow
pause=0.02
[ -e slow ] && [ "${LSB_HOSTS:-$SLURMD_NODENAME}" = node2 ] && pause=0.2
sleep $pause
echo "result $1"`

// round is a round of the report, as far as it matters here.
type round struct {
	Tasks []struct {
		Host  string `json:"host"`
		First int    `json:"first"`
		Items int    `json:"items"`
		State string `json:"state"`
	} `json:"tasks"`
}

// share returns a host's part of a round's items.
func (r round) share(host string) float64 {
	all, own := 0, 0
	for _, task := range r.Tasks {
		all += task.Items
		if task.Host == host {
			own += task.Items
		}
	}
	return float64(own) / float64(all)
}

// last returns the round's last item.
func (r round) last() int {
	last := 0
	for _, task := range r.Tasks {
		last = max(last, task.First+task.Items-1)
	}
	return last
}

func small(t *testing.T, o farm.Options) {
	defer syscall.Umask(syscall.Umask(0o022))
	f := start(t, o)
	const (
		count  = 450
		middle = 150
		each   = 45 // items in a round
	)
	report := filepath.Join(f.Home, "report.json")
	out, errs, died := asplit(t, f, "", 5*time.Minute, []string{
		"--range", fmt.Sprintf("1-%d", count), "--no-qualify", "--round", fmt.Sprint(each), "--json", report,
		"sh", "-c", fmt.Sprintf(slowedItem, middle), "sh", "{}",
	})
	if died || string(out) != numbered("result ", count) {
		t.Fatalf("killed for its time: %v; the results are not those of the items in their order:\n%s\n%s", died, out, errs)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Rounds []round `json:"rounds"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	// The round of the middle item, and the one after it, are sized by what was before.
	var fast, slow []float64
	for i, r := range all.Rounds {
		switch {
		case r.last() < middle:
			fast = append(fast, r.share("node2"))
		case i > 2 && all.Rounds[i-2].last() >= middle && r.last() < count-each:
			slow = append(slow, r.share("node2"))
		}
	}
	if len(fast) == 0 || len(slow) == 0 || mean(slow) > 0.7*mean(fast) {
		t.Errorf("shares of the host that becomes slow: %.2f before, %.2f after\n%s", fast, slow, shape(all.Rounds))
	}
	t.Logf("shares of the host that becomes slow: %.2f before, %.2f after", fast, slow)
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}

func shape(rounds []round) string {
	var b strings.Builder
	for i, r := range rounds {
		fmt.Fprintf(&b, "round %d: %+v\n", i+1, r.Tasks)
	}
	return b.String()
}
