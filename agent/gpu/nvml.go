//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// Serve writes a line for each reading of the GPUs, every so often, until in ends or the
// context does. It may return while a call into NVML goes on: end the process then. An
// interval of 0 means one reading.
func Serve(ctx context.Context, every time.Duration, in io.Reader, out io.Writer) error {
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, in)
		if every > 0 {
			done <- err
		}
	}()
	go func() { done <- readAll(ctx, every, out) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

func readAll(ctx context.Context, every time.Duration, out io.Writer) error {
	n, l := open()
	if n == nil {
		return write(out, &l)
	}
	ticker := time.NewTicker(max(every, time.Second))
	defer ticker.Stop()
	for {
		l := n.read(every)
		if err := write(out, &l); err != nil || every == 0 || l.Why != "" {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// library is NVML, as it is loaded.
type library struct {
	nvml.Interface
	driver string
}

// open loads NVML; nil: the line says why not.
func open() (*library, line) {
	n := &library{Interface: nvml.New()}
	switch ret := n.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, line{None: true, Why: "libnvidia-ml.so.1 can't be loaded"}
	case nvml.ERROR_DRIVER_NOT_LOADED:
		_, err := os.Stat("/proc/driver/nvidia/version")
		return nil, notLoaded(err == nil)
	default:
		return nil, line{Why: n.text(ret)}
	}
	n.driver, _ = call(n, n.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	return n, line{}
}

// notLoaded says what NVML means that finds no driver.
func notLoaded(is bool) line {
	if is {
		return line{Why: "NVML does not reach the driver, which is loaded: may this process open /dev/nvidiactl?"}
	}
	return line{None: true, Why: "the NVIDIA driver is not loaded"}
}

// call calls a function of NVML, if the library has it under one of its names. A panic of
// go-nvml, such as of a list that has grown between two calls, is an unknown error.
func call[T any](n *library, f func() (T, nvml.Return), names ...string) (v T, ret nvml.Return) {
	if !slices.ContainsFunc(names, func(name string) bool { return n.Extensions().LookupSymbol(name) == nil }) {
		return v, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	defer func() {
		if recover() != nil {
			ret = nvml.ERROR_UNKNOWN
		}
	}()
	return f()
}

// text is what NVML says of an error.
func (n *library) text(ret nvml.Return) string {
	said, ok := call(n, func() (string, nvml.Return) { return nvml.ErrorString(ret), nvml.SUCCESS }, "nvmlErrorString")
	if ok != nvml.SUCCESS || said == "" {
		return fmt.Sprintf("error %d of NVML", int(ret))
	}
	return fmt.Sprintf("%s (error %d of NVML)", said, int(ret))
}

// read reads all GPUs.
func (n *library) read(every time.Duration) line {
	count, ret := call(n, n.DeviceGetCount, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
	switch {
	case ret != nvml.SUCCESS:
		return line{Why: n.text(ret)}
	case count <= 0:
		return line{None: true, Why: "the NVIDIA driver has no GPU"}
	}
	l := line{Driver: n.driver}
	for i := range min(count, measure.MaxGPUs) {
		l.GPUs = append(l.GPUs, n.gpu(i, every))
	}
	return l
}

// isUsual reports whether a device may be without a figure.
func isUsual(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND || ret == nvml.ERROR_NO_DATA || ret == nvml.ERROR_NOT_FOUND
}

// gpu reads a GPU. The first of its errors is its reason.
func (n *library) gpu(i int, every time.Duration) gpu {
	g := gpu{Index: i, Read: ticksSinceBoot()}
	failed := func(what string, ret nvml.Return) {
		if g.Why == "" {
			g.Why = what + n.text(ret)
		}
	}
	ok := func(ret nvml.Return) bool {
		if ret != nvml.SUCCESS && !isUsual(ret) {
			failed("", ret)
		}
		return ret == nvml.SUCCESS
	}
	d, ret := call(n, func() (nvml.Device, nvml.Return) { return n.DeviceGetHandleByIndex(i) }, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	if ret != nvml.SUCCESS {
		failed("", ret)
		return g
	}
	if name, ret := call(n, d.GetName, "nvmlDeviceGetName"); ok(ret) {
		g.Name = name
	}
	if uuid, ret := call(n, d.GetUUID, "nvmlDeviceGetUUID"); ok(ret) {
		g.UUID = uuid
	}
	if u, ret := call(n, d.GetUtilizationRates, "nvmlDeviceGetUtilizationRates"); ok(ret) {
		g.Busy = number(u.Gpu)
	}
	n.memory(d, &g, ok)
	if t, ret := call(n, func() (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }, "nvmlDeviceGetTemperature"); ok(ret) {
		g.Celsius = number(t)
	}
	if p, ret := call(n, d.GetPowerUsage, "nvmlDeviceGetPowerUsage"); ok(ret) {
		g.Milliwatts = number(p)
	}
	n.processes(d, &g, every, failed)
	return g
}

// memory reads a GPU's memory; by the newer function what the driver keeps is not in use.
func (n *library) memory(d nvml.Device, g *gpu, ok func(nvml.Return) bool) {
	if m, ret := call(n, d.GetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2"); ret == nvml.SUCCESS {
		g.MemoryUsed, g.Memory = &m.Used, &m.Total
	} else if m, ret := call(n, d.GetMemoryInfo, "nvmlDeviceGetMemoryInfo"); ok(ret) {
		g.MemoryUsed, g.Memory = &m.Used, &m.Total
	}
}

// processes reads the processes that use a GPU.
func (n *library) processes(d nvml.Device, g *gpu, every time.Duration, failed func(string, nvml.Return)) {
	compute, ret := call(n, d.GetComputeRunningProcesses, versions("nvmlDeviceGetComputeRunningProcesses")...)
	if ret != nvml.SUCCESS {
		failed("its processes: ", ret)
		return
	}
	graphics, _ := call(n, d.GetGraphicsRunningProcesses, versions("nvmlDeviceGetGraphicsRunningProcesses")...)
	g.Listed = true
	g.Processes = merge(compute, graphics)
	if extra := len(g.Processes) - measure.MaxGPUProcesses; extra > 0 {
		g.More, g.Processes = extra, g.Processes[:measure.MaxGPUProcesses]
	}
	if len(g.Processes) == 0 {
		return
	}
	// A process that was idle since then has no sample. The driver takes one each second or
	// more often.
	since := time.Now().Add(-max(every, 2*time.Second)).UnixMicro()
	samples, ret := call(n, func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return d.GetProcessUtilization(uint64(since))
	}, "nvmlDeviceGetProcessUtilization")
	switch ret {
	case nvml.SUCCESS:
		share(g.Processes, samples, uint64(since))
	case nvml.ERROR_NOT_FOUND:
		share(g.Processes, nil, 0)
	default:
		failed("SM by process: ", ret)
	}
}

// versions are the names under which a function was, and is, in the library.
func versions(name string) []string { return []string{name, name + "_v2", name + "_v3"} }

// merge makes one list of processes of two, which may name the same ones: by their PIDs. A
// process has an entry for each instance of a GPU that it uses (MIG).
func merge(lists ...[]nvml.ProcessInfo) (all []process) {
	type key struct{ pid, gi, ci uint32 }
	of := map[int]*process{}
	seen := map[key]bool{}
	for _, list := range lists {
		for _, p := range list {
			k := key{p.Pid, p.GpuInstanceId, p.ComputeInstanceId}
			if seen[k] || p.Pid == 0 || len(seen) > 4*measure.MaxGPUProcesses {
				continue
			}
			seen[k] = true
			memory := bytesOf(p.UsedGpuMemory)
			is := of[int(p.Pid)]
			switch {
			case is == nil:
				of[int(p.Pid)] = &process{PID: int(p.Pid), Memory: memory}
			case is.Memory == nil || memory == nil:
				is.Memory = nil
			default:
				*is.Memory += *memory
			}
		}
	}
	for _, p := range of {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b process) int { return a.PID - b.PID })
	return all
}

// bytesOf is a number of bytes; nil: NVML does not know it, or it can't be.
func bytesOf(n uint64) *uint64 {
	if n > maxBytes {
		return nil
	}
	return &n
}

// share adds to the processes their newest samples since then; without one a process was idle.
func share(all []process, samples []nvml.ProcessUtilizationSample, since uint64) {
	newest := map[uint32]nvml.ProcessUtilizationSample{}
	for _, s := range samples {
		if s.TimeStamp > since && s.TimeStamp >= newest[s.Pid].TimeStamp {
			newest[s.Pid] = s
		}
	}
	for i := range all {
		all[i].SM = number(newest[uint32(all[i].PID)].SmUtil)
	}
}

func number(n uint32) *uint64 {
	v := uint64(n)
	return &v
}

// ticksSinceBoot is now, as the kernel says when a process began: in hundredths of a second.
func ticksSinceBoot() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(t.Nano() / int64(10*time.Millisecond))
}
