package esub

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
)

// The names of LSF's parameter file that the filter reads or writes.
const (
	lsfProject     = "LSB_SUB_PROJECT_NAME"
	lsfQueue       = "LSB_SUB_QUEUE"
	lsfPriority    = "LSB_SUB2_JOB_PRIORITY"
	lsfDescription = "LSB_SUB_JOB_DESCRIPTION"
	lsfMemory      = "LSB_SUB_RLIMIT_RSS"
	lsfResources   = "LSB_SUB_RES_REQ"
	lsfSlots       = "LSB_SUB_NUM_PROCESSORS"
	lsfInteractive = "LSB_SUB_INTERACTIVE"
	lsfExclusive   = "LSB_SUB_EXCLUSIVE"
	lsfBegin       = "LSB_SUB_BEGIN_TIME" // seconds since 1970
	lsfRerunnable  = "LSB_SUB_RERUNNABLE" // N: bsub -rn
	lsfCheckpoints = "LSB_SUB_CHKPNT_DIR" // bsub -k; its period is LSB_SUB_CHKPNT_PERIOD
	lsfModify      = "LSB_SUB_MODIFY"     // Y: bmod
	lsfReset       = "SUB_RESET"          // bmod takes the option away
	lsfCommand     = "LSF_INVOKE_CMD"     // of the environment: the command that asks; lava does not set it
)

// Limits of a parameter file. Beyond them it is none that LSF wrote.
const (
	MaxParmFile    = 4 << 20 // bytes
	maxValue       = 1 << 20
	maxParams      = 1000
	maxDescription = 4094 // LSF's own limit of -Jd
)

// Param is one line of LSF's parameter or modify file.
type Param struct {
	Key   string
	Value string
	Bare  bool // written without quotes: a number, Y, SUB_RESET
}

// Params are the lines of a parameter file, in its order.
type Params []Param

// Get is a parameter's value; ok is false where it is missing, and where a bmod
// takes it away.
func (ps Params) Get(key string) (value string, ok bool) {
	i := ps.index(key)
	if i < 0 || ps[i].Bare && ps[i].Value == lsfReset {
		return "", false
	}
	return ps[i].Value, true
}

// has reports whether a parameter is there at all, SUB_RESET included.
func (ps Params) has(key string) bool { return ps.index(key) >= 0 }

func (ps Params) yes(key string) bool {
	value, _ := ps.Get(key)
	return value == "Y" || value == "y"
}

// With is the parameters after changes to them.
func (ps Params) With(changes Params) Params {
	all := slices.Clone(ps)
	for _, p := range changes {
		if i := all.index(p.Key); i >= 0 {
			all[i] = p
		} else {
			all = append(all, p)
		}
	}
	return all
}

func (ps Params) index(key string) int {
	return slices.IndexFunc(ps, func(p Param) bool { return p.Key == key })
}

// ParseParams reads a parameter file as bsub writes it: a KEY=value a line,
// strings in quotes, of which LSF escapes " alone. A string may hold newlines.
// Since a string may also end in a backslash, \" ends it where nothing but a
// further KEY= or the end of the file follows. What is not exactly so is an
// error; nothing is guessed.
func ParseParams(data []byte) (Params, error) {
	if len(data) > MaxParmFile {
		return nil, fmt.Errorf("parameter file: more than %d bytes", MaxParmFile)
	}
	var params Params
	for at := 0; at < len(data); {
		if data[at] == '\n' {
			at++
			continue
		}
		p, next, err := parseParam(data, at)
		if err != nil {
			return nil, fmt.Errorf("parameter file, byte %d: %w", at, err)
		}
		if params.has(p.Key) {
			return nil, fmt.Errorf("parameter file, byte %d: %s is given twice", at, p.Key)
		}
		if params = append(params, p); len(params) > maxParams {
			return nil, fmt.Errorf("parameter file: more than %d options", maxParams)
		}
		at = next
	}
	return params, nil
}

var (
	errLine  = errors.New("want KEY=value")
	errQuote = errors.New("a string is not closed, or something follows it")
	errByte  = errors.New("a control character")
	errLong  = fmt.Errorf("a value of more than %d bytes", maxValue)
)

func parseParam(data []byte, at int) (p Param, next int, err error) {
	n := keyLength(data[at:])
	if n == 0 {
		return Param{}, 0, errLine
	}
	p.Key = string(data[at : at+n])
	at += n + 1
	if at >= len(data) || data[at] != '"' {
		return parseBare(p, data, at)
	}
	var value []byte
	for at++; at < len(data); at++ {
		switch c := data[at]; {
		case c == '\\' && at+1 < len(data) && data[at+1] == '"' && !endsString(data[at+1:]):
			value = append(value, '"')
			at++
		case c == '"':
			if !endsString(data[at:]) {
				return Param{}, 0, errQuote
			}
			p.Value = string(value)
			return p, at + 1, nil
		case c < ' ' && c != '\n' && c != '\t' || c == 0x7f:
			return Param{}, 0, errByte
		default:
			value = append(value, c)
		}
		if len(value) > maxValue {
			return Param{}, 0, errLong
		}
	}
	return Param{}, 0, errQuote
}

