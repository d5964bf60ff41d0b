// Command bus measures what allotd costs with the agents of a farm, in processor time, memory
// and traffic, against its budgets (docs/design.md):
//
//	bus -programs DIR [-hosts 1000] [-jobs 50] [-for 1m]
//
// Each host joins the real bus by its own key, and sends a heartbeat and what its jobs use
// every 5 s, as ahostd does. It exits with 1 above a budget.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/watch"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/bus"
	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/test/await"
)

// The budgets, with 1,000 hosts of 50 jobs.
const (
	mostCores    = 1.0
	mostResident = 500 << 20
	mostTraffic  = 2e6 // bytes a second, as they are on the network
)

type options struct {
	programs    string
	hosts, jobs int
	lasts       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.programs, "programs", "bin", "the `DIR`ectory of allotd")
	flag.IntVar(&o.hosts, "hosts", 1000, "so many hosts")
	flag.IntVar(&o.jobs, "jobs", 50, "each with so many jobs")
	flag.DurationVar(&o.lasts, "for", time.Minute, "measure for so long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bus:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "bench-bus-")
	if err != nil {
		return err
	}
	var ended sync.WaitGroup
	ctx, end := context.WithTimeout(ctx, 10*time.Minute+o.lasts)
	defer func() {
		end()
		ended.Wait()
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	p := programs{o.programs, dir}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("bus: {enrol: 127.0.0.1:0}\nlog: {level: error}\n"), 0o600); err != nil {
		return err
	}
	if _, err := p.run(ctx, "pba", "init"); err != nil {
		return err
	}
	allotd := exec.CommandContext(ctx, filepath.Join(o.programs, "allotd"))
	allotd.Env, allotd.Stderr = p.env(), os.Stderr
	allotd.Cancel = func() error { return allotd.Process.Signal(syscall.SIGTERM) }
	if err := allotd.Start(); err != nil {
		return err
	}
	ended.Go(func() { _ = allotd.Wait() }) // SIGTERM ends it
	var line string
	if !await.Every(ctx, 100*time.Millisecond, func() bool { line, err = p.run(ctx, "allotd", "enrol"); return err == nil }) {
		return err
	}
	enrolment, err := bus.ParseEnrolment(line)
	if err != nil {
		return err
	}
	began := time.Now()
	links, err := join(ctx, &ended, dir, enrolment, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d hosts joined within %.1f s\n", o.hosts, time.Since(began).Seconds())
	for i, l := range links {
		ended.Go(func() { report(ctx, l, i, o.jobs) })
	}
	here := func() bool {
		var list string
		list, err = p.run(ctx, "ahosts", "--agents", "--csv")
		return err == nil && strings.Count(list, "\n") == o.hosts+1 // the first line names the columns
	}
	if !await.Every(ctx, time.Second, here) {
		return errors.Join(errors.New("not all hosts are in ahosts --agents"), err)
	}
	return measureIt(ctx, allotd.Process.Pid, o.lasts)
}

// programs are Allotment's, with a home.
type programs struct{ dir, home string }

func (p programs) env() []string { return append(os.Environ(), "ALLOTMENT_HOME="+p.home) }

func (p programs) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := command.Run(ctx, command.Command{Argv: append([]string{filepath.Join(p.dir, name)}, args...), Env: p.env(), Timeout: time.Minute})
	return string(out), err
}

