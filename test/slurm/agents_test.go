package slurm

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
)

// Slurm's processes know an element of an array by a number of its own: what it uses is shown
// of the element all the same.
func TestUseOfArrayElements(t *testing.T) {
	cluster.Needed(t)
	f, err := farm.Start(t.Context(), farm.Options{
		Programs: "../../bin", Config: "pba: {every: 1s}\nahostd: {every: 1s}\nweb: {listen: \"\"}\n",
		Slurm: &farm.Slurm{Nodes: 1, Slots: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.Run(t.Context(), "pba", "init"); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"allotd"}, {"ahostd"}, {"pba", "rebalance", "--every", "1s"}} {
		farm.StartForTest(t, f.Background(t.Context(), argv[0], argv[1:]...))
	}
	if _, err := f.RunSlurm(t.Context(), "sbatch", "--array=1-2", "--output=/dev/null", "--wrap=while :; do :; done"); err != nil {
		t.Fatal(err)
	}
	both := regexp.MustCompile(`^JOBID +CPU *\n\d+ +[\d.]+ *\n\d+ +[\d.]+ *\n$`)
	var out string
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !await.Every(ctx, time.Second/2, func() bool {
		out, err = f.Run(t.Context(), "ajobs", "-o", "jobid,cpu")
		return both.MatchString(out)
	}) {
		t.Fatalf("%v: %q", err, out)
	}
}
