package lsf

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// lsf10Fields are the fields that LSF 10.1's `bjobs -json -o` is asked for; all are
// in table 1 of IBM Spectrum LSF 10.1, command reference, bjobs -o
// (SSWRJV_10.1.0/lsf_command_ref/bjobs.o.1.html). -hms is not asked for: it came with
// fix pack 2.
const lsf10Fields = "jobid jobindex stat user queue from_host job_name job_description proj_name job_priority pend_reason pendstate " +
	"exec_host alloc_slot nalloc_slot min_req_proc ask_hosts submit_time start_time specified_start_time finish_time run_time runtimelimit memlimit " +
	"combined_resreq exit_code interactive exclusive"

// parseJobs reads what LSF 10.1's `bjobs -json -o` prints with lsf10Fields: JSON, in
// which every text is quoted. Field values are as IBM's pages and the captured outputs
// of others show them: "" or "-" for what is absent, "Dec 28 19:56" for a time,
// "5.2 Gbytes" for a size, "host1:host1" or "2*host1" for hosts.
func parseJobs(out []byte, c *cluster) ([]*listedJob, error) {
	records, err := parseRecords(out)
	if err != nil {
		return nil, err
	}
	jobs := make([]*listedJob, len(records))
	for i, r := range records {
		jobs[i] = &listedJob{}
		if err := jobs[i].parseRecord(r, c); err != nil {
			return nil, fmt.Errorf("bjobs -json: %w, of the job %s", err, shown(fmt.Sprint(r)))
		}
	}
	return jobs, nil
}

func (j *listedJob) parseRecord(r map[string]string, c *cluster) error {
	for name := range strings.SplitSeq(strings.ToUpper(lsf10Fields), " ") {
		if _, ok := r[name]; !ok {
			return fmt.Errorf("no %s", name)
		}
	}
	var failed error
	number := func(name string) int64 { return field(r, name, &failed, parseCount) }
	past := func(s string) (time.Time, error) { return parsePast(s, c.at) }
	job, index, _ := strings.Cut(r["JOBID"], "[") // 12[3], or 12 with JOBINDEX 3
	id, err := backends.ParseID(job)
	if id.Index = int(number("JOBINDEX")); id.Index == 0 && index != "" {
		id, err = backends.ParseID(r["JOBID"])
	}
	if err != nil {
		return fmt.Errorf("JOBID: %w", err)
	}
	j.ID, j.Name, j.User, j.Queue = id, r["JOB_NAME"], r["USER"], r["QUEUE"]
	j.setTag(r["PROJ_NAME"], r["JOB_DESCRIPTION"])
	if err := j.parseState(r["STAT"]); err != nil {
		return fmt.Errorf("STAT: %w", err)
	}
	waits := j.State == backends.Pending || j.State == backends.Held
	j.priority = number("JOB_PRIORITY")
	if j.Hosts = field(r, "ALLOC_SLOT", &failed, parseExecHosts); len(j.Hosts) == 0 { // tasks may have several slots each
		j.Hosts = field(r, "EXEC_HOST", &failed, parseExecHosts)
	}
	if j.Slots = slotsOf(j.Hosts); waits {
		j.Hosts, j.Slots = nil, int(number("MIN_REQ_PROC"))
	} else if n := int(number("NALLOC_SLOT")); n > 0 && len(j.Hosts) == 1 {
		j.Slots, j.Hosts[0].Slots = n, n
	}
	if j.Slots = max(j.Slots, 1); j.Slots > maxSlots {
		return fmt.Errorf("%d slots", j.Slots)
	}
	j.Asked = strings.FieldsFunc(dash(r["ASK_HOSTS"]), func(c rune) bool { return c == ' ' || c == ':' || c == ',' })
	j.Submitted = field(r, "SUBMIT_TIME", &failed, past)
	j.BeginTime = field(r, "SPECIFIED_START_TIME", &failed, func(s string) (time.Time, error) { return parseNear(s, c.at) })
	if !waits {
		j.Started = field(r, "START_TIME", &failed, past)
	}
	if j.State.Ended() {
		j.Ended = field(r, "FINISH_TIME", &failed, func(s string) (time.Time, error) { return parseFinish(s, c.at) })
	}
	if j.State == backends.Exited {
		const killed, terminated = 128, 15
		if j.ExitCode = int(number("EXIT_CODE")); j.ExitCode == 0 {
			j.ExitCode = killed + terminated
		}
	}
	if j.State == backends.Suspended {
		j.RanFor = field(r, "RUN_TIME", &failed, func(s string) (time.Duration, error) { return parseSpan(s, time.Second) })
	}
	j.RunLimit = field(r, "RUNTIMELIMIT", &failed, func(s string) (time.Duration, error) { return parseSpan(s, time.Minute) })
	j.Interactive = field(r, "INTERACTIVE", &failed, parseYes)
	j.NoRequeue = j.Interactive // brequeue refuses it
	j.Exclusive = field(r, "EXCLUSIVE", &failed, parseYes)
	j.request, j.fromHost = r["COMBINED_RESREQ"], dash(r["FROM_HOST"])
	j.OneHost = j.Slots == 1 || onOneHost(j.request)
	if j.Memory = usageMemory(j.request, j.Slots, c); j.Memory == 0 && dash(r["MEMLIMIT"]) != "" {
		j.Memory = field(r, "MEMLIMIT", &failed, func(s string) (int64, error) { return parseSize(s, c.limitUnit) })
	}
	j.setReason(dash(r["PEND_REASON"]))
	// TRACK_ELIGIBLE_PENDINFO=Y: LSF itself says that the job waits for its turn (EPEND) or
	// must not start (IPEND). The reason says more of the latter.
	switch state := dash(r["PENDSTATE"]); {
	case j.State != backends.Pending, state == "", state == "NOTPEND":
	case state == "EPEND":
		j.Wait = backends.WaitResources
	case state == "IPEND":
		if j.Wait == backends.WaitResources {
			j.Wait = backends.WaitOther
		}
	default:
		return fmt.Errorf("PENDSTATE: unknown %q", state)
	}
	return failed
}