// join has all hosts join, and waits until they have.
func join(ctx context.Context, ended *sync.WaitGroup, dir string, e bus.Enrolment, o options) ([]*bus.Link, error) {
	var links []*bus.Link
	for i := range o.hosts {
		l, err := bus.NewLink(bus.LinkOptions{
			Dir: filepath.Join(dir, fmt.Sprint("key", i)), Host: fmt.Sprint("node", i),
			Enrolment: func() (bus.Enrolment, error) { return e, nil }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		links = append(links, l)
		ended.Go(func() { l.Run(ctx) })
	}
	why := ""
	all := await.Every(ctx, 100*time.Millisecond, func() bool {
		for _, l := range links {
			if s := l.State(); !s.Connected {
				why = s.Why
				return false
			}
		}
		return true
	})
	if !all {
		return nil, fmt.Errorf("not all hosts have joined: %s", why)
	}
	return links, nil
}

// report sends what a host sends, every 5 s.
func report(ctx context.Context, l *bus.Link, host, jobs int) {
	began := time.Now()
	select {
	case <-time.After(rand.N(roster.Every)): // hosts are not started at the same moment
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(roster.Every)
	defer ticker.Stop()
	for sequence := uint64(1); ; sequence++ {
		beat := roster.Beat{Run: fmt.Sprint("run", host), Sequence: sequence, Boot: fmt.Sprint("boot", host), Version: "bench", Cores: 64, Memory: 256 << 30, Jobs: jobs}
		message, err := beat.Encode()
		if err == nil {
			err = l.Publish(watch.BeatKind, message)
		}
		since := time.Since(began)
		r := roster.Report{Elapsed: since}
		for i := range jobs {
			r.Jobs = append(r.Jobs, job(host*jobs+i+1, since))
		}
		report, _ := r.Encode()
		if err = errors.Join(err, l.Publish(watch.ReportKind, report)); err != nil {
			fmt.Fprintln(os.Stderr, "bus:", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// job is a job all of whose figures are measured.
func job(id int, since time.Duration) measure.Job {
	value := func(n int64) measure.Value { return measure.Value{N: uint64(n), Known: true} } //nolint:gosec // it is positive
	bytes := int64(id)<<20 + rand.Int64N(1<<30)
	moved := int64(since) + int64(id)<<10
	return measure.Job{
		Key: measure.Key{Queue: measure.Slurm, ID: backends.ID{Job: int64(id)}, User: 1000 + id%100}, Source: measure.FromGroupV2,
		CPU: value(int64(since) * 3), Memory: value(bytes), Cache: value(bytes / 3), Peak: value(2 * bytes), Swap: value(0),
		Processes: value(5), Threads: value(40),
		Disks:    []measure.Disk{{Device: "sda", ReadBytes: value(moved), WrittenBytes: value(moved / 2), Reads: value(moved >> 12), Writes: value(moved >> 13)}},
		Pressure: measure.Pressure{CPUSome: value(moved), MemorySome: value(moved / 7), MemoryFull: value(0), IOSome: value(moved / 9), IOFull: value(moved / 11)},
	}
}

// use is what a process has used.
type use struct {
	cpu      time.Duration
	resident int64 // the most, bytes
	moved    int64 // bytes of its sockets and files
}

func measureIt(ctx context.Context, pid int, lasts time.Duration) error {
	first, err := read(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
		return ctx.Err()
	}
	last, err := read(pid)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	cores := (last.cpu - first.cpu).Seconds() / took
	traffic := float64(last.moved-first.moved) / took
	fmt.Printf("allotd: %6.3f cores       (budget %.0f)\n", cores, mostCores)
	fmt.Printf("        %6.1f MiB         (budget %d)\n", float64(last.resident)/(1<<20), mostResident>>20)
	fmt.Printf("        %6.2f MB/s         (budget %.0f)\n", traffic/1e6, mostTraffic/1e6)
	if cores > mostCores || last.resident > mostResident || traffic > mostTraffic {
		return errors.New("a budget is not kept")
	}
	return nil
}

// read reads what a process has used. Its reads and writes are those of its sockets, of which
// TLS is a part.
func read(pid int) (u use, err error) {
	stat, ok := proc.ReadStat(pid)
	if !ok {
		return u, fmt.Errorf("process %d is not there", pid)
	}
	u.cpu = stat.User + stat.System
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	if u.resident, ok = proc.Bytes(status, "VmHWM"); !ok {
		return u, errors.New("/proc/PID/status has no VmHWM")
	}
	io, err := os.ReadFile(filepath.Join(dir, "io"))
	if err != nil {
		return u, err
	}
	for _, name := range []string{"rchar", "wchar"} {
		n, err := strconv.ParseInt(proc.Value(io, name), 10, 64)
		if err != nil {
			return u, err
		}
		u.moved += n
	}
	return u, nil
}
