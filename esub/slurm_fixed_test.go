package esub_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
)

// fixedSlurm is a site with licences for jobs that can't be preempted. Alice is a member of
// chipA, dave is not, and others are not known.
func fixedSlurm() esub.Slurm {
	return esub.Slurm{
		ProjectFrom: "account", Known: []int64{1001, 1004}, Members: map[string][]int64{"chipa": {1001}},
		Fixed: backends.FixedShare{Slots: 8, Users: 5, OfUser: 4, HostSlots: 4},
	}
}

// R22: one licence for each slot, and of a user's half no more than that.
func TestJobSubmitAddsLicences(t *testing.T) {
	p, standing, now := someSite()
	dir := publish(t, p, fixedSlurm(), standing)
	fixed := func(more fields) fields {
		job := unsetFields()
		maps.Copy(job, fields{"user_id": 1002, "account": "chipA", "requeue": 0})
		maps.Copy(job, more)
		return job
	}
	refused := func(line string) answer { return answer{code: "2002", messages: []string{line}} }
	with := func(licences string) answer {
		return answer{code: "0", changed: map[string]string{"licenses": licences}}
	}
	const reserved = "licences allotment_fixed are Allotment's: take them out"
	for name, test := range map[string]struct {
		job  fields
		want answer
	}{
		"one slot":                         {fixed(nil), with("allotment_fixed:1,allotment_fixed_2:1")},
		"more than half":                   {fixed(fields{"min_cpus": 6}), with("allotment_fixed:6,allotment_fixed_2:4")},
		"whole nodes":                      {fixed(fields{"shared": 0, "min_nodes": 2, "min_cpus": 2}), with("allotment_fixed:8,allotment_fixed_2:4")},
		"beside its own":                   {fixed(fields{"licenses": "other:2"}), with("other:2,allotment_fixed:1,allotment_fixed_2:1")},
		"beside a choice":                  {fixed(fields{"user_id": 1004, "licenses": "a|b"}), refused("a job that is not to be requeued needs licences of its own, to which a choice of licences can't be added: submit it without --no-requeue")},
		"ours, typed":                      {fixed(fields{"licenses": "other,allotment_fixed_3:1"}), refused(reserved)},
		"ours, by an ordinary job":         {fixed(fields{"requeue": 1, "licenses": "allotment_fixed:8"}), refused(reserved)},
		"an array, each task":              {fixed(fields{"array_inx": "1-100"}), with("allotment_fixed:1,allotment_fixed_2:1")},
		"more than all":                    {fixed(fields{"user_id": 1004, "shared": 0, "min_nodes": 3}), refused("an exclusive job can't be preempted, and such jobs may hold 8 slots of the farm: ask for fewer than these 12, or submit it without --exclusive")},
		"more, by one who may be a member": {fixed(fields{"user_id": 1003, "shared": 0, "min_nodes": 3}), answer{code: "0"}},
		"less, by one who may be a member": {fixed(fields{"user_id": 1003}), with("allotment_fixed:1,allotment_fixed_3:1")},
		"a member's, with room":            {fixed(fields{"user_id": 1001}), answer{code: "0"}},
		"an array that has room":           {fixed(fields{"user_id": 1001, "array_inx": "1-3,7-11:2"}), answer{code: "0"}},
		"an array beyond the room":         {fixed(fields{"user_id": 1001, "array_inx": "1-3,7-12:2,20%1"}), with("allotment_fixed:1,allotment_fixed_1:1")},
		"an ordinary job":                  {fixed(fields{"requeue": 1}), answer{code: "0"}},
		"its own, an ordinary job":         {fixed(fields{"requeue": 1, "licenses": "other"}), answer{code: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want.changed == nil {
				test.want.changed = map[string]string{}
			}
			uid, _ := test.job["user_id"].(int)
			got := ask{directory: dir, now: now, uid: int64(uid), job: test.job, partitions: partitions}.run(t)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// R22: a burst of jobs between two cycles does not pass for those of a pool with room.
func TestJobSubmitCountsABurst(t *testing.T) {
	p, standing, now := someSite()
	dir := publish(t, p, fixedSlurm(), standing)
	job := unsetFields()
	maps.Copy(job, fields{"account": "chipA", "requeue": 0, "min_cpus": 2})
	for before, want := range []string{"", "", "", "allotment_fixed:2,allotment_fixed_1:2"} {
		burst := fmt.Sprintf(`for i = 1, %d do assert(allotment.submit(%s, {}, 1001) == 0) end`, before, literal(job))
		got := ask{directory: dir, now: now, uid: 1001, job: job, before: burst}.run(t)
		if got.code != "0" || got.changed["licenses"] != want {
			t.Errorf("after %d: %+v, want %q", before, got, want)
		}
	}
}

// R22: no change of an owner's makes a job without a licence for each slot one that can't
// be preempted.
func TestJobModifyKeepsLicences(t *testing.T) {
	p, standing, now := someSite()
	p.Queues = []string{"normal"}
	with := fields{"licenses": "other,allotment_fixed:2,allotment_fixed_1:2", "min_cpus": 2}
	without := fields{"licenses": "other"}
	for name, test := range map[string]struct {
		record, job fields
		code        string
	}{
		"its licences, emptied":      {with, fields{"licenses": ""}, "2002"},
		"its licences, fewer":        {with, fields{"licenses": "other,allotment_fixed:1"}, "2002"},
		"another's licences":         {without, fields{"licenses": "other:2"}, "0"},
		"ours for an ordinary job":   {without, fields{"licenses": "allotment_fixed:8"}, "2002"},
		"more slots":                 {with, fields{"min_cpus": 3}, "2002"},
		"fewer slots":                {with, fields{"min_cpus": 1}, "0"},
		"whole hosts":                {with, fields{"shared": 0}, "2002"},
		"whole hosts, ordinary":      {without, fields{"shared": 0}, "2002"},
		"more slots, ordinary":       {without, fields{"min_cpus": 3}, "0"},
		"not to be requeued":         {without, fields{"requeue": 0}, "2002"},
		"to be requeued":             {without, fields{"requeue": 1}, "0"},
		"not to be requeued, it was": {with, fields{"requeue": 0}, "0"},
		"not to be, in another":      {fields{"partition": "gpu"}, fields{"requeue": 0}, "0"},
		"into a managed partition":   {fields{"partition": "gpu"}, fields{"partition": "normal"}, "2002"},
		"out of a managed partition": {without, fields{"partition": "gpu"}, "0"},
		"between managed partitions": {without, fields{"partition": "low"}, "0"},
		"something else":             {with, fields{"time_limit": 5}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			record := fields{"user_id": 1001, "min_cpus": 1, "partition": "normal"}
			maps.Copy(record, test.record)
			for uid, want := range map[int64]string{1001: test.code, 0: "0"} {
				if got := (ask{directory: publish(t, p, fixedSlurm(), standing), now: now, uid: uid, job: test.job, record: record}).run(t); got.code != want {
					t.Errorf("user %d: %+v, want %s", uid, got, want)
				}
			}
			slurm := fixedSlurm()
			slurm.Fixed = backends.FixedShare{}
			if got := (ask{directory: publish(t, p, slurm, standing), now: now, uid: 1001, job: test.job, record: record}).run(t); got.code != "0" {
				t.Errorf("without licences: %+v", got)
			}
		})
	}
}