func parseBare(p Param, data []byte, at int) (Param, int, error) {
	p.Bare = true
	start := at
	for ; at < len(data) && data[at] != '\n'; at++ {
		if c := data[at]; c <= ' ' || c >= 0x7f || c == '"' || c == '\'' || c == '\\' {
			return Param{}, 0, errLine
		}
	}
	if at-start > maxValue {
		return Param{}, 0, errLong
	}
	p.Value = string(data[start:at])
	return p, at, nil
}

// endsString reports whether the quote that b begins with is the last of its string:
// the end of the file follows, or a new line that begins a parameter.
func endsString(b []byte) bool {
	rest := b[1:]
	if len(rest) == 0 {
		return true
	}
	if rest[0] != '\n' {
		return false
	}
	for len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return len(rest) == 0 || keyLength(rest) > 0
}

// keyLength is the length of the parameter name that b begins with, if = follows
// it; else 0.
func keyLength(b []byte) int {
	for i, c := range b {
		switch {
		case c == '=':
			return i
		case c == '_', 'A' <= c && c <= 'Z', i > 0 && '0' <= c && c <= '9':
		default:
			return 0
		}
	}
	return 0
}

// EncodeParams writes a parameter file as bsub does.
func EncodeParams(params Params) []byte {
	var b []byte
	for _, p := range params {
		b = append(append(b, p.Key...), '=')
		if p.Bare {
			b = append(b, p.Value...)
		} else {
			b = append(b, '"')
			b = append(b, strings.ReplaceAll(p.Value, `"`, `\"`)...)
			b = append(b, '"')
		}
		b = append(b, '\n')
	}
	return b
}

// Request is what a parameter file asks for. env is the submission's environment and
// memoryUnit what a plain -M counts in; the caller adds the user.
func (ps Params) Request(env func(string) string, memoryUnit int64) Request {
	req := Request{
		Preempt:     env("ALLOTMENT_PREEMPT"),
		Checkpoint:  env(backends.CheckpointVariable),
		Minimum:     env(backends.MinimumVariable),
		Deadline:    env(backends.DeadlineVariable),
		Interactive: ps.yes(lsfInteractive) || ps.yes("LSB_SUB_PTY"),
		Exclusive:   ps.yes(lsfExclusive),
		Modify:      ps.changes(env),
		HasProject:  ps.has(lsfProject),
		Memory:      ps.memory(memoryUnit),
	}
	req.Project, _ = ps.Get(lsfProject)
	if req.Project == "" && !req.Modify {
		req.Project = env("LSB_DEFAULTPROJECT")
	}
	if req.Queue, _ = ps.Get(lsfQueue); req.Queue == "" {
		req.Queue = env("LSB_DEFAULTQUEUE")
	}
	// bsub -q takes a list and LSF chooses; the first one stands for it.
	req.Queue, _, _ = strings.Cut(strings.TrimSpace(req.Queue), " ")
	req.Description, _ = ps.Get(lsfDescription)
	begin, _ := ps.Get(lsfBegin)
	req.Delayed = begin != "" && begin != "0"
	req.Begin, _ = strconv.ParseInt(begin, 10, 64) // 0: not a number, as after SUB_RESET
	rank, _ := ps.Get(lsfPriority)
	req.Priority, _ = strconv.ParseInt(rank, 10, 64)
	req.ByEngine = env(backends.RankVariable) != ""
	checkpoints, _ := ps.Get(lsfCheckpoints)
	req.SavedByLSF = checkpoints != ""
	slots, _ := ps.Get(lsfSlots)
	req.Slots, _ = strconv.Atoi(slots)
	rerunnable, _ := ps.Get(lsfRerunnable)
	req.NoRequeue = rerunnable == "N" || rerunnable == "n"
	if tag, _, err := backends.ParseTag(req.Description); err == nil && tag.NoRequeue {
		req.NoRequeue = true // lava's bsub has no -rn; every owner may forbid a requeue
	}
	return req
}

// changes reports whether an existing job is changed, or started again from a
// checkpoint: then only what is given is in the file. Lava says it in the file, LSF
// 10.1 by the name of the command
// (https://www.ibm.com/docs/SSWRJV_10.1.0/lsf_admin/sub_exec_controls_enable.html).
func (ps Params) changes(env func(string) string) bool {
	command := env(lsfCommand)
	return ps.yes(lsfModify) || env(lsfModify) == "Y" || command == "bmod" || command == "brestart"
}

