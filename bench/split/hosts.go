package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/test/farm"
)

// cores is each host's quota.
var cores = []float64{0.1, 0.2, 0.4, 0.8}

// total returns the cores of all hosts.
func total() (sum float64) {
	for _, c := range cores {
		sum += c
	}
	return sum
}

func hostName(i int) string { return "node" + strconv.Itoa(i+1) }

// hosts is a bundled queue, each of its nodes in a cgroup.
type hosts struct {
	*farm.Farm
	groups         []group // of the nodes
	dispatchers    group   // of the programs that hand the work out: the queue, asplit, GNU parallel
	nodeProcessors []int   // the nodes' processors
}

var errNoCgroup = errors.New("no cgroup can be made here")

// startHosts starts the queue and puts its nodes into cgroups.
func startHosts(ctx context.Context, programs string) (h *hosts, err error) {
	c, err := thisController()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	processors, err := allowedProcessors()
	if err != nil {
		return nil, err
	}
	h = &hosts{nodeProcessors: assignProcessors(cores, processors)}
	if h.nodeProcessors == nil {
		return nil, fmt.Errorf("hosts of %v cores need more than %d processors", cores, len(processors))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close(ctx))
		}
	}()
	prefix := fmt.Sprintf("allotment-%d-", os.Getpid())
	for i := range cores {
		g, err := c.group(prefix + hostName(i))
		h.groups = append(h.groups, g)
		if err != nil {
			return h, fmt.Errorf("%w: %w: run this as root", errNoCgroup, err)
		}
	}
	if h.dispatchers, err = c.group(prefix + "ours"); err != nil {
		return h, err
	}
	var config strings.Builder
	config.WriteString("miniq: {nodes: [")
	for i := range cores {
		fmt.Fprintf(&config, "\"%s:1:1G\", ", hostName(i))
	}
	config.WriteString("]}\n")
	if h.Farm, err = farm.Start(ctx, farm.Options{Programs: programs, Config: config.String()}); err != nil {
		return h, err
	}
	if _, err := h.Run(ctx, "pba", "init"); err != nil { // the filter has its snapshot
		return h, err
	}
	return h, errors.Join(h.restore(), h.moveNodes(ctx))
}

// restore gives every host its quota.
func (h *hosts) restore() error {
	var err error
	for i, g := range h.groups {
		err = errors.Join(err, g.limit(cores[i]))
	}
	return err
}

// moveNodes moves the queue and each node into its group. What a node starts from now
// on is there too.
func (h *hosts) moveNodes(ctx context.Context) error {
	q := h.Queue().(*miniq.Client)
	defer func() { _ = q.Close() }()
	status, err := q.Status(ctx)
	if err != nil {
		return err
	}
	pids, err := children(status.PID)
	if err != nil {
		return err
	}
	if err := h.dispatchers.add(status.PID); err != nil {
		return err
	}
	for i, g := range h.groups {
		n := slices.IndexFunc(pids, func(pid int) bool { return isNode(pid, hostName(i)) })
		if n < 0 {
			return fmt.Errorf("find the process of %s: miniqd has none\n%s", hostName(i), h.Log())
		}
		if err := errors.Join(g.add(pids[n]), pinProcess(pids[n], h.nodeProcessors[i])); err != nil {
			return err
		}
	}
	return nil
}

// assignProcessors returns a processor for each host, so that hosts do not slow each other: from the
// largest host on, the processor with the least load. nil: they don't fit.
func assignProcessors(cores []float64, processors []int) []int {
	of := make([]int, len(cores))
	load := make([]float64, len(processors))
	for i := len(cores) - 1; i >= 0; i-- {
		least := slices.Index(load, slices.Min(load))
		if load[least] += cores[i]; load[least] > 1 {
			return nil
		}
		of[i] = processors[least]
	}
	return of
}

// allowedProcessors returns the processors that this process may use.
func allowedProcessors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var all []int
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all, nil
}

// pinProcess keeps a process, and all that it will start, on one processor.
func pinProcess(pid, processor int) error {
	var only unix.CPUSet
	only.Set(processor)
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, &only)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("keep process %d on processor %d: %w", pid, processor, err)
		}
	}
	return nil
}

// isNode reports whether a process is the node of this name.
func isNode(pid int, name string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Contains(line, []byte("\x00node\x00--name\x00"+name+"\x00"))
}

// children returns the IDs of a process's children.
func children(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // gone
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ") // the name ends there
		const parentAt = 1
		if fields := strings.Fields(rest); len(fields) > parentAt && fields[parentAt] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (h *hosts) close(ctx context.Context) error {
	var err error
	if h.Farm != nil {
		err = h.Close()
	}
	for _, g := range append(h.groups, h.dispatchers) {
		err = errors.Join(err, g.close(context.WithoutCancel(ctx)))
	}
	return err
}
