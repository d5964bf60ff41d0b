package simulate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// nodes is as Slurm 22.05 prints them.
const nodes = `NodeName=c1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=4 CPUTot=5 CPULoad=0.10
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=(null)
   NodeAddr=c1 NodeHostName=c1 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP Debian
   RealMemory=4000 AllocMem=0 FreeMem=12 Sockets=4 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=cpu
   Reason=moved Gres=gpu:8 from here [root@2026-11-01T10:00:00]

NodeName=g1 Arch=x86_64 CoresPerSocket=1 CPUTot=4 RealMemory=4000 Gres=gpu:a100:1(S:0),gpu:t4:1(S:1) State=DOWN Partitions=gpu-long,cpu
`

func TestReadNodes(t *testing.T) {
	hosts, ok, err := simulate.ReadNodes(nodes)
	want := []backends.Host{
		{Name: "c1", Slots: 4, Memory: 4000 << 20, Features: []string{"cpu"}},
		{Name: "g1", Slots: 4, Memory: 4000 << 20, Features: []string{"gpu-long", "cpu"}, Has: []backends.Amount{{Name: "gpu", Count: 2}, {Name: "gpu:a100", Count: 1}, {Name: "gpu:t4", Count: 1}}},
	}
	if diff := cmp.Diff(want, hosts); diff != "" || !ok || err != nil {
		t.Error(diff, ok, err)
	}
	if hosts, ok, err := simulate.ReadNodes("hosts: [{name: n1, slots: 8}]\n"); len(hosts) > 0 || ok || err != nil {
		t.Error("a file of hosts:", hosts, ok, err)
	}
	for text, want := range map[string]string{
		"NodeName=n1 CPUTot=x":              "CPUTot=x is not a number",
		"NodeName=n1 Partitions=a":          "node n1 has no CPUTot=",
		"NodeName=n1 CPUTot=1 Gres=gpu":     "is not name:count",
		"NodeName=n1 CPUTot=1 Gres=gpu:1:x": "is not name:count",
	} {
		if _, _, err := simulate.ReadNodes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func placedTrace(t *testing.T, lines ...string) *trace.Store {
	t.Helper()
	const heading = "JobIDRaw|User|Account|Submit|ElapsedRaw|AllocCPUS|State|Partition|NNodes|AllocTRES\n"
	_, records, err := trace.Open(strings.NewReader(heading+strings.Join(lines, "\n")+"\n"), time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	s := new(trace.Store)
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Fill(records, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// Jobs run only on hosts of their partition, as many at a time as have their gres.
func TestJobsRunInTheirPartition(t *testing.T) {
	hosts, _, err := simulate.ReadNodes(nodes)
	if err != nil {
		t.Fatal(err)
	}
	s := setup(placedTrace(t,
		"1|ann|ann|1000|1000|4|COMPLETED|cpu|1|cpu=4",
		"2|bob|bob|1010|100|1|COMPLETED|gpu-long|1|cpu=1,gres/gpu=2",
		"3|bob|bob|1020|100|1|COMPLETED|gpu-long|1|cpu=1,gres/gpu=1,gres/gpu:t4=1", // waits for the second one
		"4|ann|ann|1030|100|3|COMPLETED|gpu-long|1|cpu=3",
		"5|bob|bob|1040|100|8|COMPLETED|gpu-long|1|cpu=8", // the farm would hold it, the partition does not
		"6|bob|bob|1040|100|1|COMPLETED|gpu-long|1|cpu=1,gres/gpu=3",
		"7|cat|cat|1040|100|1|COMPLETED|old|1|cpu=1",
		"8|ann|ann|3000|1|1|COMPLETED|cpu|1|cpu=1,gres/fpga=1",
	), 0, planEntry("bob", 1))
	s.Hosts, s.Policies = hosts, []string{simulate.FIFO, simulate.PBA}
	r := mustRun(t, s)
	if r.Trace.Jobs != 5 {
		t.Errorf("%d jobs", r.Trace.Jobs)
	}
	var out []string
	for _, l := range r.Trace.LeftOut {
		out = append(out, strings.Repeat("x", l.Jobs)+" "+l.Why)
	}
	if want := []string{"x no host of the farm is in its partition", "xx the hosts of its partition can't hold it, with the resources that it had"}; !slices.Equal(out, want) {
		t.Errorf("left out: %q", out)
	}
	if want := []string{`1 job with the resource "fpga", which no host of the farm has: it is not counted`}; !slices.Equal(r.Notes, want) {
		t.Errorf("notes: %q", r.Notes)
	}
	fifo := r.Policies[0]
	if longest := max(fifo.Within.Wait.Max, fifo.Rest.Wait.Max); longest != 90 {
		t.Errorf("the longest wait is %v s, want 90", longest)
	}
}

// What the farm knows nothing of is said.
func TestPartitionsOfAFarmWithoutAny(t *testing.T) {
	s := setup(placedTrace(t, "1|ann|ann|1000|10|1|COMPLETED|cpu|1|cpu=1,gres/gpu=1", "2|bob|bob|1010|10|1|COMPLETED||1|cpu=1"), 4, planEntry("bob", 1))
	r := mustRun(t, s)
	want := []string{
		"1 job of some partition: the farm's hosts are in none, so any host will do (give partitions in the file of --farm)",
		`1 job with the resource "gpu", which no host of the farm has: it is not counted`,
	}
	if !slices.Equal(r.Notes, want) || r.Trace.Jobs != 2 {
		t.Errorf("%d jobs, notes: %q", r.Trace.Jobs, r.Notes)
	}
}

// Under dedicated a host that is divided has its resources once.
func TestDedicatedDividesResources(t *testing.T) {
	s := setup(placedTrace(t,
		"1|bob|bob|1000|10|1|COMPLETED|cpu|1|cpu=1,gres/gpu=1",
		"2|bob|bob|1000|10|1|COMPLETED|cpu|1|cpu=1,gres/gpu=2",
		"3|ann|ann|1010|10|1|COMPLETED|cpu|1|cpu=1,gres/gpu=1",
	), 0, planEntry("bob", 2))
	s.Hosts = []backends.Host{{Name: "n1", Slots: 4, Features: []string{"cpu"}, Has: []backends.Amount{{Name: "gpu", Count: 2}}}}
	r := mustRun(t, s)
	cannot := r.Policies[1].CannotRun
	if len(cannot) != 1 || cannot[0].Jobs != 1 || !strings.Contains(cannot[0].Why, "dedicated") || r.Trace.Jobs != 3 || len(r.Trace.LeftOut) != 0 {
		t.Errorf("%d jobs, left out: %+v, under dedicated %+v", r.Trace.Jobs, r.Trace.LeftOut, cannot)
	}
}

func FuzzReadNodes(f *testing.F) {
	f.Add(nodes)
	f.Add("NodeName=n1 CPUTot=4 RealMemory=16 Gres=gpu:a:2(S:0-1)\n   Partitions=a,b\n")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, ok, err := simulate.ReadNodes(text)
		if err != nil || !ok {
			if len(hosts) > 0 {
				t.Fatalf("%d hosts with ok %v and error %v", len(hosts), ok, err)
			}
			return
		}
		for i := range hosts {
			h := &hosts[i]
			if h.Slots < 1 || h.Memory < 0 {
				t.Fatalf("host %q has %d slots and %d bytes", h.Name, h.Slots, h.Memory)
			}
			for _, a := range h.Has {
				if a.Count < 0 {
					t.Fatalf("host %q has %d of %q", h.Name, a.Count, a.Name)
				}
			}
		}
	})
}
