package lsf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// parseQueueHosts reads from `bqueues -l` the words after HOSTS: of each queue. Only
// administrators write there; a line of a description begins with blanks.
func parseQueueHosts(text []byte) map[string][]string {
	hosts := map[string][]string{}
	queue := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \r\n")
		if name, ok := strings.CutPrefix(line, "QUEUE: "); ok {
			queue = strings.TrimSpace(name)
		} else if list, ok := strings.CutPrefix(line, "HOSTS:"); ok && queue != "" && hosts[queue] == nil {
			hosts[queue] = allInWords(strings.Fields(list))
		}
	}
	return hosts
}

// parseRequeueValues reads from `bqueues -l` the REQUEUE_EXIT_VALUES of each queue that has
// any: "30 EXCLUDE(20)", "all ~1 ~2"
// (https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=queuing-automatic-job-re).
func parseRequeueValues(text []byte) map[string]exitValues {
	values := map[string]exitValues{}
	queue := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \r\n")
		if name, ok := strings.CutPrefix(line, "QUEUE: "); ok {
			queue = strings.TrimSpace(name)
		} else if list, ok := strings.CutPrefix(line, "REQUEUE_EXIT_VALUES:"); ok && queue != "" {
			values[queue] = parseExitValues(list)
		}
	}
	return values
}

// parseExitValues reads such a list. EXCLUDE only bars the host where the job failed.
func parseExitValues(list string) (v exitValues) {
	for _, word := range strings.Fields(strings.NewReplacer("EXCLUDE", " ", "(", " ", ")", " ").Replace(strings.ToUpper(list))) {
		number, not := strings.CutPrefix(word, "~")
		n, err := strconv.Atoi(number)
		switch {
		case word == "ALL":
			v.all = true
		case err != nil:
		case not:
			v.but = append(v.but, n)
		default:
			v.exact = append(v.exact, n)
		}
	}
	return v
}

// allInWords returns all for "all hosts used by the … system", as older versions print it.
func allInWords(list []string) []string {
	if len(list) > 3 && slices.Equal(list[:4], []string{"all", "hosts", "used", "by"}) {
		return list[:1]
	}
	return list
}

// parseGroups reads the members of host groups from `bmgroup -w`: a group's name, then its
// hosts. The name of a group within a group ends in a slash.
func parseGroups(text []byte) (map[string][]string, error) {
	header, lines, err := table(text, "GROUP_NAME")
	if err != nil {
		return nil, fmt.Errorf("bmgroup: %w", err)
	}
	if header["HOSTS"] != 1 {
		return nil, fmt.Errorf("bmgroup: want GROUP_NAME and HOSTS: %s", shown(string(text)))
	}
	groups := make(map[string][]string, len(lines))
	for _, fields := range lines {
		groups[fields[0]] = allInWords(fields[1:])
	}
	return groups, nil
}

// hostLists resolves lists of hosts, as HOSTS of a queue and bsub -m have them.
type hostLists struct {
	hosts  []string // all hosts, in order
	known  map[string]bool
	groups map[string][]string
}

// resolve returns the hosts of a list: hosts and groups, each with +n if some are
// preferred, ~ before those that are left out, all, others, none. all is true if these are
// all hosts. wrong is the part that is not understood.
func (l *hostLists) resolve(list []string) (hosts []string, all bool, wrong string) {
	in, out := map[string]bool{}, map[string]bool{}
	seen := [2]map[string]bool{{}, {}}
	for _, word := range list {
		name, _, _ := strings.Cut(word, "+")
		into, groups := in, seen[0]
		if rest, not := strings.CutPrefix(name, "~"); not {
			name, into, groups = rest, out, seen[1]
		}
		switch name {
		case "all", "others": // others: those that the list does not name
			if into = in; strings.HasPrefix(word, "~") {
				return nil, false, word
			}
			for _, host := range l.hosts {
				into[host] = true
			}
		case "none":
			if len(list) > 1 {
				return nil, false, word
			}
		default:
			if !l.add(into, name, groups) {
				return nil, false, word
			}
		}
	}
	if len(in) == 0 && len(out) > 0 {
		return nil, false, strings.Join(list, " ")
	}
	for _, host := range l.hosts {
		if in[host] && !out[host] {
			hosts = append(hosts, host)
		}
	}
	return hosts, len(hosts) == len(l.hosts), ""
}

// add adds a host, or a group's hosts. seen are the groups that it has added.
func (l *hostLists) add(into map[string]bool, name string, seen map[string]bool) bool {
	name = strings.TrimSuffix(name, "/")
	if l.known[name] {
		into[name] = true
		return true
	}
	members, ok := l.groups[name]
	if !ok || seen[name] {
		return ok
	}
	seen[name] = true
	for _, member := range members {
		if member == "all" {
			for _, host := range l.hosts {
				into[host] = true
			}
		} else if !l.add(into, member, seen) {
			return false
		}
	}
	return true
}

// namesGroup reports whether a list has a word that is neither a host nor one of LSF's own.
func (l *hostLists) namesGroup(list []string) bool {
	for _, word := range list {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "~"), "+")
		switch name {
		case "all", "others", "none":
		default:
			if !l.known[name] {
				return true
			}
		}
	}
	return false
}

func newHostLists(hosts []listedHost) *hostLists {
	l := &hostLists{known: make(map[string]bool, len(hosts))}
	for _, h := range hosts {
		if h.Slots > 0 {
			l.hosts = append(l.hosts, h.Name)
		}
		l.known[h.Name] = true
	}
	return l
}

// hostSets keeps one HostSet for all lists of the same hosts.
type hostSets map[string]*backends.HostSet

func (s hostSets) of(hosts []string) *backends.HostSet {
	key := strings.Join(hosts, " ")
	if s[key] == nil {
		s[key] = &backends.HostSet{Hosts: hosts}
	}
	return s[key]
}
