package lsf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// statics is what lshosts shows of a host: what does not change with its load.
type statics struct {
	memory      int64 // bytes; 0: not known
	kind, model string
	numbers     map[string]interval // cpuf, ncpus, maxmem, maxswp, as far as they are known
	resources   map[string]string   // boolean ones with "", others with their values
	exclusive   []string            // boolean ones that a job must ask for to run here
}

// interval is where a number lies that was printed with few digits.
type interval struct{ least, most float64 }

// parseStatics reads `lshosts -w`.
func parseStatics(out []byte) (map[string]statics, error) {
	header, lines, err := table(out, "HOST_NAME")
	if err != nil {
		return nil, err
	}
	if header["maxmem"] == 0 {
		return nil, errors.New("no column maxmem")
	}
	all := make(map[string]statics, len(lines))
	for _, fields := range lines {
		field := func(name string) string {
			if at := header[name]; at > 0 && at < len(fields) {
				return fields[at]
			}
			return ""
		}
		s := statics{kind: field("type"), model: field("model"), numbers: map[string]interval{}, resources: map[string]string{}}
		switch text := field("maxmem"); text {
		case "":
			return nil, fmt.Errorf("no maxmem in the line %s", shown(strings.Join(fields, " ")))
		case "-":
		default:
			if s.memory, err = parseSize(text, 1<<20); err != nil {
				return nil, fmt.Errorf("%w, in the line %s", err, shown(strings.Join(fields, " ")))
			}
		}
		for _, name := range []string{"cpuf", "ncpus", "maxmem", "maxswp"} {
			if number, ok := parseInterval(field(name)); ok {
				s.numbers[name] = number
			}
		}
		if at := header["RESOURCES"]; at > 0 && at < len(fields) {
			for name := range strings.FieldsSeq(strings.Trim(strings.Join(fields[at:], " "), "()")) {
				name, exclusive := strings.CutPrefix(name, "!")
				name, value, _ := strings.Cut(name, "=")
				if s.resources[name] = value; exclusive {
					s.exclusive = append(s.exclusive, name)
				}
			}
		}
		all[fields[0]] = s
	}
	return all, nil
}

// parseInterval reads a number as LSF prints it: 16, 12.5, 24105M, 31.2G; sizes are in
// bytes. It may be off by half of its last digit, but for a whole number or one of MB.
func parseInterval(text string) (interval, bool) {
	digits := strings.TrimRight(text, "KMGTPE")
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil || len(text)-len(digits) > 1 || strings.Trim(digits, "0123456789.") != "" {
		return interval{}, false
	}
	unit, half := 1.0, 0.0
	if letter := text[len(digits):]; letter != "" {
		unit = float64(int64(1) << (10 * (1 + strings.Index("KMGTPE", letter))))
	}
	if _, decimals, ok := strings.Cut(digits, "."); ok {
		half = math.Pow10(-len(decimals)) / 2
	} else if unit > 1<<20 {
		half = 0.5
	}
	return interval{(number - half) * unit, (number + half) * unit}, true
}

// holds reports whether a comparison is true wherever the number lies.
func (n interval) holds(operator string, value float64) bool {
	switch operator {
	case ">=":
		return n.least >= value
	case ">":
		return n.least > value
	case "<=":
		return n.most <= value
	case "<":
		return n.most < value
	case "==":
		return n.least == value && n.most == value
	case "!=":
		return n.most < value || n.least > value
	}
	return false
}

// counts are amounts of resources, by name and host.
type counts map[string]map[string]int

// parseShared reads `bhosts -s`: numeric resources, what is left of each and reserved by
// jobs, and the hosts that share it. (TOTAL is "the total amount free of a resource used
// for scheduling": IBM Spectrum LSF 10.1, bhosts, Resource-based output.) It returns those
// that each host has for itself; one that hosts share, or that is no whole number, is left
// out. A line that begins with a blank goes on with the hosts of the one before.
func parseShared(out []byte) (counts, error) {
	found, wrong := counts{}, map[string]bool{}
	name, total, hosts := "", 0.0, []string(nil)
	add := func() {
		switch whole := int(total); {
		case name == "":
		case len(hosts) != 1 || float64(whole) != total || whole < 0 || whole > maxSlots:
			wrong[name] = true
		default:
			if found[name] == nil {
				found[name] = map[string]int{}
			}
			found[name][hosts[0]] += whole
		}
	}
	lines := strings.Split(string(out), "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "RESOURCE TOTAL RESERVED LOCATION" {
		return nil, fmt.Errorf("bhosts -s: want a table of RESOURCE: %s", shown(string(out)))
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case line[0] == ' ':
			hosts = append(hosts, fields...)
		case len(fields) < 3:
			return nil, fmt.Errorf("bhosts -s: %s", shown(line))
		default:
			add()
			free, err := strconv.ParseFloat(fields[1], 64)
			reserved, err2 := strconv.ParseFloat(fields[2], 64)
			if name, total, hosts = fields[0], free+reserved, fields[3:]; err != nil || err2 != nil {
				total = -1 // "-": not known
			}
		}
	}
	add()
	for name := range wrong {
		delete(found, name)
	}
	return found, nil
}

// parseGPUs counts GPUs in `lshosts -gpu`, a line each; the lines of a host's others begin
// with blanks (IBM Spectrum LSF 10.1, lsf_gpu_lshosts).
func parseGPUs(out []byte) (map[string]int, error) {
	lines := strings.Split(string(out), "\n")
	if fields := strings.Fields(lines[0]); len(fields) < 2 || fields[0] != "HOST_NAME" || fields[1] != "gpu_id" {
		return nil, fmt.Errorf("lshosts -gpu: want a table of HOST_NAME and gpu_id: %s", shown(string(out)))
	}
	found, host := map[string]int{}, ""
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if line[0] != ' ' {
			host, fields = fields[0], fields[1:]
		}
		if host == "" || len(fields) == 0 {
			return nil, fmt.Errorf("lshosts -gpu: %s", shown(line))
		}
		if fields[0] == "-" {
			continue
		}
		if _, err := strconv.ParseUint(fields[0], 10, 16); err != nil {
			return nil, fmt.Errorf("lshosts -gpu: gpu_id: %w, in the line %s", err, shown(line))
		}
		found[host]++
	}
	return found, nil
}

// parseArrays reads from `bjobs -A -w` how many elements of each array may run at a time,
// 0 for no limit: the number after % in ARRAY_SPEC. A name may have blanks and lines of
// its own. An array that stands there twice may be forged, and is left out.
func parseArrays(out []byte) map[int64]int {
	limits, seen := map[int64]int{}, map[int64]int{}
	for line := range strings.Lines(string(out)) {
		const after = 9 // OWNER, NJOBS PEND DONE RUN EXIT SSUSP USUSP PSUSP
		fields := strings.Fields(line)
		if len(fields) < after+2 {
			continue
		}
		id, err := backends.ParseID(fields[0])
		if err != nil || id.Index != 0 {
			continue
		}
		if seen[id.Job]++; seen[id.Job] > 1 {
			delete(limits, id.Job)
			continue
		}
		spec := fields[len(fields)-after-1]
		_, limit, limited := cutLast(spec, "]%")
		n, err := strconv.ParseUint(limit, 10, 20)
		switch {
		case limited && err == nil && n > 0:
			limits[id.Job] = int(n)
		case strings.HasSuffix(spec, "]"):
			limits[id.Job] = 0
		}
	}
	return limits
}
