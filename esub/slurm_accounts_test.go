package esub_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/esub"
)

// Slurm refuses a job of an account that its accounting does not have: the user reads why
// from us, and nothing that would only hold for an accepted job.
func TestJobSubmitNamesUnknownAccounts(t *testing.T) {
	p, standing, now := someSite()
	slurm := esub.Slurm{
		ProjectFrom: "account", Known: []int64{1001}, Members: map[string][]int64{"chipa": {1001}},
		Accounts: map[string][]int64{"chipa": {1001}, "empty": nil},
	}
	dir := publish(t, p, slurm, standing)
	p.OnFailure = esub.Reject
	strict := publish(t, p, slurm, standing)
	const correct = "--account=chipZ: Slurm's accounting has no account of that name: correct it"
	for name, test := range map[string]struct {
		dir  string
		job  fields
		says string // "": nothing of accounts
		code string
	}{
		"no such account":          {dir, fields{"user_id": 1001, "account": "chipZ"}, correct, "0"},
		"capitals":                 {dir, fields{"user_id": 1001, "account": "chipA"}, "", "0"},
		"another's":                {dir, fields{"user_id": 1002, "account": "chipA"}, "--account=chipA: Slurm's accounting does not list you in that account: name another, or ask an administrator", "0"},
		"without users":            {dir, fields{"user_id": 1001, "account": "empty"}, "--account=empty: Slurm's accounting does not list you in that account: name another, or ask an administrator", "0"},
		"a step":                   {dir, fields{"user_id": 1001, "account": "chipA:syn"}, "--account=chipA:syn: Slurm's accounting has no account of that name: submit with --account=chipA, and ALLOTMENT_STEP=syn in the environment", "0"},
		"no account":               {dir, fields{"user_id": 1003}, "Slurm's accounting has no account for you: ask an administrator for one", "0"},
		"a default account":        {dir, fields{"user_id": 1001, "default_account": "chipa"}, "", "0"},
		"our refusal comes before": {strict, fields{"user_id": 1001, "account": "chipZ"}, "--account=chipZ: no project of that name (did you mean chipA?): correct it", "2002"},
	} {
		t.Run(name, func(t *testing.T) {
			job := unsetFields()
			maps.Copy(job, test.job)
			uid, _ := test.job["user_id"].(int)
			got := ask{directory: test.dir, now: now, uid: int64(uid), job: job, partitions: partitions}.run(t)
			var want []string
			if test.says != "" {
				want = []string{test.says}
			}
			if diff := cmp.Diff(want, got.messages); diff != "" || got.code != test.code {
				t.Errorf("code %s, messages -want +got:\n%s", got.code, diff)
			}
		})
	}
	slurm.Accounts = nil // not known
	dir = publish(t, p, slurm, standing)
	job := unsetFields()
	maps.Copy(job, fields{"user_id": 1001, "account": "chipA"})
	if got := (ask{directory: dir, now: now, uid: 1001, job: job, partitions: partitions}).run(t); got.code != "0" || len(got.messages) != 0 {
		t.Errorf("%+v", got)
	}
}
