package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
)

// tree is a made /proc, with control groups beside it.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T) *tree {
	return &tree{t, t.TempDir()}
}

func (m *tree) sampler() *Sampler { return New(Options{Proc: filepath.Join(m.dir, "proc")}) }

func (m *tree) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.dir, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// mounts writes the mountinfo: lines of TYPE POINT OPTIONS.
func (m *tree) mounts(lines ...string) {
	text := "23 1 0:20 / / rw - ext4 /dev/root rw\n"
	for i, line := range lines {
		words := strings.Fields(line)
		text += fmt.Sprintf("%d 23 0:%d / %s rw - %s %s rw,%s\n", 30+i, 30+i, filepath.Join(m.dir, words[1]), words[0], words[0], words[2])
	}
	m.write("proc/self/mountinfo", text)
	m.write("proc/diskstats", "   8       0 sda 1 0 2 3\n   8      16 sdb 1\n")
}

// pid is what a process's files say.
type pid struct {
	n, parent     int
	name          string
	start         int
	cpu, reaped   int // ticks
	pages, shared int
	written       int
	env           string // name=value, …
	group         string
	state         string
}

func (m *tree) pid(p pid) {
	if p.state == "" {
		p.state = "S"
	}
	dir := fmt.Sprintf("proc/%d/", p.n)
	m.write(dir+"stat", fmt.Sprintf("%d (%s) %s %d 1 1 0 -1 0 0 0 0 0 %d 0 %d 0 20 0 3 0 %d 0 0\n", p.n, p.name, p.state, p.parent, p.cpu, p.reaped, p.start))
	m.write(dir+"statm", fmt.Sprintf("9999 %d %d 1 0 1 0\n", p.pages, p.shared))
	m.write(dir+"io", fmt.Sprintf("rchar: 1\nwchar: 2\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: %d\ncancelled_write_bytes: 0\n", p.written))
	uid := 1000
	if p.name == slurmStep { // also one that is about to become a job
		uid = 0
	}
	m.write(dir+"status", fmt.Sprintf("Name:\tx\nUid:\t%d\t0\t0\t0\nVmSwap:\t     512 kB\n", uid))
	m.write(dir+"environ", strings.ReplaceAll(p.env, ",", "\x00")+"\x00")
	m.write(dir+"cgroup", "5:cpuacct:"+p.group+"\n0::"+p.group+"\n")
}

// ends removes a process.
func (m *tree) ends(n int) {
	if err := os.RemoveAll(filepath.Join(m.dir, "proc", fmt.Sprint(n))); err != nil {
		m.t.Fatal(err)
	}
}

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func seconds(n float64) Value { return known(uint64(n * 1e9)) }

