package slurm

import (
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// readAll reads a text in pieces of some bytes.
func readAll(text []byte, piece int) *accounting {
	r := newAccountingReader()
	for part := range slices.Chunk(text, piece) {
		_, _ = r.Write(part)
	}
	return r.end()
}

func TestAccountingIsRead(t *testing.T) {
	text := captured(t, "assoc_mgr.txt")
	for _, piece := range []int{1, 100, len(text)} {
		a := readAll(text, piece)
		if a == nil || !a.limited {
			t.Fatalf("in pieces of %d: %+v", piece, a)
		}
		if users := a.users(); !slices.Equal(users["chipa"], []int64{1001, 1002}) || !slices.Equal(users["proj2"], []int64{1002}) || len(users) != 3 {
			t.Errorf("%v", users)
		}
		if s := a.accounts["chipa"]; s.jobs != 5 || s.cpus != 6 || s.parent != "root" {
			t.Errorf("account chipa: %+v", s)
		}
		if s := a.associations[member{"chipa", "ann", ""}]; s == nil || s.ofUser != 2 || s.cpus != unlimited || s.jobs != unlimited {
			t.Errorf("ann in chipa: %+v", s)
		}
		if q := a.qos["normal"]; q == nil || *q != (qos{50, 100, 9, 20, 8, 33}) {
			t.Errorf("QOS normal: %+v", q)
		}
	}
}

func TestUnclearAccountingIsNotUsed(t *testing.T) {
	for _, line := range []string{
		"ClusterName=c Account=a b UserName=Account=x Partition=",
		"ClusterName=c Account=a UserName=ann Partition= ",
		"ClusterName=c UserName= Partition=",
		"ClusterName=c Account=a UserName= GrpJobs=1(0) " + strings.Repeat("x", maxRecord),
		"QOS=",
	} {
		if a := readAll([]byte(line+"\n"), 7); a != nil {
			t.Errorf("%.60q: %+v", line, a)
		}
	}
	var none *accounting
	if none.users() != nil {
		t.Error("accounts of nothing")
	}
	none.limitJobs(nil)
}

func TestEnforcement(t *testing.T) {
	for text, want := range map[string][2]bool{
		"none": {false, false}, "(null)": {}, "associations": {true, false}, "associations,limits,qos": {true, true}, "safe": {true, true}, "ALL": {true, true},
	} {
		if a, l := enforces(map[string]string{"AccountingStorageEnforce": text}); a != want[0] || l != want[1] {
			t.Errorf("%s: %t %t", text, a, l)
		}
	}
}

// Two jobs wait, and a limit has room for one: the one that starts first.
func TestJobsBeyondALimitWaitForIt(t *testing.T) {
	const free = "ClusterName=c Account=chipa UserName= ParentAccount=root(1) GrpJobs=N(0) GrpTRES=cpu=N(0)\nClusterName=c Account=root UserName= ParentAccount= GrpTRES=cpu=N(2)\n"
	for name, x := range map[string]struct{ limit, why string }{
		"CPUs of an account":          {"ClusterName=c Account=chipa UserName= ParentAccount=root(1) GrpTRES=cpu=4(2),mem=N(0)\n", "AssocGrpCpuLimit (account chipa: at most 4 at a time)"},
		"CPUs of an account above it": {free + "ClusterName=c Account=root UserName= ParentAccount= GrpTRES=cpu=4(2)\n", "AssocGrpCpuLimit (account root: at most 4 at a time)"},
		"jobs of an account":          {"ClusterName=c Account=chipa UserName= ParentAccount=root(1) GrpJobs=2(1)\n", "AssocGrpJobsLimit"},
		"jobs of a user":              {free + "ClusterName=c Account=chipa UserName=ann(7) Partition= MaxJobs=2(1)\n", "AssocMaxJobsLimit (user ann of chipa"},
		"a partition's association":   {free + "ClusterName=c Account=chipa UserName=ann(7) Partition=main MaxJobs=2(1)\n", "AssocMaxJobsLimit"},
		"CPUs of a QOS":               {free + "QOS=normal(1) GrpJobs=N(1) GrpTRES=cpu=5(2)\n", "QOSGrpCpuLimit"},
		"jobs of a QOS":               {free + "QOS=normal(1) GrpJobs=2(1) GrpTRES=cpu=N(2)\n", "QOSGrpJobsLimit"},
		"a user's jobs in a QOS":      {free + "QOS=normal(1) User Limits= 7={MaxJobsPU=2(1) MaxTRESPU=cpu=N(2)}\n", "QOSMaxJobsPerUserLimit"},
		"a user's CPUs in a QOS":      {free + "QOS=normal(1) User Limits= 7={MaxJobsPU=N(1) MaxTRESPU=cpu=4(2)}\n", "QOSMaxCpuPerUserLimit"},
		"an account's CPUs in a QOS":  {free + "QOS=normal(1) Account Limits= chipa={MaxJobsPA=N(1) MaxTRESPA=cpu=4(2)}\n", "QOSMaxCpuPerAccountLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			job := func(id int64, state backends.State, priority backends.Priority) *listedJob {
				j := &listedJob{account: "chipa", qos: "normal"}
				j.ID.Job, j.User, j.Queue, j.State, j.Slots, j.Priority = id, "ann", "main", state, 2, priority
				if state == backends.Pending {
					j.Wait, j.Reason = backends.WaitResources, "Resources"
				}
				return j
			}
			jobs := []*listedJob{
				job(1, backends.Running, 0), job(2, backends.Pending, 20), job(3, backends.Pending, 120),
				job(4, backends.Done, 0), job(5, backends.Held, 0),
			}
			readAll([]byte(x.limit), 1000).limitJobs(jobs)
			if jobs[2].Wait != backends.WaitResources {
				t.Errorf("the first one waits for %v %s", jobs[2].Wait, jobs[2].Reason)
			}
			if jobs[1].Wait != backends.WaitOther || !strings.HasPrefix(jobs[1].Reason, x.why) {
				t.Errorf("the second one waits for %v %s", jobs[1].Wait, jobs[1].Reason)
			}
		})
	}
}
