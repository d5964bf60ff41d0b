package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/agent/gpu"
	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/cmd/internal/screen"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/internal/unit"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "show what the jobs of this host use now",
		Description: "It measures by itself, as you: no ahostd needs to run. At a terminal it draws the list anew until\n" +
			"Ctrl-C; elsewhere it prints one list and ends. CPU is in cores, disk in bytes a second; - is what\n" +
			"can't be measured here, and the last lines say why.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "every", Value: "2s", Usage: "draw it every `DURATION`, 1s or more"},
			&cli.StringFlag{Name: "sort", Value: "cpu", Usage: "the `COLUMN` that comes first is largest: cpu, memory, read, written or job"},
		}, table.Flags()...),
		Action: top,
	}
}

func top(c *cli.Context) error {
	var every unit.Duration
	if err := every.UnmarshalText([]byte(c.String("every"))); err != nil || time.Duration(every) < time.Second || time.Duration(every) > time.Hour {
		return shell.Usagef("option --every: %q: want 1s to 1h", c.String("every"))
	}
	by := c.String("sort")
	if _, ok := orders()[by]; !ok {
		return shell.Usagef("option --sort: %q: want cpu, memory, read, written or job", by)
	}
	format, err := table.FormatOf(c)
	if err != nil {
		return err
	}
	argv, err := gpuCommand(time.Duration(every))
	if err != nil {
		return err
	}
	s := measure.New(measure.Options{GPUs: gpu.Start(c.Context, time.Duration(every), argv, nil).Last})
	defer s.Close()
	t := &topView{sampler: s, by: by, users: map[int]string{}}
	if terminal := shell.TerminalOf(c.App.Writer); terminal != nil && format == table.Text {
		view, err := screen.Open(terminal)
		if err != nil {
			return err
		}
		defer view.Close()
		return t.watch(c.Context, time.Duration(every), view)
	}
	t.measure(time.Now())
	if err := clock.Sleep(c.Context, time.Second); err != nil {
		return err
	}
	t.measure(time.Now())
	if err := table.Print(c.App.Writer, format, t.table(), t.answer()); err != nil || format != table.Text {
		return err
	}
	for _, line := range t.lacks() {
		fmt.Fprintln(c.App.Writer, line)
	}
	return nil
}

// topView is the last two samples.
type topView struct {
	sampler   *measure.Sampler
	by        string
	users     map[int]string
	now, last measure.Sample
}

func (t *topView) measure(now time.Time) { t.last, t.now = t.now, t.sampler.Sample(now) }

