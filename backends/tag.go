package backends

import (
	"errors"
	"strconv"
	"strings"
)

// TagPrefix begins every tag in a job's description or comment.
const TagPrefix = "allotment:1;"

// Tag is what the submit filter records in a job since it can't be read back later
// (R5). It is written before the user's own text. A reader must treat it as the user's
// claim.
type Tag struct {
	Preempt Mode
	Memory  int64  // bytes that the job needs; 0: not said
	Step    string // step of its project
	Queue   string // the queue it came from, if the filter sent it to another
	Low     bool   // the filter lowered it
	// NoRequeue: its owner forbids to requeue it, where the queue itself does not record
	// that (bsub -rn on LSF).
	NoRequeue bool
	// Held is the end of the filter's hold by a begin time (UNIX seconds; 0: none), where
	// the queue does not record that this time is not its owner's.
	Held int64
	// Fixed: that hold is of a job that can't be preempted once it runs (R22).
	Fixed bool
	// Begin is the begin time that its owner gave a job that the filter holds (UNIX seconds;
	// 0: none).
	Begin int64
	// Checkpoint is how the job saves its work (R33).
	Checkpoint Checkpoint
	// Minimum is what the job needs at least of its hosts (R48).
	Minimum Minimum
	// Deadline is by when the job should have ended (R48; UNIX seconds; 0: not said).
	Deadline int64
}

var tagEscape = strings.NewReplacer("%", "%25", ":", "%3A", ";", "%3B", "=", "%3D", " ", "%20", "\n", "%0A", "\r", "%0D", "\t", "%09", "\"", "%22", "\\", "%5C", "|", "%7C")

var errTag = errors.New("not an allotment tag")

// String is the tag as it stands in a job, ending in a space when text follows:
// "allotment:1;preempt=suspend;queue=normal;".
func (t Tag) String() string {
	var b strings.Builder
	b.WriteString(TagPrefix)
	field := func(key, value string) {
		b.WriteString(key + "=" + tagEscape.Replace(value) + ";")
	}
	if t.Preempt != PreemptRequeue {
		field("preempt", t.Preempt.String())
	}
	if t.Memory > 0 {
		field("mem", strconv.FormatInt(t.Memory, 10))
	}
	if t.Step != "" {
		field("step", t.Step)
	}
	if t.Queue != "" {
		field("queue", t.Queue)
	}
	if t.Low {
		field("low", "1")
	}
	if t.NoRequeue {
		field("norequeue", "1")
	}
	if t.Held > 0 {
		field("held", strconv.FormatInt(t.Held, 10))
	}
	if t.Fixed {
		field("fixed", "1")
	}
	if t.Begin > 0 {
		field("begin", strconv.FormatInt(t.Begin, 10))
	}
	if t.Checkpoint != (Checkpoint{}) {
		field("checkpoint", t.Checkpoint.String())
	}
	if t.Minimum != (Minimum{}) {
		field("minimum", t.Minimum.String())
	}
	if t.Deadline > 0 {
		field("deadline", strconv.FormatInt(t.Deadline, 10))
	}
	return b.String()
}

// ParseTag reads the tag at the beginning of a description and returns the
// user's own text that follows it. A description without a tag is not an error:
// it gives the zero Tag and the whole text. A malformed tag gives an error and
// the whole text; keys of a later version are passed over.
func ParseTag(description string) (Tag, string, error) {
	if !strings.HasPrefix(description, TagPrefix) {
		return Tag{}, description, nil
	}
	tag, text, _ := strings.Cut(description[len(TagPrefix):], " ")
	var t Tag
	for field := range strings.SplitSeq(strings.TrimSuffix(tag, ";"), ";") {
		if field == "" {
			continue
		}
		key, escaped, ok := strings.Cut(field, "=")
		value, err := unescapeTag(escaped)
		if !ok || err != nil {
			return Tag{}, description, errTag
		}
		switch key {
		case "preempt":
			if value == PreemptSuspend.String() {
				t.Preempt = PreemptSuspend
			}
		case "mem":
			if t.Memory, err = strconv.ParseInt(value, 10, 64); err != nil || t.Memory < 0 {
				return Tag{}, description, errTag
			}
		case "step":
			t.Step = value
		case "queue":
			t.Queue = value
		case "low":
			t.Low = value == "1"
		case "norequeue":
			t.NoRequeue = value == "1"
		case "held":
			if t.Held, err = strconv.ParseInt(value, 10, 64); err != nil || t.Held < 0 {
				return Tag{}, description, errTag
			}
		case "fixed":
			t.Fixed = value == "1"
		case "begin":
			if t.Begin, err = strconv.ParseInt(value, 10, 64); err != nil || t.Begin < 0 {
				return Tag{}, description, errTag
			}
		case "checkpoint":
			if t.Checkpoint, err = ParseCheckpoint(value); err != nil {
				return Tag{}, description, errTag
			}
		case "minimum":
			if t.Minimum, err = ParseMinimum(value); err != nil {
				return Tag{}, description, errTag
			}
		case "deadline":
			if t.Deadline, err = strconv.ParseInt(value, 10, 64); err != nil || t.Deadline < 0 {
				return Tag{}, description, errTag
			}
		}
	}
	return t, text, nil
}

func unescapeTag(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", errTag
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", errTag
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), nil
}
