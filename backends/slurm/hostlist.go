package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// formatHosts writes a list of hosts as Slurm does, which parseHosts reads: n[1-3,7],m.
func formatHosts(hosts []string) string {
	type host struct {
		head  string // what its number follows
		width int    // digits of the number; 0: there is none
		n     uint64
	}
	all := make([]host, 0, len(hosts))
	for _, name := range hosts {
		head := strings.TrimRight(name, "0123456789")
		n, err := strconv.ParseUint(name[len(head):], 10, 32)
		if err != nil { // no number, or a long one
			all = append(all, host{head: name})
			continue
		}
		all = append(all, host{head, len(name) - len(head), n})
	}
	slices.SortFunc(all, func(a, b host) int {
		return cmp.Or(cmp.Compare(a.head, b.head), cmp.Compare(a.width, b.width), cmp.Compare(a.n, b.n))
	})
	var groups []string
	for i := 0; i < len(all); {
		first := all[i]
		var ranges []string
		for i < len(all) && all[i].head == first.head && all[i].width == first.width {
			from := all[i].n
			to := from
			for i++; i < len(all) && all[i].head == first.head && all[i].width == first.width && all[i].n <= to+1; i++ {
				to = all[i].n
			}
			part := fmt.Sprintf("%0*d", first.width, from)
			if to > from {
				part += fmt.Sprintf("-%0*d", first.width, to)
			}
			ranges = append(ranges, part)
		}
		switch text := strings.Join(ranges, ","); {
		case first.width == 0:
			groups = append(groups, first.head)
		case len(ranges) == 1 && !strings.Contains(text, "-"):
			groups = append(groups, first.head+text)
		default:
			groups = append(groups, first.head+"["+text+"]")
		}
	}
	return strings.Join(groups, ",")
}