// watch draws until the context ends.
func (t *topView) watch(ctx context.Context, every time.Duration, view *screen.Screen) error {
	t.measure(time.Now())
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := view.Draw(t.lines()); err != nil {
			return err
		}
		select {
		case <-ticker.C:
			t.measure(time.Now())
		case <-view.Resized:
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *topView) lines() []string {
	head := t.now.At.Local().Format("15:04:05") + "  " + printable.Count(len(t.now.Jobs), "job") + ", sorted by " + t.by + "  (Ctrl-C ends)"
	var b bytes.Buffer
	if len(t.now.Jobs) > 0 {
		_ = table.Print(&b, table.Text, t.table(), nil) // a buffer takes everything
	}
	lines := []string{head}
	if b.Len() > 0 {
		lines = append(lines, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
	}
	return append(lines, t.lacks()...)
}

func (t *topView) lacks() (lines []string) {
	for _, l := range t.now.Lacks {
		lines = append(lines, shell.OneLine(fmt.Sprintf("not measured here: %s of %d: %s", l.Figure, l.N, l.Why)))
	}
	return lines
}

// used is what a job used between two samples, and the job. A rate is absent without an
// earlier sample.
type used struct {
	*measure.Job
	cores, read, written float64 // a second; below 0: absent
}

// orders are what jobs can be sorted by.
func orders() map[string]func(a, b used) int {
	return map[string]func(a, b used) int{
		"cpu":     func(a, b used) int { return cmp.Compare(b.cores, a.cores) },
		"memory":  func(a, b used) int { return cmp.Compare(b.Memory.N, a.Memory.N) },
		"read":    func(a, b used) int { return cmp.Compare(b.read, a.read) },
		"written": func(a, b used) int { return cmp.Compare(b.written, a.written) },
		"job":     func(used, used) int { return 0 },
	}
}

// sorted returns what the jobs used between two samples, sorted; equal ones by queue and ID.
func sorted(last, now *measure.Sample, by string) []used {
	before := make(map[measure.Key]*measure.Job, len(last.Jobs))
	for i := range last.Jobs {
		before[last.Jobs[i].Key] = &last.Jobs[i]
	}
	seconds := now.At.Sub(last.At).Seconds()
	rate := func(a, b measure.Value) float64 {
		if perSecond, known := b.Rise(a, seconds); known {
			return perSecond
		}
		return -1
	}
	all := make([]used, len(now.Jobs))
	for i := range now.Jobs {
		j := &now.Jobs[i]
		all[i] = used{j, -1, -1, -1}
		if was := before[j.Key]; was != nil {
			all[i].cores = rate(was.CPU, j.CPU) / 1e9
			reads, writes := bytesOf(was)
			reads2, writes2 := bytesOf(j)
			all[i].read, all[i].written = rate(reads, reads2), rate(writes, writes2)
		}
	}
	slices.SortStableFunc(all, orders()[by])
	return all
}

// bytesOf sums a job's disks.
func bytesOf(j *measure.Job) (read, written measure.Value) {
	for _, d := range j.Disks {
		read.N, written.N = read.N+d.ReadBytes.N, written.N+d.WrittenBytes.N
	}
	read.Known, written.Known = j.Disks != nil, j.Disks != nil
	return read, written
}

func (t *topView) table() *table.Table {
	columns := []string{"queue", "job", "user", "cpu", "memory", "peak", "swap", "read", "written", "processes", "threads"}
	if len(t.now.GPUs) > 0 {
		columns = append(columns, "gpu", "gpumem")
	}
	out := table.New(columns...)
	for _, u := range sorted(&t.last, &t.now, t.by) {
		cores := "-"
		if u.cores >= 0 {
			cores = fmt.Sprintf("%.2f", u.cores)
		}
		row := []any{u.Queue, u.IDText(), t.user(u.User), cores, size(u.Memory), size(u.Peak), size(u.Swap), perSecond(u.read), perSecond(u.written), count(u.Processes), count(u.Threads)}
		if len(t.now.GPUs) > 0 {
			row = append(row, gpusOf(u.GPU.SM), size(u.GPU.Memory))
		}
		out.Row(row...)
	}
	return out
}

// gpusOf is the number of GPUs that a job keeps busy, of per cent of one.
func gpusOf(sm measure.Value) string {
	if !sm.Known {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(sm.N)/100)
}

func size(v measure.Value) string {
	if !v.Known {
		return "-"
	}
	return unit.Size(min(v.N, 1<<62)).Short()
}

func perSecond(rate float64) string {
	if rate < 0 {
		return "-"
	}
	return unit.Size(rate).Short()
}

// user returns a user's name, or the ID where there is none.
func (t *topView) user(uid int) string {
	if uid == measure.NoUser {
		return "-"
	}
	name, ok := t.users[uid]
	if !ok {
		name = fmt.Sprint(uid)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		t.users[uid] = name
	}
	return name
}

// jobView is a job as --json prints it. It has no field for a figure that is absent.
type jobView struct {
	Queue     measure.Queue  `json:"queue"`
	Job       string         `json:"job"`
	User      string         `json:"user"`
	Source    measure.Source `json:"source"`
	Cores     *float64       `json:"cores,omitempty"`
	CPU       *float64       `json:"cpu_seconds,omitempty"`
	Memory    *uint64        `json:"memory_bytes,omitempty"`
	Cache     *uint64        `json:"memory_cache_bytes,omitempty"`
	Peak      *uint64        `json:"memory_peak_bytes,omitempty"`
	Swap      *uint64        `json:"swap_bytes,omitempty"`
	Read      *uint64        `json:"read_bytes,omitempty"`
	Written   *uint64        `json:"written_bytes,omitempty"`
	Processes *uint64        `json:"processes,omitempty"`
	Threads   *uint64        `json:"threads,omitempty"`
	GPUs      *uint64        `json:"gpus,omitempty"`
	GPUBusy   *float64       `json:"gpus_busy,omitempty"`
	GPUMemory *uint64        `json:"gpu_memory_bytes,omitempty"`
}

type lackView struct {
	Figure measure.Figure `json:"figure"`
	Of     int            `json:"of"`
	Why    string         `json:"why"`
}

type answer struct {
	At    time.Time  `json:"at"`
	Jobs  []jobView  `json:"jobs"`
	Lacks []lackView `json:"lacks"`
}

func (t *topView) answer() answer {
	a := answer{At: t.now.At, Jobs: []jobView{}, Lacks: []lackView{}}
	for _, u := range sorted(&t.last, &t.now, t.by) {
		read, written := bytesOf(u.Job)
		v := jobView{
			Queue: u.Queue, Job: u.IDText(), User: t.user(u.User), Source: u.Source,
			Memory: orNil(u.Memory), Cache: orNil(u.Cache), Peak: orNil(u.Peak), Swap: orNil(u.Swap),
			Read: orNil(read), Written: orNil(written), Processes: orNil(u.Processes), Threads: orNil(u.Threads),
		}
		if u.cores >= 0 {
			v.Cores = &u.cores
		}
		v.GPUs, v.GPUMemory = orNil(u.GPU.Devices), orNil(u.GPU.Memory)
		if u.GPU.SM.Known {
			busy := float64(u.GPU.SM.N) / 100
			v.GPUBusy = &busy
		}
		if u.CPU.Known {
			seconds := float64(u.CPU.N) / 1e9
			v.CPU = &seconds
		}
		a.Jobs = append(a.Jobs, v)
	}
	for _, l := range t.now.Lacks {
		a.Lacks = append(a.Lacks, lackView{l.Figure, l.N, l.Why})
	}
	return a
}

func orNil(v measure.Value) *uint64 {
	if !v.Known {
		return nil
	}
	return &v.N
}
