package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// ajobs -l asks pba once about all jobs that wait, ten at most.
func TestOutlookIsOneCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	said := filepath.Join(dir, "said")
	pba := "#!/bin/sh\necho \"$*\" >>" + said + `
[ $# -gt 3 ] || { echo '{"id": "1", "outlook": {"text": "alone"}}'; exit; }
echo '[{"id": "1", "outlook": {"text": "first"}}, {"id": "2[3]", "outlook": null}]'
echo 'pba: explain job 3: nobody knows it' >&2
exit 1
`
	if err := os.WriteFile(filepath.Join(dir, "pba"), []byte(pba), 0o755); err != nil {
		t.Fatal(err)
	}
	jobs := []backends.Job{{ID: backends.ID{Job: 1}}, {ID: backends.ID{Job: 9}, State: backends.Running}, {ID: backends.ID{Job: 2, Index: 3}}}
	for i := range 20 {
		jobs = append(jobs, backends.Job{ID: backends.ID{Job: int64(100 + i)}})
	}
	for i := range jobs {
		if jobs[i].State != backends.Running {
			jobs[i].State = backends.Pending
		}
	}
	known := outlook(t.Context(), jobs)
	text, err := os.ReadFile(said)
	if err != nil || strings.Count(string(text), "\n") != 1 || strings.TrimSpace(string(text)) != "explain --json 1 2[3] 100 101 102 103 104 105 106 107" {
		t.Errorf("pba was called with %q, %v", text, err)
	}
	if got := fmt.Sprint(known[jobs[0].ID], "|", known[jobs[2].ID], "|", known[jobs[5].ID]); got != "first||" {
		t.Errorf("got %q", got)
	}
	if got := outlook(t.Context(), jobs[:1])[jobs[0].ID]; got != "alone" {
		t.Errorf("got %q of one job", got)
	}
	if got := outlook(t.Context(), jobs[1:2]); len(got) > 0 {
		t.Errorf("got %v of a job that runs", got)
	}
	if got := parseStories([]byte(`[{"id": "1"`), true); len(got) > 0 {
		t.Errorf("got %v of half an answer", got)
	}
}

func FuzzParseStories(f *testing.F) {
	f.Add([]byte(`{"id": "1", "outlook": {"text": "alone"}}`), false)
	f.Add([]byte(`[{"id": "2[3]", "outlook": null}, {"id": "x"}]`), true)
	f.Fuzz(func(t *testing.T, data []byte, several bool) {
		for id, s := range parseStories(data, several) {
			if back, err := backends.ParseID(s.ID); err != nil || back != id {
				t.Errorf("%q is listed as %v: %v", s.ID, id, err)
			}
		}
	})
}
