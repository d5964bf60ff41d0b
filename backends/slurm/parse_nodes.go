package slurm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Fields of sinfo, one line for each node in each of its partitions.
const (
	nName = iota
	nCPUs
	nMemory
	nState
	nQueue
	nTier
	nLimit
	nAvailable
	nSizes
	nMostCPUs
	nThreads
	nFeatures
	nGres
	nGresUsed
	nodeFieldCount
)

var sinfoFields = [nodeFieldCount]string{
	nName: "NodeList", nCPUs: "CPUs", nMemory: "Memory", nState: "StateCompact", nQueue: "Partition", nTier: "PriorityTier", nLimit: "Time",
	nAvailable: "Available", nSizes: "Size", nMostCPUs: "MaxCPUsPerNode", nThreads: "Threads", nFeatures: "features_act", nGres: "Gres", nGresUsed: "GresUsed",
}

// layout is what sinfo shows: the hosts, and the partitions.
type layout struct {
	hosts  []backends.Host
	queues []backends.Queue         // LevelLow: its jobs go after those of the default one
	within map[string][]string      // partitions of a host: those of the highest tier first, and of these the default one
	limits map[string]time.Duration // of a partition's jobs; missing: none
	parts  map[string]*partitionNodes
	nodes  map[string]*node
}

// partitionNodes is what decides whether a job may run in a partition, and where.
type partitionNodes struct {
	hosts    []string // in order of their names once sinfo's lines are read
	up       bool     // it starts jobs
	most     int      // hosts of a job; 0: no limit
	mostCPUs bool     // it limits the CPUs that its jobs have on a node
}

// node is what decides whether a job may run on a host, beside its slots and memory.
type node struct {
	threads  int // of each core: a job has whole cores
	features map[string]bool
	used     map[string]int // of what it has, by name
}

// parseNodes reads sinfo's lines.
func parseNodes(out []byte, nonce string) (*layout, error) {
	lines, err := rows(out, nonce, nodeFieldCount)
	if err != nil {
		return nil, fmt.Errorf("sinfo: %w", err)
	}
	l := layout{within: map[string][]string{}, limits: map[string]time.Duration{}, parts: map[string]*partitionNodes{}, nodes: map[string]*node{}}
	known, tiers := map[string]bool{}, map[string]int64{}
	defaultTier, defaultQueue := int64(-1), ""
	for _, f := range lines {
		slots, err1 := strconv.ParseUint(f[nCPUs], 10, 31)
		size, err2 := strconv.ParseInt(f[nMemory], 10, 43)
		tier, err3 := strconv.ParseInt(f[nTier], 10, 64)
		state, err := parseHostState(f[nState])
		limit, err4 := parseDuration(f[nLimit])
		if err = errors.Join(err1, err2, err3, err4, err); err != nil {
			return nil, fmt.Errorf("sinfo: %w, in the line %s", err, shown(strings.Join(f, "|")))
		}
		queue, isDefault := strings.CutSuffix(f[nQueue], "*")
		if _, ok := tiers[queue]; !ok && queue != "" {
			tiers[queue] = tier
			l.queues = append(l.queues, backends.Queue{Name: queue, Default: isDefault})
			l.parts[queue] = &partitionNodes{up: f[nAvailable] == "up", most: mostHosts(f[nSizes]), mostCPUs: f[nMostCPUs] != "UNLIMITED"}
		}
		if p := l.parts[queue]; p != nil {
			p.hosts = append(p.hosts, f[nName])
		}
		if limit > 0 {
			l.limits[queue] = limit
		}
		l.within[f[nName]] = append(l.within[f[nName]], queue)
		if isDefault {
			defaultTier, defaultQueue = tier, queue
		}
		if known[f[nName]] {
			continue
		}
		known[f[nName]] = true
		threads, _ := strconv.Atoi(f[nThreads])
		has, used := parseGres(f[nGres]), parseGres(f[nGresUsed])
		l.nodes[f[nName]] = &node{threads: max(threads, 1), features: set(strings.Split(absent(f[nFeatures]), ",")), used: counts(used)}
		l.hosts = append(l.hosts, backends.Host{Name: f[nName], Slots: int(slots), Memory: size << 20, State: state, Has: has})
	}
	for _, p := range l.parts {
		slices.Sort(p.hosts)
		p.hosts = slices.Compact(p.hosts)
	}
	for _, there := range l.within { // sinfo's order is any
		slices.SortFunc(there, func(a, b string) int {
			switch {
			case tiers[a] != tiers[b]:
				return cmp.Compare(tiers[b], tiers[a])
			case a == defaultQueue:
				return -1
			case b == defaultQueue:
				return 1
			}
			return strings.Compare(a, b)
		})
	}
	for i := range l.queues {
		if tiers[l.queues[i].Name] < defaultTier {
			l.queues[i].Level = backends.LevelLow
		}
	}
	return &l, nil
}

