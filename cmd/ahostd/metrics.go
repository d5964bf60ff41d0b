package main

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/plugin"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/internal/proc"
)

// own is what ahostd itself uses.
type own struct {
	samples  uint64
	took     time.Duration // the last one
	cpu      time.Duration
	resident int64
}

func ownUse(samples uint64, took time.Duration) own {
	o := own{samples: samples, took: took, resident: proc.Resident(os.Getpid())}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		o.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return o
}

// metricsText returns a sample as text for Prometheus. An absent figure has no line.
func metricsText(host string, s *measure.Sample, o own, plugins []plugin.State, limits []supervise.Limit) []byte {
	var e exposition.Set
	e.Gauge("allotment_host_info", "Version of ahostd; always 1.").Add(1, "host", host, "version", shell.Version)
	jobMetrics(&e, host, s.Jobs)
	diskMetrics(&e, host, s.Jobs)
	pressureMetrics(&e, host, s.Jobs)
	networkMetrics(&e, host, s.Jobs)
	gpuMetrics(&e, host, s)
	limitMetrics(&e, host, limits)
	e.Gauge("allotment_host_jobs", "Jobs that are on the host.").Add(float64(len(s.Jobs)), "host", host)
	lacking := e.Gauge("allotment_host_lacking", "Jobs without a figure that can't be measured on the host; of jobs, processes whose job is not found. ahostd top says why.")
	sum := map[measure.Figure]int{}
	for _, l := range s.Lacks {
		sum[l.Figure] += l.N
	}
	for _, f := range measure.Figures() {
		lacking.Add(float64(sum[f]), "host", host, "figure", string(f))
	}
	e.Gauge("allotment_host_sample_timestamp_seconds", "When the host was measured last.").Add(float64(s.At.UnixMilli())/1000, "host", host)
	e.Gauge("allotment_host_sample_duration_seconds", "How long that took.").Add(o.took.Seconds(), "host", host)
	e.Counter("allotment_host_samples_total", "How often the host was measured.").Add(float64(o.samples), "host", host)
	e.Gauge("allotment_host_seen_processes", "Processes that were looked at, of jobs or not.").Add(float64(s.Seen.Processes), "host", host)
	e.Gauge("allotment_host_seen_cgroups", "Control groups of jobs.").Add(float64(s.Seen.Groups), "host", host)
	e.Gauge("allotment_host_open_descriptors", "Descriptors that stay open to measure.").Add(float64(s.Seen.Descriptors), "host", host)
	pluginMetrics(&e, host, plugins)
	e.Counter("process_cpu_seconds_total", "Processor time of ahostd.").Add(o.cpu.Seconds())
	e.Gauge("process_resident_memory_bytes", "Memory of ahostd.").Add(float64(o.resident))
	return e.Text()
}

// limitMetrics adds the limits in force, by their kinds.
func limitMetrics(e *exposition.Set, host string, limits []supervise.Limit) {
	type kind struct{ resource, rung string }
	n := map[kind]int{}
	for i := range limits {
		n[kind{limits[i].Resource.String(), limits[i].Rung.String()}]++
	}
	limited := e.Gauge("allotment_host_limited_jobs", "Jobs that are limited so that others have what they were promised.")
	for _, k := range slices.SortedFunc(maps.Keys(n), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.rung, b.rung))
	}) {
		limited.Add(float64(n[k]), "host", host, "resource", k.resource, "by", k.rung)
	}
}

// pluginMetrics adds what plug-ins have measured, each figure in a metric of its own.
func pluginMetrics(e *exposition.Set, host string, plugins []plugin.State) {
	up := e.Gauge("allotment_host_plugin_up", "1 if the plug-in has measured, 0 if its last run failed; ahostd's log says why.")
	metrics := map[string]*exposition.Metric{}
	for _, p := range plugins {
		works := 1.0
		if p.Err != nil {
			works = 0
		}
		up.Add(works, "host", host, "plugin", p.Name)
		for _, f := range p.Figures {
			m := metrics[f.Name]
			if m == nil {
				name, help := "allotment_plugin_"+f.Name, "Measured by a plug-in of the site."
				if strings.HasSuffix(f.Name, "_total") {
					m = e.Counter(name, help)
				} else {
					m = e.Gauge(name, help)
				}
				metrics[f.Name] = m
			}
			m.Add(f.Value, "host", host, "plugin", p.Name, "of", f.Of)
		}
	}
}

// labels are a job's.
func labels(host string, j *measure.Job, more ...string) []string {
	return append([]string{"host", host, "queue", string(j.Queue), "job", j.IDText(), "uid", j.UserText()}, more...)
}

func jobMetrics(e *exposition.Set, host string, jobs []measure.Job) {
	info := e.Gauge("allotment_job_info", "Where the job's figures are from: cgroup2, cgroup1 or processes; always 1.")
	cpu := e.Counter("allotment_job_cpu_seconds_total", "Processor time of the job on the host.")
	gauges := []struct {
		of     func(*measure.Job) measure.Value
		metric *exposition.Metric
	}{
		{func(j *measure.Job) measure.Value { return j.Memory }, e.Gauge("allotment_job_memory_bytes", "Memory of the job on the host; of a control group with the cache of its files.")},
		{func(j *measure.Job) measure.Value { return j.Cache }, e.Gauge("allotment_job_memory_cache_bytes", "Of it, the cache of its files.")},
		{func(j *measure.Job) measure.Value { return j.Peak }, e.Gauge("allotment_job_memory_peak_bytes", "The most memory that it had.")},
		{func(j *measure.Job) measure.Value { return j.Swap }, e.Gauge("allotment_job_swap_bytes", "Memory of the job that is swapped out.")},
		{func(j *measure.Job) measure.Value { return j.Processes }, e.Gauge("allotment_job_processes", "Processes of the job on the host.")},
		{func(j *measure.Job) measure.Value { return j.Threads }, e.Gauge("allotment_job_threads", "Threads of the job on the host.")},
	}
	for i := range jobs {
		j := &jobs[i]
		info.Add(1, labels(host, j, "source", string(j.Source))...)
		add(cpu, j.CPU, 1e9, labels(host, j)...)
		for _, g := range gauges {
			add(g.metric, g.of(j), 1, labels(host, j)...)
		}
	}
}

