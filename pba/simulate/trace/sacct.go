package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// sacctColumns are those of `sacct --parsable2` (man sacct, "Job Accounting
// Fields") that are read, in any order; others are passed over.
//
//	sacct -a -X --parsable2 -S 2026-11-01 -o JobIDRaw,User,Account,Submit,Start,End,ElapsedRaw,AllocCPUS,State,TimelimitRaw,ReqMem,Partition,NNodes,AllocTRES
var sacctColumns = []string{
	"JobID", "JobIDRaw", "User", "Account", "Submit", "Start", "End", "ElapsedRaw", "Elapsed",
	"AllocCPUS", "NCPUS", "ReqCPUS", "State", "TimelimitRaw", "Timelimit", "ReqMem", "Comment", "AdminComment", "JobName", "Partition", "WCKey",
	"NNodes", "AllocNodes", "AllocTRES", "ReqTRES",
}

func isColumn(name string) bool {
	for _, known := range sacctColumns {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// sacctReader reads the lines after a heading.
type sacctReader struct {
	zone    *time.Location
	columns map[string]int // by lower-case name
	width   int
	fields  []string
}

func sacctRecords(r io.Reader, zone *time.Location) iter.Seq2[Record, error] {
	s := &sacctReader{zone: zone}
	return records(r, func(line []byte) (*Record, error) {
		text := strings.TrimRight(string(line), "\r")
		if strings.TrimSpace(text) == "" {
			return nil, nil
		}
		s.fields = strings.Split(text, "|")
		if s.columns == nil || s.fields[0] == "JobID" || s.fields[0] == "JobIDRaw" { // a second heading: files were joined
			return nil, s.heading()
		}
		return s.record()
	})
}

func (s *sacctReader) heading() error {
	columns := map[string]int{}
	for i, name := range s.fields {
		columns[strings.ToLower(name)] = i
	}
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := columns[strings.ToLower(name)]; ok {
				return true
			}
		}
		return false
	}
	for _, need := range [][]string{{"JobIDRaw", "JobID"}, {"User"}, {"Submit"}, {"ElapsedRaw", "Elapsed", "End"}, {"AllocCPUS", "NCPUS", "ReqCPUS"}, {"State"}} {
		if !has(need...) {
			return fmt.Errorf("the heading has no column %s: print it with -o JobIDRaw,User,Account,Submit,Start,End,ElapsedRaw,AllocCPUS,State", strings.Join(need, " or "))
		}
	}
	if !has("ElapsedRaw", "Elapsed") && !has("Start") {
		return errors.New("the heading has neither a column ElapsedRaw nor Start and End")
	}
	s.columns, s.width = columns, len(s.fields)
	return nil
}

// get returns the first of some columns that is not empty.
func (s *sacctReader) get(names ...string) string {
	for _, name := range names {
		if i, ok := s.columns[strings.ToLower(name)]; ok && s.fields[i] != "" {
			return s.fields[i]
		}
	}
	return ""
}

// unendedStates are those of jobs that may still run.
var unendedStates = map[string]bool{
	"PENDING": true, "RUNNING": true, "SUSPENDED": true, "REQUEUED": true, "RESIZING": true, "COMPLETING": true, "CONFIGURING": true,
}

// endedStates are all others (man sacct, "Job State Codes").
var endedStates = map[string]bool{
	"BOOT_FAIL": true, "CANCELLED": true, "COMPLETED": true, "DEADLINE": true, "FAILED": true, "NODE_FAIL": true,
	"OUT_OF_MEMORY": true, "PREEMPTED": true, "REVOKED": true, "TIMEOUT": true,
}

func (s *sacctReader) record() (*Record, error) {
	if len(s.fields) != s.width {
		return nil, fmt.Errorf("%d fields, want %d as in the heading (a name with | in it? leave JobName and Comment out)", len(s.fields), s.width)
	}
	id := s.get("JobIDRaw", "JobID")
	if number, rest := digits(id); number == "" {
		return nil, fmt.Errorf("column JobID: %q is not a job ID", id)
	} else if strings.ContainsRune(rest, '.') {
		return nil, nil // a step of the job
	}
	r := &Record{User: s.get("User")}
	if r.User == "" {
		return nil, errors.New("column User: missing (steps of jobs? use sacct -X)")
	}
	r.Project, r.Step = backends.SplitProject(s.get("Account"))
	state, _, _ := strings.Cut(s.get("State"), " ") // CANCELLED by 1000
	switch {
	case unendedStates[state]:
		r.LeftOut = NotEnded
	case !endedStates[state]:
		return nil, fmt.Errorf("column State: %q is not known", state)
	}
	var err error
	if r.Submitted, err = s.time("Submit"); err != nil {
		return nil, err
	}
	if r.LeftOut != "" {
		return r, nil
	}
	if r.Slots, err = s.count("AllocCPUS", "NCPUS", "ReqCPUS"); err != nil {
		return nil, err
	}
	if r.Run, err = s.ran(); err != nil {
		return nil, err
	}
	if start := s.get("Start"); start == "None" || r.Slots == 0 || r.Run == 0 && state == "CANCELLED" {
		r.LeftOut = NeverRan
		return r, nil
	}
	if r.RunLimit, err = s.limit(); err != nil {
		return nil, err
	}
	if r.Memory, err = sacctMemory(s.get("ReqMem"), r.Slots); err != nil {
		return nil, err
	}
	if r.Nodes, err = s.count("NNodes", "AllocNodes"); err != nil {
		return nil, err
	}
	if r.Units, err = gresOf(s.get("AllocTRES", "ReqTRES")); err != nil {
		return nil, err
	}
	r.Partition = s.get("Partition") // the one that it ran in, whichever it asked for
	return r.finalize(), nil
}

