package lsf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// shown returns the beginning of a text, quoted, for an error.
func shown(s string) string {
	const most = 300
	return strconv.Quote(s[:min(len(s), most)])
}

// parseVersion returns which queue it is, and its version, by the first line that `lsid`,
// `lsid -V` or `bjobs -V` prints (LSF and lava print it on stdout or on stderr):
//
//	volclava project 2.2, Nov 20 2026
//	IBM Spectrum LSF Standard 10.1.0.0, Jul 08 2016   (IBM's lsid reference page)
//	IBM Platform LSF 9.1.3.0, Jul 04 2014
func parseVersion(text string) (flavour, string, error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		product, _, ok := strings.Cut(line, ",")
		fields := strings.Fields(product)
		if !ok || len(fields) < 2 {
			continue
		}
		version := fields[len(fields)-1]
		if version[0] < '0' || version[0] > '9' {
			continue
		}
		switch name := strings.ToLower(product); {
		case strings.Contains(name, "lava"):
			return lava, version, nil
		case strings.Contains(name, "lsf") && strings.HasPrefix(version, "10."):
			return lsf10, version, nil
		case strings.Contains(name, "lsf"):
			return 0, "", fmt.Errorf("%s: want LSF 10.1, or a queue of the Lava line", shown(line))
		}
	}
	return 0, "", fmt.Errorf("no version of LSF in %s", shown(text))
}

// guessFlavour returns the flavour of an unknown version: LSF's if it says so, else lava,
// whose bsub has fewer options.
func guessFlavour(text string) flavour {
	text = strings.ToLower(text)
	if strings.Contains(text, "lsf") && !strings.Contains(text, "lava") {
		return lsf10
	}
	return lava
}

// parseState reads LSF's word for a job's state.
func (j *listedJob) parseState(stat string) error {
	j.stat = stat
	switch stat {
	case "PEND", "WAIT": // WAIT: in a chunk of which another member runs
		j.State = backends.Pending
	case "PSUSP":
		j.State = backends.Held
	case "RUN", "PROV":
		j.State = backends.Running
	case "UNKWN":
		j.State, j.lost = backends.Running, true
	case "ZOMBI":
		j.State, j.zombie, j.Ending = backends.Running, true, true
	case "USUSP", "SSUSP":
		j.State = backends.Suspended
	case "DONE":
		j.State = backends.Done
	case "EXIT", "ERROR": // ERROR: lava's word for EXIT after a queue's POST_EXEC; a job that goes on has a word of its own
		j.State = backends.Exited
	default:
		return &backends.UnknownStateError{Text: stat}
	}
	return nil
}

// reasonKind is what a pending reason says of its job.
type reasonKind uint8

const (
	ofJob      reasonKind = iota // unknown, or nothing that slots would help
	ofResource                   // it would start if slots were free or its priority higher
	ofHost                       // why it can't use some hosts; says nothing by itself
	ofTime
	ofDependency
	ofThrottle
)

// reasons are the pending reasons whose meaning is known (R14): a job waits for slots if
// one of its reasons says so and every other one is about hosts that it can't use. The
// texts are those that the batch library prints for its PEND_ codes, the same in LSF 10.1
// and in lava unless noted.
var reasons = map[string]reasonKind{
	"New job is waiting for scheduling":                             ofResource,
	"Job slot limit reached":                                        ofResource, // of the host
	"Not enough job slot(s)":                                        ofResource,
	"Not enough slots or resources for whole duration of the job":   ofResource, // LSF 10.1
	"Not enough processors to meet the job's spanning requirement":  ofResource,
	"Not enough hosts to meet the job's spanning requirement":       ofResource,
	"Waiting for scheduling after resumed by user":                  ofResource,
	"Waiting for re-scheduling after parameters have been changed":  ofResource,
	"Waiting for re-scheduling after switching queue":               ofResource,
	"Requeued job is waiting for rescheduling":                      ofResource,
	"Requeue the job for the next run":                              ofResource,
	"Just started a job recently":                                   ofResource, // JOB_ACCEPT_INTERVAL
	"Job requirements for reserving resource (mem) not satisfied":   ofResource, // lava
	"Job's requirements for reserving resource (mem) not satisfied": ofResource, // LSF 10.1
	"Job's requirements for resource reservation not satisfied":     ofResource,
	"Individual host based reasons":                                 ofResource, // LSF 10.1's one word for "no host takes it now"
	"Load information unavailable":                                  ofHost,
	"LIM is unreachable now":                                        ofHost,
	"Closed by LSF administrator":                                   ofHost,
	"Host is locked by LSF administrator":                           ofHost,
	"Host is locked by master LIM":                                  ofHost,
	"Dispatch windows closed":                                       ofHost,
	"Running an exclusive job":                                      ofHost,
	"Not usable to the queue":                                       ofHost,
	"Not specified in job submission":                               ofHost,
	"Not the same type as the submission host":                      ofHost,
	"There is no such user account":                                 ofHost,
	"Job's resource requirements not satisfied":                     ofHost,
	"Queue's resource requirements not satisfied":                   ofHost,
	"Unable to reach slave batch server":                            ofHost,
	"Unable to reach slave batch server (sbatchd)":                  ofHost,
	"Load threshold reached":                                        ofHost,
	"Job's requirement for exclusive execution not satisfied":       ofHost,
	"The job has a specified start time":                            ofTime,
	"The schedule of the job is postponed for a while":              ofTime,
	"Job dependency condition not satisfied":                        ofDependency,
	"Dependency condition invalid or never satisfied":               ofDependency,
	"The job array has reached its running element limit":           ofThrottle, // lava
	"The job array has reached its job slot limit":                  ofThrottle, // LSF 10.1
}

