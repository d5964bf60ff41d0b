package slurm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// request is what a job asks for beside slots, memory and hosts. The jobs of a snapshot that
// ask for the same refer to the same request.
type request struct {
	err          error  // a field can't be read
	unserved     string // the part that is not understood; "": none
	features     []string
	tasks        int
	perTask      int               // CPUs
	tasksPerNode int               // 0: as they come
	minCPUs      int               // of a host
	onHost       []backends.Amount // of each of its hosts
	inAll        []backends.Amount // over all its hosts
	ofTask       []backends.Amount
	topology     bool   // it says how its tasks lie on cores and threads
	scattered    string // what is not understood if it has several hosts
}

// maxRequests bounds how many different requests are kept.
const maxRequests = 10000

// request returns what a line of squeue's shows of a job's request.
func (c *cluster) request(f []string) *request {
	key := strings.Join(f[fFeatures:fComment], "\x00")
	if r := c.requests[key]; r != nil {
		return r
	}
	r := parseRequest(f)
	if c.requests == nil {
		c.requests = map[string]*request{}
	}
	if len(c.requests) < maxRequests {
		c.requests[key] = r
	}
	return r
}

// parseRequest reads the fields from fFeatures to fBurstBuffer.
func parseRequest(f []string) *request {
	var r request
	count := func(field int) int {
		if absent(f[field]) == "" {
			return 0
		}
		n := valueOf(f, field, &r.err, parseNumber)
		return int(min(max(n, 0), math.MaxInt32))
	}
	gres := func(field int) []backends.Amount {
		text := f[field]
		if field == fPerTaskTRES {
			text = withoutCPUs(text, r.perTask)
		}
		all, ok := parseTresRequest(text)
		if !ok {
			r.lacks(squeueFields[field] + "=" + f[field])
		}
		return all
	}
	r.tasks, r.perTask, r.tasksPerNode, r.minCPUs = count(fTasks), max(count(fPerTask), 1), count(fTasksPerNode), count(fMinCPUs)
	var plain bool
	if r.features, plain = parseFeatures(f[fFeatures]); !plain {
		r.lacks("--constraint=" + f[fFeatures])
	}
	r.onHost, r.inAll, r.ofTask = gres(fPerNode), gres(fPerJob), gres(fPerTaskTRES)
	r.topology = f[fTopology] != "*:*:*" || count(fTasksPerCore) > 0
	for _, x := range []struct {
		option string
		given  bool
	}{
		{"--gpus-per-socket", absent(f[fPerSocket]) != ""},
		{"--cpus-per-gpu", absent(f[fCPUsPerTRES]) != ""},
		{"--ntasks-per-socket", count(fTasksPerSocket) > 0},
		{"--core-spec", absent(f[fCoreSpec]) != ""},
		{"--reservation", absent(f[fReservation]) != ""},
		{"--tmp", f[fDisk] != "0"},
		{"--network", absent(f[fNetwork]) != ""},
		{"--bb", absent(f[fBurstBuffer]) != ""},
		{"--mincpus", r.minCPUs > max(r.perTask, r.perTask*r.tasksPerNode)},
	} {
		if x.given {
			r.lacks(x.option)
		}
	}
	switch {
	case count(fSwitches) > 0:
		r.scattered = "--switches"
	case count(fContiguous) > 0:
		r.scattered = "--contiguous"
	case len(r.inAll) > 0:
		r.scattered = "--gpus, or another amount for the whole job, on several nodes"
	case len(r.ofTask) > 0:
		r.scattered = "--gpus-per-task, or another amount for each task, on several nodes"
	}
	return &r
}

// withoutCPUs returns what a request asks for each task, without the CPUs that
// --cpus-per-task names: since 23.11 they are in both fields (24.11: cpu=2).
func withoutCPUs(text string, perTask int) string {
	if absent(text) == "" {
		return text
	}
	items := strings.Split(text, ",")
	return strings.Join(slices.DeleteFunc(items, func(item string) bool { return item == fmt.Sprintf("cpu=%d", perTask) }), ",")
}

// lacks records that a part of the request is not understood. The first one is kept.
func (r *request) lacks(what string) {
	if r.unserved == "" {
		const most = 100
		r.unserved = strings.ToValidUTF8(what[:min(len(what), most)], "")
	}
}