// gresOf reads the generic resources of a list like cpu=4,mem=8G,node=1,gres/gpu=2,gres/gpu:a100=2.
func gresOf(list string) ([]backends.Amount, error) {
	var all []backends.Amount
	for part := range strings.SplitSeq(list, ",") {
		name, count, _ := strings.Cut(part, "=")
		name, is := strings.CutPrefix(name, "gres/")
		if !is {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 || n > maxSlots || name == "" || len(all) >= 64 {
			return nil, fmt.Errorf("column AllocTRES: %q is not a number of some gres", part)
		}
		if n > 0 {
			all = append(all, backends.Amount{Name: name, Count: n})
		}
	}
	slices.SortFunc(all, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func digits(text string) (number, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

func (s *sacctReader) count(names ...string) (int, error) {
	text := s.get(names...)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxSlots {
		return 0, fmt.Errorf("column %s: %q is not a number from 0 to %d", names[0], text, maxSlots)
	}
	return n, nil
}

// maxSlots and maxRun are beyond what any farm knows; more is a mistake.
const (
	maxSlots = 1 << 24
	maxRun   = 10 * 366 * 24 * time.Hour
)

// time reads 2026-11-20T12:34:56, in the zone that sacct ran in, or seconds since
// 1970 (SLURM_TIME_FORMAT=%s).
func (s *sacctReader) time(name string) (time.Time, error) {
	text := s.get(name)
	if seconds, err := strconv.ParseInt(text, 10, 40); err == nil && seconds >= 0 {
		return time.Unix(seconds, 0).UTC(), nil
	}
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, s.zone)
	if err != nil || t.Year() < 1970 || t.Year() > 2500 {
		return time.Time{}, fmt.Errorf("column %s: %q is not a time like 2026-11-20T12:34:56", name, text)
	}
	return t.UTC(), nil
}

// ran returns how long a job ran, without the time that it was suspended.
func (s *sacctReader) ran() (time.Duration, error) {
	if text := s.get("ElapsedRaw"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 0 || seconds > int64(maxRun/time.Second) {
			return 0, fmt.Errorf("column ElapsedRaw: %q is not a number of seconds", text)
		}
		return time.Duration(seconds) * time.Second, nil
	}
	if text := s.get("Elapsed"); text != "" {
		d, err := sacctDuration(text)
		if err != nil {
			return 0, fmt.Errorf("column Elapsed: %w", err)
		}
		return d, nil
	}
	if text := s.get("Start"); text == "None" || text == "Unknown" || text == "" {
		return 0, nil
	}
	start, err := s.time("Start")
	if err != nil {
		return 0, err
	}
	end, err := s.time("End")
	if err != nil {
		return 0, err
	}
	if d := end.Sub(start); d >= 0 && d <= maxRun {
		return d, nil
	}
	return 0, fmt.Errorf("column End: %s is before Start, or too long after it", s.get("End"))
}

// sacctDuration reads [days-]hours:minutes:seconds, or minutes:seconds, each
// with an optional fraction.
func sacctDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration like 1-02:03:04", text)
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	rest, _, _ = strings.Cut(rest, ".")
	parts := strings.Split(rest, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, bad
	}
	total := 0
	for i, part := range append([]string{days}, parts...) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 1<<20 {
			return 0, bad
		}
		switch {
		case i == 0:
			total = n
		case i == 1 && len(parts) == 3:
			total = total*24 + n
		case i == 1:
			total = total*24*60 + n
		default:
			total = total*60 + n
		}
	}
	if d := time.Duration(total) * time.Second; d <= maxRun {
		return d, nil
	}
	return 0, bad
}

func (s *sacctReader) limit() (time.Duration, error) {
	if text := s.get("TimelimitRaw"); text != "" && text != "UNLIMITED" && text != "Partition_Limit" {
		minutes, err := strconv.ParseInt(text, 10, 64)
		if err != nil || minutes < 0 || minutes > int64(maxRun/time.Minute) {
			return 0, fmt.Errorf("column TimelimitRaw: %q is not a number of minutes", text)
		}
		return time.Duration(minutes) * time.Minute, nil
	}
	text := s.get("Timelimit")
	if text == "" || text == "UNLIMITED" || text == "Partition_Limit" {
		return 0, nil
	}
	d, err := sacctDuration(text)
	if err != nil {
		return 0, fmt.Errorf("column Timelimit: %w", err)
	}
	return d, nil
}

// sacctMemory reads 4000M, 4Gn (a node) and 2Gc (a CPU): the older Slurms' two.
func sacctMemory(text string, slots int) (int64, error) {
	if text == "" || text == "0" || text == "?" {
		return 0, nil
	}
	number := strings.TrimRight(text, "nc")
	perCPU := strings.HasSuffix(text, "c")
	scale := float64(1 << 20)
	if number != "" {
		if i := strings.IndexByte("KMGTP", number[len(number)-1]); i >= 0 {
			scale = float64(int64(1) << (10 * (i + 1)))
			number = number[:len(number)-1]
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if perCPU {
		value *= float64(slots)
	}
	if bytes := value * scale; err == nil && bytes >= 0 && bytes < 1<<60 {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("column ReqMem: %q is not a memory size like 4000M", text)
}