// parseWait returns what a pending job waits for, by its reasons: lines or sentences that
// end in ";", each with the number of its hosts or their names behind a colon.
func parseWait(text string) backends.Wait {
	found := map[reasonKind]bool{}
	for reason := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ";"), ";") {
		if reason = strings.TrimSpace(reason); reason == "" {
			continue
		}
		kind, known := reasons[reason]
		if i := strings.LastIndex(reason, ":"); !known && i >= 0 { // "… : 5 hosts"
			kind, known = reasons[strings.TrimSpace(reason[:i])]
		}
		if !known {
			kind = ofJob
		}
		found[kind] = true
	}
	switch {
	case found[ofDependency]:
		return backends.WaitDependency
	case found[ofTime]:
		return backends.WaitTime
	case found[ofThrottle]:
		return backends.WaitThrottle
	case found[ofJob], !found[ofResource]:
		return backends.WaitOther
	}
	return backends.WaitResources
}

// waitsForRoom reports whether a pending job's reasons are about hosts alone, and one is that
// hosts do not satisfy its requirement: as they are loaded now.
func waitsForRoom(text string) bool {
	const unsatisfied = "resource requirements not satisfied"
	found := false
	for reason := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ";"), ";") {
		reason, _, _ = strings.Cut(reason, ":")
		if reason = strings.TrimSpace(reason); reason == "" {
			continue
		}
		if reasons[reason] != ofHost {
			return false
		}
		found = found || strings.HasSuffix(reason, unsatisfied)
	}
	return found
}

var errClock = errors.New("no time of day")

// stampYears is how far from now the year of a time is searched: a date has the same
// weekday again after twelve years at most, and the 29th of February after forty.
const stampYears = 40

// Limits on what is read: LSF prints nothing beyond them.
const (
	maxSlots = 1 << 20
	maxHosts = 1 << 16
)

var errHosts = errors.New("no list of hosts")

// placements counts the slots of each host of a list that has a host once for each
// slot, or as 4*host (LSB_SHORT_HOSTLIST); in the order in which they come first.
func placements(list []string) ([]backends.Placement, error) {
	var all []backends.Placement
	at, total := map[string]int{}, 0
	for _, host := range list {
		n := 1
		if count, name, ok := strings.Cut(host, "*"); ok {
			number, err := strconv.ParseUint(count, 10, 20)
			if err != nil || number < 1 {
				return nil, fmt.Errorf("%w: %q", errHosts, host)
			}
			n, host = int(number), name
		}
		if total += n; host == "" || strings.ContainsAny(host, " <>\n*:") || total > maxSlots {
			return nil, fmt.Errorf("%w: %q", errHosts, host)
		}
		i, known := at[host]
		if !known {
			i = len(all)
			at[host] = i
			all = append(all, backends.Placement{Host: host})
		}
		all[i].Slots += n
	}
	return all, nil
}

// parseExecHosts reads the hosts of bjobs' EXEC_HOST: "lava4:lava4", "4*hostA:hostB";
// "" and "-" are none.
func parseExecHosts(s string) ([]backends.Placement, error) {
	if s = strings.TrimSpace(s); s == "" || s == "-" {
		return nil, nil
	}
	return placements(strings.Split(s, ":"))
}

func slotsOf(places []backends.Placement) int {
	n := 0
	for _, p := range places {
		n += p.Slots
	}
	return n
}

// parseSize reads sizes of memory: "24105M", "4096000 K", "5.2 Gbytes", "100.00". A
// number without a unit counts in plain bytes.
func parseSize(s string, plain int64) (int64, error) {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "bytes"))
	if n := len(text); n > 1 && text[n-1] == 'B' {
		text = text[:n-1]
	}
	bytes, ok := unit.ParseBytes(text, plain)
	if !ok || bytes >= math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is no size of memory", s)
	}
	return int64(bytes), nil
}

