package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// places is where the jobs of a trace may run: on hosts of the partition that each ran in,
// which have the resources that it had. What no host of the farm has is not looked at.
type places struct {
	partitions map[string]string // the feature of a host that stands for each; empty: the hosts are in none
	resources  map[string]string // name that the queue knows each by
	farms      [][]backends.Host // by account, what dedicated leaves it; nil: that is not asked for
	hosts      []backends.Host
	known      map[string][2]string // by what jobs ask for, why the farm can't meet it, and why dedicated can't

	unplaced  int            // jobs of a partition, on hosts that are in none
	uncounted map[string]int // jobs by resource that no host has
}

// Why a job can't run, the last under dedicated alone.
const (
	noPartition = "no host of the farm is in its partition"
	noHosts     = "the hosts of its partition can't hold it, with the resources that it had"
	noFence     = "the hosts that dedicated leaves it can't hold it in its partition, with the resources that it had"
)

// newPlaces gives partitions, which are the features of hosts, and resources names that
// the queue knows. It returns the hosts as the queue sees them.
func newPlaces(hosts []backends.Host) (*places, []backends.Host) {
	p := &places{partitions: map[string]string{}, resources: map[string]string{}, known: map[string][2]string{}, uncounted: map[string]int{}}
	hosts = slices.Clone(hosts)
	for i := range hosts {
		h := &hosts[i]
		var features []string
		for _, name := range h.Features {
			if p.partitions[name] == "" {
				p.partitions[name] = "p" + strconv.Itoa(len(p.partitions))
			}
			features = append(features, p.partitions[name])
		}
		h.Features = features
		h.Has = slices.Clone(h.Has)
		for k, a := range h.Has {
			if p.resources[a.Name] == "" {
				p.resources[a.Name] = "r" + strconv.Itoa(len(p.resources))
			}
			h.Has[k].Name = p.resources[a.Name]
		}
	}
	p.hosts = hosts
	return p, hosts
}

// place sets where a job may run, and what it needs on each host.
func (p *places) place(a *arrival, r *trace.Record) {
	if len(p.partitions) > 0 && r.Partition != "" {
		a.feature = p.partitions[r.Partition]
		a.nowhere = a.feature == ""
	}
	nodes := max(r.Nodes, 1)
	for _, u := range r.Units {
		if name := p.resources[u.Name]; name != "" {
			a.needs = append(a.needs, backends.Amount{Name: name, Count: (u.Count + nodes - 1) / nodes})
		}
	}
	a.oneHost = len(a.needs) > 0 && r.Nodes == 1
}

// note counts what of a job is not looked at.
func (p *places) note(r *trace.Record) {
	if len(p.partitions) == 0 && r.Partition != "" {
		p.unplaced++
	}
	for _, u := range r.Units {
		if p.resources[u.Name] == "" {
			p.uncounted[u.Name]++
		}
	}
}

// notes says what of the trace was not looked at.
func (p *places) notes() []string {
	var all []string
	if p.unplaced > 0 {
		all = append(all, printable.Count(p.unplaced, "job")+" of some partition: the farm's hosts are in none, so any host will do (give partitions in the file of --farm)")
	}
	names := make([]string, 0, len(p.uncounted))
	for name := range p.uncounted {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 10 {
			all = append(all, printable.Count(len(names)-i, "other resource")+" not counted either")
			break
		}
		all = append(all, fmt.Sprintf("%s with the resource %s, which no host of the farm has: it is not counted", printable.Count(p.uncounted[name], "job"), strconv.Quote(name)))
	}
	return all
}

// whyNever returns why the farm could never run a job; "": it could.
func (p *places) whyNever(a *arrival) string {
	if a.nowhere {
		return noPartition
	}
	return p.whyNot(a)[0]
}

// whyNoFence returns why dedicated could never run a job that the farm could; "": it could.
func (p *places) whyNoFence(a *arrival) string { return p.whyNot(a)[1] }

func (p *places) whyNot(a *arrival) (why [2]string) {
	if a.feature == "" && len(a.needs) == 0 {
		return why
	}
	key := fmt.Sprint(a.account, a.feature, a.needs, a.slots, a.memory, a.oneHost)
	why, seen := p.known[key]
	if !seen {
		if len(p.known) > 10_000 { // users choose the keys
			clear(p.known)
		}
		switch {
		case !a.fits(p.hosts):
			why[0] = noHosts
		case p.farms != nil && !a.fits(p.farms[a.account]):
			why[1] = noFence
		}
		p.known[key] = why
	}
	return why
}

