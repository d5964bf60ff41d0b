package lsf_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// ofRoot returns what is found if root runs the test.
func ofRoot(what string) []string {
	if os.Getuid() == 0 {
		return []string{what}
	}
	return nil
}

// What sysadmins, filter and asub ask of the stand-in, in both flavours.
func TestFactsOfTheCluster(t *testing.T) {
	for _, x := range []struct {
		options lsfstandin.Options
		unknown []string // options that its bsub does not know
		most    int64    // MAX_USER_PRIORITY; 0: none
		unit    int64    // of a plain -M
		found   []string // parts of what Examine finds, beside that no filter is asked
	}{
		{
			options: lsfstandin.Options{RootMaySubmit: true, Flavour: lsfstandin.Lava},
			unknown: []string{"-app", "-gpu", "-rn"},
			most:    100, unit: 1 << 20,
		},
		{
			options: lsfstandin.Options{RootMaySubmit: true, Flavour: lsfstandin.LSF10, LimitUnit: "GB", MaxUserPriority: 200},
			most:    200, unit: 1 << 30,
		},
		{
			options: lsfstandin.Options{Flavour: lsfstandin.Lava, Edit: func(c *lsfstandin.Config) {
				c.Queues = []lsfstandin.QueueConfig{{Name: "normal", Priority: 30, Policies: []string{"FAIRSHARE"}}, {Name: "low", Priority: 10}}
			}},
			unknown: []string{"-app", "-gpu", "-rn"},
			most:    100, unit: 1 << 20,
			found: append(ofRoot("refuses root's submissions"), "normal has fairshare (FAIRSAHRE)"),
		},
		{
			options: lsfstandin.Options{RootMaySubmit: true, Flavour: lsfstandin.LSF10, MaxUserPriority: -1},
			unit:    1 << 10,
			found:   []string{"MAX_USER_PRIORITY is not set"},
		},
	} {
		x.options.Second = 20 * time.Millisecond
		cluster := lsfstandin.New(t, x.options)
		t.Setenv("LSF_ENVDIR", cluster.EnvDir())
		client := lsf.Open(lsf.Options{Config: lsf.Config{Bin: cluster.Bin()}})
		able := client.Abilities()

		// Next in line is above a job that names no priority.
		facts, err := able.FilterFacts(t.Context())
		if next := facts.NextInLine; err != nil || facts.DefaultQueue != "normal" || facts.MemoryUnit != x.unit || next > x.most || (next > x.most/2) != (x.most > 0) {
			t.Errorf("%+v, %v", facts, err)
		}

		queues, err := able.Queues(t.Context())
		i := slices.IndexFunc(queues, func(q backends.Queue) bool { return q.Name == "normal" })
		if err != nil || i < 0 || !queues[i].Default || queues[i].Columns == nil || queues[i].Columns.Priority != 30 || queues[i].Columns.Status != "Open:Active" {
			t.Errorf("%+v, %v", queues, err)
		}

		bsub, err := able.Bsub(t.Context())
		if err != nil || bsub.Program != filepath.Join(cluster.Bin(), "bsub") {
			t.Errorf("%+v, %v", bsub, err)
		}
		for _, name := range []string{"-P", "-app", "-gpu", "-rn", "-Is"} {
			if known := bsub.Options[name].Treatment == backends.Honoured; known == slices.Contains(x.unknown, name) {
				t.Errorf("%s: %s is known: %v", x.options.Flavour, name, known)
			}
		}

		e, err := able.Examine(t.Context(), backends.Installation{UID: os.Getuid(), Filter: "/usr/lib/allotment/esub", Low: "low", Queues: []string{"normal"}})
		if err != nil {
			t.Fatal(err)
		}
		var what []string
		for _, f := range e.Findings {
			what = append(what, f.What)
		}
		want := append(slices.Clone(x.found), "LSF does not ask our filter at submission")
		if os.Getuid() != 0 { // root administers the stand-in
			want = append(want, "no LSF administrator")
		}
		for _, part := range want {
			if !slices.ContainsFunc(what, func(w string) bool { return strings.Contains(w, part) }) {
				t.Errorf("%s: nothing of %q in %q", x.options.Flavour, part, what)
			}
		}
		if len(what) != len(want) || e.Hook != nil || e.Settings["envdir"] != cluster.EnvDir() || e.Settings["bin"] != "" {
			t.Errorf("%s: %q, %+v", x.options.Flavour, what, e)
		}
	}
}
