package lsf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// table splits the output of bhosts, lshosts or bqueues -w into lines of fields, and
// returns the position of each name in its header, of which the first must be column. No
// field of these tables but the last is empty or has a blank in it.
func table(out []byte, column string) (header map[string]int, lines [][]string, err error) {
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case header == nil:
			if fields[0] != column {
				return nil, nil, fmt.Errorf("want a table of %s: %s", column, shown(line))
			}
			header = map[string]int{}
			for i, name := range fields {
				header[name] = i
			}
		default:
			lines = append(lines, fields)
		}
	}
	if header == nil {
		return nil, nil, fmt.Errorf("want a table of %s: %s", column, shown(string(out)))
	}
	return header, lines, nil
}

// parseHosts reads the hosts that run jobs from `bhosts -w`, and their memory from
// `lshosts -w`. A host without a number of slots (MAX "-") offers none: the number in use
// would say nothing.
func parseHosts(bhosts []byte, static map[string]statics) ([]listedHost, error) {
	header, lines, err := table(bhosts, "HOST_NAME")
	if err != nil {
		return nil, fmt.Errorf("bhosts: %w", err)
	}
	for _, name := range []string{"STATUS", "MAX", "NJOBS", "RUN", "SSUSP", "USUSP", "RSV"} {
		if header[name] == 0 {
			return nil, fmt.Errorf("bhosts: no column %s", name)
		}
	}
	hosts := make([]listedHost, 0, len(lines))
	for _, fields := range lines {
		var failed error
		number := func(name string) int {
			if header[name] >= len(fields) {
				failed = fmt.Errorf("no %s", name)
				return 0
			}
			if fields[header[name]] == "-" {
				return 0
			}
			n, err := strconv.ParseUint(fields[header[name]], 10, 20)
			if err != nil {
				failed = fmt.Errorf("%s %q is no number", name, fields[header[name]])
			}
			return int(n)
		}
		h := listedHost{Host: backends.Host{Name: fields[0], Slots: number("MAX"), Memory: static[fields[0]].memory}, statics: static[fields[0]]}
		h.inUse, h.running, h.suspended = number("NJOBS"), number("RUN"), number("SSUSP")+number("USUSP")
		if failed == nil {
			h.status = fields[header["STATUS"]]
			h.State, _ = parseHostState(h.status)
		}
		if failed != nil {
			return nil, fmt.Errorf("bhosts: %w, in the line %s", failed, shown(strings.Join(fields, " ")))
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// parseHostState reads bhosts' STATUS. A full host takes jobs as soon as it can; any
// other closed one waits for an administrator, or for its load. So does one of an unknown
// status: bhosts prints "unknown" where it has no word for what closes a host (volclava's
// sources, lsbatch/cmd/bhosts.c), and one host must not hide all others.
func parseHostState(status string) (state backends.HostState, known bool) {
	switch status {
	case "ok", "closed_Full", "closed_Cu_Full":
		return backends.HostUp, true
	case "unavail", "unreach", "unlicensed":
		return backends.HostDown, true
	}
	return backends.HostClosed, strings.HasPrefix(status, "closed_") || status == "closed"
}

// parseParams reads `bparams -l` (lava; LSF 10.1 has the same names).
func parseParams(out []byte) (params, error) {
	var p params
	known := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if n, ok := strings.CutPrefix(line, "The default job priority is:"); ok {
			number, err := parseParam(n)
			if err != nil {
				return params{}, fmt.Errorf("bparams: %w, in the line %s", err, shown(line))
			}
			p.defaultPriority = number
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		var err error
		var seconds int64
		switch name {
		case "DEFAULT_QUEUE":
			p.defaultQueues, known = strings.Fields(value), true
		case "MAX_USER_PRIORITY":
			p.maxPriority, err = parseParam(value)
			known = true
		case "JOB_PRIORITY_OVER_TIME":
			p.overTime = true
		case "CLEAN_PERIOD":
			seconds, err = parseParam(value)
			p.cleanPeriod, known = time.Duration(seconds)*time.Second, true
		case "MBD_SLEEP_TIME":
			seconds, err = parseParam(value)
			p.sleep, known = time.Duration(seconds)*time.Second, true
		case "RESOURCE_RESERVE_PER_TASK", "RESOURCE_RESERVE_PER_SLOT":
			p.perTask = p.perTask || strings.HasPrefix(strings.ToUpper(value), "Y")
		}
		if err != nil {
			return params{}, fmt.Errorf("bparams: %w, in the line %s", err, shown(line))
		}
	}
	if !known {
		return params{}, fmt.Errorf("bparams: no parameter in %s", shown(string(out)))
	}
	return p, nil
}

// parseParam reads the number that a parameter's value begins with.
func parseParam(value string) (int64, error) {
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return 0, errors.New("no value")
	}
	n, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no number", fields[0])
	}
	return n, nil
}

// parseConf reads lsf.conf: NAME=value a line, in quotes or not, # before comments.
func parseConf(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') {
			if end := strings.IndexByte(value[1:], value[0]); end >= 0 {
				value = value[1 : 1+end]
			}
		} else if before, _, comment := strings.Cut(value, "#"); comment {
			value = strings.TrimSpace(before)
		}
		all[strings.TrimSpace(name)] = value
	}
	return all
}

// units returns what plain numbers of memory count in, in bytes: limits (-M), and mem in
// rusage[]. LSF 10.1: KB and MB, or both what LSF_UNIT_FOR_LIMITS says (IBM Spectrum LSF
// 10.1, configuration reference, lsf.conf, LSF_UNIT_FOR_LIMITS; lsb.resources, MEM). lava
// counts both in MB.
func units(f flavour, unit string) (limit, usage int64, err error) {
	limit, usage = 1<<20, 1<<20
	if f == lsf10 {
		limit = 1 << 10
	}
	if unit == "" {
		return limit, usage, nil
	}
	name := strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(unit)), "B")
	i := strings.Index("KMGTPE", name)
	if len(name) != 1 || i < 0 {
		return 0, 0, fmt.Errorf("LSF_UNIT_FOR_LIMITS=%s: want KB, MB, GB, TB, PB or EB", unit)
	}
	return 1 << (10 * (i + 1)), 1 << (10 * (i + 1)), nil
}

// parseComments reads administrators' comments (badmin hclose -C) from `bhosts -l`, by host. LSF
// 10.1 prints ` ADMIN ACTION COMMENT: "text"`, or several such lines, of which some name the user and
// the time (ibm.com/docs/en/spectrum-lsf/10.1.0?topic=reference-bhosts). Lava prints none.
func parseComments(out []byte) map[string]string {
	const most = 1000 // bytes of a host
	comments := map[string]string{}
	host := ""
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "HOST "); ok {
			host = strings.TrimSpace(name)
			continue
		}
		label, text, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || host == "" || !strings.HasPrefix(label, "ADMIN ACTION COMMENT") {
			continue
		}
		if before := comments[host]; before != "" {
			text = before + "; " + strings.TrimSpace(text)
		}
		if text = strings.TrimSpace(text); len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		if len(text) > 1 && strings.HasPrefix(text, `"`) && strings.HasSuffix(text, `"`) {
			text = text[1 : len(text)-1]
		}
		comments[host] = text
	}
	return comments
}