// fits reports whether hosts could hold a job if they were empty.
func (a *arrival) fits(hosts []backends.Host) bool {
	perSlot := (a.memory + int64(a.slots) - 1) / int64(a.slots)
	sum := 0
	for i := range hosts {
		h := &hosts[i]
		if a.feature != "" && !slices.Contains(h.Features, a.feature) || !hasAll(h, a.needs) {
			continue
		}
		n := h.Slots
		if perSlot > 0 && h.Memory > 0 {
			n = int(min(int64(n), h.Memory/perSlot))
		}
		if sum += n; n >= a.slots || !a.oneHost && sum >= a.slots {
			return true
		}
	}
	return false
}

func hasAll(h *backends.Host, needs []backends.Amount) bool {
	return !slices.ContainsFunc(needs, func(need backends.Amount) bool {
		return !slices.ContainsFunc(h.Has, func(has backends.Amount) bool { return has.Name == need.Name && has.Count >= need.Count })
	})
}

// splitHas divides the resources of a host by its slots between two parts of it.
func splitHas(h, part *backends.Host) {
	h.Has, part.Has = slices.Clone(h.Has), nil
	for i, a := range h.Has {
		n := a.Count * part.Slots / h.Slots
		if n > 0 {
			part.Has = append(part.Has, backends.Amount{Name: a.Name, Count: n})
		}
		h.Has[i].Count -= n
	}
	h.Has = slices.DeleteFunc(h.Has, func(a backends.Amount) bool { return a.Count == 0 })
}

// ReadNodes reads what scontrol show nodes prints: each node's CPUs, memory, gres and
// partitions, of any state. The partitions are the Features of a host. ok is false if the
// text is something else.
func ReadNodes(text string) (hosts []backends.Host, ok bool, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if name, starts := strings.CutPrefix(fields[0], "NodeName="); starts {
			hosts = append(hosts, backends.Host{Name: name})
		} else if len(hosts) == 0 {
			return nil, false, nil
		}
		h := &hosts[len(hosts)-1]
		for _, field := range fields {
			key, value, _ := strings.Cut(field, "=")
			if key == "Reason" || key == "Comment" || key == "Extra" { // people's text
				break
			}
			if err := setNode(h, key, value); err != nil {
				return nil, true, fmt.Errorf("node %s: %w", h.Name, err)
			}
		}
	}
	for i := range hosts {
		if hosts[i].Slots == 0 {
			return nil, true, fmt.Errorf("node %s has no CPUTot= of 1 or more", hosts[i].Name)
		}
	}
	return hosts, len(hosts) > 0, nil
}

func setNode(h *backends.Host, key, value string) (err error) {
	number := func(least int64) int64 {
		n, bad := strconv.ParseInt(value, 10, 40)
		if bad != nil || n < least {
			err = fmt.Errorf("%s=%s is not a number of %d or more", key, value, least)
		}
		return n
	}
	switch key {
	case "CPUTot":
		if n := int(number(1)); h.Slots == 0 {
			h.Slots = n
		}
	case "CPUEfctv": // without those that a site keeps for the system; before CPUTot
		h.Slots = int(number(1))
	case "RealMemory":
		h.Memory = number(0) << 20
	case "Partitions":
		h.Features = append(h.Features, strings.Split(value, ",")...)
	case "Gres":
		h.Has, err = gres(value)
	}
	return err
}

// gres reads a node's list like gpu:a100:2(S:0-1),gpu:1. A count of a type counts for its name,
// too. A count with a suffix, as of bandwidth, and one that is not there are an error.
func gres(list string) ([]backends.Amount, error) {
	sums := map[string]int{}
	for part := range strings.SplitSeq(withoutNotes(list), ",") {
		if part == "" || part == "null" {
			continue
		}
		words := strings.Split(part, ":")
		n, err := strconv.Atoi(words[len(words)-1])
		if err != nil || n < 0 || n > 1<<20 || len(words) < 2 || len(words) > 3 {
			return nil, fmt.Errorf("list %s of Gres: %q is not name:count or name:type:count", list, part)
		}
		sums[words[0]] += n
		if len(words) == 3 {
			sums[words[0]+":"+words[1]] += n
		}
	}
	var all []backends.Amount
	for name, n := range sums {
		if n > 0 {
			all = append(all, backends.Amount{Name: name, Count: n})
		}
	}
	slices.SortFunc(all, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// withoutNotes removes what stands in parentheses, such as sockets.
func withoutNotes(list string) string {
	var b strings.Builder
	depth := 0
	for _, r := range list {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}
