// Command hosts measures what ahostd costs on a host with many jobs, in processor time and
// memory, against its budgets (docs/design.md):
//
//	hosts -programs DIR [-jobs 200] [-processes 5] [-samples 40]
//
// It starts the jobs' processes, which sleep, and ahostd with a sample each second, and
// reads ahostd's own metrics every 15 s, as a Prometheus does. As root it starts them as
// another user, and ahostd by its root helper, as the service does, and counts both. It exits
// with 1 above a budget.
// Where Prometheus' process-exporter is installed it measures the same processes, each job
// as a group, and its cost stands beside ahostd's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/exposition"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/test/await"
)

// The budgets, with 200 jobs of 5 processes.
const (
	mostAtFive   = 0.01 // of a core, with a sample each 5 s
	mostAtOne    = 0.03
	mostResident = 50 << 20
)

func main() {
	programs := flag.String("programs", "bin", "the `DIR`ectory of ahostd")
	jobs := flag.Int("jobs", 200, "so many jobs")
	processes := flag.Int("processes", 5, "each of so many processes")
	samples := flag.Int("samples", 40, "measure so many samples, of a second each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *programs, *jobs, *processes, *samples); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, programs string, jobs, processes, samples int) (err error) {
	dir, err := os.MkdirTemp("", "bench-hosts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, end := context.WithCancel(ctx)
	var all []*exec.Cmd
	defer func() {
		end()
		for _, c := range all {
			_ = c.Wait() // it was killed
		}
	}()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("ahostd: {every: 1s}\n"), 0o644); err != nil { //nolint:gosec // the service's user reads it
		return err
	}
	asRoot := os.Getuid() == 0
	if asRoot {
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, serviceID, serviceID)); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	begin := func(as *syscall.Credential, env []string, argv ...string) error {
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Env = append(os.Environ(), env...)
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		all = append(all, c)
		return c.Start()
	}
	var owner *syscall.Credential
	if asRoot {
		owner = &syscall.Credential{Uid: 1, Gid: 1}
	}
	programs, err = filepath.Abs(programs)
	if err != nil {
		return err
	}
	script := strings.Repeat("sleep 3600 & ", processes-1) + "wait"
	for i := range jobs {
		if err := begin(owner, []string{fmt.Sprintf("SLURM_JOB_ID=%d", 1000+i)}, "sh", "-c", script); err != nil {
			return err
		}
	}
	helper := 0
	if asRoot {
		err = begin(nil, []string{"ALLOTMENT_CONFIG=" + config, "RUNTIME_DIRECTORY=" + dir}, filepath.Join(programs, "ahostd-root"))
		helper = all[len(all)-1].Process.Pid
	} else {
		err = begin(nil, []string{"ALLOTMENT_HOME=" + dir}, filepath.Join(programs, "ahostd"))
	}
	if err != nil {
		return err
	}
	first, err := scrape(ctx, dir, time.Second, func(m metrics) bool { return m.jobs >= float64(jobs) && m.samples >= 5 })
	if err != nil {
		return err
	}
	first.helper = used(helper)
	last, err := scrape(ctx, dir, scrapeEvery, func(m metrics) bool { return m.samples >= first.samples+float64(samples) })
	if err != nil {
		return err
	}
	last.helper = used(helper)
	if asRoot {
		last.resident += float64(proc.Resident(helper))
	} else {
		fmt.Println("skip: not root: without the root helper")
	}
	if err := report(first, last); err != nil {
		return err
	}
	return compare(ctx, dir, jobs, processes, samples, begin)
}