// field returns what parse reads of a record's field. failed keeps the first error.
func field[T any](r map[string]string, name string, failed *error, parse func(string) (T, error)) T {
	value, err := parse(r[name])
	if err != nil && *failed == nil {
		*failed = fmt.Errorf("%s: %w", name, err)
	}
	return value
}

// parseCount reads a number; "" and "-" are 0.
func parseCount(s string) (int64, error) {
	if s = dash(s); s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int64(n), err
}

// parseFinish reads FINISH_TIME, which may end with a letter for how it was reckoned: L,
// E or X.
func parseFinish(s string, at time.Time) (time.Time, error) {
	for _, letter := range []string{" L", " E", " X"} {
		if text, ok := strings.CutSuffix(strings.TrimSpace(s), letter); ok {
			return parsePast(text, at)
		}
	}
	return parsePast(s, at)
}

// parseSpan reads a duration: "00:10:00" (-hms), "35 second(s)", "10.0 min", "10.0/host1"
// (a limit scaled to that host's speed); a plain number counts in unit.
func parseSpan(s string, unit time.Duration) (time.Duration, error) {
	text, _, _ := strings.Cut(dash(s), "/")
	if text = strings.TrimSpace(text); text == "" {
		return 0, nil
	}
	if parts := strings.Split(text, ":"); len(parts) == 3 {
		total := time.Duration(0)
		for i, each := range []time.Duration{time.Hour, time.Minute, time.Second} {
			n, err := strconv.ParseUint(parts[i], 10, 20)
			if err != nil {
				return 0, fmt.Errorf("%q is no duration", s)
			}
			total += time.Duration(n) * each
		}
		return total, nil
	}
	for suffix, u := range map[string]time.Duration{"second(s)": time.Second, "min": time.Minute} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(number), u
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.") != "" || n*float64(unit) > maxMinutes*float64(time.Minute) {
		return 0, fmt.Errorf("%q is no duration", s)
	}
	return time.Duration(n * float64(unit)).Round(time.Second), nil
}

// parseYes reads Y or N; "" and "-" are no.
func parseYes(s string) (bool, error) {
	switch strings.ToUpper(dash(s)) {
	case "", "N", "NO":
		return false, nil
	case "Y", "YES":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither Y nor N", s)
}
