package all_test

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends/all"
	"github.com/allotment-hpc/allotment/internal/home"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"miniq", "slurm", "lsf"} {
		b, err := all.Open(name, all.Options{Paths: home.Paths{State: dir, Runtime: dir}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"moab", "", "Miniq"} {
		want := `backend "` + name + `" is not known; known: miniq, slurm, lsf`
		if _, err := all.Open(name, all.Options{}); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