func diskMetrics(e *exposition.Set, host string, jobs []measure.Job) {
	read := e.Counter("allotment_job_disk_read_bytes_total", "Bytes read from the device, or without one from all of them.")
	written := e.Counter("allotment_job_disk_written_bytes_total", "Bytes written to it.")
	reads := e.Counter("allotment_job_disk_reads_total", "Operations that read from it.")
	writes := e.Counter("allotment_job_disk_writes_total", "Operations that wrote to it.")
	for i := range jobs {
		for _, d := range jobs[i].Disks {
			of := labels(host, &jobs[i], "device", d.Device)
			add(read, d.ReadBytes, 1, of...)
			add(written, d.WrittenBytes, 1, of...)
			add(reads, d.Reads, 1, of...)
			add(writes, d.Writes, 1, of...)
		}
	}
}

func pressureMetrics(e *exposition.Set, host string, jobs []measure.Job) {
	stalled := e.Counter("allotment_job_stalled_seconds_total", "For how long some or all tasks of the job waited for the resource (PSI).")
	for i := range jobs {
		p := jobs[i].Pressure
		for _, x := range []struct {
			v               measure.Value
			resource, tasks string
		}{{p.CPUSome, "cpu", "some"}, {p.MemorySome, "memory", "some"}, {p.MemoryFull, "memory", "full"}, {p.IOSome, "io", "some"}, {p.IOFull, "io", "full"}} {
			add(stalled, x.v, 1e9, labels(host, &jobs[i], "resource", x.resource, "tasks", x.tasks)...)
		}
	}
}

func networkMetrics(e *exposition.Set, host string, jobs []measure.Job) {
	sent := e.Counter("allotment_job_network_sent_bytes_total", "Payload sent to the class of networks: loopback, rack, site, outside.")
	received := e.Counter("allotment_job_network_received_bytes_total", "Payload received from it.")
	for i := range jobs {
		n := &jobs[i].Network
		for class := range measure.NetworkClass(measure.NetworkClasses) {
			of := labels(host, &jobs[i], "class", class.String())
			add(sent, measure.Value{N: n.Sent[class], Known: n.Known}, 1, of...)
			add(received, measure.Value{N: n.Received[class], Known: n.Known}, 1, of...)
		}
	}
}

// gpuMetrics adds what the GPUs do, and what jobs use of them.
func gpuMetrics(e *exposition.Set, host string, s *measure.Sample) {
	info := e.Gauge("allotment_host_gpu_info", "A GPU of the host; always 1.")
	up := e.Gauge("allotment_host_gpu_up", "1 if all of the GPU that is measured was answered, 0 if not: ahostd --check says why.")
	busy := e.Gauge("allotment_host_gpu_busy_ratio", "Part of the time in which something ran on the GPU.")
	used := e.Gauge("allotment_host_gpu_memory_used_bytes", "Memory of the GPU in use.")
	memory := e.Gauge("allotment_host_gpu_memory_bytes", "Memory of the GPU.")
	temperature := e.Gauge("allotment_host_gpu_temperature_celsius", "Temperature of the GPU.")
	power := e.Gauge("allotment_host_gpu_power_watts", "Power that the GPU draws.")
	for i := range s.GPUs {
		g := &s.GPUs[i]
		of := []string{"host", host, "gpu", strconv.Itoa(g.Index)}
		info.Add(1, append(of, "uuid", g.UUID, "name", g.Name)...)
		answers := 1.0
		if g.Why != "" {
			answers = 0
		}
		up.Add(answers, of...)
		add(busy, g.Busy, 100, of...)
		add(used, g.MemoryUsed, 1, of...)
		add(memory, g.Memory, 1, of...)
		add(temperature, g.Celsius, 1, of...)
		add(power, g.Milliwatts, 1000, of...)
	}
	devices := e.Gauge("allotment_job_gpus", "GPUs that the job's processes use, of a host that has some.")
	jobMemory := e.Gauge("allotment_job_gpu_memory_bytes", "Memory of the GPU that the job's processes use.")
	sm := e.Gauge("allotment_job_gpu_sm_ratio", "Part of the time in which the GPU's streaming multiprocessors ran the job's processes.")
	for i := range s.Jobs {
		j := &s.Jobs[i]
		add(devices, j.GPU.Devices, 1, labels(host, j)...)
		for _, g := range j.GPUs {
			of := labels(host, j, "gpu", strconv.Itoa(g.Index))
			add(jobMemory, g.Memory, 1, of...)
			add(sm, g.SM, 100, of...)
		}
	}
}

// add adds a figure, if it is known, in units of so many.
func add(m *exposition.Metric, v measure.Value, unit float64, labels ...string) {
	if v.Known {
		m.Add(float64(v.N)/unit, labels...)
	}
}

// count is a number as text; "-": absent.
func count(v measure.Value) string {
	if !v.Known {
		return "-"
	}
	return strconv.FormatUint(v.N, 10)
}