// TestGroupsOfVersion2 reads a tree as Slurm makes it (Documentation/admin-guide/cgroup-v2.rst).
func TestGroupsOfVersion2(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup2 cg nsdelegate")
	at := "cg/system.slice/slurmstepd.scope/job_12/"
	m.write(at+"cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 0\n")
	m.write(at+"memory.current", "734003200\n")
	m.write(at+"memory.peak", "834003200\n")
	m.write(at+"memory.swap.current", "4096\n")
	m.write(at+"memory.stat", "anon 700000000\nfile 30000000\nkernel 4003200\nshmem 10000000\n")
	m.write(at+"io.stat", "8:0 rbytes=1 wbytes=209715200 rios=3 wios=200 dbytes=0 dios=0\n259:3 rbytes=5 wbytes=6 rios=7 wios=8\n")
	m.write(at+"cpu.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=250\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	m.write(at+"memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n")
	m.write(at+"io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n")
	m.pid(pid{n: 50, parent: 1, name: slurmStep, start: 5, group: "/system.slice/slurmstepd.scope/job_12/step_0/slurm"})
	job := pid{n: 51, parent: 50, name: slurmStep, start: 6, cpu: 1, group: "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0"}
	m.pid(job)
	// What is no job's group there.
	for _, path := range []string{"system.slice/slurmstepd.scope/system", "system.slice/slurmstepd.scope/job_", "system.slice/slurmstepd.scope/job_-1", "system.slice/ssh.service/job_3", "lsf/c/job.x.1.2", "lsf/c/\x1b[31m"} {
		m.write("cg/"+path+"/cpu.stat", "usage_usec 1\n")
	}
	s := m.sampler()
	defer s.Close()
	got := s.Sample(noon)
	if len(got.Jobs) != 1 || got.Jobs[0].User != NoUser {
		t.Errorf("before it has become its user's: %+v", got.Jobs)
	}
	job.name = "x"
	m.pid(job)
	got = s.Sample(noon)
	want := []Job{{
		Key: Key{Slurm, backends.ID{Job: 12}, 1000}, Source: FromGroupV2,
		CPU: seconds(1.5), Memory: known(734003200), Cache: known(20000000), Peak: known(834003200), Swap: known(4096), Processes: known(2), Threads: known(6),
		Disks:    []Disk{{"sda", known(1), known(209715200), known(3), known(200)}, {"259:3", known(5), known(6), known(7), known(8)}},
		Pressure: Pressure{known(250000), known(3000), known(2000), known(5000), known(4000)},
	}}
	if diff := cmp.Diff(want, got.Jobs); diff != "" || len(got.Lacks) != 1 || got.Lacks[0].Figure != NetworkBytes { // without a root helper
		t.Errorf("%s\nlacks %+v", diff, got.Lacks)
	}
	// The job ends, and its number is another run's at once.
	if err := os.RemoveAll(filepath.Join(m.dir, at)); err != nil {
		t.Fatal(err)
	}
	m.ends(50)
	m.ends(51)
	if got := s.Sample(noon); len(got.Jobs) != 0 {
		t.Errorf("after the end: %+v", got.Jobs)
	}
	m.write(at+"cpu.stat", "usage_usec 7\n")
	got = s.Sample(noon)
	if len(got.Jobs) != 1 || got.Jobs[0].CPU != known(7000) || got.Jobs[0].Memory.Known || got.Jobs[0].Disks != nil || got.Jobs[0].User != NoUser {
		t.Errorf("the next run: %+v", got.Jobs)
	}
	wantLacks(t, got, Memory, Swap, DiskBytes, DiskOperations, PressureStalls, Threads)
}

// TestGroupsOfVersion1 reads a tree as Slurm and LSF make it, a directory in each controller's.
func TestGroupsOfVersion1(t *testing.T) {
	m := newTree(t)
	m.mounts("cgroup cg/cpu cpu,cpuacct", "cgroup cg/memory memory", "cgroup cg/blkio blkio", "cgroup cg/freezer freezer")
	for _, path := range []string{"slurm_n1/uid_1000/job_12", "lsf/c1/job.12885032999.4711.1600000000", "slurm/uid_x/job_1", "slurm/1/job_1"} {
		m.write("cg/cpu/"+path+"/cpuacct.usage", "1500000000\n")
		m.write("cg/memory/"+path+"/memory.usage_in_bytes", "100\n")
		m.write("cg/memory/"+path+"/memory.max_usage_in_bytes", "200\n")
		m.write("cg/memory/"+path+"/memory.stat", "cache 1\ntotal_cache 30\ntotal_shmem 10\ntotal_swap 7\n")
		m.write("cg/blkio/"+path+"/blkio.throttle.io_service_bytes_recursive", "8:16 Read 4096\n8:16 Write 8192\n8:16 Sync 1\n8:16 Total 12288\nTotal 12288\n")
		m.write("cg/blkio/"+path+"/blkio.throttle.io_serviced_recursive", "8:16 Read 1\n8:16 Write 2\nTotal 3\n")
	}
	got := m.sampler().Sample(noon)
	base := Job{Source: FromGroupV1, CPU: seconds(1.5), Memory: known(100), Cache: known(20), Peak: known(200), Swap: known(7), Disks: []Disk{{"sdb", known(4096), known(8192), known(1), known(2)}}}
	lsf, slurm := base, base
	lsf.Key = Key{LSF, backends.ID{Job: 12885032999 - 3<<32, Index: 3}, NoUser}
	slurm.Key = Key{Slurm, backends.ID{Job: 12}, 1000}
	if diff := cmp.Diff([]Job{lsf, slurm}, got.Jobs); diff != "" {
		t.Error(diff)
	}
	wantLacks(t, got, PressureStalls, Threads)
	// Where version 1 counts no processor time, and no bytes, the processes' are summed.
	if err := os.RemoveAll(filepath.Join(m.dir, "cg/cpu")); err != nil {
		t.Fatal(err)
	}
	m.write("cg/blkio/slurm_n1/uid_1000/job_12/blkio.throttle.io_service_bytes_recursive", "Total 0\n")
	m.write("cg/blkio/slurm_n1/uid_1000/job_12/blkio.throttle.io_serviced_recursive", "Total 0\n")
	m.pid(pid{n: 51, parent: 1, name: "x", start: 6, cpu: 200, pages: 99, written: 5, group: "/slurm_n1/uid_1000/job_12/step_0"})
	got = m.sampler().Sample(noon)
	if j := find(got, Slurm, 12); j == nil || j.CPU != seconds(2) || j.Memory != known(100) || !cmp.Equal(j.Disks, []Disk{{"", known(0), known(5), Value{}, Value{}}}) {
		t.Errorf("%+v", j)
	}
}

// TestProcessesEnd has processes end in the ways that there are.
func TestProcessesEnd(t *testing.T) {
	m := newTree(t)
	m.mounts()
	s := m.sampler()
	defer s.Close()
	check := func(what string, want float64) {
		t.Helper()
		if j := find(s.Sample(noon), Slurm, 7); j == nil || j.CPU != seconds(want) {
			t.Errorf("%s: %+v, want %v s", what, j, want)
		}
	}
	main := pid{n: 100, parent: 1, name: "a) x", start: 10, cpu: 100, env: "A=B,SLURM_JOB_ID=7,SLURM_JOB_ID=8"}
	m.pid(main)
	child := pid{n: 101, parent: 100, name: "c", start: 11, cpu: 300}
	m.pid(child)
	check("both", 4)

	m.ends(101)
	main.reaped = 350 // it used half a second more
	m.pid(main)
	check("a child was waited for", 4.5)

	child.n, child.start, child.cpu = 102, 12, 200
	m.pid(child)
	check("another child", 6.5)
	m.ends(102)
	check("its parent ignores SIGCHLD", 6.5)
	check("and later", 6.5)

	child.n, child.start, child.cpu = 103, 13, 100
	m.pid(child)
	check("a third", 7.5)
	m.ends(103)
	check("it ended while the sample was taken, after its parent was read", 7.5)
	main.reaped += 120
	m.pid(main)
	check("its parent has its time", 7.7)

	child.n, child.start, child.cpu = 104, 14, 100
	m.pid(child)
	check("a fourth", 8.7)
	main.reaped += 110 // read before its parent waited for it
	m.pid(main)
	check("it is in both", 9.8)
	m.ends(104)
	check("and is counted once", 9.8)
	main.cpu += 110
	m.pid(main)
	check("from then on", 9.9)

	// Its number is another process's, of no job.
	m.pid(pid{n: 100, parent: 1, name: "a) x", start: 99, cpu: 5000, env: "A=B"})
	if got := s.Sample(noon); len(got.Jobs) != 0 {
		t.Errorf("a number that is used again: %+v", got.Jobs)
	}
	// The job's next step begins: its counter goes on.
	m.pid(pid{n: 200, parent: 1, name: "x", start: 120, cpu: 10, env: "SLURM_JOB_ID=7"})
	check("the next step", 10)
	m.ends(200)
	s.Sample(noon)
	if s.Sample(noon.Add(2 * keepAccount)); len(s.jobs) != 0 {
		t.Errorf("the job is still remembered: %+v", s.jobs)
	}
}

// TestKeeper has a keeper wait for what a job's first process started and left.
func TestKeeper(t *testing.T) {
	m := newTree(t)
	m.mounts()
	keeper := pid{n: 10, parent: 9, name: "miniq-keeper", start: 1, cpu: 3, reaped: 1000, written: 1 << 20} // it had another job before
	first := pid{n: 20, parent: 10, name: "sh", start: 5, cpu: 10, written: 100, env: "LSB_JOBID=3,LSB_JOBINDEX=2,SLURM_JOB_ID=3,ALLOTMENT_JOBID=3[2],MINIQ_JOBID=3[2]"}
	m.pid(keeper)
	m.pid(first)
	s := m.sampler()
	defer s.Close()
	sample := func() *Job {
		got := s.Sample(noon).Jobs
		if len(got) != 1 || got[0].Key != (Key{Miniq, backends.ID{Job: 3, Index: 2}, 1000}) {
			t.Fatalf("%+v", got)
		}
		return &got[0]
	}
	if j := sample(); j.CPU != seconds(0.1) || j.Processes != known(1) || j.Disks[0].WrittenBytes != known(100) {
		t.Errorf("%+v", j)
	}
	// The keeper reaps what has left its parent, seen or not.
	m.pid(pid{n: 21, parent: 10, name: "d", start: 6, cpu: 50, written: 7, env: "HIDDEN=1"})
	first.env = "EMPTY=1"
	m.pid(first)
	sample() // it may have begun a moment ago, and not have executed its program
	if j := sample(); j.CPU != seconds(0.6) || j.Disks[0].WrittenBytes != known(107) {
		t.Errorf("a child of the keeper without the variable: %+v", j)
	}
	m.ends(21)
	keeper.reaped += 75
	keeper.written += 9
	m.pid(keeper)
	if j := sample(); j.CPU != seconds(0.85) || j.Disks[0].WrittenBytes != known(109) {
		t.Errorf("what the keeper gathered: %+v", j)
	}
	keeper.reaped += 25 // a child that no sample saw
	m.pid(keeper)
	if j := sample(); j.CPU != seconds(1.1) {
		t.Errorf("what the keeper gathered: %+v", j)
	}
}

// TestClaims has each way to be of a job.
func TestClaims(t *testing.T) {
	m := newTree(t)
	m.mounts()
	m.pid(pid{n: 10, parent: 1, name: "bash", start: 1, env: "SLURM_JOB_ID=1"})
	m.pid(pid{n: 11, parent: 10, name: "env", start: 2, env: "SLURM_JOB_ID=99"}) // stays in its parent's job
	m.pid(pid{n: 12, parent: 1, name: "x", start: 2, env: "LSB_JOBID=5,LSB_JOBINDEX=0"})
	m.pid(pid{n: 13, parent: 1, name: "x", start: 2, env: "LSB_JOBID=5,LSB_JOBINDEX=4"})
	m.pid(pid{n: 14, parent: 1, name: "x", start: 2, env: "MINIQ_JOBID=2,SLURM_JOB_ID=3"})                                // sbatch within a job of miniq
	m.pid(pid{n: 15, parent: 1, name: "x", start: 2, env: "SLURM_JOB_ID=8,LSB_JOBID=8,LSB_JOBINDEX=0,ALLOTMENT_JOBID=8"}) // asub on Slurm
	m.pid(pid{n: 16, parent: 1, name: "x", start: 2, env: "LSB_JOBID=9,LSB_JOBINDEX=2,ALLOTMENT_JOBID=9[2]"})             // and on LSF
	for i, id := range []string{"", "0", "-1", "1x", "1[0x]", "99999999999999999999", "\x1b[31m", strings.Repeat("1", 5000)} {
		m.pid(pid{n: 30 + i, parent: 1, name: "y", start: 2, env: "SLURM_JOB_ID=" + id})
	}
	m.pid(pid{n: 60, parent: 61, name: "z", start: 2}) // parents in a circle
	m.pid(pid{n: 61, parent: 60, name: "z", start: 2})
	m.write("proc/62/stat", "no stat")
	m.write("proc/7x/stat", "")
	if err := os.MkdirAll(filepath.Join(m.dir, "proc/63"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(m.dir, "proc/63/stat"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := m.sampler().Sample(noon)
	keys := map[string]uint64{}
	for _, j := range got.Jobs {
		keys[string(j.Queue)+" "+j.IDText()+" "+j.UserText()] = j.Processes.N
	}
	if diff := cmp.Diff(map[string]uint64{"slurm 1 1000": 2, "lsf 5 1000": 1, "lsf 5[4] 1000": 1, "slurm 3 1000": 1, "slurm 8 1000": 1, "lsf 9[2] 1000": 1}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestBounds(t *testing.T) {
	m := newTree(t)
	m.mounts()
	for i := range 20 {
		m.pid(pid{n: 100 + i, parent: 1, name: "x", start: 1, env: fmt.Sprintf("SLURM_JOB_ID=%d", i+1)})
	}
	o := Options{Proc: filepath.Join(m.dir, "proc"), MaxJobs: 8, MaxJobsOfUser: 5, MaxProcesses: 12, MaxDescriptors: 7}
	s := New(o)
	defer s.Close()
	got := s.Sample(noon)
	if len(got.Jobs) != 5 || got.Seen.Processes != 12 || got.Seen.Descriptors > 7 {
		t.Errorf("%d jobs, %+v", len(got.Jobs), got.Seen)
	}
	var bounds []Lack
	for _, l := range got.Lacks {
		if l.Figure == Jobs {
			bounds = append(bounds, l)
		}
	}
	if diff := cmp.Diff([]Lack{
		{Jobs, 7, "these processes or control groups are of jobs beyond the bounds of 8 jobs, and 5 of a user"},
		{Jobs, 8, "these processes are beyond the bound of 12"},
	}, bounds); diff != "" {
		t.Error(diff)
	}
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "8:%d rbytes=1 wbytes=1 rios=1 wios=1\n", i)
	}
	if n := len(parseIOStat([]byte(text.String()))); n != maxDevices {
		t.Errorf("%d devices", n)
	}
}

// TestSwap has swap counted only where some of the host's memory is swapped out.
func TestSwap(t *testing.T) {
	for meminfo, want := range map[string]Value{
		"SwapTotal:       100 kB\nSwapFree:        100 kB\n": known(0),
		"SwapTotal:      2048 kB\nSwapFree:          0 kB\n": known(512 << 10),
		"": {},
	} {
		m := newTree(t)
		m.mounts()
		m.pid(pid{n: 100, parent: 1, name: "x", start: 1, pages: 10, shared: 4, env: "LSB_JOBID=1"})
		m.pid(pid{n: 101, parent: 100, name: "z", start: 1, pages: 10, shared: 6, state: "Z"})
		if meminfo != "" {
			m.write("proc/meminfo", meminfo)
		}
		j := find(m.sampler().Sample(noon), LSF, 1)
		if want.N > 0 {
			want.N *= 2 // of both
		}
		if j == nil || j.Swap != want || j.Processes != known(1) || j.Memory.N != 16*uint64(os.Getpagesize()) {
			t.Errorf("%q: %+v", meminfo, j)
		}
	}
}

func TestHost(t *testing.T) {
	h := ReadHost("")
	if h.Boot == "" || !h.Memory.Known || !h.Available.Known || h.Available.N > h.Memory.N || h.Load == nil {
		t.Errorf("%+v", h)
	}
	if h := ReadHost(t.TempDir()); h != (Host{}) {
		t.Errorf("of nothing: %+v", h)
	}
}