// compare measures process-exporter on the same jobs: it reads the processes when it is asked.
func compare(ctx context.Context, dir string, jobs, processes, samples int, begin func(as *syscall.Credential, env []string, argv ...string) error) error {
	program, err := exec.LookPath("prometheus-process-exporter")
	if err != nil {
		fmt.Println("beside it: prometheus-process-exporter is not installed (Debian: apt install prometheus-process-exporter)")
		return nil
	}
	config := filepath.Join(dir, "exporter.yaml")
	groups := "process_names:\n  - comm: [sh]\n    name: '{{.PID}}'\n" // its children count for it
	if err := os.WriteFile(config, []byte(groups), 0o600); err != nil {
		return err
	}
	free, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := free.Addr().String()
	if err := errors.Join(free.Close(), begin(nil, nil, program, "-config.path", config, "-threads=false", "-gather-smaps=false", "-web.listen-address", address)); err != nil {
		return err
	}
	var first, last exporter
	ask := func() (e exporter, err error) {
		text, err := get(ctx, http.DefaultClient, "http://"+address+"/metrics")
		if err != nil {
			return e, err
		}
		for line := range strings.Lines(text) { // its types are more than our own reader knows
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			v, bad := strconv.ParseFloat(value, 64)
			switch {
			case bad != nil:
			case name == "process_cpu_seconds_total":
				e.cpu = v
			case strings.HasPrefix(name, "namedprocess_namegroup_num_procs{"):
				e.groups++
				e.processes += v
			}
		}
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !await.Every(ctx, 100*time.Millisecond, func() bool { first, err = ask(); return err == nil && first.groups >= jobs }) {
		return errors.Join(fmt.Errorf("process-exporter has %d groups of %d", first.groups, jobs), err)
	}
	for range samples {
		if last, err = ask(); err != nil {
			return fmt.Errorf("process-exporter: %w", err)
		}
	}
	if last.groups < jobs || last.processes < float64(jobs*processes) {
		return fmt.Errorf("process-exporter has %d groups of %.0f processes", last.groups, last.processes)
	}
	fmt.Printf("process-exporter, same jobs  %6.2f ms a sample (no disk, no pressure, no queue's jobs)\n", 1000*(last.cpu-first.cpu)/float64(samples))
	return nil
}

// exporter is what process-exporter says of itself, and how much it measures.
type exporter struct {
	cpu, processes float64
	groups         int
}

// serviceID is the user that ahostd runs as.
const serviceID = 65534

// used returns the processor time of the helper, in seconds.
func used(pid int) float64 {
	s, _ := proc.ReadStat(pid)
	return (s.User + s.System).Seconds()
}

func report(first, last metrics) error {
	samples := last.samples - first.samples
	each := (last.cpu - first.cpu + last.helper - first.helper) / samples
	fmt.Printf("%.0f jobs, %.0f processes on this host, %.0f descriptors\n", last.jobs, last.processes, last.descriptors)
	fmt.Printf("processor time of a sample   %6.2f ms, of which the root helper %.2f ms\n", 1000*each, 1000*(last.helper-first.helper)/samples)
	fmt.Printf("of a core, a sample each 5 s %6.2f %%  (budget %.0f %%)\n", 100*each/5, 100*mostAtFive)
	fmt.Printf("of a core, a sample each 1 s %6.2f %%  (budget %.0f %%)\n", 100*each, 100*mostAtOne)
	fmt.Printf("memory                       %6.1f MiB (budget %d MiB)\n", last.resident/(1<<20), mostResident>>20)
	if each/5 > mostAtFive || each > mostAtOne || last.resident > mostResident {
		return errors.New("a budget is not kept")
	}
	return nil
}

// metrics are those of ahostd about itself.
type metrics struct{ samples, cpu, helper, resident, jobs, processes, descriptors float64 }

// scrapeEvery is how often a Prometheus asks.
const scrapeEvery = 15 * time.Second

// scrape reads the metrics every so often until they are as wanted.
func scrape(ctx context.Context, dir string, every time.Duration, wanted func(metrics) bool) (m metrics, err error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "ahostd.sock"))
	}}}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if await.Every(ctx, every, func() bool {
		if m, err = read(ctx, client); err != nil {
			return false
		}
		return wanted(m)
	}) {
		return m, nil
	}
	return m, errors.Join(fmt.Errorf("ahostd does not measure the jobs: %+v", m), err)
}

func read(ctx context.Context, client *http.Client) (m metrics, err error) {
	text, err := get(ctx, client, "http://ahostd/metrics")
	if err != nil {
		return m, err
	}
	values, err := exposition.Check(text)
	for key, v := range values {
		name, _, _ := strings.Cut(key, "{")
		for of, to := range map[string]*float64{
			"allotment_host_samples_total": &m.samples, "process_cpu_seconds_total": &m.cpu, "process_resident_memory_bytes": &m.resident,
			"allotment_host_jobs": &m.jobs, "allotment_host_seen_processes": &m.processes, "allotment_host_open_descriptors": &m.descriptors,
		} {
			if of == name {
				*to = v
			}
		}
	}
	return m, err
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r, err := client.Do(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r.Body)
	return string(text), errors.Join(err, r.Body.Close())
}