// memory is what the job reserves (rusage[mem=…]), else its limit (-M).
func (ps Params) memory(unit int64) int64 {
	if unit <= 0 {
		unit = 1 << 10
	}
	resources, _ := ps.Get(lsfResources)
	if reserved := RusageMemory(resources, unit); reserved > 0 {
		return reserved
	}
	limit, _ := ps.Get(lsfMemory)
	return parseMemory(limit, unit)
}

// RusageMemory is the largest mem of the rusage sections of a resource
// requirement, in bytes. unit is what a plain -M counts in: LSF_UNIT_FOR_LIMITS
// holds for both, and where it is not set a plain rusage is MB and a plain -M KB
// (https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_config_ref/lsf.conf.lsf_unit_for_limits.5.html).
// 0: none that can be read.
func RusageMemory(resources string, unit int64) int64 {
	var most int64
	unit = max(unit, 1<<20)
	for {
		_, rest, ok := strings.Cut(resources, "rusage[")
		if !ok {
			return most
		}
		section, rest, _ := strings.Cut(rest, "]")
		for _, item := range strings.FieldsFunc(section, func(r rune) bool { return strings.ContainsRune(",:|&", r) }) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(item), "mem="); ok {
				most = max(most, parseMemory(value, unit))
			}
		}
		resources = rest
	}
}

// parseMemory reads a number with a unit of its own (K M G T, KB …), or else in
// the given one. What it can't read counts as not said.
func parseMemory(s string, unit int64) int64 {
	s = strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B")
	if s == "" {
		return 0
	}
	if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
		unit = 1 << (10 * (i + 1))
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n > 0) || n*float64(unit) >= 1<<62 {
		return 0
	}
	return int64(n * float64(unit))
}

// Modify is a decision as the lines of LSF's modify file; none if nothing
// changes.
func (d *Decision) Modify() Params {
	var changes Params
	if d.Reject {
		return nil
	}
	if d.Queue != "" {
		changes = append(changes, Param{Key: lsfQueue, Value: acceptable(d.Queue)})
	}
	if d.Priority != 0 {
		changes = append(changes, Param{Key: lsfPriority, Value: strconv.FormatInt(int64(d.Priority), 10), Bare: true})
	}
	if !d.Hold.IsZero() {
		changes = append(changes, Param{Key: lsfBegin, Value: strconv.FormatInt(d.Hold.Unix(), 10), Bare: true})
	}
	if d.Describe {
		changes = append(changes, Param{Key: lsfDescription, Value: acceptable(d.Description())})
	}
	return changes
}

// acceptable changes a value into one that LSF accepts from a modify file: it ignores those
// with \", a line is all it reads, and -Jd is limited.
func acceptable(value string) string {
	b := []byte(value)
	for i, c := range b {
		switch {
		case c == '"':
			b[i] = '\''
		case c < ' ' || c == 0x7f:
			b[i] = ' '
		}
	}
	if end := maxDescription; len(b) > end {
		for end > 0 && !utf8.RuneStart(b[end]) {
			end--
		}
		b = b[:end]
	}
	return strings.TrimRight(string(b), `\`)
}

// ParseModify reads a modify file as leniently as LSF does, since sites' scripts
// write it: a KEY=value a line, in quotes of either kind or in none, later lines
// win. Lines that it can't take are left out, each with a word in ignored.
func ParseModify(data []byte) (changes Params, ignored []string) {
	if len(data) > MaxParmFile {
		return nil, []string{fmt.Sprintf("more than %d bytes", MaxParmFile)}
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		p, why := parseModifyLine(line)
		if why != "" {
			ignored = append(ignored, printable(line)+": "+why)
			continue
		}
		changes = changes.With(Params{p})
	}
	return changes, ignored
}

func parseModifyLine(line string) (p Param, why string) {
	key, value, ok := strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" || strings.ContainsAny(key, " \t\"'") {
		return Param{}, errLine.Error()
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return Param{}, errByte.Error()
	}
	p = Param{Key: key, Value: strings.TrimSpace(value), Bare: true}
	if len(p.Value) == 0 || p.Value[0] != '"' && p.Value[0] != '\'' {
		return p, ""
	}
	quote := p.Value[:1]
	if len(p.Value) < 2 || !strings.HasSuffix(p.Value, quote) {
		return Param{}, "the quotes are not closed"
	}
	p.Value, p.Bare = p.Value[1:len(p.Value)-1], false
	if strings.Contains(p.Value, quote) || strings.HasSuffix(p.Value, `\`) {
		return Param{}, "quotes within a value are not possible"
	}
	return p, ""
}