// mostHosts reads the most hosts of a job from "1-infinite", "1-4" or "1"; 0: no limit.
func mostHosts(size string) int {
	_, last, isRange := strings.Cut(size, "-")
	if !isRange {
		last = size
	}
	n, _ := strconv.Atoi(last) // infinite: 0
	return max(n, 0)
}

func set(words []string) map[string]bool {
	all := make(map[string]bool, len(words))
	for _, w := range words {
		if w != "" {
			all[w] = true
		}
	}
	return all
}

// parseHostState reads a node's compact state with its flag.
func parseHostState(s string) (backends.HostState, error) {
	base := strings.TrimRight(s, "*~#!%$@^-+")
	flags := s[len(base):]
	switch base {
	case "down", "fail", "failg", "unk", "inval", "futr", "boot", "pow_dn", "pow_up":
		return backends.HostDown, nil
	case "drain", "drng", "maint", "npc", "resv", "block", "blocked":
		if strings.Contains(flags, "*") {
			return backends.HostDown, nil
		}
		return backends.HostClosed, nil
	case "idle", "mix", "alloc", "comp", "plnd":
	default:
		return 0, fmt.Errorf("unknown state of a host %q", s)
	}
	switch {
	case strings.ContainsAny(flags, "*~%!"): // no answer; powered down, or about to be
		return backends.HostDown, nil
	case strings.ContainsAny(flags, "#$@^"): // powering up, in maintenance, to be booted
		return backends.HostClosed, nil
	}
	return backends.HostUp, nil
}

// parseAt reads the queue's clock from the first line of `scontrol show config`.
func parseAt(config []byte) (time.Time, error) {
	line, _, _ := bytes.Cut(config, []byte("\n"))
	at, ok := strings.CutPrefix(string(line), "Configuration data as of ")
	t, err := parseTime(at)
	if !ok || err != nil || t.IsZero() {
		return time.Time{}, fmt.Errorf("scontrol show config: no time in the line %s", shown(string(line)))
	}
	return t, nil
}

// clockAt returns the queue's clock at the moment when it was asked for its time, from
// its answer, in whole seconds, and how long that took. Where this machine's clock
// agrees with the answer it returns that clock's time, which is finer.
func clockAt(asked time.Time, took time.Duration, reported time.Time) time.Time {
	at, latest := reported.Add(-took), reported.Add(time.Second-1)
	switch {
	case asked.After(latest):
		return latest
	case asked.After(at):
		return asked.UTC()
	}
	return at
}

// reasonFields are those of sinfo for why nodes take no jobs.
var reasonFields = []string{"NodeList", "StateCompact", "UserLong", "Timestamp", "Reason"}

// parseReasons reads why nodes take no jobs. A node is listed once for each of its partitions.
func parseReasons(out []byte, nonce string) (map[string]string, error) {
	lines, err := rows(out, nonce, len(reasonFields))
	if err != nil {
		return nil, fmt.Errorf("sinfo: %w", err)
	}
	reasons := map[string]string{}
	for _, f := range lines {
		user, _, _ := strings.Cut(absent(f[2]), "(") // root(0)
		reason := absent(f[4])
		if reason == "none" || user == "Unknown" {
			user = ""
		}
		if reason == "none" {
			reason = ""
		}
		if reason == "" && user == "" {
			continue
		}
		at, _ := parseTime(f[3]) // a time that is not understood is left out
		text := strings.TrimRight(f[1], "*~#!%$@^-+")
		if user != "" {
			text += " by " + user
		}
		if !at.IsZero() {
			text += " at " + at.UTC().Format("2006-01-02 15:04 UTC")
		}
		if reason != "" {
			text += ": " + reason
		}
		reasons[f[0]] = text
	}
	return reasons, nil
}