// usageMemory returns the largest mem of the rusage sections of a resource requirement in
// bytes over all of a job's slots, as the submit filter reads it; 0: none that can be
// read.
func usageMemory(requirement string, slots int, c *cluster) int64 {
	var most int64
	for rest := requirement; ; {
		_, section, ok := strings.Cut(rest, "rusage[")
		if !ok {
			return most
		}
		section, rest, _ = strings.Cut(section, "]")
		for _, item := range strings.FieldsFunc(section, func(r rune) bool { return strings.ContainsRune(",:|&", r) }) {
			value, ok := strings.CutPrefix(strings.TrimSpace(item), "mem=")
			if !ok {
				continue
			}
			value, per, _ := strings.Cut(value, "/") // LSF 10.1 (10.1.0.9): /job, /task, /host
			n, err := parseSize(strings.ToUpper(value), c.usageUnit)
			if err != nil {
				continue
			}
			if (per == "task" || per == "" && c.perTask) && n < math.MaxInt64/2/maxSlots {
				n *= int64(max(slots, 1))
			}
			most = max(most, n)
		}
	}
}

// onOneHost reports whether a resource requirement keeps a job on one host.
func onOneHost(requirement string) bool {
	_, section, _ := strings.Cut(requirement, "span[")
	section, _, _ = strings.Cut(section, "]")
	return strings.ReplaceAll(section, " ", "") == "hosts=1"
}

// setTag reads the project with its step, and the tag that a description begins with.
func (j *listedJob) setTag(project, description string) {
	j.description = description
	tag, _, _ := backends.ParseTag(description)
	if strings.HasPrefix(description, backends.TagPrefix) {
		j.Tag, _, _ = strings.Cut(description, " ")
	}
	if j.Project, j.Step = backends.SplitProject(project); j.Step == "" {
		j.Step = tag.Step
	}
}

// parseRecords reads what `bjobs -json -o …` prints: the fields of each job by their
// names in capitals. A job that is not found has an ERROR there, and is left out.
func parseRecords(out []byte) ([]map[string]string, error) {
	// lava prints a text's bytes as they are: those that are no UTF-8 must still be
	// found again in its other listing.
	bytewise := !utf8.Valid(out)
	if bytewise {
		out = []byte(latin1(out))
	}
	var all struct {
		Records []map[string]json.RawMessage `json:"RECORDS"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("bjobs -json: %w in %s", err, shown(string(out)))
	}
	if all.Records == nil {
		return nil, fmt.Errorf("bjobs -json: no RECORDS in %s", shown(string(out)))
	}
	records := make([]map[string]string, 0, len(all.Records))
	for _, raw := range all.Records {
		record := make(map[string]string, len(raw))
		for name, value := range raw {
			text, err := parseValue(value)
			if err != nil {
				return nil, fmt.Errorf("bjobs -json: %s: %w", name, err)
			}
			if bytewise {
				text = bytesOf(text)
			}
			record[name] = text
		}
		if _, failed := record["ERROR"]; !failed {
			records = append(records, record)
		}
	}
	return records, nil
}

// parseValue reads a field's value: LSF and lava write all of them as texts.
func parseValue(raw json.RawMessage) (string, error) {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	if n := strings.TrimSpace(string(raw)); n != "" && strings.Trim(n, "0123456789.-") == "" {
		return n, nil
	}
	return "", fmt.Errorf("%s is no text", shown(string(raw)))
}

// latin1 takes each byte for a character.
func latin1(bytes []byte) string {
	var b strings.Builder
	for _, c := range bytes {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// bytesOf undoes latin1.
func bytesOf(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r > 0xff {
			b.WriteRune(r)
			continue
		}
		b.WriteByte(byte(r))
	}
	return b.String()
}

// parseSubmitted reads the last line of the form "Job <789> is submitted to default
// queue <normal>." that bsub prints.
func parseSubmitted(out string) (id backends.ID, queue string, err error) {
	for line := range strings.Lines(out) {
		rest, ok1 := strings.CutPrefix(strings.TrimRight(line, " \r\n"), "Job <")
		number, rest, ok2 := strings.Cut(rest, "> is submitted to ")
		rest, ok3 := strings.CutPrefix(strings.TrimPrefix(rest, "default "), "queue <")
		name, ok4 := strings.CutSuffix(rest, ">.")
		if !ok1 || !ok2 || !ok3 || !ok4 {
			continue
		}
		if parsed, err := backends.ParseID(number); err == nil && parsed.Index == 0 && name != "" && !strings.ContainsAny(name, "<>") {
			id, queue = parsed, name
		}
	}
	if id.Job == 0 {
		return backends.ID{}, "", fmt.Errorf("bsub did not say which job it is: %s", shown(out))
	}
	return id, queue, nil
}