// parseFeatures reads names joined by & or a comma. Anything else that --constraint
// takes (| [] * ()) is not plain.
func parseFeatures(text string) (names []string, plain bool) {
	if text = absent(text); text == "" {
		return nil, true
	}
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '&' || r == ',' }) {
		if strings.ContainsAny(name, "|[]*()!<> ") {
			return nil, false
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// parseTresRequest reads "gres:gpu:a100:2,gres:tape:1"; later versions write gres/gpu:2.
func parseTresRequest(text string) ([]backends.Amount, bool) {
	var all []backends.Amount
	for item := range strings.SplitSeq(absent(text), ",") {
		if item == "" {
			continue
		}
		rest, ok := strings.CutPrefix(strings.Replace(item, "gres/", "gres:", 1), "gres:")
		words := strings.Split(strings.ReplaceAll(rest, "=", ":"), ":")
		n, counted := parseCount(words[len(words)-1])
		if counted {
			words = words[:len(words)-1]
		} else {
			n = 1
		}
		// A GPU that is shared in parts counts as gpu and as mps or shard.
		if !ok || len(words) < 1 || len(words) > 2 || slices.Contains(words, "") || words[0] == "mps" || words[0] == "shard" {
			return nil, false
		}
		all = addAmount(all, words, n)
	}
	return all, true
}

// parseGres reads a node's "gpu:a100:2(S:0-1),tape:1" and what of it is used,
// "gpu:a100:1(IDX:0)". What it can't read counts as not there.
func parseGres(text string) []backends.Amount {
	var all []backends.Amount
	depth, begin := 0, 0
	text = absent(text) + ","
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			item := strings.Replace(text[begin:i], "(null)", "", 1) // no type, among what is used
			item, _, _ = strings.Cut(item, "(")
			begin = i + 1
			words := strings.Split(item, ":")
			n, counted := parseCount(words[len(words)-1])
			words = slices.DeleteFunc(words[:len(words)-1], func(w string) bool { return w == "" })
			if counted && n > 0 && (len(words) == 1 || len(words) == 2 && words[1] != "no_consume") {
				all = addAmount(all, words, n)
			}
		}
	}
	return all
}

// addAmount adds a resource, or a type of one and the resource.
func addAmount(all []backends.Amount, words []string, n int) []backends.Amount {
	for i := range words {
		name := strings.Join(words[:i+1], ":")
		at := slices.IndexFunc(all, func(a backends.Amount) bool { return a.Name == name })
		if at < 0 {
			all = append(all, backends.Amount{Name: name, Count: n})
		} else {
			all[at].Count = min(all[at].Count+n, math.MaxInt32)
		}
	}
	return all
}

func counts(all []backends.Amount) map[string]int {
	m := make(map[string]int, len(all))
	for _, a := range all {
		m[a.Name] = a.Count
	}
	return m
}

// parseCount reads 2 or 2K.
func parseCount(s string) (int, bool) {
	shift := 0
	if s != "" {
		shift = 10 * (1 + strings.IndexByte("KMG", s[len(s)-1]))
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if n <<= shift; err != nil || n > math.MaxInt32 {
		return 0, false
	}
	return int(n), true
}

// parseNodeCount reads the least number of nodes from "cpu=4,mem=256M,node=2,billing=4".
func parseNodeCount(tres string) int {
	for part := range strings.SplitSeq(tres, ",") {
		if text, ok := strings.CutPrefix(part, "node="); ok {
			n, _ := strconv.ParseUint(text, 10, 31)
			return int(n)
		}
	}
	return 0
}

// maxTasks is the most elements that an array may have: Slurm's own bound of MaxArraySize.
const maxTasks = 4000001

// parseTasks reads the elements of one of squeue's lines, "1-6,8-50%2", "7" or N/A, and
// how many of the array's may run at a time. No index is so high as bound.
func parseTasks(text string, bound int) (indices []int, limit int, err error) {
	if text == "N/A" {
		return []int{0}, 0, nil
	}
	wrong := fmt.Errorf("%s: %s are no elements of an array", squeueFields[fArrayTask], shown(text))
	if bound <= 0 || bound > maxTasks {
		bound = maxTasks
	}
	ranges, throttle, throttled := strings.Cut(text, "%")
	if throttled {
		if limit, err = strconv.Atoi(throttle); err != nil || limit < 0 {
			return nil, 0, wrong
		}
	}
	for r := range strings.SplitSeq(ranges, ",") {
		r, step, stepped := strings.Cut(r, ":")
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		if !stepped {
			step = "1"
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		by, err3 := strconv.Atoi(step)
		if err1 != nil || err2 != nil || err3 != nil || from < 0 || to < from || to >= bound || by < 1 || len(indices)+(to-from)/by >= bound {
			return nil, 0, wrong
		}
		for i := from; i <= to; i += by {
			index := i
			if index == 0 {
				index = backends.ZeroIndex
			}
			indices = append(indices, index)
		}
	}
	return indices, limit, nil
}
